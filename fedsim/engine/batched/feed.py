"""The batches of many clients that take their n-th steps together.

Clients are sorted by steps and by samples, so those that are at work are the first ones at every step, and
those whose batches have one size are neighbours. m: clients, b: batch, i: inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from fedsim.engine.batches import Pass
from fedsim.engine.jobs import ClientSamples, Fit, GlobalTest, InlineSamples, Samples
from fedsim.engine.losses import TRAIN
from fedsim.engine.worker_state import Resources
from fedsim.params import Array
from fedsim.rng import Key


class Batches(NamedTuple):
    """The batches that some neighbours meet at a step.

    Attributes:
        clients: Whose.
        x: Samples ``[m, b, i]``.
        labels: Classes, int64 ``[m, b]``.
    """

    clients: slice
    x: Tensor
    labels: Tensor


@dataclass(slots=True)
class _Alike:
    """Neighbours with as many samples and steps.

    Attributes:
        clients: Which ones.
        num_steps: Steps.
        num_samples: Samples.
        sizes: Sizes of the batches of a pass; none is skipped, since the nets have no BatchNorm.
        starts: Where the samples that each meets begin among those that all meet, int64 ``[m, 1]``.
    """

    clients: slice
    num_steps: int
    num_samples: int
    sizes: tuple[int, ...]
    starts: Array

    @property
    def num_passes(self) -> int:
        """Passes that are begun."""
        return -(-self.num_steps // len(self.sizes))

    def size(self, step: int) -> int:
        """Return the size of the batch of a step."""
        return self.sizes[step % len(self.sizes)]

    def positions(self, step: int) -> Array:
        """Return where the samples of a step are among those that all meet, int64 ``[m, b]``."""
        passes, number = divmod(step, len(self.sizes))
        first = passes * self.num_samples + number * self.sizes[0]
        return self.starts + np.arange(first, first + self.sizes[number])


class BatchedFeed:
    """Hands out the batches of fits that take the same kind of samples, in the same way.

    Args:
        jobs: The fits, those with most steps first, then those with most samples.
        counts: Samples of each, at least one.
        resources: Samples.
    """

    def __init__(self, jobs: Sequence[Fit], counts: Sequence[int], resources: Resources) -> None:
        stream = jobs[0].streams[TRAIN]
        self._groups = list(_grouped(jobs, counts, stream.batch_size))
        self._x, y, rows = _samples(jobs, resources)
        self._rows = rows[_orders(jobs, self._groups, shuffled=stream.shuffled)]
        self._labels = y[self._rows]

    @property
    def most(self) -> int:
        """Size of the largest batch."""
        return max(group.sizes[0] for group in self._groups)

    def num_at_work(self, step: int) -> int:
        """Return how many clients, from the first on, have this step."""
        while self._groups[-1].num_steps <= step:
            self._groups.pop()
        return cast(int, self._groups[-1].clients.stop)

    def at(self, step: int) -> Iterator[Batches]:
        """Yield the batches of a step, from the first client on; steps are asked for in order."""
        for size, some in groupby(self._groups, key=lambda group: group.size(step)):
            alike = list(some)
            positions = alike[0].positions(step)
            if len(alike) > 1:
                positions = np.concatenate([positions, *(group.positions(step) for group in alike[1:])])
            rows = torch.from_numpy(self._rows[positions].reshape(-1))
            yield Batches(
                slice(alike[0].clients.start, alike[-1].clients.stop),
                self._x.index_select(0, rows).view(len(positions), size, -1),
                torch.from_numpy(self._labels[positions]),
            )


def _grouped(jobs: Sequence[Fit], counts: Sequence[int], batch_size: int) -> Iterator[_Alike]:
    first = met = 0
    for (num_steps, count), some in groupby(zip((job.num_steps for job in jobs), counts, strict=True)):
        num_clients = len(list(some))
        group = _Alike(
            slice(first, first + num_clients), num_steps, count, Pass(count, batch_size).sizes, np.empty(0)
        )
        length = count * group.num_passes
        group.starts = met + length * np.arange(num_clients)[:, None]
        yield group
        first += num_clients
        met += length * num_clients


def _samples(jobs: Sequence[Fit], resources: Resources) -> tuple[Tensor, Array, Array]:
    """Return ``(x [n, i], y [n], rows)``: the samples of one job after the other are ``x[rows]``."""
    samples = [job.streams[TRAIN].samples for job in jobs]
    if isinstance(samples[0], InlineSamples):
        inline = cast("list[InlineSamples]", samples)
        x = torch.from_numpy(np.concatenate([some.x for some in inline]))
        y = np.concatenate([cast(Array, some.y) for some in inline])
        return x.flatten(1), y, np.arange(len(y))
    x, labels = cast("tuple[Tensor, Tensor]", resources.pool)
    return x.flatten(1), labels.numpy(), np.concatenate([rows_of(some, resources) for some in samples])


def rows_of(samples: Samples, resources: Resources) -> Array:
    """Return the positions of samples in the pool; the same array for the same set of all clients."""
    match samples:
        case ClientSamples(client, split):
            return resources.data.indices(client, split)
        case GlobalTest():
            return resources.data.global_test
    return cast(Tensor, resources.tensors(samples)[2]).numpy()


def _orders(jobs: Sequence[Fit], groups: Sequence[_Alike], *, shuffled: bool) -> Array:
    """Return the passes of one client after the other: positions among the samples of all, int64."""
    generator = torch.Generator()
    passes: list[Tensor] = []
    firsts: list[Array] = []
    first = 0
    for group in groups:
        count, num_passes = group.num_samples, group.num_passes
        for job in jobs[group.clients]:
            if shuffled:
                # From here on the same stream as that of a new generator, which costs more.
                generator.manual_seed(Key.root(job.seed).child("order", TRAIN).seed)
                passes += [torch.randperm(count, generator=generator) for _ in range(num_passes)]
            else:
                passes += [torch.arange(count)] * num_passes
        end = first + count * (group.clients.stop - group.clients.start)
        firsts.append(np.arange(first, end, count).repeat(count * num_passes))
        first = end
    return cast(Array, torch.cat(passes).numpy() + np.concatenate(firsts))
