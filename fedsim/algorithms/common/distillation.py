"""Distillation: bringing a student's predictions near a teacher's (specification 3.2).

Teachers are probabilities, one row per sample, given as the extra ``teacher`` that follows the stream of the
samples (PersFL's are logits, since each of its students has a temperature of its own). The KL divergence and
the cross-entropy of mutual learning, PersFL and Fed-ET are also those of this module. b: batch, N: classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch.nn.functional as F  # noqa: N812 - the name that everyone knows
from numpy.typing import DTypeLike
from torch import Tensor

from fedsim.engine.losses import MODEL, PUBLIC, TEACHER, Batches, Extras, Models
from fedsim.params import Array
from fedsim.task import Task

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
    """Return each row's KL(of || from) ``[b]``, summed over classes; ``0 log 0`` is 0.

    Gradients go through all arguments.

    Args:
        of: Probabilities ``[b, N]``.
        log_from: Logarithms of those that they are compared with ``[b, N]``.
        log_of: Logarithms of ``of``, where they are known better than by taking them ``[b, N]``.
    """
    return (of * ((of.clamp_min(SMALLEST).log() if log_of is None else log_of) - log_from)).sum(dim=1)


def cross_entropies(labels: Tensor, log_student: Tensor) -> Tensor:
    """Return each row's cross-entropy to soft labels ``[b]``: KL(labels || student) and the labels' entropy.

    Gradients go through both arguments.

    Args:
        labels: Probabilities ``[b, N]``.
        log_student: Logarithms of the student's probabilities ``[b, N]``.
    """
    return -(labels * log_student).sum(dim=1)


def kl_divergence(teacher: Tensor, log_student: Tensor) -> Tensor:
    """Return KL(teacher || student), mean over the batch.

    Args:
        teacher: Probabilities ``[b, N]``; no gradient goes through them.
        log_student: Logarithms of the student's probabilities ``[b, N]``.
    """
    return divergences(teacher.detach(), log_student).mean()


def no_classes(task: Task) -> str | None:
    """Return why predictions of a task cannot be distilled as probabilities, or None."""
    if task.kind == "classification":
        return None
    return (
        f"it learns from probabilities of classes, and the task is a {task.kind}: take a data set with "
        "classes, or an algorithm that exchanges models alone, such as 'fedavg'"
    )


@dataclass(frozen=True, slots=True)
class Distillation:
    """The loss ``factor * KL(teacher || softmax(logits / temperature))`` of one model on one stream.

    It is computed in the teacher's precision. With float64 a student that agrees with its teacher has a
    gradient of nearly exactly 0; what rounding leaves in float32, Adam would enlarge to steps of full length.

    Attributes:
        temperature: What the student's logits are divided by; the teacher's have been already.
        factor: Weight of the loss, such as ``temperature ** 2``.
        stream: The stream that the teacher's rows follow.
    """

    temperature: float = 1.0
    factor: float = 1.0
    stream: str = PUBLIC

    def __call__(self, models: Models, batches: Batches, extras: Extras) -> Tensor:
        """Return the loss."""
        teacher = extras[TEACHER]
        logits = models[MODEL](batches[self.stream].x).to(teacher.dtype)
        return self.factor * kl_divergence(teacher, F.log_softmax(logits / self.temperature, dim=1))
