"""Each schedule by hand and by torch, and several at once."""

from math import sqrt
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.optim import lr_scheduler

from fedsim.engine.schedules import PLUGINS, ScheduleChoice, factor
from fedsim.engine.training_config import TrainingConfig

REQUIRED: dict[str, dict[str, Any]] = {"step": {"step_size": 3}, "multistep": {"milestones": [2, 4]}}


def factors(name: str, count: int = 8, length: int = 1, **params: Any) -> list[float]:
    """Return the first factors of a schedule."""
    plugin: Any = PLUGINS[name]
    schedule = plugin(plugin.Config.model_validate(params))
    return [schedule.factor(position, length) for position in range(count)]


def torchs(scheduler: Any, count: int = 8, **params: Any) -> list[float]:
    """Return the first rates of one of torch's schedulers, from 1 on."""
    optimiser = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    schedule, rates = scheduler(optimiser, **params), []
    for _ in range(count):
        rates.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        schedule.step()
    return rates


def schedules(*given: Any) -> tuple[ScheduleChoice, ...]:
    return TrainingConfig.model_validate({"schedule": list(given)}).schedule


@pytest.mark.parametrize(
    ("name", "length", "params", "wanted"),
    [
        ("cosine", 4, {}, [1, (2 + sqrt(2)) / 4, 0.5, (2 - sqrt(2)) / 4, 0, 0]),
        ("cosine", 9, {"total_iters": 2, "min_factor": 0.2}, [1, 0.6, 0.2, 0.2]),
        ("exponential", 1, {"gamma": 0.5}, [1, 0.5, 0.25, 0.125]),
        ("exponential", 1, {"gamma": 1.0}, [1.0] * 8),
        ("inverse_time", 1, {"decay": 0.5}, [1, 1 / 1.5, 0.5, 0.4]),
        ("inverse_time", 1, {}, [1 / (1 + 0.1 * position) for position in range(11)]),
        ("inverse_time", 1, {"decay": 0.0}, [1.0] * 8),
        ("linear", 1, {"start_factor": 0.5, "total_iters": 2}, [0.5, 0.75, 1, 1]),
        ("linear", 1, {"start_factor": 1.0, "end_factor": 0.0, "total_iters": 2}, [1, 0.5, 0, 0]),
        ("multistep", 1, {"milestones": [2, 5], "gamma": 0.5}, [1, 1, 0.5, 0.5, 0.5, 0.25]),
        ("polynomial", 4, {}, [1, 0.75, 0.5, 0.25, 0, 0]),
        ("polynomial", 9, {"total_iters": 2, "power": 2.0}, [1, 0.25, 0]),
        ("step", 1, {"step_size": 2, "gamma": 0.5}, [1, 1, 0.5, 0.5, 0.25]),
        ("step", 1, {"step_size": 1, "gamma": 1.0}, [1.0] * 8),
    ],
)
def test_by_hand(name: str, length: int, params: dict[str, Any], wanted: list[float]) -> None:
    assert factors(name, len(wanted), length, **params) == pytest.approx(wanted, abs=1e-15)


@pytest.mark.parametrize(
    ("name", "params", "scheduler", "torchs_params"),
    [
        (
            "cosine",
            {"total_iters": 7, "min_factor": 0.1},
            lr_scheduler.CosineAnnealingLR,
            {"T_max": 7, "eta_min": 0.1},
        ),
        ("exponential", {}, lr_scheduler.ExponentialLR, {"gamma": 0.99}),
        ("linear", {}, lr_scheduler.LinearLR, {}),
        (
            "multistep",
            {"milestones": [1, 4, 6], "gamma": 0.3},
            lr_scheduler.MultiStepLR,
            {"milestones": [1, 4, 6], "gamma": 0.3},
        ),
        (
            "polynomial",
            {"total_iters": 6, "power": 1.7},
            lr_scheduler.PolynomialLR,
            {"total_iters": 6, "power": 1.7},
        ),
        ("step", {"step_size": 3}, lr_scheduler.StepLR, {"step_size": 3}),
    ],
)
def test_as_in_torch(
    name: str, params: dict[str, Any], scheduler: Any, torchs_params: dict[str, Any]
) -> None:
    assert factors(name, **params) == pytest.approx(torchs(scheduler, **torchs_params))


