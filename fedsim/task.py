"""What a model is asked to learn: the shape of its input and output, shared by data sets and models."""

from dataclasses import dataclass
from math import prod
from typing import Literal

TaskKind = Literal["classification"]


@dataclass(frozen=True, slots=True)
class Task:
    """The interface between a data set and an architecture.

    Attributes:
        input_shape: Shape of one sample, without the batch: ``(64,)`` or ``(channels, height, width)``.
        num_outputs: Units of the output layer; for a classification the number of classes.
        kind: What the outputs mean.
    """

    input_shape: tuple[int, ...]
    num_outputs: int
    kind: TaskKind = "classification"

    @property
    def num_inputs(self) -> int:
        """Scalars in one sample."""
        return prod(self.input_shape)
