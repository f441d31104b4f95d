"""Matrix products of many clients at once, each with the bits of one client's.

The order in which a library adds up the terms of a product depends on its shape, on how its factors lie in
memory and on the processor. So the ways of computing a product are tried for each shape on random values,
once in a process, and the first is taken whose bits are those of one client's product. The last way computes
one product after the other, with operands that are aligned as those of a single client
(:mod:`fedsim.engine.alignment`). It is the reference of the trials. In the same manner it is tried whether a
batch can be padded to the size of a larger one.

m: clients, b: batch, i: inputs, o: outputs. Weights and their gradients ``[m, o, i]`` are *turned* where they
lie in memory as ``[m, i, o]``, which is several times faster for small matrices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from fedsim.engine.alignment import ALIGNMENT_BYTES, aligned

NUM_CLIENTS = 7
"""Clients of a trial."""
NUM_PLACES = ALIGNMENT_BYTES // 4
"""Clients after which the addresses of their matrices have the same remainder again."""
NUM_VALUES = 500
"""A way is tried on at least so many results: a few may be equal by chance."""

Product = Callable[..., Tensor]


class Ways(NamedTuple):
    """How to compute the products of a linear layer, for one shape.

    Attributes:
        outputs: ``(x [m, b, i], weight [m, o, i], bias [m, o])`` to outputs ``[m, b, o]``.
        input_gradients: ``(slopes [m, b, o], weight)`` to gradients ``[m, b, i]``.
        weight_gradients: ``(slopes, x, out [m, o, i])`` to ``out``, which is laid out like the weight.
    """

    outputs: Product
    input_gradients: Product
    weight_gradients: Product

    def are_direct(self, *, is_first: bool) -> bool:
        """Say whether weights are taken as they lie; of a first layer no input gradients are wanted."""
        return self.outputs is _outputs_at_once and (
            is_first or self.input_gradients is _input_gradients_at_once
        )


@cache
def ways(b: int, i: int, o: int, *, is_turned: bool, is_alone: bool = False) -> Ways:
    """Return how to compute a layer's products.

    Args:
        b: Samples in a batch.
        i: Inputs of the layer.
        o: Outputs of the layer.
        is_turned: Whether its weights are.
        is_alone: Whether they are those of a single client.
    """
    if is_alone:
        return Ways(_OUTPUTS[-1], _INPUT_GRADIENTS[-1], _WEIGHT_GRADIENTS[-1])
    generator = torch.Generator().manual_seed(0)

    def some(*shape: int, first: int = 0) -> Tensor:
        # Clients at work are neighbours among those of a tile, so the first may lie at any of their places.
        return torch.randn(first + NUM_CLIENTS, *shape, generator=generator)[first:]

    is_always_aligned = not (o % NUM_PLACES or i * o % NUM_PLACES)
    num_trials = -(-NUM_VALUES // (NUM_CLIENTS * min(b * i, b * o, i * o)))
    trials = []
    for number in range(num_trials if is_always_aligned else max(num_trials, NUM_PLACES)):
        first = number % NUM_PLACES
        x, slopes, bias = some(b, i), some(b, o), some(o, first=first)
        weight, out = [some(i, o, first=first).mT if is_turned else some(o, i, first=first) for _ in range(2)]
        trials.append((x, slopes, bias, weight, out))
    return Ways(
        _first_exact(_OUTPUTS, [(x, weight, bias) for x, _, bias, weight, _ in trials]),
        _first_exact(_INPUT_GRADIENTS, [(slopes, weight) for _, slopes, _, weight, _ in trials]),
        _first_exact(_WEIGHT_GRADIENTS, [(slopes, x, out) for x, slopes, _, _, out in trials]),
    )


@cache
def can_pad(b: int, padded: int, i: int, o: int, *, is_turned: bool) -> bool:
    """Say whether :func:`ways` of a larger batch give a smaller one its own bits.

    Its rows are followed by any others, whose slopes are zero.

    Args:
        b: Samples in the smaller batch.
        padded: Samples in the larger one.
        i: Inputs of the layer.
        o: Outputs of the layer.
        is_turned: Whether its weights are.
    """
    own, larger = (ways(size, i, o, is_turned=is_turned) for size in (b, padded))
    generator = torch.Generator().manual_seed(0)
    for number in range(1 + -(-NUM_VALUES // (NUM_CLIENTS * min(b * i, b * o, i * o)))):
        x, slopes, bias, weight = (
            torch.randn(NUM_CLIENTS, *shape, generator=generator)
            for shape in ((padded, i), (padded, o), (o,), (i, o) if is_turned else (o, i))
        )
        if number == 0:  # sums of negative zeros, which a padded positive one would turn
            x[:, :b] = 0
            slopes.abs_().neg_()
        slopes[:, b:] = 0
        if is_turned:
            weight = weight.mT
        x_own, slopes_own = x[:, :b].contiguous(), slopes[:, :b].contiguous()
        outs = [torch.empty_like(weight) for _ in range(2)]
        if not (
            same_bits(larger.outputs(x, weight, bias)[:, :b], own.outputs(x_own, weight, bias))
            and same_bits(
                larger.input_gradients(slopes, weight)[:, :b], own.input_gradients(slopes_own, weight)
            )
            and same_bits(
                larger.weight_gradients(slopes, x, outs[0]), own.weight_gradients(slopes_own, x_own, outs[1])
            )
        ):
            return False
    return True


@cache
def can_pad_sums(b: int, padded: int, o: int) -> bool:
    """Say whether sums over the rows of slopes ``[m, b, o]`` keep their bits when rows of zeros follow."""
    slopes = torch.randn(NUM_VALUES, padded, o, generator=torch.Generator().manual_seed(0))
    slopes[:, b:] = 0
    return same_bits(slopes.sum(1), slopes[:, :b].contiguous().sum(1))


def _first_exact(products: Sequence[Product], trials: Sequence[tuple[Tensor, ...]]) -> Product:
    *at_once, one_by_one = products
    expected = [one_by_one(*operands).clone() for operands in trials]
    for product in at_once:
        if all(same_bits(product(*some), right) for some, right in zip(trials, expected, strict=True)):
            return product
    return one_by_one


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Say whether float32 tensors of one shape are equal bit for bit, NaN and the sign of zero included."""
    return torch.equal(one.contiguous().view(torch.int32), other.contiguous().view(torch.int32))


