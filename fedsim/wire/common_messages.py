"""The messages that most algorithms share: models, and answers on public samples."""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from fedsim.params import Array, Model, Tree
from fedsim.wire.declare import Message, counted, message


def indices_digest(indices: Array) -> int:
    """Return a number in ``[0, 2**63)`` that stands for a sequence of public samples.

    Args:
        indices: Whole numbers ``[p]`` of any integer dtype; equal numbers in equal order give equal digests.

    Raises:
        ValueError: Not one-dimensional, or no integers.
    """
    if indices.ndim != 1 or indices.dtype.kind not in "iu":
        raise ValueError(f"indices are integers of shape [p], these are {indices.dtype} of {indices.shape}")
    digest = hashlib.blake2b(np.ascontiguousarray(indices, "<i8").data, digest_size=8)
    return int.from_bytes(digest.digest(), "little") >> 1


Form = Literal["logits", "probs"]
"""What rows of answers are: raw scores, or probabilities."""


@message("any_model")
class _Carrier(Message):
    """A model on its way; what travels is one of the two below.

    Attributes:
        architecture: Label of the architecture.
        params: Trainable parameters, all or those of a part.
        buffers: Running statistics and counters.
    """

    architecture: str
    params: Tree = counted()
    buffers: Tree

    @cached_property
    def model(self) -> Model:
        """The model carried, made once."""
        return Model(self.architecture, self.params, self.buffers)


@message("model")
class ModelBroadcast(_Carrier):
    """A model on its way to a client."""

    @classmethod
    def of(cls, model: Model) -> Self:
        """Return the message that carries a model."""
        return cls(model.architecture, model.params, model.buffers)


@message("update")
class ModelUpdate(_Carrier):
    """A trained model, or the change of one, on its way to the server.

    Attributes:
        num_samples: Training samples behind it, its weight in a mean: from 1 to as many as the client holds.
    """

    num_samples: int

    def __post_init__(self) -> None:
        if self.num_samples < 0:
            raise ValueError(f"num_samples is {self.num_samples}: a number of samples is not negative")

    @classmethod
    def of(cls, model: Model, num_samples: int) -> Self:
        """Return the message that carries a model trained on so many samples."""
        return cls(model.architecture, model.params, model.buffers, num_samples)


@message("public_batch")
class PublicBatch(Message):
    """Which public samples a round uses.

    Attributes:
        indices: Their numbers, int64 ``[p]``.
    """

    indices: NDArray[np.int64]

    def __post_init__(self) -> None:
        if self.indices.ndim != 1:
            raise ValueError(f"indices have the shape [p], these {list(self.indices.shape)}")


@message("public_data", data=True)
class PublicData(Message):
    """Which public samples a round uses, for receivers that do not hold them.

    Attributes:
        indices: Their numbers, int64 ``[p]``.
        values: The samples ``[p, ...]``: uint8 for images of eight bits, else of the task's type.
    """

    indices: NDArray[np.int64]
    values: Array

    def __post_init__(self) -> None:
        if self.indices.ndim != 1 or self.values.shape[:1] != self.indices.shape:
            raise ValueError(
                f"{list(self.indices.shape)} indices and values of shape {list(self.values.shape)}: one "
                "sample for each index"
            )


@message("any_logits")
class _Logits(Message):
    """Answers on public samples, on their way up or down; what travels is one of the two below.

    Attributes:
        values: One row of N answers per sample, float32 ``[p, N]``.
        form: Whether rows are logits or probabilities.
        temperature: What logits were divided by to become probabilities; 1.0 for logits.
        indices_digest: :func:`indices_digest` of the samples, so that neither side mixes up two sets.
        indices: The samples themselves, int64 ``[p]``, where the receiver does not know them.
    """

    values: NDArray[np.float32] = counted()
    form: Form
    temperature: float
    indices_digest: int
    indices: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        if self.values.ndim != 2:
            raise ValueError(f"values have the shape [p, N], these {list(self.values.shape)}")
        if self.temperature <= 0:
            raise ValueError(f"temperature is {self.temperature}: it is greater than 0")
        if self.indices is not None:
            if self.indices.shape != self.values.shape[:1]:
                raise ValueError(
                    f"indices have the shape [p], here [{len(self.values)}], these {list(self.indices.shape)}"
                )
            if indices_digest(self.indices) != self.indices_digest:
                raise ValueError("indices_digest is not the digest of indices")


@message("logits_up")
class LogitsUp(_Logits):
    """A client's answers on public samples, with the fields of the server's."""


@message("logits_down")
class LogitsDown(_Logits):
    """The server's answers on public samples, with the fields of a client's."""


COMMON: tuple[type[Message], ...] = (
    ModelBroadcast,
    ModelUpdate,
    PublicBatch,
    PublicData,
    LogitsUp,
    LogitsDown,
)
"""The kinds that every receiver knows."""
