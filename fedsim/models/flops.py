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
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from fedsim.errors import InvariantError
from fedsim.models.no_compiler import DispatchMode

if TYPE_CHECKING:
    from fedsim.models.architecture import Architecture


MAX_OUTCOMES = 100_000
"""Most operations that are remembered; beyond that, all are forgotten."""

_PLAIN = (int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)


class Memory(dict[Hashable, tuple[Any, int]]):
    """Results of operations and the bytes that they move, by operation and the forms of its arguments.

    On the meta device torch computes the form of a result in Python, which takes a tenth of a millisecond.
    One step of a recurrent net has ten thousand operations, nearly all of them alike. A result that is the
    first argument is None.
    """

    def add(self, key: Hashable, args: tuple[Any, ...], result: Any, moved_bytes: int) -> None:
        """Remember an operation, if its results are tensors without values."""
        results = result if isinstance(result, tuple) else (result,)
        if not all(output is None or (isinstance(output, Tensor) and output.is_meta) for output in results):
            return
        if len(self) >= MAX_OUTCOMES:
            self.clear()
        in_place = bool(args) and result is args[0]
        self[key] = None if in_place else _like(result), moved_bytes

    def recall(self, key: Hashable, args: tuple[Any, ...]) -> tuple[Any, int] | None:
        """Return the result of an operation, as new tensors, and its bytes; None if it is not known."""
        if (known := self.get(key)) is None:
            return None
        result, moved_bytes = known
        return args[0] if result is None else _like(result), moved_bytes


def _like(result: Any) -> Any:
    """Return new tensors of the forms of a result's."""
    if isinstance(result, tuple):
        # From a list, which is faster than a generator: this runs for every operation of a step.
        return tuple([_like(output) for output in result])
    if result is None:
        return None
    return torch.empty_strided(result.size(), result.stride(), dtype=result.dtype, device="meta")


def key_of(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Hashable | None:
    """Return a key of everything that an operation's outcome depends on; None if that is more than shapes.

    It is more for operations that return a view of an argument, write into an argument other than the first,
    take a generator, or have a tensor with values among their arguments.
    """
    if not _is_plain(func):
        return None
    parts: list[Hashable] = [func, torch.get_default_dtype()]
    if _add(parts, args) and _add(parts, kwargs.items()):
        return tuple(parts)
    return None


@cache
def _is_plain(func: Any) -> bool:
    """Return whether an operation gives new tensors, or writes into its first argument and returns it."""
    arguments, returns = func._schema.arguments, func._schema.returns
    if not returns:
        return False
    if all(part.alias_info is None for part in (*arguments, *returns)):
        return True
    first, *others = arguments
    return (
        first.alias_info is not None
        and first.alias_info.is_write
        and all(argument.alias_info is None for argument in others)
        and len(returns) == 1
        and returns[0].alias_info is not None
        and isinstance(returns[0].type, torch.TensorType)
        and torch.Tag.inplace_view not in func.tags  # changes its form
    )


def _add(parts: list[Hashable], values: Iterable[Any]) -> bool:
    """Add what distinguishes these values to ``parts``; return whether that is everything."""
    for value in values:
        if isinstance(value, Tensor):
            if not value.is_meta:
                return False
            parts += (value.size(), value.stride(), value.dtype)
        elif isinstance(value, (list, tuple)):
            parts.append(len(value))
            if not _add(parts, value):
                return False
        elif isinstance(value, _PLAIN):
            # 1, 1.0 and True are equal, but give results of different types
            parts.append((type(value), value))
        else:
            return False
    return True


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
        known = _MEMORY.recall(key, args)  # nothing is kept under None
        if known is not None:
            result, moved_bytes = known
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
