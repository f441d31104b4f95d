"""The batches of many clients that take their n-th steps together.

Clients are sorted by steps and by samples. So those that have not ended are the first ones at every step, and
those whose batches have one size are neighbours. Neighbours whose batches are smaller may be padded to that
size. m: clients, b: batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from fedsim.engine.batches import Pass
from fedsim.engine.jobs import ClientSamples, Fit, GlobalTest, InlineSamples, PublicSamples, Samples
from fedsim.engine.losses import Batch
from fedsim.engine.worker_state import Resources
from fedsim.params import Array
from fedsim.rng import Key

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


@dataclass(frozen=True, slots=True)
class _Group:
    """Neighbours with as many samples and steps."""

    clients: slice
    num_steps: int


_Run = tuple[list[int], tuple[int, ...]]
"""Groups, and the sizes of their batches at a step."""


class BatchedFeed:
    """The batches of fits of one kind; those with most steps come first, then those with most samples."""

    def __init__(self, jobs: Sequence[Fit], counts: Sequence[tuple[int, ...]], resources: Resources) -> None:
        self._groups = list(_grouped(jobs, counts))
        self._streams = {
            name: _Stream(name, jobs, its_counts, self._groups, resources)
            for name, its_counts in zip(jobs[0].streams, zip(*counts, strict=True), strict=True)
        }

    def num_at_work(self, step: int) -> int:
        """Return how many clients, from the first on, have this step."""
        while self._groups[-1].num_steps <= step:
            self._groups.pop()
        return cast(int, self._groups[-1].clients.stop)

    def at(self, step: int, can_pad: CanPad | None = None) -> Iterator[Batches]:
        """Yield the batches of a step, padded where ``can_pad`` says so; steps are asked for in order."""
        groups = range(len(self._groups))
        sizes_of = list(zip(*[stream.sizes(groups, step) for stream in self._streams.values()], strict=True))
        runs = [(list(some), sizes) for sizes, some in groupby(groups, key=sizes_of.__getitem__)]
        for parts in ([run] for run in runs) if can_pad is None else self._padded(runs, can_pad):
            sizes = max(sizes for _, sizes in parts)
            alike = [group for run, _ in parts for group in run]
            batches, extras = {}, dict[str, Tensor]()
            for (name, stream), size in zip(self._streams.items(), sizes, strict=True):
                batches[name] = stream.batch(alike, step, size, extras)
            first, own_rows = self._clients(alike).start, list[tuple[slice, int]]()
            for run, its_sizes in parts:
                clients = self._clients(run)
                own_rows.append((slice(clients.start - first, clients.stop - first), its_sizes[0]))
            yield Batches(self._clients(alike), sizes, own_rows, batches, extras)

    def _clients(self, groups: Sequence[int]) -> slice:
        """Return the clients of neighbouring groups."""
        return slice(self._groups[groups[0]].clients.start, self._groups[groups[-1]].clients.stop)

    def _padded(self, runs: Sequence[_Run], can_pad: CanPad) -> Iterator[list[_Run]]:
        """Yield the neighbours whose batches are padded to the size of the largest one among them."""
        parts: list[_Run] = []
        for run in runs:
            if parts and not self._can_join(run, parts, can_pad):
                yield parts
                parts = []
            parts.append(run)
        yield parts

    def _can_join(self, run: _Run, parts: Sequence[_Run], can_pad: CanPad) -> bool:
        """Return whether more neighbours can be computed with those before them."""
        largest = max(run[1], *(sizes for _, sizes in parts))
        return all(
            sizes == largest or can_pad(_num_clients(self._clients(groups)), sizes[0], largest[0])
            for groups, sizes in (*parts, run)
        )


def _num_clients(clients: slice) -> int:
    return cast(int, clients.stop - clients.start)


def _grouped(jobs: Sequence[Fit], counts: Sequence[tuple[int, ...]]) -> Iterator[_Group]:
    first = 0
    for (num_steps, _), some in groupby(zip((job.num_steps for job in jobs), counts, strict=True)):
        end = first + len(list(some))
        yield _Group(slice(first, end), num_steps)
        first = end


class _Stream:
    """One stream of all clients, ``counts`` samples each; clients of a group are neighbours among them."""

    def __init__(
        self,
        name: str,
        jobs: Sequence[Fit],
        counts: Sequence[int],
        groups: Sequence[_Group],
        resources: Resources,
    ) -> None:
        stream = jobs[0].streams[name]
        self._counts = [counts[group.clients.start] for group in groups]
        # Sizes of the batches of a pass; none is skipped, since the nets have no BatchNorm.
        self._sizes = [Pass(count, stream.batch_size).sizes for count in self._counts]
        # Where the samples that each client of a group meets begin among those that all meet, int64 [m, 1].
        self._starts: list[Array] = []
        num_passes, met = list[int](), 0
        for group, count, sizes in zip(groups, self._counts, self._sizes, strict=True):
            num_clients = _num_clients(group.clients)
            num_passes += [-(-group.num_steps // len(sizes))] * num_clients
            length = count * num_passes[-1]
            self._starts.append(met + length * np.arange(num_clients)[:, None])
            met += length * num_clients
        # What all meet, as positions among the samples of one client after the other.
        self._order = _order(name, jobs, counts, num_passes, shuffled=stream.shuffled)
        self._x, labels, rows = _samples([job.streams[name].samples for job in jobs], resources)
        self._rows = rows[self._order]
        self._labels = None if labels is None else labels[self._rows]
        self._extras = {
            label: _rows_of_extra(label, jobs, counts)
            for label, extra in jobs[0].extras.items()
            if extra.stream == name
        }

    def sizes(self, groups: Sequence[int], step: int) -> list[int]:
        """Return the size of each group's batch at a step."""
        passes = self._sizes
        return [passes[group][step % len(passes[group])] for group in groups]

    def batch(self, groups: Sequence[int], step: int, size: int, extras: dict[str, Tensor]) -> Batch:
        """Return the batch of groups, padded to a size; add the rows of the stream's extras."""
        parts = [self._positions(group, step, size) for group in groups]
        positions = parts[0] if len(parts) == 1 else np.concatenate(parts)
        for name, values in self._extras.items():
            extras[name] = _chosen(values, self._order[positions])
        labels = None if self._labels is None else torch.from_numpy(self._labels[positions])
        return Batch(_chosen(self._x, self._rows[positions]), labels)

    def _positions(self, group: int, step: int, size: int) -> Array:
        """Return where the samples of a step are among those that all meet, int64 ``[m, size]``."""
        sizes = self._sizes[group]
        passes, number = divmod(step, len(sizes))
        first = passes * self._counts[group] + number * sizes[0]
        columns = np.arange(first, first + size)
        if size > sizes[number]:
            columns[sizes[number] :] = columns[sizes[number] - 1]
        positions: Array = self._starts[group] + columns
        return positions


