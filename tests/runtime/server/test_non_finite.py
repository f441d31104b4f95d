from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedsim.params import Form, Model, PendingTree, RowTree, Tree
from fedsim.runtime.server.non_finite import is_of_non_finite, non_finite, spoiled
from fedsim.wire import Message, message


@message("mixed")
class Mixed(Message):
    values: NDArray[np.float32]
    tree: Tree
    numbers: NDArray[np.int64]
    share: float
    label: str
    maybe: NDArray[np.float64] | None = None


def _mixed(**changes: Any) -> Mixed:
    fields: dict[str, Any] = {
        "values": np.zeros(2, np.float32),
        "tree": {"w": np.zeros((2, 2), np.float32), "steps": np.array(3)},
        "numbers": np.array([2**62]),
        "share": 0.5,
        "label": "nan",
    }
    return Mixed(**{**fields, **changes})


def test_finite_messages_pass() -> None:
    assert non_finite(_mixed()) is None
    assert non_finite(_mixed(maybe=np.zeros(0), values=np.zeros(0, np.float32))) is None


@pytest.mark.parametrize("value", [1.0, 1e19, 3e38, np.nan])
def test_a_tree_in_a_row_is_judged_as_any_other(value: float) -> None:
    row = np.array([0.0, value, 1e19, 1e19, 1e19, 1e19], np.float32)
    form = Form.of({"w": row[:2], "b": row[2:]})
    tree = RowTree(row, form)
    wanted = non_finite(_mixed(tree=dict(tree)))
    assert non_finite(_mixed(tree=tree)) == wanted
    assert non_finite(_mixed(tree=PendingTree(form, lambda: tree))) == wanted
    assert (wanted is None) == (value <= 1e19)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_the_first_field_that_is_not_finite_is_named(bad: float) -> None:
    array = np.array([0.0, bad])
    assert non_finite(_mixed(values=array.astype(np.float32))) == "values holds NaN or an infinity"
    assert non_finite(_mixed(tree={"a": np.zeros(1), "b": array})) == "tree holds NaN or an infinity"
    assert non_finite(_mixed(share=float(bad))) == "share holds NaN or an infinity"
    assert non_finite(_mixed(maybe=array)) == "maybe holds NaN or an infinity"
    assert (
        non_finite(_mixed(share=float(bad), values=array.astype(np.float32)))
        == "values holds NaN or an infinity"
    )


@dataclass(frozen=True, slots=True)
class State:
    model: Model
    models: Mapping[int, Model] = field(default_factory=dict)
    parts: tuple[Any, ...] = ()
    share: float | None = None
    loss: Any = None


def _model(*values: float) -> Model:
    return Model("m", {"fc.weight": np.array(values, np.float32)})


SOUND = State(_model(1.0), {3: _model(2.0)}, (np.arange(2), "nan", None, Model), 0.5, np.float32(1))


def test_a_finite_state_is_not_spoiled() -> None:
    assert spoiled(SOUND) is None
    assert spoiled(None) is None
    assert spoiled((np.array([1e154, -1e154]), np.array([1.8e19, -1.8e19], np.float32))) is None
    assert spoiled([np.array([6e4, -6e4], np.float16)]) is None  # for storage: any finite number will do


@pytest.mark.parametrize("sign", [1, -1])
def test_numbers_whose_products_overflow_are_as_bad(sign: int) -> None:
    # One such model makes a mean that is finite, and that nobody can train.
    array = np.array([0.0, sign * 1.9e19], np.float32)
    assert non_finite(_mixed(values=array)) == "values holds values beyond 1.8e+19, whose products overflow"
    assert spoiled(_model(sign * 3e38)) == (
        "Model.params['fc.weight'] holds values beyond 1.8e+19, whose products overflow"
    )
    assert (
        spoiled([np.array([sign * 1e155])]) == "list[0] holds values beyond 1.3e+154, whose products overflow"
    )


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"model": _model(1.0, np.nan)}, "State.model.params['fc.weight']"),
        ({"models": {3: SOUND.models[3], 4: _model(-np.inf)}}, "State.models[4].params['fc.weight']"),
        ({"parts": (1, [np.array(np.inf)])}, "State.parts[1][0]"),
        ({"share": float("nan")}, "State.share"),
        ({"loss": np.float32("inf")}, "State.loss"),
        ({"parts": (np.array([np.inf, -np.inf]),)}, "State.parts[0]"),
    ],
)
def test_what_spoils_it_is_named_by_its_place(changes: dict[str, Any], place: str) -> None:
    assert spoiled(replace(SOUND, **changes), SOUND) == f"{place} holds NaN or an infinity"


def test_what_stands_where_it_stood_is_not_looked_at() -> None:
    before = replace(SOUND, models={1: _model(np.nan)}, parts=(_model(np.inf), 1), loss=float("inf"))
    after = replace(before, model=_model(2.0), models={**before.models, 2: _model(1.0)})
    assert spoiled(after, before) is None
    moved = replace(before, parts=(1, before.parts[0]))
    assert spoiled(moved, before) == "State.parts[1].params['fc.weight'] holds NaN or an infinity"


@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38])
def test_reasons_that_speak_of_values_that_are_not_finite_are_known(value: float) -> None:
    reason = non_finite(_mixed(values=np.array([value], np.float32)))
    assert reason is not None
    assert is_of_non_finite(reason)


def test_other_reasons_are_not_taken_for_them() -> None:
    assert not is_of_non_finite("no frame where one of kind 'mixed' belongs")
    assert not is_of_non_finite("the run ended")
