"""Mixtures of two models: a weighted sum of what both give for a sample.

A mixture is a model like any other, whose label names both: ``cnn|cnn``. So it is predicted with, evaluated,
trained and saved, and its work has the cost of two forward passes. Its net holds both nets under prefixes,
with the running statistics of each, and what they weigh as a buffer.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor, nn

from fedsim.config import Config
from fedsim.models.architecture import Architecture
from fedsim.models.base import ModelPlugin, Net, named
from fedsim.params import Model, Tree, freeze
from fedsim.task import Task

SEPARATOR = "|"
"""Stands between the two labels in that of a mixture."""


def mixed(first: Model, second: Model, share: float) -> Model:
    """Return the model whose outputs are ``share first(x) + (1 - share) second(x)``."""
    weights = freeze({"head.weights": np.array([share, 1 - share], np.float32)})
    return Model(
        f"{first.architecture}{SEPARATOR}{second.architecture}",
        {**_moved(first.params, "first"), **_moved(second.params, "second")},
        {**_moved(first.buffers, "first"), **_moved(second.buffers, "second"), **weights},
    )


def _moved(tree: Tree, place: str) -> Tree:
    """Return a tree under the names that it has in the net of a mixture."""
    return {f"body.both.{place}.{name}": array for name, array in tree.items()}


@lru_cache(maxsize=256)
def mixture_of(first: Architecture, second: Architecture) -> Architecture:
    """Return the architecture of mixtures of models of these two."""
    return Architecture(f"{first.label}{SEPARATOR}{second.label}", _Mixture(first, second), first.task)


class _Mixture(ModelPlugin[Config]):
    """The nets of two architectures beside each other."""

    def __init__(self, first: Architecture, second: Architecture) -> None:
        super().__init__(Config())
        self._first, self._second = first, second

    def build(self, task: Task) -> Net:
        return Net(named(both=_Both(self._first.skeleton(), self._second.skeleton())), _WeightedSum())


class _Both(nn.Module):
    """Gives the outputs of two nets, ``[b, 2, N]``."""

    def __init__(self, first: Net, second: Net) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([self.first(x), self.second(x)], 1)


class _WeightedSum(nn.Module):
    """Adds up the outputs of two nets, ``[b, 2, N]`` to ``[b, N]``."""

    weights: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weights", torch.empty(2))

    def reset_parameters(self) -> None:
        self.weights.fill_(0.5)

    def forward(self, outputs: Tensor) -> Tensor:
        return self.weights[0] * outputs[:, 0] + self.weights[1] * outputs[:, 1]
