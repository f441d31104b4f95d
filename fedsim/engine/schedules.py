"""Schedules: factors of the learning rate, by round or by step of a fit.

Rounds and steps are counted from 0. The round is that in which the server sent the dispatch, so a late reply
was trained at the rate of its dispatch. A step is one of the optimiser, and each fit begins at 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from functools import lru_cache
from math import cos, pi, prod
from typing import Annotated, Any, Literal

from pydantic import Field

from fedsim.config import Ascending, AsTuple, Config
from fedsim.plugin_choice import Kind, NamedChoice
from fedsim.plugins import C, Plugin
from fedsim.ranges import Coefficient, Few, PositiveInterval, PositiveShare, Share

By = Literal["round", "step"]


class Schedule(Plugin[C], ABC):
    """A function of position, and perhaps of length."""

    @abstractmethod
    def factor(self, position: int, length: int) -> float:
        """Return the factor, at least 0.

        Args:
            position: Rounds, or steps, before this one.
            length: Rounds of the run, or steps of the fit, at least 1; 1 where nothing :meth:`needs_length`.
        """

    @property
    def needs_length(self) -> bool:
        """Whether the factor depends on the length."""
        return False


SCHEDULE = Kind("schedule", "fedsim.engine.schedules", Schedule)  # type: ignore[type-abstract]


class ScheduleChoice(NamedChoice):
    """How the learning rate changes."""

    KIND = SCHEDULE
    name: str
    by: By = "round"
    """What it counts: rounds of the run, or the steps of each training, which begins anew with the first."""

    @property
    def needs_length(self) -> bool:
        """Whether its factor depends on how many rounds, or steps, there are."""
        schedule: Schedule[Any] = self.make()
        return schedule.needs_length


Schedules = tuple[ScheduleChoice, ...]


@lru_cache(maxsize=4096)  # the same for all clients of a round
def factor(schedules: Schedules, by: By, position: int, length: int) -> float:
    """Return the product of the factors of those schedules that count rounds, or steps."""
    return prod(
        (choice.make().factor(position, length) for choice in schedules if choice.by == by), start=1.0
    )


class CosineConfig(Config):
    """Where and when it ends."""

    total_iters: PositiveInterval | None = None
    """Rounds, or steps, until the end, from which on the rate stays: torch's `T_max`; those of the run, or of
    each training, if left out."""
    min_factor: Share = 0.0
    """The factor at the end: torch's `eta_min`, as a share of the rate."""


class Cosine(Schedule[CosineConfig]):
    """The rate falls along half a cosine (torch's CosineAnnealingLR).

    Loshchilov, Hutter: SGDR: Stochastic Gradient Descent with Warm Restarts, ICLR 2017 (arXiv 1608.03983),
    equation 5, without restarts.
    """

    def factor(self, position: int, length: int) -> float:
        """``min_factor + (1 - min_factor) (1 + cos(pi min(t, T) / T)) / 2``."""
        total, least = self.config.total_iters or length, self.config.min_factor
        return least + (1 - least) * (1 + cos(pi * min(position, total) / total)) / 2

    @property
    def needs_length(self) -> bool:
        """True if ``total_iters`` is not given."""
        return self.config.total_iters is None


class ExponentialConfig(Config):
    """How fast it falls."""

    gamma: PositiveShare = 0.99
    """Factor of each round, or step."""


class Exponential(Schedule[ExponentialConfig]):
    """The rate falls by a factor with every round (torch's ExponentialLR).

    McMahan, Moore, Ramage, Hampson, Agüera y Arcas: Communication-Efficient Learning of Deep Networks from
    Decentralized Data, AISTATS 2017 (arXiv 1602.05629), section 3: 0.99 a round, for FedAvg on CIFAR-10.
    """

    def factor(self, position: int, length: int) -> float:
        """``gamma ** t``."""
        power: float = self.config.gamma**position
        return power


class InverseTimeConfig(Config):
    """How fast it falls."""

    decay: Coefficient = 0.1
    """Decay: after `1 / decay` rounds, or steps, the rate is half of the first."""


