"""What a loss is given, and the losses that several algorithms share.

Each takes (models, batches, extras) as a step hands them over.

b: batch, N: outputs, m: clients whose losses are computed at once (:func:`serves_many`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

import torch
import torch.nn.functional as F  # noqa: N812 - the name that everyone knows
from torch import Tensor

MODEL = "model"
"""Name of the one model of an ordinary job."""
TRAIN = "train"
"""Name of the stream of the client's own samples."""
PUBLIC = "public"
"""Name of the stream of public samples."""
TEACHER = "teacher"
"""Name of the extra that holds what the public samples are distilled from, one row per sample."""

COLUMNS = 64
"""Torch adds up so many columns at once, whatever the processor; fewer it may add up in another order."""


class LiveModel(Protocol):
    """A model inside a job: callable, with its parameters in view."""

    @property
    def params(self) -> Mapping[str, Tensor]:
        """Trainable parameters by name."""

    def __call__(self, x: Tensor) -> Tensor:
        """Return logits ``[b, N]``."""

    def features(self, x: Tensor) -> Tensor:
        """Return what the head takes, ``[b, f]``."""

    def head(self, features: Tensor) -> Tensor:
        """Return the logits ``[b, N]`` of features, so that one forward pass gives both.

        Those of a net that computes in its own way may be others: see
        :meth:`fedsim.models.Architecture.cut_fault`.
        """

    def public(self, x: Tensor) -> Tensor:
        """Return logits ``[b, N]`` of public samples; buffers do as the fit's ``public_buffers`` says."""

    def at(self, params: Mapping[str, Tensor], *, moves_buffers: bool = False) -> Callable[[Tensor], Tensor]:
        """Return the model at other parameters, ``[b, ...]`` to logits ``[b, N]``.

        Gradients flow to the parameters that are given; the model's own stay as they are. So do its buffers,
        unless they are to move as if the parameters were its own.
        """


@dataclass(frozen=True, slots=True)
class Batch:
    """A mini-batch: ``x`` ``[b, ...]`` and labels ``y`` ``[b]``, or None where there are none.

    Types are the task's: ``x`` float32, or int64 for texts; ``y`` int64, or float32 for a regression.
    """

    x: Tensor
    y: Tensor | None

    @property
    def labels(self) -> Tensor:
        """The labels; an error where the samples have none."""
        if self.y is None:
            raise ValueError(
                "these samples have no labels: use the client's own, or public ones with labelled=True"
            )
        return self.y


Models = Mapping[str, LiveModel]
Batches = Mapping[str, Batch]
Extras = Mapping[str, Any]
"""Name to tensor, or to a mapping of tensors."""

Loss = Callable[[Models, Batches, Extras], Tensor | Mapping[str, Tensor]]
"""One scalar for one trained model, or a scalar by model name. See also :func:`serves_many`."""


L = TypeVar("L", bound=Callable[..., Any])


def serves_many(loss: L) -> L:
    """Say of a loss, or of the ``__call__`` of a class of losses, that it can serve many clients at once.

    It is then also called with tensors that have one more dimension in front, the clients: labels ``[m, b]``,
    outputs ``[m, b, N]``, and likewise samples and extras. It returns ``[m]`` in place of a scalar, and does
    with the tensors of each client what it does with those of one: it counts dimensions from the last one,
    and takes means over samples and classes alone. Of a model it asks for logits, or, if one model alone is
    trained, for features and the logits that follow from them, and for nothing else. If clients' losses may
    differ in settings, since they are ``counted_as`` one, it takes settings by :func:`each`.
    """
    vars(loss)["serves_many"] = True
    return loss


def can_serve_many(loss: Loss) -> bool:
    """Return whether :func:`serves_many` was applied to a loss."""
    return getattr(loss, "serves_many", False) or getattr(type(loss).__call__, "serves_many", False)


def each(setting: float | Tensor, values: Tensor) -> float | Tensor:
    """Return a setting as a factor of values ``[m, ...]``: a number, or those of many clients ``[m]``."""
    if not isinstance(setting, Tensor):
        return setting
    # Rounded as torch rounds a number beside a tensor.
    return setting.to(values.dtype).view(-1, *[1] * (values.ndim - 1))


