"""Matrix products of many clients at once, each with the bits of one client's.

The order in which a library adds up the terms of a product depends on its shape, on how its factors lie in
memory and on the processor. So each stacked product is tried on random values, once for each shape in a
process. Where a bit differs, products of this shape are computed one after the other, from operands that are
aligned as those of a single client (:func:`fedsim.engine.execute.aligned`); these are the reference of the
trials. Whether a batch can be padded to the size of a larger one is tried in the same manner.

m: clients, b: batch, i: inputs, o: outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from fedsim.engine.execute import ALIGNMENT_BYTES, aligned

NUM_CLIENTS = 7
"""Clients of a trial."""
NUM_PLACES = ALIGNMENT_BYTES // 4
"""Clients after which the addresses of their matrices have the same remainder again."""
NUM_VALUES = 500
"""Results on which a product is tried, at least: a few may be equal by chance."""

Product = Callable[..., Tensor]
Operands = tuple[Tensor, ...]


class Products(NamedTuple):
    """How to compute the products of a linear layer, for one shape.

    Attributes:
        outputs: ``(x [m, b, i], weight [m, o, i], bias [m, o])`` to outputs ``[m, b, o]``.
        input_gradients: ``(grad_outputs [m, b, o], weight)`` to gradients ``[m, b, i]``.
        weight_gradients: ``(grad_outputs, x, out [m, o, i])`` to ``out``.
    """

    outputs: Product
    input_gradients: Product
    weight_gradients: Product


@cache
def exact_products(b: int, i: int, o: int, *, is_alone: bool = False) -> Products:
    """Return products that keep the bits, at once where possible; ``is_alone``: those of a single client."""
    if is_alone:
        return Products(_outputs_one_by_one, _input_gradients_one_by_one, _weight_gradients_one_by_one)
    generator = torch.Generator().manual_seed(0)

    def some(*shape: int, first: int = 0) -> Tensor:
        # Clients at work are neighbours among those of a tile, so the first may lie at any of their places.
        return torch.randn(first + NUM_CLIENTS, *shape, generator=generator)[first:]

    is_always_aligned = not (o % NUM_PLACES or i * o % NUM_PLACES)
    num_trials = -(-NUM_VALUES // (NUM_CLIENTS * min(b * i, b * o, i * o)))
    outputs, input_gradients, weight_gradients = list[Operands](), list[Operands](), list[Operands]()
    for number in range(num_trials if is_always_aligned else max(num_trials, NUM_PLACES)):
        first = number % NUM_PLACES
        x, grad_outputs, bias = some(b, i), some(b, o), some(o, first=first)
        weight, out = some(o, i, first=first), some(o, i, first=first)
        outputs.append((x, weight, bias))
        input_gradients.append((grad_outputs, weight))
        weight_gradients.append((grad_outputs, x, out))
    # Clients may share the memory of one model, or of one set of samples.
    outputs.append((x, weight[:1].expand_as(weight), bias[:1].expand_as(bias)))
    outputs.append((x[:1].expand_as(x), weight, bias))
    return Products(
        _exact(_outputs_at_once, _outputs_one_by_one, outputs),
        _exact(_input_gradients_at_once, _input_gradients_one_by_one, input_gradients),
        _exact(_weight_gradients_at_once, _weight_gradients_one_by_one, weight_gradients),
    )


@cache
def can_pad(b: int, padded: int, i: int, o: int) -> bool:
    """Return whether :func:`exact_products` of a larger batch give a smaller one its own bits.

    The rows behind the ``b`` own ones are any others, whose output gradients are zero.
    """
    own, larger = exact_products(b, i, o), exact_products(padded, i, o)
    generator = torch.Generator().manual_seed(0)
    for number in range(1 + -(-NUM_VALUES // (NUM_CLIENTS * min(b * i, b * o, i * o)))):
        x, grad_outputs, bias, weight = (
            torch.randn(NUM_CLIENTS, *shape, generator=generator)
            for shape in ((padded, i), (padded, o), (o,), (o, i))
        )
        if number == 0:  # sums of negative zeros, which a padded positive one would turn
            x[:, :b] = 0
            grad_outputs.abs_().neg_()
        grad_outputs[:, b:] = 0
        own_x, own_grad_outputs = x[:, :b].contiguous(), grad_outputs[:, :b].contiguous()
        pairs = [
            (larger.outputs(x, weight, bias)[:, :b], own.outputs(own_x, weight, bias)),
            (
                larger.input_gradients(grad_outputs, weight)[:, :b],
                own.input_gradients(own_grad_outputs, weight),
            ),
            (
                larger.weight_gradients(grad_outputs, x, torch.empty_like(weight)),
                own.weight_gradients(own_grad_outputs, own_x, torch.empty_like(weight)),
            ),
        ]
        if not all(same_bits(*pair) for pair in pairs):
            return False
    return True


@cache
def can_pad_sums(b: int, padded: int, o: int) -> bool:
    """Return whether sums over the rows of ``[m, b, o]`` keep their bits when rows of zeros follow."""
    rows = torch.randn(NUM_VALUES, padded, o, generator=torch.Generator().manual_seed(0))
    rows[:, b:] = 0
    return same_bits(rows.sum(1), rows[:, :b].contiguous().sum(1))


def _exact(at_once: Product, one_by_one: Product, trials: Sequence[Operands]) -> Product:
    for operands in trials:
        expected = one_by_one(*operands).clone()  # ``out`` is written into again
        if not same_bits(at_once(*operands), expected):
            return one_by_one
    return at_once


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Return whether float32 tensors of one shape are equal bit for bit, with NaN and the sign of zero."""
    return torch.equal(one.contiguous().view(torch.int32), other.contiguous().view(torch.int32))


def _outputs_at_once(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.baddbmm(bias[:, None], x, weight.mT)


def _outputs_one_by_one(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    rows = zip(_aligned(bias), _aligned(x), _aligned(weight), strict=True)
    return torch.stack([torch.addmm(its_bias, its_x, its_weight.t()) for its_bias, its_x, its_weight in rows])


def _input_gradients_at_once(grad_outputs: Tensor, weight: Tensor) -> Tensor:
    return torch.bmm(grad_outputs, weight)


def _input_gradients_one_by_one(grad_outputs: Tensor, weight: Tensor) -> Tensor:
    pairs = zip(_aligned(grad_outputs), _aligned(weight), strict=True)
    if grad_outputs.shape[1] == weight.shape[2] == 1:
        # An input of one value is a transposed matrix as well, and is taken for one by torch's autograd.
        return torch.stack([torch.mm(its_weight.t(), its_rows.t()) for its_rows, its_weight in pairs])
    return torch.stack([torch.mm(*pair) for pair in pairs])


def _weight_gradients_at_once(grad_outputs: Tensor, x: Tensor, out: Tensor) -> Tensor:
    return torch.bmm(grad_outputs.mT, x, out=out)


def _weight_gradients_one_by_one(grad_outputs: Tensor, x: Tensor, out: Tensor) -> Tensor:
    for its_rows, its_x, its_out in zip(_aligned(grad_outputs), _aligned(x), out.unbind(), strict=True):
        its_out.copy_(torch.mm(its_rows.t(), its_x))
    return out


def _aligned(stacked: Tensor) -> list[Tensor]:
    """Return each client's matrix at an address at which a client on its own would have it."""
    return [aligned(tensor) for tensor in stacked.unbind()]
