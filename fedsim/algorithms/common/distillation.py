"""Distillation: bringing a student's predictions near a teacher's (specification 3.2).

Teachers are probabilities, one row for each sample, given as the extra ``teacher`` (PersFL's are logits,
since each of its students has a temperature of its own). b: batch, m: teachers, N: classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch.nn.functional as F  # noqa: N812 - the name that everyone knows
from numpy.typing import DTypeLike
from torch import Tensor

from fedsim.engine.compute_context import ComputeContext
from fedsim.engine.jobs import Samples, Stream, per_sample
from fedsim.engine.losses import MODEL, PUBLIC, TEACHER, Batches, Extras, Loss, Models, serves_many
from fedsim.engine.steps import Descent
from fedsim.params import Array, Model

SMALLEST = 1e-12
"""A teacher's probabilities are taken to be at least this inside a logarithm."""


def softmax(logits: Array, temperature: float = 1.0, dtype: DTypeLike = np.float32) -> Array:
    """Return the probabilities of logits ``[..., N]``, computed in float64 and then of ``dtype``."""
    scaled = logits.astype(np.float64) / temperature
    scaled -= scaled.max(axis=-1, keepdims=True)
    np.exp(scaled, out=scaled)
    scaled /= scaled.sum(axis=-1, keepdims=True)
    return scaled.astype(dtype, copy=False)


def divergences(of: Tensor, log_from: Tensor, log_of: Tensor | None = None) -> Tensor:
    """Return each row's KL(of || from) ``[...]``, summed over classes; ``0 log 0`` is 0.

    Gradients go through all arguments.

    Args:
        of: Probabilities ``[..., N]``.
        log_from: Logarithms of the other probabilities ``[..., N]``.
        log_of: Logarithms of ``of``, if they are known more exactly ``[..., N]``.
    """
    return (of * ((of.clamp_min(SMALLEST).log() if log_of is None else log_of) - log_from)).sum(dim=-1)


def kl_divergence(teacher: Tensor, log_student: Tensor) -> Tensor:
    """Return KL(teacher || student), mean over the rows b, for each client of a batch.

    Args:
        teacher: Probabilities ``[..., b, N]``, without gradient.
        log_student: Logarithms of the student's probabilities ``[..., b, N]``.
    """
    return divergences(teacher.detach(), log_student).mean(-1)


def kl_of_logits(teacher: Tensor, student: Tensor) -> Tensor:
    """Return KL(teacher || student) of logits ``[b, N]``; no gradient goes to the teacher."""
    return kl_divergence(F.softmax(teacher, dim=-1), F.log_softmax(student, dim=-1))


@dataclass(frozen=True, slots=True)
class Distillation:
    """The loss ``factor * KL(teacher || softmax(logits / temperature))`` of one model on public samples.

    With several teachers, ``[b, m, N]``, it is the mean over them. It has the teacher's precision. With
    float64 a student that agrees with its teacher has a gradient of nearly 0; the rounding of float32 is
    enough for Adam to take steps of full length.

    Attributes:
        temperature: Divisor of the student's logits; the teacher's are divided before.
        factor: Weight of the loss, such as ``temperature ** 2``.
    """

    temperature: float = 1.0
    factor: float = 1.0

    @serves_many
    def __call__(self, models: Models, batches: Batches, extras: Extras) -> Tensor:
        """Return the loss."""
        teacher = extras[TEACHER]
        logits = models[MODEL].public(batches[PUBLIC].x).to(teacher.dtype)
        log_student = F.log_softmax(logits / self.temperature, dim=-1)
        if teacher.ndim > log_student.ndim:
            log_student = log_student.unsqueeze(-2)
        return self.factor * divergences(teacher, log_student).flatten(logits.ndim - 2).mean(-1)


async def distil(
    party: ComputeContext,
    model: Model,
    samples: Samples,
    rows: Mapping[str, Array],
    *,
    loss: Loss,
    batch_size: int,
    **work: Any,
) -> Model:
    """Return a model trained on public samples, at a client or at the server.

    Args:
        party: The client or the server.
        model: The model.
        samples: The samples, the stream ``public`` of the loss.
        rows: The extras of the loss by name, one row for each sample, such as ``teacher``.
        loss: The loss.
        batch_size: Samples in a mini-batch.
        **work: Optimiser, epochs or steps, and name, for
            :meth:`fedsim.engine.compute_context.ComputeContext.fit`.
    """
    fitted = await party.fit(
        model,
        step=Descent(loss=loss),
        streams={PUBLIC: Stream(samples, batch_size)},
        extras={name: per_sample(array, PUBLIC) for name, array in rows.items()},
        **work,
    )
    return fitted.model
