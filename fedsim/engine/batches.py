"""The order in which a job meets its samples: endless reshuffled passes, cut into mini-batches.

The sizes of the batches are known without running anything, because the cost of a job must be; the order
within a pass comes from the job's seed.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import lcm

import torch
from torch import Tensor

from fedsim.params import Array
from fedsim.rng import SeededStream
from fedsim.to_device import to_device


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass in batches; BatchNorm needs ``skip_single``, without a last one of one sample (spec. 3.3)."""

    num_samples: int
    batch_size: int
    skip_single: bool = False

    @property
    def sizes(self) -> tuple[int, ...]:
        """The size of each batch of a pass."""
        full, rest = divmod(self.num_samples, self.batch_size)
        last = () if rest == 0 or (rest == 1 and self.skip_single) else (rest,)
        return (self.batch_size,) * full + last

    def __len__(self) -> int:
        full, rest = divmod(self.num_samples, self.batch_size)
        return full + (rest > 1 or (rest == 1 and not self.skip_single))

    def orders(self, stream: SeededStream | None, device: torch.device | None = None) -> Iterator[Tensor]:
        """Yield the positions of pass after pass, int64 ``[sum(sizes)]``; nothing where a pass has no batch.

        The stream reshuffles each pass on the CPU (:func:`shuffled`); without one samples keep their order.
        """
        used = sum(self.sizes)
        while used:
            if stream is None:
                order = torch.arange(self.num_samples)
            else:
                order = torch.from_numpy(shuffled(stream.draw(self.num_samples)))
            yield order[:used] if device is None else to_device(order[:used], device)


_STREAMS = threading.local()


def order_stream(name: str, seed: int = 0) -> SeededStream:
    """Return the numbers that order the samples of a stream of fits, at the start for a fit's seed.

    A thread has one stream of a name, since a fit draws from it alone; making one takes as long as a step.
    """
    streams: dict[str, SeededStream] = vars(_STREAMS)
    if (numbers := streams.get(name)) is None:
        numbers = streams[name] = SeededStream("order", name)
    numbers.start(seed)
    return numbers


def shuffled(draws: Array) -> Array:
    """Return permutations of the last axis, int64: the order of as many draws, uint64 ``[..., n]``."""
    order: Array = draws.argsort(axis=-1, kind="stable")
    return order


def num_steps(passes: Sequence[Pass], epochs: int | None, steps: int | None) -> int:
    """Return how many steps a job does: ``steps``, or ``epochs`` (1) passes over its first stream."""
    lengths = [len(one) for one in passes]
    if not lengths or min(lengths) == 0:
        return 0
    return lengths[0] * (1 if epochs is None else epochs) if steps is None else steps


def size_counts(passes: Sequence[Pass], num_steps: int) -> Counter[tuple[int, ...]]:
    """Count how often each combination of batch sizes of streams, met side by side, occurs in the steps."""
    counts: Counter[tuple[int, ...]] = Counter()
    if len(passes) == 1:
        # The common case, asked for at every dispatch: all batches are full but the last of a whole pass.
        (one,) = passes
        full, rest = divmod(one.num_samples, one.batch_size)
        smaller = num_steps // len(one) if len(one) > full else 0
        counts[one.batch_size,] += num_steps - smaller
        counts[rest,] += smaller
        return +counts
    patterns = [one.sizes for one in passes]
    # The streams repeat themselves at their own pace, and all together after the least common multiple.
    period = lcm(*(len(sizes) for sizes in patterns))
    whole, part = divmod(num_steps, period)
    for step in range(min(period, num_steps)):
        counts[tuple(sizes[step % len(sizes)] for sizes in patterns)] += whole + (step < part)
    return counts
