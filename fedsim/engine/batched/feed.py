"""The batches of many clients that take their n-th steps together.

Clients are sorted by steps and by samples. So those that have not ended are the first ones at every step, and
those whose batches have one size are neighbours. Neighbours whose batches are smaller may be padded to that
size. m: clients, b: batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from fedsim.engine.batches import order_stream, shuffled
from fedsim.engine.jobs import ClientSamples, Fit, GlobalTest, InlineSamples, PublicSamples, Samples
from fedsim.engine.like_fits import FitList
from fedsim.engine.losses import Batch
from fedsim.engine.worker_state import Resources
from fedsim.params import Array

OwnRows = Sequence[tuple[slice, int]]
"""Neighbours by their places, and how many samples each of their batches has without padding."""

CanPad = Callable[[int, int, int], bool]
"""Returns whether to pad the batches of so many clients from one size to another."""


class Batches(NamedTuple):
    """The batches that some neighbours meet at a step.

    Attributes:
        clients: Whose.
        sizes: b of each stream.
        own_rows: How many rows are a client's own, by places among these clients. In a padded batch more
            follow, which are to count for nothing.
        by_stream: Of each stream, samples ``[m, b, ...]`` and labels ``[m, b]``, if any.
        extras: The rows of the extras that follow a stream, ``[m, b, ...]``.
    """

    clients: slice
    sizes: tuple[int, ...]
    own_rows: OwnRows
    by_stream: Mapping[str, Batch]
    extras: Mapping[str, Tensor]


_Run = tuple[slice, tuple[int, ...]]
"""Neighbours, and the sizes of their batches at a step."""


class BatchedFeed:
    """The batches of fits of one kind; those with most steps come first, then those with most samples.

    Raises:
        ValueError: An extra has another number of rows than its stream has samples.
    """

    def __init__(self, fits: FitList, counts: Sequence[tuple[int, ...]], resources: Resources) -> None:
        self._num_steps = fits.num_steps
        streams = fits.templates[0].streams
        self._streams = {
            name: _Stream(name, fits, np.array(its_counts), resources)
            for name, its_counts in zip(streams, zip(*counts, strict=True), strict=True)
        }

    def num_at_work(self, step: int) -> int:
        """Return how many clients, from the first on, have this step."""
        return int((self._num_steps > step).sum())

    def at(self, step: int, can_pad: CanPad | None = None) -> Iterator[Batches]:
        """Yield the batches of a step, from the first client on; ``can_pad`` is for one stream."""
        num_at_work = self.num_at_work(step)
        sizes = [stream.sizes(step)[:num_at_work].tolist() for stream in self._streams.values()]
        runs = _runs(list(zip(*sizes, strict=True)))
        for parts in ([run] for run in runs) if can_pad is None else _padded(runs, can_pad):
            clients = slice(parts[0][0].start, parts[-1][0].stop)
            padded = max(its_sizes for _, its_sizes in parts)
            batches, extras = {}, dict[str, Tensor]()
            for (name, stream), size in zip(self._streams.items(), padded, strict=True):
                batches[name] = stream.batch(clients, step, size, extras)
            own_rows = [
                (slice(run.start - clients.start, run.stop - clients.start), its_sizes[0])
                for run, its_sizes in parts
            ]
            yield Batches(clients, padded, own_rows, batches, extras)


def _runs(sizes: Sequence[tuple[int, ...]]) -> list[_Run]:
    """Return the neighbours whose batches have equal sizes, which are given for each stream."""
    runs, start = list[_Run](), 0
    for its_sizes, neighbours in groupby(sizes):
        stop = start + sum(1 for _ in neighbours)
        runs.append((slice(start, stop), its_sizes))
        start = stop
    return runs


def _padded(runs: Sequence[_Run], can_pad: CanPad) -> Iterator[list[_Run]]:
    """Yield the neighbours whose batches are padded to the size of the largest one among them."""
    parts: list[_Run] = []
    for run in runs:
        largest = max(sizes for _, sizes in (*parts, run))
        can_join = all(
            sizes == largest or can_pad(clients.stop - clients.start, sizes[0], largest[0])
            for clients, sizes in (*parts, run)
        )
        if parts and not can_join:
            yield parts
            parts = []
        parts.append(run)
    yield parts


class _Stream:
    """One stream of all clients, of which each has at least one sample."""

    def __init__(self, name: str, fits: FitList, counts: Array, resources: Resources) -> None:
        first = fits.templates[0]
        stream = first.streams[name]
        self._counts, self._batch_size = counts, stream.batch_size
        # Of a pass; none is skipped, since the nets have no BatchNorm.
        self._num_batches = -(-counts // stream.batch_size)
        num_passes = -(-fits.num_steps // self._num_batches)
        # Where the samples that each client meets begin among those that all meet.
        self._starts = np.cumsum(counts * num_passes) - counts * num_passes
        # What all meet, as positions among the samples of one client after the other.
        self._order = _order(
            name, fits.seeds, counts.tolist(), num_passes.tolist(), is_shuffled=stream.shuffled
        )
        self._x, labels, rows = _samples(name, fits, resources)
        self._rows = rows[self._order]
        self._labels = None if labels is None else labels[self._rows]
        self._extras = {
            label: _rows_of_extra(label, fits.templates, counts.tolist())
            for label, extra in first.extras.items()
            if extra.stream == name
        }

    def sizes(self, step: int) -> Array:
        """Return the size of each client's batch at a step, int64 ``[m]``."""
        sizes: Array = self._counts - step % self._num_batches * self._batch_size
        return np.minimum(sizes, self._batch_size)

    def batch(self, clients: slice, step: int, padded: int, extras: dict[str, Tensor]) -> Batch:
        """Return the batch of some clients, padded to a size; add the rows of the stream's extras."""
        passes, numbers = np.divmod(step, self._num_batches[clients])
        first = self._starts[clients] + passes * self._counts[clients] + numbers * self._batch_size
        columns = np.minimum(np.arange(padded), self.sizes(step)[clients, None] - 1)
        positions = first[:, None] + columns
        for name, values in self._extras.items():
            extras[name] = _chosen(values, self._order[positions])
        labels = None if self._labels is None else torch.from_numpy(self._labels[positions])
        return Batch(_chosen(self._x, self._rows[positions]), labels)