class InverseTime(Schedule[InverseTimeConfig]):
    """The rate falls as one over the rounds, as proofs of convergence have it.

    Li, Huang, Yang, Wang, Zhang: On the Convergence of FedAvg on Non-IID Data, ICLR 2020 (arXiv 1907.02189),
    theorem 1: ``2 / (mu (gamma + t))``, which is a first rate times ``1 / (1 + t / gamma)``. With a rate that
    does not decay FedAvg ends beside the optimum (theorem 4).
    """

    def factor(self, position: int, length: int) -> float:
        """``1 / (1 + decay t)``."""
        return 1 / (1 + self.config.decay * position)


class LinearConfig(Config):
    """From where to where, and how fast."""

    start_factor: Share = 1 / 3
    """The first factor."""
    end_factor: Share = 1.0
    """The last factor, which stays."""
    total_iters: PositiveInterval = 5
    """Rounds, or steps, from the first to the last factor."""


class Linear(Schedule[LinearConfig]):
    """In even steps from one factor to another: a warm-up, or a linear decay (torch's LinearLR).

    The defaults are torch's, a warm-up. Goyal et al.: Accurate, Large Minibatch SGD: Training ImageNet in 1
    Hour, 2017 (arXiv 1706.02677), section 2.2: a gradual warm-up.
    """

    def factor(self, position: int, length: int) -> float:
        """``start_factor + (end_factor - start_factor) min(t, T) / T``, exact at the end."""
        start, end, total = self.config.start_factor, self.config.end_factor, self.config.total_iters
        return end if position >= total else start + (end - start) * position / total


class MultiStepConfig(Config):
    """When it falls, and how far."""

    milestones: Annotated[tuple[PositiveInterval, ...], AsTuple, Few, Ascending] = Field(
        examples=["[50, 75]"]
    )
    """After how many rounds, or steps, it falls, ascending."""
    gamma: PositiveShare = 0.1
    """Factor of each fall."""


class MultiStep(Schedule[MultiStepConfig]):
    """The rate falls by a factor at each of some rounds (torch's MultiStepLR)."""

    def factor(self, position: int, length: int) -> float:
        """``gamma ** (number of milestones that are at most t)``."""
        power: float = self.config.gamma ** bisect_right(self.config.milestones, position)
        return power


class PolynomialConfig(Config):
    """When it ends, and how it bends."""

    total_iters: PositiveInterval | None = None
    """Rounds, or steps, until the rate is 0, and stays so; those of the run, or of each training, if left
    out."""
    power: Annotated[float, Field(gt=0, le=100)] = 1.0
    """The exponent."""


class Polynomial(Schedule[PolynomialConfig]):
    """The rate falls to 0 along a power; with a power of 1, in even steps (torch's PolynomialLR)."""

    def factor(self, position: int, length: int) -> float:
        """``(1 - min(t, T) / T) ** power``."""
        total = self.config.total_iters or length
        power: float = (1 - min(position, total) / total) ** self.config.power
        return power

    @property
    def needs_length(self) -> bool:
        """True if ``total_iters`` is not given."""
        return self.config.total_iters is None


class StepConfig(Config):
    """How often it falls, and how far."""

    step_size: PositiveInterval = Field(examples=[30])
    """Rounds, or steps, from one fall to the next."""
    gamma: PositiveShare = 0.1
    """Factor of each fall."""


class Step(Schedule[StepConfig]):
    """The rate falls by a factor every so many rounds (torch's StepLR)."""

    def factor(self, position: int, length: int) -> float:
        """``gamma ** (t // step_size)``."""
        power: float = self.config.gamma ** (position // self.config.step_size)
        return power


PLUGINS = {
    "cosine": Cosine,
    "exponential": Exponential,
    "inverse_time": InverseTime,
    "linear": Linear,
    "multistep": MultiStep,
    "polynomial": Polynomial,
    "step": Step,
}
