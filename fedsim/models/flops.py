"""Floating-point operations of torch code, counted without running it.

The function runs on torch's ``meta`` device, where tensors have shapes but no values, and every matrix
product, convolution and attention adds its operations by PyTorch's own formulas; element-wise work counts
nothing. Recurrent layers are decomposed into products only on this device; on the CPU an LSTM counts zero.

This is PyTorch's ``FlopCounterMode`` without its table of modules, whose hooks would also fire for modules
that train in other threads. It also corrects grouped convolutions, whose backward pass PyTorch counts several
times over.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from fedsim.errors import InvariantError
from fedsim.models.meta_op_cache import Memory, key_of
from fedsim.models.no_compiler import DispatchMode

if TYPE_CHECKING:
    from fedsim.models.architecture import Architecture

FREE_LAYERS = (nn.Embedding, nn.EmbeddingBag, nn.LayerNorm, nn.RMSNorm)
"""Layers that only look up or scale, and so count nothing although their weight may be a matrix."""


@dataclass(frozen=True, slots=True)
class Operations:
    """The operations and memory traffic of a piece of work."""

    flops: float
    moved_bytes: float = 0

    def __add__(self, other: Operations) -> Operations:
        return Operations(self.flops + other.flops, self.moved_bytes + other.moved_bytes)

    def __rmul__(self, times: int) -> Operations:
        return Operations(times * self.flops, times * self.moved_bytes)


def measure(function: Callable[[], object]) -> Operations:
    """Return the operations of ``function()``, whose tensors are on the meta device."""
    counter = _Counter()
    with counter:
        function()
    return Operations(counter.total, counter.moved_bytes)


def forward(architecture: Architecture, batch_size: int) -> Operations:
    """Return the operations of one forward pass over ``batch_size`` samples."""
    # Evaluation mode, so that BatchNorm takes a batch of one; the operations counted are the same.
    net = architecture.skeleton().eval()
    x = architecture.samples(batch_size)
    counter = _Counter()
    spent = {name: 0 for name, module in net.named_modules() if _multiplies(module)}

    def watch(name: str, module: nn.Module) -> None:
        def add(sign: int) -> None:
            spent[name] += sign * counter.total

        module.register_forward_pre_hook(lambda *_: add(-1))
        module.register_forward_hook(lambda *_: add(1))

    for name in spent:
        watch(name, net.get_submodule(name))
    with counter:
        net(x)
    free = [name for name, flops in spent.items() if not flops]
    if free:
        kind = type(net.get_submodule(free[0])).__name__
        raise InvariantError(
            f"layer {free[0]!r} ({kind}) of architecture {architecture.label!r} has a weight matrix but "
            f"counts no operations, so its work would take no time — compute it with torch's matrix "
            f"products, convolutions or attention, register its operator with "
            f"torch.utils.flop_counter.register_flop_formula, or remove the layer if nothing uses it"
        )
    return Operations(counter.total, counter.moved_bytes)


def _multiplies(module: nn.Module) -> bool:
    matrices = (parameter.ndim >= 2 for parameter in module.parameters(recurse=False))
    return not isinstance(module, FREE_LAYERS) and any(matrices)


class _Counter(DispatchMode):
    """Adds up the operations of this thread's torch calls while it is entered."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total: int = 0
        self.moved_bytes: int = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        packet = func._overloadpacket
        # Looked up each time, because formulas may be registered later.
        formula = _FORMULAS.get(packet) or flop_registry.get(packet)
        key = key_of(func, args, kwargs)
        known = _MEMORY.get(key)  # nothing is kept under None
        if known is not None:
            result, moved_bytes = known.results(args), known.moved_bytes
        else:
            if formula is None:
                with self:
                    result = func.decompose(*args, **kwargs)
                if result is not NotImplemented:
                    return result
            result = func(*args, **kwargs)
            moved_bytes = 0 if func.is_view else _bytes_of((args, result))
            if key is not None:
                _MEMORY.add(key, args, result, moved_bytes)
        if formula is not None:
            self.total += int(formula(*args, **kwargs, out_val=result))
        self.moved_bytes += moved_bytes
        return result


def _bytes_of(tensors: Any) -> int:
    return sum(leaf.nbytes for leaf in tree_leaves(tensors) if isinstance(leaf, torch.Tensor))


def _convolution_backward(
    grad_output: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, *rest: Any, out_val: Any
) -> int:
    """Each requested gradient, of the input and of the weight, takes the products of a forward pass."""
    *_, transposed, _padding, _groups, wanted = rest
    # Each value of the output (if transposed, of the input) is multiplied only with its group's channels.
    positions = x.numel() if transposed else grad_output.numel()
    return 2 * positions * math.prod(weight.shape[1:]) * int(sum(wanted[:2]))


_FORMULAS: dict[Any, Callable[..., int]] = {torch.ops.aten.convolution_backward: _convolution_backward}
_MEMORY = Memory()
"""Shared by all runs of the process, since operations of equal shapes are the same in each."""