def label_loss(logits: Tensor, labels: Tensor, reduction: Literal["mean", "sum"] = "mean") -> Tensor:
    """Return how far outputs ``[b, N]`` are from labels, over samples; of many clients each one's, ``[m]``.

    That is the cross-entropy of classes, int64 ``[b]``, or the squared error of the first output for the
    targets of a regression, float32 ``[b]``.
    """
    is_one = labels.ndim == 1
    if labels.is_floating_point():
        if is_one:
            return F.mse_loss(logits[:, 0], labels, reduction=reduction)
        errors = F.mse_loss(logits[..., 0], labels, reduction="none")
        return errors.mean(1) if reduction == "mean" else errors.sum(1)
    return (F.cross_entropy if is_one else _cross_entropies)(logits, labels, reduction=reduction)


class _CrossEntropies(torch.autograd.Function):
    """Sums of cross-entropies ``[m]`` of logits ``[m, b, N]`` and labels ``[m, b]``."""

    @staticmethod
    def forward(context: Any, logits: Tensor, labels: Tensor) -> Tensor:
        log_p, places = torch.log_softmax(logits, -1), labels[..., None]
        context.save_for_backward(log_p, places)
        return sums_of_losses([-log_p.gather(-1, places)[..., 0]])

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Any:
        log_p, places = context.saved_tensors
        (gradient,) = gradients
        # What autograd does for one client; softmax minus one-hot would round otherwise.
        slopes = torch.zeros_like(log_p).scatter_(-1, places, -gradient[:, None, None].expand(places.shape))
        return torch.ops.aten._log_softmax_backward_data(slopes, log_p, -1, log_p.dtype), None


def _cross_entropies(logits: Tensor, labels: Tensor, reduction: Literal["mean", "sum"]) -> Tensor:
    """Return each client's cross-entropy ``[m]`` of logits ``[m, b, N]`` and labels ``[m, b]``."""
    sums: Tensor = _CrossEntropies.apply(logits, labels)  # type: ignore[no-untyped-call]
    return sums / labels.shape[1] if reduction == "mean" else sums


def sums_of_losses(parts: Sequence[Tensor]) -> Tensor:
    """Return the sum of each row of some tensors ``[m, b]``, added up in the order of torch's ``nll_loss``.

    That is the first loss, and before it a cascade of the others: the one in which torch adds up columns, to
    which zeros at the end of a column make no difference. The two part from 65,537 samples on.
    """
    num_rows = sum(len(part) for part in parts)
    longest = max(part.shape[1] for part in parts)
    columns = parts[0].new_zeros(longest, -(-num_rows // COLUMNS) * COLUMNS)
    first = 0
    for part in parts:
        columns[: part.shape[1], first : first + len(part)] = part.mT
        first += len(part)
    return (columns[1:].sum(0) + columns[0])[:num_rows]


@serves_many
def empirical_loss(models: Models, batches: Batches, extras: Extras) -> Tensor:
    """Return the mean :func:`label_loss` of the model on its own samples."""
    batch = batches[TRAIN]
    return label_loss(models[MODEL](batch.x), batch.labels)


@serves_many
def absolute_error(models: Models, batches: Batches, extras: Extras) -> Tensor:
    """Return the mean absolute difference of logits and teacher, over samples and classes."""
    differences: Tensor = models[MODEL].public(batches[PUBLIC].x) - extras[TEACHER]
    return differences.abs().mean((-2, -1))


@serves_many
def squared_error(models: Models, batches: Batches, extras: Extras) -> Tensor:
    """Return the mean squared difference of logits and teacher, over samples and classes."""
    logits, teacher = models[MODEL].public(batches[PUBLIC].x), extras[TEACHER]
    if logits.ndim == 2:
        return F.mse_loss(logits, teacher)
    return F.mse_loss(logits, teacher, reduction="none").mean((-2, -1))


@serves_many
def divergence(models: Models, batches: Batches, extras: Extras) -> Tensor:
    """Return KL(teacher || student) of the softmax of both logits, mean over samples (specification 3.2)."""
    student = F.log_softmax(models[MODEL].public(batches[PUBLIC].x), dim=-1)
    teacher = F.log_softmax(extras[TEACHER], dim=-1)
    terms = F.kl_div(student, teacher, reduction="none", log_target=True)
    return terms.sum((-2, -1)) / student.shape[-2]