@pytest.mark.parametrize("name", ["cosine", "polynomial"])
def test_a_schedule_needs_a_length_unless_it_is_given(name: str) -> None:
    without, given = schedules(name, {"name": name, "params": {"total_iters": 3}})
    assert without.needs_length
    assert not given.needs_length


@pytest.mark.parametrize(
    ("name", "params", "match"),
    [
        ("cosine", {"total_iters": 0}, "greater"),
        ("cosine", {"min_factor": 1.5}, "less"),
        ("cosine", {"min_factor": -0.1}, "greater"),
        ("exponential", {"gamma": 0.0}, "greater"),
        ("exponential", {"gamma": 1.1}, "less"),
        ("inverse_time", {"decay": -0.1}, "greater"),
        ("linear", {"total_iters": 0}, "greater"),
        ("linear", {"start_factor": 1.5}, "less"),
        ("linear", {"end_factor": -0.1}, "greater"),
        ("multistep", {"milestones": []}, "at least 1 item"),
        ("multistep", {"milestones": [0]}, "greater"),
        ("multistep", {"milestones": [3, 2]}, "ascending"),
        ("multistep", {"milestones": [2, 2]}, "ascending"),
        ("polynomial", {"total_iters": 0}, "greater"),
        ("polynomial", {"power": 0.0}, "greater"),
        ("step", {}, "it is missing"),
        ("step", {"step_size": 0}, "greater"),
        ("step", {"step_size": 1, "gamma": 1.1}, "less"),
    ],
)
def test_settings_that_make_no_sense_are_refused(name: str, params: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        factors(name, **params)


def test_factors_are_multiplied() -> None:
    halved = {"name": "exponential", "params": {"gamma": 0.5}}
    some = schedules(halved, {"name": "linear", "params": {"start_factor": 0.5, "total_iters": 2}})
    assert [factor(some, "round", position, 9) for position in range(4)] == [0.5, 0.375, 0.25, 0.125]
    assert factor(some, "step", 3, 9) == 1.0
    mixed = schedules(halved, {**halved, "by": "step"})
    assert factor(mixed, "round", 2, 9) == factor(mixed, "step", 2, 9) == 0.25


def test_a_schedule_is_written_as_a_name_a_table_or_a_list() -> None:
    table = {"name": "cosine", "params": {}, "by": "round"}
    for way in ("cosine", table, ["cosine"], [table]):
        (schedule,) = TrainingConfig.model_validate({"schedule": way}).schedule
        assert schedule.model_dump() == {**table, "params": {"total_iters": None, "min_factor": 0.0}}
    assert TrainingConfig().schedule == TrainingConfig.model_validate({"schedule": []}).schedule == ()


@pytest.mark.parametrize(
    ("way", "match"),
    [
        ("cosin", "no schedule is called 'cosin'"),
        (["cosine", {"name": "steps"}], "no schedule is called 'steps'"),
        ({"name": "cosine", "by": "epoch"}, "'round' or 'step'"),
        ({"name": "cosine", "params": {"T_max": 3}}, "no key is called 'T_max' here"),
        ({"params": {}}, "it is missing"),
        ([3], "3 is neither a name nor a table"),
        (0.9, "0.9 is neither a name nor a table"),
    ],
)
def test_what_is_no_schedule_is_refused(way: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        TrainingConfig.model_validate({"schedule": way})


@pytest.mark.parametrize("name", PLUGINS)
@given(st.integers(0, 1000), st.integers(1, 1000))
def test_a_factor_is_from_0_to_1_and_depends_on_the_length_where_it_says_so(
    name: str, position: int, length: int
) -> None:
    (schedule,) = schedules({"name": name, "params": REQUIRED.get(name, {})})
    assert 0 <= factor((schedule,), "round", position, length) <= 1
    if not schedule.needs_length:
        assert factor((schedule,), "round", position, length) == factor((schedule,), "round", position, 1)
