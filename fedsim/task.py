"""What a model is asked to learn: the shape of its input and output, shared by data sets and models."""

from dataclasses import dataclass
from math import prod
from typing import Literal

TaskKind = Literal["classification", "regression"]


@dataclass(frozen=True, slots=True)
class Task:
    """The interface between a data set and an architecture.

    Attributes:
        input_shape: Shape of one sample, without the batch: ``(64,)``, ``(channels, height, width)`` or, for
            a text, ``(length,)``.
        num_outputs: Units of the output layer; for a classification the number of classes.
        kind: What the outputs mean; the next character of a text is a classification.
        vocabulary: Number of different tokens where samples are texts, int64 in ``[0, vocabulary)``; 0 for
            all other samples, which are float32.
    """

    input_shape: tuple[int, ...]
    num_outputs: int
    kind: TaskKind = "classification"
    vocabulary: int = 0

    @property
    def num_inputs(self) -> int:
        """Scalars in one sample."""
        return prod(self.input_shape)

    @property
    def dtype(self) -> Literal["float32", "int64"]:
        """Type of a sample's scalars."""
        return "int64" if self.vocabulary else "float32"

    @property
    def label_dtype(self) -> Literal["float32", "int64"]:
        """Type of the labels: classes are int64 ``[n]``, targets of a regression float32 ``[n]``."""
        return "float32" if self.kind == "regression" else "int64"