def _chosen(values: Tensor, rows: Array) -> Tensor:
    return values.index_select(0, torch.from_numpy(rows.reshape(-1))).view(*rows.shape, *values.shape[1:])


def _order(
    name: str, jobs: Sequence[Fit], counts: Sequence[int], num_passes: Sequence[int], *, shuffled: bool
) -> Array:
    """Return the passes of one client after the other: positions among the samples of all, int64."""
    generator = torch.Generator()
    passes: list[Tensor] = []
    for job, count, its_passes in zip(jobs, counts, num_passes, strict=True):
        if shuffled:
            # From here on the same stream as that of a new generator, which costs more.
            generator.manual_seed(Key.root(job.seed).child("order", name).seed)
            passes += [torch.randperm(count, generator=generator) for _ in range(its_passes)]
        else:
            passes += [torch.arange(count)] * its_passes
    firsts = np.cumsum([0, *counts[:-1]]).repeat(np.multiply(counts, num_passes))
    return cast(Array, torch.cat(passes).numpy() + firsts)


def _samples(samples: Sequence[Samples], resources: Resources) -> tuple[Tensor, Array | None, Array]:
    """Return ``(x [n, ...], y [n], rows)``: the samples of one client after the other are ``x[rows]``."""
    first = samples[0]
    if isinstance(first, InlineSamples):
        inline = cast("list[InlineSamples]", samples)
        x = torch.from_numpy(np.concatenate([some.x for some in inline]))
        y = None if first.y is None else np.concatenate([cast(Array, some.y) for some in inline])
        return x, y, np.arange(len(x))
    x, labels = cast("tuple[Tensor, Tensor]", resources.pool)
    has_labels = not isinstance(first, PublicSamples) or first.labelled
    rows = np.concatenate([rows_of(some, resources) for some in samples])
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
