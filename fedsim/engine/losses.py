"""Losses that several algorithms share; each takes (models, batches, extras) as a step hands them over.

b: batch, N: classes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.nn.functional as F  # noqa: N812 - the name that everyone knows
from torch import Tensor

if TYPE_CHECKING:
    from fedsim.engine.steps import Batches, Extras, Models

MODEL = "model"
"""Name of the one model of an ordinary job."""
TRAIN = "train"
"""Name of the stream of the client's own samples."""
PUBLIC = "public"
"""Name of the stream of public samples."""
TEACHER = "teacher"
"""Name of the extra that holds what the public samples are distilled from, one row per sample."""


def cross_entropy(models: Models, batches: Batches, extras: Extras) -> Tensor:
    """Return the mean cross-entropy of the model on its own samples."""
    batch = batches[TRAIN]
    return F.cross_entropy(models[MODEL](batch.x), batch.labels)


def absolute_error(models: Models, batches: Batches, extras: Extras) -> Tensor:
    """Return the mean absolute difference of logits and teacher, over samples and classes."""
    return F.l1_loss(models[MODEL](batches[PUBLIC].x), extras[TEACHER])


def squared_error(models: Models, batches: Batches, extras: Extras) -> Tensor:
    """Return the mean squared difference of logits and teacher, over samples and classes."""
    return F.mse_loss(models[MODEL](batches[PUBLIC].x), extras[TEACHER])


def divergence(models: Models, batches: Batches, extras: Extras) -> Tensor:
    """Return KL(teacher || student) of the softmax of both logits, mean over samples (specification 3.2)."""
    student = F.log_softmax(models[MODEL](batches[PUBLIC].x), dim=1)
    teacher = F.log_softmax(extras[TEACHER], dim=1)
    return F.kl_div(student, teacher, reduction="batchmean", log_target=True)
