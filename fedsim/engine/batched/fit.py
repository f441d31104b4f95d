"""Training many clients' small nets at once, with the bits of one at a time.

Fits of one kind are cut into tiles that stay in the processor's cache. The clients of a tile take their n-th
steps together. Those whose batches have one size at a step are computed at once: the nets by stacked products
(:mod:`fedsim.engine.batched.dense_net`), and what the loss does with their logits by its own code
(:mod:`fedsim.engine.batched.losses`).

A tile with a batch size that is new to its kind is checked: some of its clients are also trained by
:func:`fedsim.engine.execute.fit`. Where a bit differs, fits of this kind are done one by one from then on.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from math import isfinite
from typing import Any, cast, overload

import numpy as np
import torch
from torch import Tensor

from fedsim.engine.batched.dense_net import TILE_BYTES, DenseNet, LiveNets, stack
from fedsim.engine.batched.feed import BatchedFeed, Batches
from fedsim.engine.batched.kinds import (
    NOT_FINITE,
    OTHER_BITS,
    TOGETHER,
    TOO_FEW,
    FitKind,
    Shape,
    Ways,
    fit_kind,
)
from fedsim.engine.batched.losses import Losses
from fedsim.engine.execute import fit
from fedsim.engine.jobs import Fit, Fitted
from fedsim.engine.like_fits import FitList, LikeFits, LikeFitted
from fedsim.engine.optimisers import Optimiser, OptimiserState
from fedsim.engine.pending_fit import Part
from fedsim.engine.steps import Correction
from fedsim.engine.worker_state import Worker
from fedsim.params import Array, Form, Model, RowTree, Tree, unwarned


@overload
def fit_together(jobs: Sequence[Fit], worker: Worker, ways: Ways | None = None) -> list[Fitted]: ...
@overload
def fit_together(
    jobs: Sequence[Fit | LikeFits], worker: Worker, ways: Ways | None = None
) -> list[Fitted | LikeFitted]: ...
def fit_together(jobs: Sequence[Fit | LikeFits], worker: Worker, ways: Ways | None = None) -> Any:
    """Train fits of one kind; each result is, bit for bit, that of :func:`fedsim.engine.execute.fit`.

    The thread has one torch thread; ``ways`` counts how many were done in which way.
    """
    resources, fits = worker.resources, FitList.of(jobs)
    kind = cast(FitKind, fit_kind(fits.templates[0], resources))
    counts = fits.counts(resources)
    # Those that train longest first, so that those at work are a slice at every step.
    lengths = list(zip(fits.num_steps.tolist(), counts, strict=True))
    order = sorted(
        (number for number, its_counts in enumerate(counts) if all(its_counts)),
        key=lengths.__getitem__,
        reverse=True,
    )
    size = _tile_size(kind, [max(its_counts) for its_counts in zip(*counts, strict=True)])
    places: dict[int, tuple[_Tile, int]] = {}  # of the fits that were done in tiles
    for start in range(0, len(order), size):
        numbers = order[start : start + size]
        if len(numbers) == 1 or kind.checks.num_differences:
            break
        some = fits.chosen(numbers)
        feed = BatchedFeed(some, [counts[number] for number in numbers], resources)
        tile = _Tile(kind, some, feed, worker)
        with unwarned():
            tile.fit()
        if not kind.checks.num_differences:
            places |= {number: (tile, place) for place, number in enumerate(numbers)}
    finite = {number: (tile, place) for number, (tile, place) in places.items() if tile.is_finite(place)}
    if ways is not None:
        ways.update([TOGETHER if number in finite else NOT_FINITE for number in places])
        if num_left := len(fits) - len(places):
            ways[OTHER_BITS if kind.checks.num_differences else TOO_FEW] += num_left
    results, end = list[Fitted | LikeFitted](), 0
    for job in jobs:
        first, end = end, end + (len(job) if isinstance(job, LikeFits) else 1)
        alone = {number: fit(fits[number], worker) for number in range(first, end) if number not in finite}
        if isinstance(job, LikeFits):
            results.append(
                _like_fitted(job, [finite.get(number) for number in range(first, end)], alone, first)
            )
        else:
            results.append(alone[first] if first in alone else finite[first][0].fitted(finite[first][1]))
    return results


def _like_fitted(
    fits: LikeFits, places: Sequence[tuple[_Tile, int] | None], alone: Mapping[int, Fitted], first: int
) -> LikeFitted:
    """Return the results of like fits, given those that were done by themselves, by number from a first."""
    trees: dict[tuple[str, Part], Sequence[Tree]] = {}
    are_in_range = not alone
    for name in fits.fit.trained:
        trees[name, "params"] = its = [
            alone[number].models[name].params if at is None else at[0].tree(name, at[1])
            for number, at in enumerate(places, first)
        ]
        trees[name, "buffers"] = [{}] * len(fits)  # such nets have none
        are_in_range &= all(type(tree) is RowTree and tree.is_in_range for tree in its)
    return LikeFitted(trees, are_in_range=are_in_range)


def _tile_size(kind: FitKind, most_samples: Sequence[int]) -> int:
    """Return how many clients to train at once."""
    batch = sum(min(both) for both in zip(kind.batch_sizes, most_samples, strict=True))
    scalars = 0
    for name, net in kind.nets.items():
        optimiser = kind.optimisers.get(name)
        scalars += net.num_params * (2 + len(optimiser.start([]).slots) if optimiser else 1)
        scalars += 2 * batch * net.num_values
    return max(2, TILE_BYTES // (4 * scalars))


class _Tile:
    """Clients that are trained at once, in the order of :class:`fedsim.engine.batched.feed.BatchedFeed`."""

    def __init__(self, kind: FitKind, fits: FitList, feed: BatchedFeed, worker: Worker) -> None:
        self._kind, self._fits, self._feed, self._worker = kind, fits, feed, worker
        jobs = fits.templates
        self._losses = Losses(jobs, worker.resources.data.task)
        self._models = {
            name: _StackedModels(net, [job.models[name].params for job in jobs], kind.optimisers.get(name))
            for name, net in kind.nets.items()
        }
        self._trained: dict[str, list[RowTree | None]] = {}
        # Trees among the extras are like the parameters of the one model.
        names = next(iter(kind.nets.values())).names
        self._trees: dict[str, dict[str, Tensor]] = {}
        for name, extra in jobs[0].extras.items():
            if isinstance(extra.value, Mapping):
                trees = [cast(Tree, job.extras[name].value) for job in jobs]
                self._trees[name] = dict(zip(names, stack(trees, names), strict=True))

    def fit(self) -> None:
        """Train."""
        trained = [self._models[name] for name in self._kind.optimisers]
        can_pad = trained[0].net.can_pad if self._losses.are_cross_entropies else None
        shapes: dict[Shape, tuple[int, ...]] = {}
        for step in range(self._fits.templates[0].num_steps):
            self._worker.pause_point()
            num_at_work = self._feed.num_at_work(step)
            for batches in self._feed.at(step, can_pad):
                self._take_gradients(step, batches)
                first = batches.clients.start
                for places, size in batches.own_rows:
                    is_alone = batches.clients.stop - first == 1
                    last = first + places.stop - 1
                    shapes[(size, *batches.sizes), is_alone] = tuple(range(max(first, last - 1), last + 1))
            trees = self._trees_of(slice(0, num_at_work))
            for models in trained:
                models.update(num_at_work, self._kind.step.correct, trees)
        are_like = [client is not None for client in self._fits.clients]
        self._trained = {name: self._models[name].trees(are_like) for name in self._kind.optimisers}
        self._check(shapes)

    def is_finite(self, place: int) -> bool:
        """Say whether the models of a client are finite.

        Which of two NaN a sum takes its sign from depends on the kernel, so others are left to be done alone.
        """
        return all(trees[place] is not None for trees in self._trained.values())

    def tree(self, name: str, place: int) -> Tree:
        """Return the trained parameters of a client whose models are finite."""
        return cast(RowTree, self._trained[name][place])

    def fitted(self, place: int) -> Fitted:
        """Return the result of such a client."""
        job = self._fits.templates[place]
        models = {
            name: Model(job.models[name].architecture, self.tree(name, place)) for name in self._trained
        }
        return Fitted(models, partial(self._losses.mean, place), job.num_steps)

    def _take_gradients(self, step: int, batches: Batches) -> None:
        """Compute the gradients of the loss of some clients."""
        clients, with_autograd = batches.clients, not self._losses.are_cross_entropies
        nets = {
            name: models.live(clients, with_autograd=with_autograd) for name, models in self._models.items()
        }
        extras = {**self._trees_of(clients), **batches.extras} if with_autograd else {}
        # Only these are padded, and call a net once: the rows of another stream are not those of the first.
        own_rows = batches.own_rows if self._losses.are_cross_entropies else ()
        for name, grad_outputs in self._losses.grad_outputs(step, batches, nets, extras).items():
            nets[name].backward(grad_outputs, self._models[name].gradients(clients), own_rows)

    def _trees_of(self, clients: slice) -> dict[str, Mapping[str, Tensor]]:
        """Return the extras that are trees, of some clients."""
        return {
            name: {leaf: values[clients] for leaf, values in tree.items()}
            for name, tree in self._trees.items()
        }

    def _check(self, shapes: Mapping[Shape, Sequence[int]]) -> None:
        """Train the last two clients that met each new shape once more.

        Behind the last client a tensor ends, and not both of them can lie at the address of a single client.
        """
        checks, same = self._kind.checks, dict[int, bool]()
        for shape, numbers in shapes.items():
            if shape in checks.done:
                continue
            for number in numbers:
                if self.is_finite(number) and number not in same:
                    alone = fit(self._fits[number], self._worker)
                    same[number] = bits_of(self.fitted(number)) == bits_of(alone)
                    checks.num_differences += not same[number]
            if any(number in same for number in numbers):
                checks.done.add(shape)


class _StackedModels:
    """One model of each client of a tile; without an optimiser they are teachers."""

    def __init__(self, net: DenseNet, trees: Sequence[Tree], optimiser: Optimiser | None) -> None:
        self.net = net
        self._form = Form.of({name: trees[0][name] for name in net.names})
        self._optimiser = optimiser
        self._params, self._gradients = stack(trees, net.names), list[Tensor]()
        if optimiser is not None:
            self._params = [param.contiguous() for param in self._params]
            self._gradients = [torch.empty_like(param) for param in self._params]
            self._state = optimiser.start(self._params)
        self._num_at_work = len(trees)
        # The same neighbours meet at every pass.
        self._parts: dict[tuple[int, int], tuple[list[Tensor], list[Tensor]]] = {}

    def live(self, clients: slice, *, with_autograd: bool) -> LiveNets:
        """Return the nets of some clients, as losses see them; autograd never follows teachers."""
        params, _ = self._part(clients)
        return LiveNets(self.net, params, with_autograd=with_autograd and self._optimiser is not None)

    def gradients(self, clients: slice) -> list[Tensor]:
        """Return the gradients of some clients, to be written into."""
        return self._part(clients)[1]

    def update(self, num_clients: int, correct: Correction | None, extras: Mapping[str, Any]) -> None:
        """Apply the gradients of the first clients, those still at work; never of more than before."""
        clients = slice(0, num_clients)
        if num_clients < self._num_at_work:
            slots = {name: _of(clients, tensors) for name, tensors in self._state.slots.items()}
            self._state = OptimiserState(slots, self._state.num_steps)
            self._num_at_work = num_clients
        params, moves = self._part(clients)
        if correct is not None:
            with torch.no_grad():
                moves = correct(cast(Any, LiveNets(self.net, params)), moves, extras)
        cast(Optimiser, self._optimiser).update(params, moves, self._state)

    def trees(self, are_like: Sequence[bool]) -> list[RowTree | None]:
        """Return each client's parameters, or None where their sum is not finite.

        Trees of like fits share memory, since they are merged soon. Any other has memory of its own: a client
        may hold its model for many rounds, and would otherwise hold those of all that were trained with it.
        """
        rows = _rows(self._params)
        # Where the sum of squares is finite, no scalar is out of range.
        are_in_range = np.isfinite(np.einsum("ij,ij->i", rows, rows)).tolist()
        return [
            RowTree(row if is_like else row.copy(), self._form, is_in_range=is_in_range)
            if is_in_range or isfinite(row.sum())
            else None
            for row, is_in_range, is_like in zip(rows, are_in_range, are_like, strict=True)
        ]

    def _part(self, clients: slice) -> tuple[list[Tensor], list[Tensor]]:
        """Return the parameters and the gradients of some clients."""
        key = clients.start, clients.stop
        if key not in self._parts:
            self._parts[key] = _of(clients, self._params), _of(clients, self._gradients)
        return self._parts[key]


def _of(clients: slice, tensors: Sequence[Any]) -> list[Any]:
    """Return the tensors of some clients; counts of steps, which have no dimension, are of all."""
    return [tensor if tensor is None or not tensor.ndim else tensor[clients] for tensor in tensors]


def _rows(params: Sequence[Tensor]) -> Array:
    """Return the parameters of each client in a row, ``[m, size]``."""
    return np.concatenate([param.numpy().reshape(len(param), -1) for param in params], 1)


def bits_of(fitted: Fitted) -> Hashable:
    """Return all bits of a result."""
    trees = {**{name: model.params for name, model in fitted.models.items()}, "": fitted.outputs}
    leaves = [(name, leaf, array.tobytes()) for name, tree in trees.items() for leaf, array in tree.items()]
    return np.float64(fitted.loss).tobytes(), tuple(leaves)
