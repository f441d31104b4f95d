"""Fits that are computed when somebody looks at them, and only then."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from fedsim.engine.jobs import Call, Evaluate, Extra, Fit, Fitted, GlobalTest, Predict, Stream
from fedsim.engine.losses import TRAIN
from fedsim.engine.optimisers import Sgd
from fedsim.engine.pending_fit import PendingFits, can_wait, compute_inputs
from fedsim.engine.steps import Descent
from fedsim.errors import JobError
from fedsim.params import Model, PendingTree, count

START = Model("net", {"w": np.zeros((2, 3), np.float32)}, {"n": np.zeros((), np.int64)})


def fit(model: Model = START, **changes: Any) -> Fit:
    streams = {TRAIN: Stream(GlobalTest(), 4)}
    return Fit(Descent(), {"model": model}, ("model",), streams, {"model": Sgd(lr=0.1)}, 2, 0, **changes)


class Trained:
    """Gives a result, and notes what it was asked for."""

    def __init__(self, params: Any = None) -> None:
        self.computed = self.cancelled = 0
        self.params = {"w": np.ones((2, 3), np.float32)} if params is None else params

    def compute(self) -> Fitted:
        self.computed += 1
        return Fitted({"model": Model("net", self.params, {"n": np.array(5)})}, 0.5, 2)

    def cancel(self) -> None:
        self.cancelled += 1


def test_names_shapes_and_numbers_of_scalars_are_known_without_computing() -> None:
    trained = Trained()
    model = PendingFits().fitted(fit(), trained.compute, trained.cancel).model
    assert (model.architecture, list(model.params), list(model.buffers)) == ("net", ["w"], ["n"])
    assert count(model.params) == 6
    assert isinstance(model.params, PendingTree)
    assert model.params.form["w"].shape == (2, 3)
    assert model.params.is_pending
    assert trained.computed == 0


def test_one_look_at_any_array_computes_everything_once() -> None:
    trained = Trained()
    fitted = PendingFits().fitted(fit(), trained.compute, trained.cancel)
    assert fitted.model.params["w"].tolist() == [[1.0] * 3] * 2
    assert fitted.model.buffers["n"] == 5
    assert fitted.loss == 0.5
    assert fitted.model.digest() == trained.compute().model.digest()
    del fitted
    assert (trained.computed, trained.cancelled) == (2, 0)


def test_a_result_that_nobody_can_look_at_any_more_is_cancelled() -> None:
    trained = Trained()
    model = PendingFits().fitted(fit(), trained.compute, trained.cancel).model
    assert trained.cancelled == 0  # the model keeps it
    del model
    assert (trained.computed, trained.cancelled) == (0, 1)


def test_a_fit_that_fails_does_so_at_every_look() -> None:
    def fail() -> Fitted:
        raise JobError("lost")

    fitted = PendingFits().fitted(fit(), fail, list)
    for _ in range(2):
        with pytest.raises(JobError, match="lost"):
            fitted.model.compute()
    with pytest.raises(JobError, match="lost"):
        _ = fitted.loss


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"v": np.ones((2, 3), np.float32)}, "names v instead of w"),
        ({"w": np.ones((3, 2), np.float32)}, r"'w' is float32\(3, 2\) instead of float32\(2, 3\)"),
        ({"w": np.ones((2, 3))}, r"'w' is float64\(2, 3\) instead of float32"),
    ],
)
def test_a_fit_keeps_the_form_of_its_model(params: Any, said: str) -> None:
    trained = Trained(params)
    with pytest.raises(JobError, match=said):
        PendingFits().fitted(fit(), trained.compute, trained.cancel).model.compute()


def test_only_fits_that_train_and_whose_optimiser_is_forgotten_can_wait() -> None:
    assert can_wait(fit())
    assert not can_wait(fit(states={}))
    assert not can_wait(Predict(START, GlobalTest(), 4))
    nothing = Fit(Descent(), {"model": START}, ("model",), fit().streams, {"model": Sgd(lr=0.1)}, 0, 0)
    assert not can_wait(nothing)


@pytest.mark.parametrize(
    "job",
    [
        lambda model: fit(model),
        lambda model: fit(extras={"anchor": Extra(model.params)}),
        lambda model: Predict(model, GlobalTest(), 4),
        lambda model: Evaluate(model, (GlobalTest(),), 4),
        lambda model: Call(sum, ([{"deep": model}], 3), 1.0),
    ],
)
def test_what_is_pending_in_the_inputs_of_a_job_is_computed_before(job: Any) -> None:
    trained = Trained()
    compute_inputs(job(PendingFits().fitted(fit(), trained.compute, trained.cancel).model))
    assert trained.computed == 1


def test_a_copy_has_values_and_nothing_of_the_run() -> None:
    trained = Trained()
    params = PendingFits().fitted(fit(), trained.compute, trained.cancel).model.params
    again: Any = copy.deepcopy(params)
    assert type(again) is dict
    assert again["w"].tolist() == params["w"].tolist()
