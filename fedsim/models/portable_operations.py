"""Operations of torch whose bits are equal on different x86-64 processors, in a portable process.

``tools/check_portable.py`` computes all of them under emulated processors. Some others differ, since MKL
begins them with an approximation that each processor makes in its own way: ``sqrt``, ``pow`` with an exponent
of 0.5, ``log2``, ``log10``, ``tan``, ``acos``, ``asin``, ``atan``, and functions of float64.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from fedsim.models.architecture import Architecture
from fedsim.models.no_compiler import DispatchMode, free_meta_kernels

_NAMES = """
    _adaptive_avg_pool2d _adaptive_avg_pool2d_backward _foreach_abs _foreach_add _foreach_add_
    _foreach_addcdiv_ _foreach_addcmul_ _foreach_div_ _foreach_lerp_ _foreach_mul _foreach_mul_
    _foreach_norm _fused_adam_ _local_scalar_dense _log_softmax _log_softmax_backward_data
    _prelu_kernel _prelu_kernel_backward _safe_softmax _scaled_dot_product_flash_attention_for_cpu
    _scaled_dot_product_flash_attention_for_cpu_backward _softmax _softmax_backward_data _to_copy
    _unsafe_view abs abs_ add add_ addmm amax aminmax any arange argmax avg_pool2d avg_pool2d_backward
    bernoulli_ bitwise_and bitwise_not bmm cat ceil celu clamp clamp_min clamp_min_ clone constant_pad_nd
    convolution convolution_backward copy_ cos cosh cumsum div elu elu_backward embedding
    embedding_dense_backward empty empty_like eq erf exp expm1 fill_ flip floor gather ge gelu gelu_backward
    glu glu_backward gt hardsigmoid hardsigmoid_backward hardswish hardswish_backward hardtanh
    hardtanh_backward index index_add index_put index_select isnan le leaky_relu leaky_relu_backward
    linalg_vector_norm linspace log log1p log_sigmoid_backward log_sigmoid_forward logical_and
    logical_and_ logsumexp lt masked_fill masked_fill_ max max_pool2d_with_indices
    max_pool2d_with_indices_backward maximum mean minimum mish mish_backward mm mse_loss mse_loss_backward
    mul mul_ mv nan_to_num native_batch_norm native_batch_norm_backward native_group_norm
    native_group_norm_backward native_layer_norm native_layer_norm_backward ne neg neg_ new_empty_strided
    new_zeros nll_loss_backward nll_loss_forward normal_ ones ones_like pixel_shuffle pixel_unshuffle pow
    randn randperm reciprocal relu relu_ repeat roll round rsqrt rsub scalar_tensor scatter scatter_
    scatter_add select_backward sgn sigmoid sigmoid_ sigmoid_backward sign silu silu_backward sin sinh
    slice_backward smooth_l1_loss smooth_l1_loss_backward softplus softplus_backward sort stack std sub sub_
    sum tanh tanh_ tanh_backward threshold_backward topk transpose_ tril triu trunc uniform_ unsafe_split
    upsample_nearest2d upsample_nearest2d_backward var where xlogy zeros zeros_like
"""
PORTABLE = frozenset(_NAMES.split())
"""Names as in ``torch.ops.aten``."""


def unportable_operations(architecture: Architecture) -> list[str]:
    """Return the operations of training and using a net that may have other bits on another processor."""
    free_meta_kernels()
    net = architecture.skeleton()
    # What fails here is told where the operations of a step are counted (engine/cost.py).
    with SeenOperations() as seen, suppress(Exception):
        net.eval()(architecture.samples(2))
        net.train()(architecture.samples(2)).sum().backward()
    return sorted(seen.names - PORTABLE)


def unportable(function: Callable[[], object]) -> list[str]:
    """Call a function, and return which of its operations may have other bits on another processor."""
    with SeenOperations() as seen:
        function()
    return sorted(seen.names - PORTABLE)


class SeenOperations(DispatchMode):
    """Collects the names of the operations that are called while it is entered."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = str(func._overloadpacket).removeprefix("aten.")
        if name == "pow" and any(isinstance(value, float) and value == 0.5 for value in args):
            name = "pow(0.5)"
        if not func.is_view:
            is_double = isinstance(result, Tensor) and result.dtype == torch.float64
            self.names.add(f"{name} of float64" if is_double else name)
        return result
