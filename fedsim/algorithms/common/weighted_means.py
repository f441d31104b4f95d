"""Weighted means of what came back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from fedsim.algorithms.base import Replies, Reply
from fedsim.params import Model, mean_model
from fedsim.wire import ModelUpdate

Weighting = Literal["samples", "uniform"]


def mean_of_models(replies: Replies[ModelUpdate], weighting: Weighting) -> Model:
    """Return the mean of the models that came back, weighted by their clients' samples or all alike."""
    amounts = [reply.message.num_samples if weighting == "samples" else 1 for reply in replies]
    return mean_model([reply.message.model for reply in replies], shares(replies, amounts))


def means_by_architecture(replies: Replies[ModelUpdate], weighting: Weighting) -> dict[str, Model]:
    """Return the mean of the models of each architecture of which any came back, by label."""
    groups: dict[str, list[Reply[ModelUpdate]]] = {}
    for reply in replies:
        groups.setdefault(reply.message.architecture, []).append(reply)
    return {label: mean_of_models(group, weighting) for label, group in groups.items()}


def shares(replies: Replies, amounts: Sequence[float]) -> list[float]:
    """Return weights in proportion to ``amounts``, discounted by each reply's own weight; they sum to one."""
    raw = [amount * reply.weight for amount, reply in zip(amounts, replies, strict=True)]
    total = sum(raw)
    return [value / total for value in raw]
