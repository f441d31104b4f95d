"""Dropout that draws from the job's generator.

Torch's own dropout draws from the process's one generator, so its masks would depend on what else is
running. Here a job names its generator for as long as it trains, and every layer that it meets draws from
that one, in the order of the forward passes; so a job's masks follow from its seed alone.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import nn

from fedsim.errors import InvariantError

# Each thread has a value of its own.
_GENERATOR: ContextVar[torch.Generator | None] = ContextVar("fedsim_dropout_generator", default=None)


@contextmanager
def drawing_from(generator: torch.Generator) -> Iterator[None]:
    """Let every :class:`Dropout` called inside draw from ``generator``, which is on the CPU."""
    token = _GENERATOR.set(generator)
    try:
        yield
    finally:
        _GENERATOR.reset(token)


class Dropout(nn.Module):
    """In training sets each value to zero with probability ``p`` and divides the others by ``1 - p``.

    The law, and with the same generator the mask, are those of ``torch.nn.Dropout``. In evaluation mode it
    gives its input back. Masks are drawn on the CPU, so they are the same wherever the job runs.

    Args:
        p: From 0 to below 1.

    Raises:
        ValueError: Another ``p``.
    """

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        # Written so that NaN fails.
        if not 0 <= p < 1:
            raise ValueError(f"dropout with p = {p!r}: give a probability from 0 to below 1")
        self.p = p

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a tensor of the shape of ``x``.

        Raises:
            InvariantError: It is in training mode, and nobody named a generator.
        """
        if not self.training or self.p == 0:
            return x
        if x.is_meta:
            # Nothing is drawn, but the work is the same.
            return x * torch.empty_like(x)
        generator = _GENERATOR.get()
        if generator is None:
            raise InvariantError(
                "a dropout layer in training mode has no generator to draw from: train in a Fit, which names "
                "its own, call the net inside `with fedsim.models.dropout.drawing_from(generator)`, or put "
                "it into evaluation mode with net.eval()"
            )
        keep = torch.empty(x.shape, dtype=x.dtype).bernoulli_(1 - self.p, generator=generator)
        return x * keep.div_(1 - self.p).to(x.device)
