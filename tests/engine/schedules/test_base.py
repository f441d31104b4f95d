"""Several schedules at once, by round and by step."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.engine.schedules.base import ScheduleChoice, factor
from fedsim.engine.training_config import TrainingConfig
from fedsim.plugins import available

REQUIRED: dict[str, dict[str, Any]] = {"step": {"step_size": 3}, "multistep": {"milestones": [2, 4]}}
NAMES = [found.name for found in available("fedsim.engine.schedules")]


def schedules(*given: Any) -> tuple[ScheduleChoice, ...]:
    return TrainingConfig.model_validate({"schedule": list(given)}).schedule


def test_factors_are_multiplied() -> None:
    halved = {"name": "exponential", "params": {"gamma": 0.5}}
    some = schedules(halved, {"name": "linear", "params": {"start_factor": 0.5, "total_iters": 2}})
    assert [factor(some, "round", position, 9) for position in range(4)] == [0.5, 0.375, 0.25, 0.125]
    assert factor(some, "step", 3, 9) == 1.0
    mixed = schedules(halved, {**halved, "by": "step"})
    assert factor(mixed, "round", 2, 9) == factor(mixed, "step", 2, 9) == 0.25


def test_one_is_written_as_a_name_a_table_or_a_list() -> None:
    table = {"name": "cosine", "params": {}, "by": "round"}
    for way in ("cosine", table, ["cosine"], [table]):
        (one,) = TrainingConfig.model_validate({"schedule": way}).schedule
        assert one.model_dump() == {**table, "params": {"total_iters": None, "min_factor": 0.0}}
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


@pytest.mark.parametrize("name", NAMES)
@given(st.integers(0, 1000), st.integers(1, 1000))
def test_a_factor_is_from_0_to_1_and_depends_on_the_length_where_it_says_so(
    name: str, position: int, length: int
) -> None:
    (one,) = schedules({"name": name, "params": REQUIRED.get(name, {})})
    assert 0 <= factor((one,), "round", position, length) <= 1
    if not one.needs_length:
        assert factor((one,), "round", position, length) == factor((one,), "round", position, 1)