def _chosen(values: Tensor, rows: Array) -> Tensor:
    return values.index_select(0, torch.from_numpy(rows.reshape(-1))).view(*rows.shape, *values.shape[1:])


def _order(
    name: str, seeds: Sequence[int], counts: Sequence[int], num_passes: Sequence[int], *, is_shuffled: bool
) -> Array:
    """Return the passes of one client after the other: positions among the samples of all, int64."""
    numbers, passes = order_stream(name), list[Array]()
    for count, clients in groupby(zip(counts, seeds, num_passes, strict=True), itemgetter(0)):
        if not is_shuffled:
            passes += [np.tile(np.arange(count), its_passes) for _, _, its_passes in clients]
            continue
        draws = []
        for _, seed, its_passes in clients:
            numbers.start(seed)
            draws.append(numbers.draw(its_passes * count))
        passes.append(shuffled(np.concatenate(draws).reshape(-1, count)).reshape(-1))
    firsts = np.cumsum([0, *counts[:-1]]).repeat(np.multiply(counts, num_passes))
    return cast(Array, np.concatenate(passes) + firsts)


def _samples(name: str, fits: FitList, resources: Resources) -> tuple[Tensor, Array | None, Array]:
    """Return ``(x [n, ...], y [n], rows)``: the samples of one client after the other are ``x[rows]``."""
    first = fits.templates[0].streams[name].samples
    if isinstance(first, InlineSamples):
        inline = cast("list[InlineSamples]", fits.samples(name))
        x = torch.from_numpy(np.concatenate([some.x for some in inline]))
        y = None if first.y is None else np.concatenate([cast(Array, some.y) for some in inline])
        return x, y, np.arange(len(x))
    x, labels = cast("tuple[Tensor, Tensor]", resources.pool)
    has_labels = not isinstance(first, PublicSamples) or first.labelled
    if (rows := fits.rows(name, resources)) is None:
        rows = np.concatenate([rows_of(some, resources) for some in fits.samples(name)])
    return x, labels.numpy() if has_labels else None, rows


def rows_of(samples: Samples, resources: Resources) -> Array:
    """Return the positions of samples in the pool; the same array for the same set of all clients."""
    match samples:
        case ClientSamples(client, split):
            return resources.data.indices(client, split)
        case GlobalTest():
            return resources.data.global_test
    return cast(Tensor, resources.tensors(samples)[2]).numpy()


def _rows_of_extra(name: str, jobs: Sequence[Fit], counts: Sequence[int]) -> Tensor:
    """Return the rows of an extra, of one client after the other."""
    values = [cast(Array, job.extras[name].value) for job in jobs]
    if any(len(rows) != count for rows, count in zip(values, counts, strict=True)):
        raise ValueError(f"extra {name!r} has other numbers of rows than its stream has samples")
    return torch.from_numpy(np.concatenate(values))
