"""Distillation losses by hand (specification 3.2)."""

from math import log
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from fedsim.algorithms.common.distillation import Distillation, divergences, kl_divergence, softmax
from fedsim.engine.losses import Batch
from tests.engine.conftest import Table

TEACHER = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])
STUDENT = torch.tensor([[0.25, 0.5, 0.25], [0.5, 0.25, 0.25]])
KL = (0.5 * log(0.5 / 0.25) + log(1 / 0.5)) / 2


def _gradient(loss: Any, logits: Tensor, teacher: Tensor) -> tuple[float, Tensor]:
    x = logits.clone().requires_grad_()
    value = loss({"model": Table()}, {"public": Batch(x, None)}, {"teacher": teacher})
    value.backward()
    assert x.grad is not None
    return float(value.detach()), x.grad


def test_softmax_by_hand() -> None:
    logits = np.array([[0.0, log(3)], [1000.0, 0.0]], np.float32)
    np.testing.assert_allclose(softmax(logits), [[0.25, 0.75], [1.0, 0.0]], rtol=1e-6)
    np.testing.assert_allclose(softmax(2 * logits, 2.0), softmax(logits), rtol=1e-6)
    assert softmax(logits).dtype == np.float32
    assert softmax(logits, dtype=np.float64).dtype == np.float64
    np.testing.assert_allclose(softmax(logits, dtype=np.float64).sum(axis=1), 1, rtol=1e-15)


def test_softmax_leaves_its_argument_alone() -> None:
    logits = np.array([[1.0, 2.0]])
    softmax(logits)
    assert logits.tolist() == [[1.0, 2.0]]


ROWS = [0.5 * log(0.5 / 0.25), log(1 / 0.5)]


def test_kl_by_hand_where_nothing_times_its_logarithm_is_nothing() -> None:
    assert divergences(TEACHER, STUDENT.log()).tolist() == pytest.approx(ROWS)
    assert float(kl_divergence(TEACHER, STUDENT.log())) == pytest.approx(sum(ROWS) / 2)
    assert float(kl_divergence(TEACHER, TEACHER.clamp_min(1e-30).log())) == pytest.approx(0, abs=1e-7)


def test_logarithms_that_are_known_are_not_taken_again() -> None:
    # A probability below any that is told apart: its logarithm as known counts, not that of the smallest.
    of, log_of = torch.tensor([[1.0, 1e-30]]), torch.tensor([[0.0, -69.0]])
    log_from = torch.tensor([[-1.0, -1.0]])
    assert divergences(of, log_from, log_of).tolist() == pytest.approx([1.0])
    assert divergences(of, log_from, torch.tensor([[2.0, 0.0]])).tolist() == pytest.approx([3.0])


def test_no_gradient_goes_through_a_teacher() -> None:
    teacher = TEACHER.clone().requires_grad_()
    student = STUDENT.log().requires_grad_()
    kl_divergence(teacher, student).backward()  # type: ignore[no-untyped-call]
    assert teacher.grad is None
    assert student.grad is not None


def test_the_gradient_is_the_difference_of_probabilities() -> None:
    logits = torch.tensor([[0.3, -1.0, 2.0], [0.0, 0.5, 0.1]], requires_grad=True)
    (gradient,) = torch.autograd.grad(kl_divergence(TEACHER, F.log_softmax(logits, dim=1)), logits)
    assert torch.allclose(gradient, (F.softmax(logits.detach(), dim=1) - TEACHER) / 2, atol=1e-7)


def test_temperature_and_factor() -> None:
    value, _ = _gradient(Distillation(temperature=3.0, factor=9.0), STUDENT.log() * 3, TEACHER)
    assert value == pytest.approx(9 * KL, rel=1e-6)


def test_it_is_computed_in_the_teachers_precision() -> None:
    logits = torch.tensor([[0.3, -1.0, 2.0], [0.0, 0.5, 0.1]])
    own = torch.from_numpy(softmax(logits.numpy(), dtype=np.float64))
    value, gradient = _gradient(Distillation(), logits, own)
    assert abs(value) < 1e-15
    assert float(gradient.abs().max()) < 1e-16
    assert gradient.dtype == torch.float32
    _, rounded = _gradient(Distillation(), logits, own.float())
    assert float(rounded.abs().max()) > 1e-9  # which is what the teachers in float64 are for


def test_settings_are_values() -> None:
    assert Distillation(2.0) == Distillation(2.0)
    assert hash(Distillation(2.0)) == hash(Distillation(2.0))
