"""The order in which a job meets its samples: endless reshuffled passes, cut into mini-batches.

The sizes of the batches are known without running anything, because the cost of a job must be; the order within
a pass comes from the job's own generator.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass over ``num_samples`` samples in batches of ``batch_size``.

    Attributes:
        num_samples: Samples of the stream.
        batch_size: Samples of a full batch.
        skip_single: Leave out a last batch of one sample, which BatchNorm cannot normalise (specification 3.3).
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

    def positions(self, generator: torch.Generator | None) -> Iterator[Tensor]:
        """Yield the positions of each batch for ever, int64 ``[b]``; reshuffled each pass if a generator is given."""
        sizes = list(self.sizes)
        while sizes:
            if generator is None:
                order = torch.arange(self.num_samples)
            else:
                order = torch.randperm(self.num_samples, generator=generator)
            yield from order[: sum(sizes)].split(sizes)


def size_counts(passes: Sequence[Pass], num_steps: int) -> Counter[tuple[int, ...]]:
    """Count how often each combination of batch sizes occurs in ``num_steps`` steps over parallel streams."""
    counts: Counter[tuple[int, ...]] = Counter()
    if len(passes) == 1:
        whole, part = divmod(num_steps, max(len(passes[0]), 1))
        for index, size in enumerate(passes[0].sizes):
            counts[(size,)] += whole + (index < part)
        return counts
    patterns = [one.sizes for one in passes]
    for step in range(num_steps):
        counts[tuple(sizes[step % len(sizes)] for sizes in patterns)] += 1
    return counts
