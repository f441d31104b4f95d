"""What the functions of a net become under ``vmap``, so that each client's results keep their bits.

Torch's ``vmap`` computes a function once on stacked tensors. Where every value is rounded by itself, the
result has the bits of one client's call. Elsewhere this depends on the function:

- Sums and products add up terms in an order that depends on shapes. They are tried on random values for each
  shape, once in a process.
- Functions such as the sigmoid have other instructions for the last values of a tensor than for those before.
  They are safe where one client's values fill whole blocks, or where stacking does not join its rows.

What is not safe is computed for one client after the other. A function that is not known here is refused, and
so is the net.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch._C._functorch import is_batchedtensor
from torch.func import vmap
from torch.overrides import TorchFunctionMode

from fedsim.engine.alignment import aligned
from fedsim.engine.batched.exact_products import NUM_CLIENTS, NUM_PLACES, NUM_VALUES, same_bits

BLOCK = 64
"""A multiple of as many values as torch's elementwise kernels compute at once, on any processor."""

_EXACT = """
    abs add arange argmax broadcast_to cat chunk clamp clone contiguous detach dim div embedding eq expand
    expand_as flatten float ge gt index_select int is_floating_point le leaky_relu long lt max maximum min
    minimum mul narrow ne neg new_ones new_zeros numel ones ones_like permute relu relu6 reshape select size
    split sqrt squeeze stack sub t to transpose unbind unflatten unsqueeze view view_as where zeros zeros_like
"""
_TRIED = "bmm layer_norm group_norm linear matmul mean mm softmax sum"
_BLOCKWISE = "elu exp gelu hardswish log logsigmoid selu sigmoid silu softplus tanh"
_OPERATORS = {
    "exact": "add radd sub rsub mul rmul truediv neg getitem abs eq ne lt le gt ge len",
    "tried": "matmul",
}


def _named(names: Iterable[str]) -> set[Any]:
    """Return the functions of these names, wherever torch has them."""
    places = torch, F, Tensor, torch._C._nn
    return {vars(place).get(name, getattr(place, name, None)) for place in places for name in names} - {None}


def _operators(names: str) -> list[str]:
    return [f"__{name}__" for name in names.split()]


EXACT = _named([*_EXACT.split(), *_operators(_OPERATORS["exact"])])
TRIED = _named([*_TRIED.split(), *_operators(_OPERATORS["tried"])])
BLOCKWISE = _named(_BLOCKWISE.split())
"""Functions of one tensor."""

_Call = tuple[Callable[..., Any], tuple[Any, ...], tuple[tuple[str, Any], ...]]


class _Form(tuple[tuple[int, ...], tuple[int, ...], torch.dtype]):
    """Shape, strides and type of one client's tensor."""

    __slots__ = ()


_KNOWN: dict[_Call, bool] = {}
"""Of each call that was tried, whether ``vmap`` keeps the bits."""
MOST_KNOWN = 4096
"""Calls that are remembered at once."""


class UnknownFunctionError(Exception):
    """A net has a function of which it is not known whether ``vmap`` keeps its bits."""


