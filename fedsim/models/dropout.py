"""Dropout that draws from the job's generator.

Torch's own dropout draws from the global generator of the process, so its masks would depend on what else is
running. Here a job sets its own generator while it trains (:func:`drawing_from`), and all dropout layers draw
from it in the order of the forward passes, so a job's masks depend only on its seed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import nn

from fedsim.errors import InvariantError
from fedsim.to_device import to_device

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
    """Sets each value to zero with probability ``p`` in training, and divides the others by ``1 - p``.

    With the same generator, the mask is that of ``torch.nn.Dropout``. In evaluation mode the input is
    returned unchanged. Masks are drawn on the CPU, so they are the same wherever the job runs.
    """

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        # Written so that NaN fails.
        if not 0 <= p < 1:
            raise ValueError(f"dropout with p = {p!r}: give a probability from 0 to below 1")
        self.p = p

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a tensor of the shape of ``x``."""
        if not self.training or self.p == 0:
            return x
        if x.is_meta:
            # Nothing can be drawn there, but the operations have to be counted.
            return x * torch.empty_like(x)
        generator = _GENERATOR.get()
        if generator is None:
            raise InvariantError(
                "a dropout layer in training mode has no generator to draw from: train in a Fit, which sets "
                "its own, call the net inside `with fedsim.models.dropout.drawing_from(generator)`, or put "
                "it into evaluation mode with net.eval()"
            )
        keep = torch.empty(x.shape, dtype=x.dtype).bernoulli_(1 - self.p, generator=generator)
        return x * to_device(keep.div_(1 - self.p), x.device)
