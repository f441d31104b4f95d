"""The messages that most algorithms share: models, and predictions on public samples."""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from fedsim.params import Array, Model, Tree
from fedsim.wire.declare import Message, counted, message


def indices_digest(indices: Array) -> int:
    """Return a digest in ``[0, 2**63)`` of a sequence of public samples.

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
"""What rows of predictions are: raw scores, or probabilities."""


@message("any_model")
class _Carrier(Message):
    """Base of the two messages that carry a model.

    Attributes:
        architecture: Label of the architecture, or of a part of one (:mod:`fedsim.models.parts`).
        params: Trainable parameters.
        buffers: Running statistics and counters.
    """

    architecture: str
    params: Tree = counted()
    buffers: Tree

    @cached_property
    def model(self) -> Model:
        """The model carried; made once."""
        return Model(self.architecture, self.params, self.buffers)

    def _carrying(self, model: Model) -> Self:
        """Return the message; its fields are those of ``model``, so it need not be made again."""
        vars(self)["model"] = model
        return self


@message("model")
class ModelBroadcast(_Carrier):
    """A model for a client."""

    @classmethod
    def of(cls, model: Model) -> Self:
        """Return the message that carries a model."""
        return cls(model.architecture, model.params, model.buffers)._carrying(model)


@message("update")
class ModelUpdate(_Carrier):
    """A trained model, or the change of one, for the server.

    Attributes:
        num_samples: Samples that it was trained on, its weight in a mean: from 1 to as many as the client
        has.
    """

    num_samples: int

    def __post_init__(self) -> None:
        if self.num_samples < 0:
            raise ValueError(f"num_samples is {self.num_samples}: a number of samples is not negative")

    @classmethod
    def of(cls, model: Model, num_samples: int) -> Self:
        """Return the message that carries a model trained on ``num_samples`` samples."""
        return cls(model.architecture, model.params, model.buffers, num_samples)._carrying(model)


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
    """The public samples that a round uses, for receivers that do not have them.

    Attributes:
        indices: Their numbers, int64 ``[p]``.
        values: The samples ``[p, ...]``: uint8 for 8-bit images, else of the task's dtype.
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
    """Base of the two messages that carry predictions on public samples.

    Attributes:
        values: One row of N outputs per sample, float32 ``[p, N]``.
        form: Whether rows are logits or probabilities.
        temperature: Divisor of the logits in the softmax that gave probabilities; 1.0 for logits.
        indices_digest: :func:`indices_digest` of the samples, so that neither side mixes up two sets.
        indices: The numbers of the samples, int64 ``[p]``, where the receiver does not know them.
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
    """A client's predictions on public samples."""


@message("logits_down")
class LogitsDown(_Logits):
    """The server's predictions on public samples."""


COMMON: tuple[type[Message], ...] = (
    ModelBroadcast,
    ModelUpdate,
    PublicBatch,
    PublicData,
    LogitsUp,
    LogitsDown,
)
"""The kinds that every receiver knows."""