class SafeFunctions(TorchFunctionMode):
    """While it is on, functions that ``vmap`` maps give each client the bits of its own call."""

    def __init__(self) -> None:
        super().__init__()
        self._untried: set[_Call] = set()

    def __torch_function__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Call a function that is safe; another for one client after the other."""
        kwargs = kwargs or {}
        # A factor of the second summand is multiplied and added at once, or not.
        if (function in EXACT and "alpha" not in kwargs) or function.__name__ == "__get__":  # an attribute
            return function(*args, **kwargs)
        tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
        if function in BLOCKWISE and len(tensors) == 1:
            is_safe = not tensors[0].numel() % BLOCK or not _is_dense(tensors[0])
        elif function in TRIED:
            # One that all clients share would be a factor of one large product.
            is_safe = all(map(is_batchedtensor, tensors)) and self._is_known(function, args, kwargs)
        else:
            raise UnknownFunctionError(getattr(function, "__name__", repr(function)))
        return function(*args, **kwargs) if is_safe else _one_by_one(function, args, kwargs)

    def try_new(self) -> None:
        """Try what has been called for the first time; not under ``vmap``, which would map the trial."""
        for call in self._untried:
            if len(_KNOWN) >= MOST_KNOWN:
                _KNOWN.clear()
            _KNOWN[call] = False
            with suppress(RuntimeError, TypeError, ValueError):  # such as a call that has no gradient
                _KNOWN[call] = _keeps_bits(call)
        self._untried.clear()

    def _is_known(self, function: Any, args: Sequence[Any], kwargs: Any) -> bool:
        pairs = tuple([(name, _form(value)) for name, value in sorted(kwargs.items())])
        call = function, tuple(map(_form, args)), pairs
        if call not in _KNOWN:
            self._untried.add(call)
        return _KNOWN.get(call, False)


def _form(value: Any) -> Any:
    if isinstance(value, Tensor):
        return _Form((tuple(value.shape), value.stride(), value.dtype))
    return tuple(value) if isinstance(value, list) else value


def _is_dense(tensor: Tensor) -> bool:
    """Say whether the values fill one piece of memory, so that stacking joins them to those of others."""
    filled = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride != filled:
            return False
        filled *= size
    return True


class _OneByOne(torch.autograd.Function):
    """A function of tensors that is mapped by calling it for each client, on tensors of that client's."""

    @staticmethod
    def forward(function: Any, *tensors: Tensor) -> Any:
        """Call it where no tensor is mapped."""
        return function(*tensors)

    @staticmethod
    def setup_context(context: Any, inputs: Any, output: Any) -> None:
        """Keep nothing: autograd follows the calls themselves."""

    @staticmethod
    def vmap(info: Any, in_dims: Sequence[int | None], function: Any, *tensors: Tensor) -> tuple[Tensor, int]:
        """Call it for each client."""
        columns = [
            [tensor] * info.batch_size if place is None else [aligned(its) for its in tensor.unbind(place)]
            for tensor, place in zip(tensors, in_dims[1:], strict=True)
        ]
        return torch.stack([function(*some) for some in zip(*columns, strict=True)]), 0


def _one_by_one(function: Any, args: Sequence[Any], kwargs: Any) -> Any:
    values = [*args, *kwargs.values()]
    places = [place for place, value in enumerate(values) if isinstance(value, Tensor)]
    tensors = [values[place] for place in places]

    def call(*some: Tensor) -> Any:
        filled = list(values)
        for place, tensor in zip(places, some, strict=True):
            filled[place] = tensor
        return function(*filled[: len(args)], **dict(zip(kwargs, filled[len(args) :], strict=True)))

    if not any(map(is_batchedtensor, tensors)):
        return call(*tensors)
    return _OneByOne.apply(call, *tensors)  # type: ignore[no-untyped-call]


def _keeps_bits(call: _Call) -> bool:
    """Try a call on random values, forwards and backwards."""
    function, forms, pairs = call
    names = [name for name, _ in pairs]
    values = [*forms, *[value for _, value in pairs]]
    places = [place for place, value in enumerate(values) if isinstance(value, _Form)]
    generator = torch.Generator().manual_seed(0)

    def apply(*tensors: Tensor) -> Any:
        filled = list(values)
        for place, tensor in zip(places, tensors, strict=True):
            filled[place] = tensor
        return function(*filled[: len(forms)], **dict(zip(names, filled[len(forms) :], strict=True)))

    num_tried = num_trials = 0
    while num_tried < NUM_VALUES or num_trials < NUM_PLACES:
        first = num_trials % NUM_PLACES
        stacked = [_random(values[place], first, generator) for place in places]
        given = vmap(apply)(*stacked)
        slopes = torch.randn(given.shape, generator=generator)
        gradients = torch.autograd.grad(given, stacked, slopes)
        for number in range(NUM_CLIENTS):
            own = [tensor.detach()[number].clone().requires_grad_() for tensor in stacked]
            right = apply(*own)
            its_gradients = torch.autograd.grad(right, own, slopes[number].clone())
            pairs_of_bits = [(given[number], right)]
            pairs_of_bits += [(one[number], its) for one, its in zip(gradients, its_gradients, strict=True)]
            if not all(same_bits(one, its) for one, its in pairs_of_bits):
                return False
        num_trials += 1
        num_tried += min(given.numel() or NUM_VALUES, *[gradient.numel() for gradient in gradients])
    return True


def _random(form: _Form, first: int, generator: torch.Generator) -> Tensor:
    """Return tensors of such a form, one of each client after the other, after those of ``first`` others."""
    shape, strides, _ = form
    size = 1 + sum((length - 1) * stride for length, stride in zip(shape, strides, strict=True))
    values = torch.randn(first + NUM_CLIENTS, size, generator=generator)
    return values.as_strided((NUM_CLIENTS, *shape), (size, *strides), first * size).requires_grad_()
