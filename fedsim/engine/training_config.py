"""How clients train unless an algorithm says otherwise: the scenario's ``[training]`` table."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from pydantic import ValidationInfo, field_validator

from fedsim.config import Config
from fedsim.engine.jobs import PublicBuffers
from fedsim.engine.optimisers import Adam, Clipped, Optimiser, Scheduled, Sgd
from fedsim.engine.schedules import ScheduleChoice, Schedules, factor
from fedsim.plugin_choice import Several
from fedsim.ranges import BatchSize, Coefficient, Epochs, LearningRate, Norm, PartialShare, Steps


class TrainingConfig(Config):
    """Local training: optimiser, batches, and how much work one dispatch is."""

    lr: LearningRate = 0.05
    """Learning rate."""
    schedule: Several[ScheduleChoice] = ()
    """How `lr` changes, by round or by step of each training: a name, a table of name, by and params, or a
    list of such, whose factors are multiplied. Rates among an algorithm's own parameters stay as they are."""
    batch_size: BatchSize = 32
    """Samples in a mini-batch; the last of a pass may be smaller."""
    epochs: Epochs | None = None
    """Shuffled passes over the client's training data for one dispatch; 1 unless `steps` is given."""
    steps: Steps | None = None
    """Mini-batches for one dispatch, from an endless reshuffled stream; instead of `epochs`."""
    optimiser: Literal["sgd", "adam"] = "sgd"
    """The optimiser; its state is made anew for each training, unless `keep_optimiser`."""
    momentum: PartialShare = 0.0
    """Momentum of `sgd`."""
    weight_decay: Coefficient = 0.0
    """L2 penalty, added to the gradient."""
    clip_norm: Norm | None = None
    """Euclidean norm to which longer gradients of a model are shortened, after any correction by the
    algorithm, as torch's `clip_grad_norm_` does; none are if left out."""
    public_buffers: PublicBuffers = "frozen"
    """What BatchNorm does while a model is distilled on public samples, which need not look like the
    clients' own. `frozen`: it normalises by its running statistics, which stay as they are. `restored`: it
    normalises by the statistics of the batch, and the running ones are put back. `moving`: they follow the
    public samples, as the papers' code has it. Without BatchNorm it makes no difference."""
    keep_optimiser: bool = False
    """Whether a client's optimiser goes on where it stopped when the client last trained in the same step of
    the algorithm and with the same architecture, be its reply merged or not; not from values that are
    infinite or NaN. The observer's training always begins anew, and so does the server's, but for that of
    `centralized`, and of `fedgkt`, which always goes on. Of every model that it has trained in a step of its
    own name a client then holds as much as the model, or twice as much with `adam`; of PersFL's grid, for
    each of its points."""

    # Of single fields, so that a fault of another field hides neither.
    @field_validator("steps", mode="after")
    @classmethod
    def _one_measure_of_work(cls, steps: int | None, info: ValidationInfo) -> int | None:
        if steps is not None and info.data.get("epochs") is not None:
            raise ValueError("work is measured in epochs or in steps: give one of them, not both")
        return steps

    @field_validator("momentum", mode="after")
    @classmethod
    def _of_sgd(cls, momentum: float, info: ValidationInfo) -> float:
        if momentum and info.data.get("optimiser") == "adam":
            raise ValueError("momentum belongs to optimiser = 'sgd'; adam has its own averages: leave it out")
        return momentum

    @field_validator("keep_optimiser", mode="after")
    @classmethod
    def _something_to_keep(cls, keep_optimiser: bool, info: ValidationInfo) -> bool:
        if keep_optimiser and info.data.get("optimiser") == "sgd" and info.data.get("momentum") == 0:
            raise ValueError(
                "sgd without momentum remembers nothing that could be kept: set momentum, take adam, or "
                "leave it out"
            )
        return keep_optimiser

    @property
    def changes_by_step(self) -> bool:
        """Whether the learning rate changes within a training."""
        return any(one.by == "step" for one in self.schedule)

    def in_round(self, round: int, num_rounds: int) -> TrainingConfig:  # noqa: A002
        """Return how clients train in a round: at the learning rate that the schedules by round give it.

        Args:
            round: From 1 on; what comes before the first, or after the last, has the rate of that one.
            num_rounds: How many rounds there are.
        """
        if not any(one.by == "round" for one in self.schedule):
            return self
        position = min(max(round, 1), num_rounds) - 1
        rate = self.lr * factor(self.schedule, "round", position, num_rounds)
        return self.model_copy(update={"lr": rate})

    def total_rate(self, num_steps: int) -> float:
        """Return the sum of the learning rates of the steps of one training."""
        if not self.changes_by_step:
            return num_steps * self.lr
        factors = (factor(self.schedule, "step", step, num_steps) for step in range(num_steps))
        return self.lr * sum(factors)

    def make_optimiser(self, lr: float | None = None) -> Optimiser:
        """Return the optimiser, with another learning rate if one is given, which follows no schedule."""
        by_step = self.schedule if lr is None and self.changes_by_step else ()
        rate = self.lr if lr is None else lr
        return _optimiser(self.optimiser, rate, self.momentum, self.weight_decay, by_step, self.clip_norm)


@lru_cache(maxsize=64)  # every fit asks for one, and few are different
def _optimiser(
    name: str, lr: float, momentum: float, weight_decay: float, by_step: Schedules, clip_norm: float | None
) -> Optimiser:
    plain = Adam(lr, weight_decay) if name == "adam" else Sgd(lr, momentum, weight_decay)
    made = Scheduled(plain, by_step) if by_step else plain
    return made if clip_norm is None else Clipped(made, clip_norm)
