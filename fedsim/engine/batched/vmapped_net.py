"""Small nets of other kinds than fully connected ones, computed at once by ``vmap``.

Only the forward pass is mapped, and autograd follows it on stacked tensors: that is faster than mapping
gradients. Each call costs as much as some three clients', so few clients are computed one after the other.
m: clients, b: batch, N: outputs.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, vmap
from torch.nn.modules.conv import _ConvNd

from fedsim.engine.alignment import aligned
from fedsim.engine.batched.dense_net import DenseNet, layers_of
from fedsim.engine.batched.exact_products import same_bits
from fedsim.engine.batched.feed import OwnRows
from fedsim.engine.batched.stacked_net import Nets, StackedNet
from fedsim.engine.batched.vmapped_functions import SafeFunctions
from fedsim.engine.execute import one_torch_thread
from fedsim.models import Architecture, Net
from fedsim.params import unwarned

MOST_PARAMS = 40_000
"""The kernels of larger nets take longer than the interpreter's work around them."""
TRIAL_BATCH = 5
"""Samples of a client in a trial."""


@lru_cache(maxsize=1024)
def stacked_net_of(architecture: Architecture, *, is_trained: bool) -> StackedNet | None:
    """Return how nets of an architecture are computed at once; None where they are not.

    Args:
        architecture: The architecture.
        is_trained: Whether they are trained.
    """
    layers = layers_of(architecture)
    if layers is not None:
        return DenseNet(layers)
    structure = architecture.structure
    is_small = architecture.num_params <= MOST_PARAMS and next(structure.buffers(), None) is None
    # Convolutions of one client fill their kernels.
    has_long_kernels = any(isinstance(module, _ConvNd) for module in structure.modules())
    has_hooks = any(
        entries
        for module in structure.modules()
        for name, entries in vars(module).items()
        if name.endswith("_hooks")
    )
    if not is_small or has_long_kernels or has_hooks or architecture.has_batch_norm:
        return None
    # What a net of anybody's raises here is no reason to end a run in which it may train one by one.
    with suppress(Exception), one_torch_thread(), unwarned():
        net = VmappedNet(architecture)
        return net if net.keeps_bits(is_trained=is_trained) else None
    return None


class VmappedNet(StackedNet):
    """How nets of an architecture without buffers are computed at once.

    Args:
        architecture: The architecture.
    """

    tile_bytes = 16 * 2**20  # calls cost more than what does not stay in the processor's cache
    fewest = 6
    fewest_predicting = 24
    least_share = 0.6

    def __init__(self, architecture: Architecture) -> None:
        self._architecture = architecture
        self.names = tuple(dict(architecture.structure.named_parameters()))
        self.num_params = architecture.num_params
        self.num_values = architecture.task.num_inputs
        self._thread = threading.local()  # tensors are put into a net while it is called

    def live(
        self,
        params: Sequence[Tensor],
        *,
        is_trained: bool = False,
        is_followed: bool = False,
    ) -> VmappedNets:
        """Return the nets of m clients."""
        return VmappedNets(self, params, is_trained=is_trained, is_followed=is_followed)

    def outputs(self, params: Sequence[Tensor], x: Tensor, *, is_trained: bool) -> Tensor:
        """Return the outputs ``[m, b, N]`` of samples ``[m, b, ...]``."""
        net = self._net()
        if net.training != is_trained:
            net.train(is_trained)

        def of_one(its_x: Tensor, *its_params: Tensor) -> Tensor:
            its: Tensor = functional_call(net, dict(zip(self.names, its_params, strict=True)), (its_x,))
            return its

        if len(x) < self.fewest:
            columns = zip(x.unbind(), *[param.unbind() for param in params], strict=True)
            return torch.stack([of_one(*map(aligned, some)) for some in columns])
        with SafeFunctions() as functions:
            outputs: Tensor = vmap(of_one)(x, *params)
        functions.try_new()
        return outputs

    def keeps_bits(self, *, is_trained: bool) -> bool:
        """Try the nets of some clients on random values; find out how much the layers leave behind."""
        generator = torch.Generator().manual_seed(0)
        structure, task = self._architecture.structure, self._architecture.task
        shapes = [param.shape for param in structure.parameters()]
        params = [torch.randn(self.fewest, *shape, generator=generator) / 5 for shape in shapes]
        x = torch.randn(self.fewest, TRIAL_BATCH, *task.input_shape, generator=generator)
        if task.vocabulary:
            x = torch.randint(task.vocabulary, x.shape, generator=generator)
        self.outputs(params, x, is_trained=is_trained)  # the functions are tried; from now on as in a tile
        left: dict[int, int] = {}

        def leave(tensor: Tensor) -> Tensor:
            left[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        at_once = self.live(params, is_trained=is_trained)
        with torch.autograd.graph.saved_tensors_hooks(leave, lambda tensor: tensor):
            logits = at_once(x)
        clients = range(self.fewest)
        alone = [
            self.live([param[i : i + 1].clone() for param in params], is_trained=is_trained) for i in clients
        ]
        same = same_bits(logits, torch.cat([nets(x[i : i + 1].clone()) for i, nets in enumerate(alone)]))
        if is_trained and same:
            slopes = torch.randn(logits.shape, generator=generator)
            gradients = [torch.empty_like(param) for param in params]
            at_once.backward([slopes], gradients, [])
            for i, nets in enumerate(alone):
                its = [torch.empty_like(param[:1]) for param in params]
                nets.backward([slopes[i : i + 1].clone()], its, [])
                same &= all(
                    same_bits(one[i : i + 1], other) for one, other in zip(gradients, its, strict=True)
                )
        left_bytes = max(0, sum(left.values()) - sum(4 * param.numel() for param in params))
        self.num_values += left_bytes // (4 * self.fewest * TRIAL_BATCH)
        return same

    def _net(self) -> Net:
        """Return the calling thread's own net."""
        if not hasattr(self._thread, "net"):
            self._thread.net = self._architecture.skeleton()
        net: Net = self._thread.net
        return net


class VmappedNets(Nets):
    """Nets of many clients whose forward passes are mapped, and followed by autograd.

    Args:
        net: How they are computed.
        params: Stacked parameters.
        is_trained: Whether gradients are wanted.
        is_followed: Whether autograd is to follow what becomes of the logits.
    """

    def __init__(
        self, net: VmappedNet, params: Sequence[Tensor], *, is_trained: bool, is_followed: bool
    ) -> None:
        super().__init__(net.names, params, is_followed=is_followed)
        self._net, self._is_trained = net, is_trained
        self._leaves = [param.detach().requires_grad_(is_trained) for param in params]
        self._given: list[Tensor] = []

    def _outputs(self, x: Tensor) -> Tensor:
        self._given.append(self._net.outputs(self._leaves, x, is_trained=self._is_trained))
        return self._given[-1]

    def backward(self, slopes: Sequence[Tensor | None], out: list[Tensor], own_rows: OwnRows) -> None:
        """Compute the gradients of a loss, of all calls in one pass: their sums show the order of terms."""
        calls = [(one, its) for one, its in zip(self._given, slopes, strict=True) if its is not None]
        if not calls:
            torch._foreach_zero_(out)
            return
        given, wanted = ([*some] for some in zip(*calls, strict=True))
        gradients: Any = torch.autograd.grad(
            given, self._leaves, wanted, allow_unused=True, materialize_grads=True
        )
        torch._foreach_copy_(out, gradients)
