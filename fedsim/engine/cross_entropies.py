"""The cross-entropy of many clients at once, with the bits of torch's of one client.

m: clients, b: samples, N: classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

COLUMNS = 64
"""Torch adds up so many columns at once, whatever the processor; fewer it may add up in another order."""


class _CrossEntropies(torch.autograd.Function):
    """Sums of cross-entropies ``[m]`` of logits ``[m, b, N]`` and labels ``[m, b]``."""

    @staticmethod
    def forward(context: Any, logits: Tensor, labels: Tensor) -> Tensor:
        log_p, places = torch.log_softmax(logits, -1), labels[..., None]
        context.save_for_backward(log_p, places)
        return sums_of_losses([-log_p.gather(-1, places)[..., 0]])

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Any:
        log_p, places = context.saved_tensors
        (gradient,) = gradients
        # What autograd does for one client; softmax minus one-hot would round otherwise.
        slopes = torch.zeros_like(log_p).scatter_(-1, places, -gradient[:, None, None].expand(places.shape))
        return torch.ops.aten._log_softmax_backward_data(slopes, log_p, -1, log_p.dtype), None


def cross_entropies(logits: Tensor, labels: Tensor, reduction: Literal["mean", "sum"]) -> Tensor:
    """Return each client's cross-entropy ``[m]`` of logits ``[m, b, N]`` and labels ``[m, b]``."""
    sums: Tensor = _CrossEntropies.apply(logits, labels)  # type: ignore[no-untyped-call]
    return sums / labels.shape[1] if reduction == "mean" else sums


def sums_of_losses(parts: Sequence[Tensor]) -> Tensor:
    """Return the sum of each row of some tensors ``[m, b]``, added up in the order of torch's ``nll_loss``.

    That is the first loss, and before it a cascade of the others: the one in which torch adds up columns, to
    which zeros at the end of a column make no difference. The two part from 65,537 samples on.
    """
    num_rows = sum(len(part) for part in parts)
    longest = max(part.shape[1] for part in parts)
    columns = parts[0].new_zeros(longest, -(-num_rows // COLUMNS) * COLUMNS)
    first = 0
    for part in parts:
        columns[: part.shape[1], first : first + len(part)] = part.mT
        first += len(part)
    return (columns[1:].sum(0) + columns[0])[:num_rows]
