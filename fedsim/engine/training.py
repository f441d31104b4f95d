"""How clients train unless an algorithm says otherwise: the scenario's ``[training]`` table."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from fedsim.config import Config
from fedsim.engine.optimisers import Adam, Optimiser, Sgd

Positive = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, lt=1)]


class TrainingConfig(Config):
    """Local training: optimiser, batches, and how much work one asking is."""

    lr: Positive = 0.05
    """Learning rate."""
    batch_size: Annotated[int, Field(ge=1)] = 32
    """Samples in a mini-batch; the last of a pass may be smaller."""
    epochs: Annotated[int, Field(ge=0)] | None = None
    """Shuffled passes over the client's training data for one asking; 1 unless `steps` is given."""
    steps: Annotated[int, Field(ge=0)] | None = None
    """Mini-batches for one asking, from an endless reshuffled stream; instead of `epochs`."""
    optimiser: Literal["sgd", "adam"] = "sgd"
    """The optimiser; its state is made anew for each asking."""
    momentum: Share = 0.0
    """Momentum of `sgd`."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """L2 penalty, added to the gradient."""

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

    def make_optimiser(self, lr: float | None = None) -> Optimiser:
        """Return the optimiser, with another learning rate if one is given."""
        rate = self.lr if lr is None else lr
        if self.optimiser == "adam":
            return Adam(lr=rate, weight_decay=self.weight_decay)
        return Sgd(lr=rate, momentum=self.momentum, weight_decay=self.weight_decay)
