"""Losses by hand. A live model is here a table of logits."""

from __future__ import annotations

from math import exp, log

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedsim.engine.losses import (
    Batch,
    Loss,
    absolute_error,
    divergence,
    empirical_loss,
    label_loss,
    squared_error,
    sums_of_losses,
)
from fedsim.rng import Key
from tests.engine.conftest import Table


def loss_of(
    loss: Loss,
    logits: list[list[float]],
    *,
    labels: list[int] | list[float] | None = None,
    teacher: Tensor | None = None,
) -> float:
    batch = Batch(torch.tensor(logits), None if labels is None else torch.tensor(labels))
    value = loss({"model": Table()}, {"train": batch, "public": batch}, {"teacher": teacher})
    assert isinstance(value, Tensor)
    return float(value)


def test_of_classes_it_is_the_mean_cross_entropy() -> None:
    value = loss_of(empirical_loss, [[0.0, 0.0], [log(3.0), 0.0]], labels=[1, 0])
    assert value == pytest.approx((log(2) + log(4 / 3)) / 2)


def test_of_targets_it_is_the_mean_squared_error_of_the_first_output() -> None:
    value = loss_of(empirical_loss, [[0.5, 9.0], [3.0, 9.0]], labels=[1.5, 1.0])
    assert value == pytest.approx((1 + 4) / 2)


def test_a_sum_is_no_mean() -> None:
    logits = torch.tensor([[0.0, 0.0], [0.0, 0.0]])
    assert float(label_loss(logits, torch.tensor([1, 0]), "sum")) == pytest.approx(2 * log(2))
    assert float(label_loss(logits, torch.tensor([2.0, 3.0]), "sum")) == pytest.approx(13)


def test_errors_are_means_over_samples_and_classes() -> None:
    teacher = torch.tensor([[1.0, 1.0], [0.0, 0.0]])
    logits = [[0.0, 1.0], [0.0, 3.0]]
    assert loss_of(absolute_error, logits, teacher=teacher) == pytest.approx((1 + 0 + 0 + 3) / 4)
    assert loss_of(squared_error, logits, teacher=teacher) == pytest.approx((1 + 0 + 0 + 9) / 4)


def test_divergence_is_from_teacher_to_student() -> None:
    # Teacher (3/4, 1/4), student (1/2, 1/2); another sample of equal rows counts in the mean.
    teacher = torch.tensor([[log(3.0), 0.0], [5.0, 7.0]])
    value = loss_of(divergence, [[0.0, 0.0], [1.0, 3.0]], teacher=teacher)
    assert value == pytest.approx((0.75 * log(1.5) + 0.25 * log(0.5)) / 2)


def test_divergence_of_equal_logits_is_zero_even_where_a_class_has_no_mass() -> None:
    logits = [[0.0, -200.0, 3.0], [1.0, 1.0, 1.0]]
    assert loss_of(divergence, logits, teacher=torch.tensor(logits)) == 0.0


def test_divergence_has_the_gradient_of_cross_entropy_with_soft_targets() -> None:
    student = torch.tensor([[0.3, -0.2]], requires_grad=True)
    teacher = torch.tensor([[1.0, 2.0]])
    batches = {"public": Batch(student, None)}
    value = divergence({"model": Table()}, batches, {"teacher": teacher})
    (gradient,) = torch.autograd.grad(value, [student])
    share = 1 / (1 + exp(-0.2 - 0.3))
    wanted = 1 / (1 + exp(2.0 - 1.0))
    assert gradient[0].tolist() == pytest.approx([share - wanted, wanted - share], abs=1e-6)


def test_public_samples_have_no_labels_to_train_on() -> None:
    with pytest.raises(ValueError, match="have no labels"):
        loss_of(empirical_loss, [[0.0, 1.0]])


@pytest.mark.parametrize("batch_size", [1, 2, 16, 17, 33, 300, 4100])
def test_losses_of_many_clients_are_added_up_as_torch_does(batch_size: int) -> None:
    log_p = torch.randn(20, batch_size, 3, generator=Key.root(0).torch()).log_softmax(-1)
    losses, labels = -log_p[..., 0], torch.zeros(batch_size, dtype=torch.int64)
    expected = [F.nll_loss(one, labels, reduction="sum").item() for one in log_p]
    assert sums_of_losses([losses]).tolist() == expected
    # Beside longer ones too.
    longer = torch.ones(3, batch_size + 700)
    sums = sums_of_losses([losses[:8], longer, losses[8:]]).tolist()
    assert sums == expected[:8] + [batch_size + 700.0] * 3 + expected[8:]


@given(
    num_clients=st.integers(1, 70),
    batch_size=st.integers(1, 70),
    num_classes=st.integers(1, 70),
    factor=st.sampled_from([1.0, 0.3, 0.0]),
    reduction=st.sampled_from(["mean", "sum"]),
    seed=st.integers(0, 2**31),
)
def test_cross_entropies_of_many_clients_are_those_of_one(
    num_clients: int, batch_size: int, num_classes: int, factor: float, reduction: str, seed: int
) -> None:
    generator = Key.root(seed).torch()
    logits = 9 * torch.randn(num_clients, batch_size, num_classes, generator=generator)
    labels = torch.randint(num_classes, (num_clients, batch_size), generator=generator)
    losses = label_loss(logits.requires_grad_(), labels, reduction)  # type: ignore[arg-type]
    (gradients,) = torch.autograd.grad((factor * losses).sum(), logits)
    for client in range(num_clients):
        one = logits[client].detach().requires_grad_()
        loss = F.cross_entropy(one, labels[client], reduction=reduction)
        (gradient,) = torch.autograd.grad(factor * loss, one)
        assert losses[client].item() == loss.item()
        assert gradients[client].numpy().tobytes() == gradient.numpy().tobytes()
