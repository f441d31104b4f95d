"""Training many clients' small nets at once, with the bits of one at a time.

Fits of one kind (:func:`fedsim.engine.batched.fit_kinds.batch_key`) are cut into tiles that stay in the
processor's cache. The clients of a tile take their n-th steps together; those whose batches have one size at
a step are computed at once: the nets by a :class:`fedsim.engine.batched.stacked_net.StackedNet`, and what the
loss does with their logits by its own code (:func:`fedsim.engine.losses.serves_many`). A tile in which this
would gain nothing, since too few clients have batches of one size, is done one by one.

A tile with a batch size that is new to its kind is checked: some of its clients are also trained by
:func:`fedsim.engine.execute.fit`. Where a bit differs, fits of this kind are done one by one from then on.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from typing import cast

import numpy as np
from torch import Tensor

from fedsim.engine.batched.feed import BatchedFeed, Batches, counts_of
from fedsim.engine.batched.fit_kinds import Kind, Shape, batch_key
from fedsim.engine.batched.slopes import Losses
from fedsim.engine.batched.tiled_nets import TiledNets
from fedsim.engine.batched.ways import NOT_FINITE, OTHER_BITS, TOGETHER, TOO_FEW, Ways
from fedsim.engine.execute import fit
from fedsim.engine.jobs import Fit, Fitted
from fedsim.engine.worker_state import Worker
from fedsim.params import Model, Tree, unwarned


def fit_together(jobs: Sequence[Fit], worker: Worker, ways: Ways | None = None) -> list[Fitted]:
    """Train all at once; each result is, bit for bit, that of :func:`fedsim.engine.execute.fit`.

    Args:
        jobs: Fits of one kind; any number of samples and of steps.
        worker: Its thread has one torch thread.
        ways: Counts how many were done in which way.

    Raises:
        StoppedError: The run is over.
    """
    kind = batch_key(jobs[0], worker.resources)
    fitted: dict[int, Fitted | None] = {}
    if isinstance(kind, Kind):
        by_stream = [
            counts_of([job.streams[name].samples for job in jobs], worker.resources)
            for name in jobs[0].streams
        ]
        counts = list(zip(*by_stream, strict=True))
        # Those that train longest first, so that those at work are a slice at every step.
        order = sorted(
            (number for number, its_counts in enumerate(counts) if all(its_counts)),
            key=lambda number: (jobs[number].num_steps, counts[number]),
            reverse=True,
        )
        fewest = max(net.fewest for net in kind.nets.values())
        least_share = max(net.least_share for net in kind.nets.values())
        size = _tile_size(kind, [max(its_counts) for its_counts in by_stream])
        for start in range(0, len(order), size):
            if kind.checks.num_differences:
                break
            tile = order[start : start + size]
            if len(tile) < fewest:
                continue
            some = [jobs[number] for number in tile]
            feed = BatchedFeed(some, [counts[number] for number in tile], worker.resources)
            if least_share and feed.share_of(fewest) < least_share:
                continue
            with unwarned():
                done = _Tile(kind, some, feed, worker).fit()
            if not kind.checks.num_differences:
                fitted |= zip(tile, done, strict=True)
    if ways is not None:
        ways.update([NOT_FINITE if one is None else TOGETHER for one in fitted.values()])
        if num_left := len(jobs) - len(fitted):
            has_differed = isinstance(kind, Kind) and kind.checks.num_differences
            ways[OTHER_BITS if has_differed else TOO_FEW] += num_left
    return [fitted.get(number) or fit(job, worker) for number, job in enumerate(jobs)]


def _tile_size(kind: Kind, most_samples: Sequence[int]) -> int:
    """Return how many clients to train at once."""
    batch = sum(min(both) for both in zip(kind.batch_sizes, most_samples, strict=True))
    scalars = 0
    for name, net in kind.nets.items():
        optimiser = kind.optimisers.get(name)
        scalars += net.num_params * (2 + len(optimiser.start([]).slots) if optimiser else 1)
        scalars += 2 * batch * net.num_values
    return max(2, min(net.tile_bytes for net in kind.nets.values()) // (4 * scalars))


class _Tile:
    """Clients that are trained at once, in the order of :class:`fedsim.engine.batched.feed.BatchedFeed`."""

    def __init__(self, kind: Kind, jobs: Sequence[Fit], feed: BatchedFeed, worker: Worker) -> None:
        self._kind, self._jobs, self._feed, self._worker = kind, jobs, feed, worker
        self._losses = Losses(jobs, worker.resources.data.task)
        self._nets = {
            name: TiledNets(
                net,
                [job.models[name].params for job in jobs],
                self._feed.most,
                kind.optimisers.get(name),
            )
            for name, net in kind.nets.items()
        }
        first, *_ = self._nets.values()
        self._trees = {
            name: first.like_params([cast(Tree, job.extras[name].value) for job in jobs])
            for name, extra in jobs[0].extras.items()
            if isinstance(extra.value, Mapping)
        }

    def fit(self) -> list[Fitted | None]:
        """Train; return the results in the order of the jobs, None for a model that is not finite.

        Which of two NaN a sum takes its sign from depends on the kernel, so such a model is left to others.
        """
        trained = [self._nets[name] for name in self._kind.optimisers]
        can_pad = trained[0].can_pad if self._losses.are_cross_entropies else None
        shapes: dict[Shape, tuple[int, ...]] = {}
        for step in range(self._jobs[0].num_steps):
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
            for nets in trained:
                nets.update(num_at_work, self._kind.step.correct, trees)
        fitted = self._fitted()
        self._check(fitted, shapes)
        return fitted

    def _take_gradients(self, step: int, batches: Batches) -> None:
        """Compute the gradients of the loss of some clients."""
        clients, with_autograd = batches.clients, not self._losses.are_cross_entropies
        nets = {name: tiled.live(clients, with_autograd=with_autograd) for name, tiled in self._nets.items()}
        extras = {**self._trees_of(clients), **batches.extras} if with_autograd else {}
        # Only these are padded, and call a net once: the rows of another stream are not those of the first.
        own_rows = batches.own_rows if self._losses.are_cross_entropies else ()
        for name, slopes in self._losses.slopes(step, batches, nets, extras).items():
            self._nets[name].backward(clients, nets[name], slopes, own_rows)

    def _trees_of(self, clients: slice) -> dict[str, Mapping[str, Tensor]]:
        """Return the extras that are trees, of some clients."""
        return {
            name: {leaf: values[clients] for leaf, values in tree.items()}
            for name, tree in self._trees.items()
        }

    def _fitted(self) -> list[Fitted | None]:
        names = self._kind.optimisers
        trees = zip(*[self._nets[name].trees() for name in names], strict=True)
        return [
            Fitted(
                {
                    name: Model(job.models[name].architecture, tree)
                    for name, tree in zip(names, its_trees, strict=True)
                },
                partial(self._losses.mean, number),
                job.num_steps,
            )
            if all(tree is not None for tree in its_trees)
            else None
            for number, (job, its_trees) in enumerate(zip(self._jobs, trees, strict=True))
        ]

    def _check(self, fitted: Sequence[Fitted | None], shapes: Mapping[Shape, Sequence[int]]) -> None:
        """Train the last two clients that met each new shape once more.

        Behind the last client a tensor ends, and not both of them can lie at the address of a single client.
        """
        checks, same = self._kind.checks, dict[int, bool]()
        for shape, numbers in shapes.items():
            if shape in checks.done:
                continue
            for number in numbers:
                result = fitted[number]
                if result is not None and number not in same:
                    same[number] = bits_of(result) == bits_of(fit(self._jobs[number], self._worker))
                    checks.num_differences += not same[number]
            if any(number in same for number in numbers):
                checks.done.add(shape)


def bits_of(fitted: Fitted) -> Hashable:
    """Return all bits of a result."""
    trees = {**{name: model.params for name, model in fitted.models.items()}, "": fitted.outputs}
    leaves = [(name, leaf, array.tobytes()) for name, tree in trees.items() for leaf, array in tree.items()]
    return np.float64(fitted.loss).tobytes(), tuple(leaves)