def _outputs_at_once(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.baddbmm(bias[:, None], x, weight.mT)


def _outputs_rearranged(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return _outputs_at_once(x, weight.contiguous(), bias)


def _outputs_one_by_one(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    rows = zip(_aligned(bias), _aligned(x), _aligned(weight.contiguous()), strict=True)
    return torch.stack([torch.addmm(its_bias, its_x, its_weight.t()) for its_bias, its_x, its_weight in rows])


def _input_gradients_at_once(slopes: Tensor, weight: Tensor) -> Tensor:
    return torch.bmm(slopes, weight)


def _input_gradients_rearranged(slopes: Tensor, weight: Tensor) -> Tensor:
    return torch.bmm(slopes, weight.contiguous())


def _input_gradients_one_by_one(slopes: Tensor, weight: Tensor) -> Tensor:
    pairs = zip(_aligned(slopes), _aligned(weight.contiguous()), strict=True)
    if slopes.shape[1] == weight.shape[2] == 1:
        # An input of one value is a transposed matrix as well, and is taken for one by torch's autograd.
        return torch.stack([torch.mm(its_weight.t(), its_slopes.t()) for its_slopes, its_weight in pairs])
    return torch.stack([torch.mm(*pair) for pair in pairs])


def _weight_gradients_at_once(slopes: Tensor, x: Tensor, out: Tensor) -> Tensor:
    if out.is_contiguous():
        return torch.bmm(slopes.mT, x, out=out)
    torch.bmm(x.mT, slopes, out=out.mT)
    return out


def _weight_gradients_one_by_one(slopes: Tensor, x: Tensor, out: Tensor) -> Tensor:
    for its_slopes, its_x, its_out in zip(_aligned(slopes), _aligned(x), out.unbind(), strict=True):
        its_out.copy_(torch.mm(its_slopes.t(), its_x))
    return out


def _aligned(stacked: Tensor) -> list[Tensor]:
    """Return each client's matrix at an address at which a client on its own would have it."""
    return [aligned(tensor) for tensor in stacked.unbind()]


_OUTPUTS = (_outputs_at_once, _outputs_rearranged, _outputs_one_by_one)
_INPUT_GRADIENTS = (_input_gradients_at_once, _input_gradients_rearranged, _input_gradients_one_by_one)
_WEIGHT_GRADIENTS = (_weight_gradients_at_once, _weight_gradients_one_by_one)
