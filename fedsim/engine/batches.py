"""The order in which a job meets its samples: endless reshuffled passes, cut into mini-batches.

The sizes of the batches are known without running anything, because the cost of a job must be; the order
within a pass comes from the job's own generator.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import lcm

import torch
from torch import Tensor

from fedsim.to_device import to_device


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass over ``num_samples`` samples in batches of ``batch_size``.

    Attributes:
        num_samples: Samples of the stream.
        batch_size: Samples of a full batch.
        skip_single: Leave out a last batch of one sample, which BatchNorm cannot normalise (specification
            3.3).
    """

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

    def orders(
        self, generator: torch.Generator | None, device: torch.device | None = None
    ) -> Iterator[Tensor]:
        """Yield the positions of pass after pass, int64 ``[sum(sizes)]``; nothing where a pass has no batch.

        Args:
            generator: Reshuffles each pass, drawing on the CPU; None for the samples' own order.
            device: Where the positions are wanted; the CPU by default.
        """
        used = sum(self.sizes)
        while used:
            if generator is None:
                order = torch.arange(self.num_samples)
            else:
                order = torch.randperm(self.num_samples, generator=generator)
            yield order[:used] if device is None else to_device(order[:used], device)


def num_steps(passes: Sequence[Pass], epochs: int | None, steps: int | None) -> int:
    """Return how many steps a job does, each of which meets a batch of every stream.

    Args:
        passes: Streams that are met side by side; where one has no batch, there is no step.
        epochs: Passes over the first stream; None means 1.
        steps: Steps, instead of ``epochs``.
    """
    lengths = [len(one) for one in passes]
    if not lengths or min(lengths) == 0:
        return 0
    return lengths[0] * (1 if epochs is None else epochs) if steps is None else steps


def size_counts(passes: Sequence[Pass], num_steps: int) -> Counter[tuple[int, ...]]:
    """Count how often each combination of batch sizes occurs in ``num_steps`` steps.

    Args:
        passes: Streams that are met side by side, each with at least one batch.
        num_steps: Every step takes the next batch of each stream.
    """
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
