from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim import toml
from fedsim.errors import Fault
from fedsim.scenario.load import Override, apply_override, parse_override

Load = Callable[..., Any]
Faults = Callable[..., dict[str, Fault]]


@pytest.mark.parametrize(
    ("text", "keys", "value"),
    [
        ("training.lr=0.1", ("training", "lr"), 0.1),
        ("run.rounds = 5", ("run", "rounds"), 5),
        ("data.name=mnist", ("data", "name"), "mnist"),
        ('data.name="mnist"', ("data", "name"), "mnist"),
        ("fleet.0.up=5 Mbit/s", ("fleet", "0", "up"), "5 Mbit/s"),
        ("models.mlp.params.hidden=[8, 4]", ("models", "mlp", "params", "hidden"), [8, 4]),
        ("data.partition={ name = 'iid' }", ("data", "partition"), {"name": "iid"}),
        ("data.partition.params.cap=true", ("data", "partition", "params", "cap"), True),
        ('algorithms."my_lab.fast".mu=1', ("algorithms", "my_lab.fast", "mu"), 1),
        ("run.name=a=b", ("run", "name"), "a=b"),
        ("run.name=", ("run", "name"), ""),
        ("run.name=2024-01-01", ("run", "name"), "2024-01-01"),
        ("run.name=1\nseed = 2", ("run", "name"), "1\nseed = 2"),
    ],
)
def test_paths_and_values(text: str, keys: Any, value: Any) -> None:
    assert parse_override(text) == Override(keys, value)


@pytest.mark.parametrize("text", ["training.lr", "", "lr 0.1"])
def test_no_equals_sign(text: str) -> None:
    fault = parse_override(text)
    assert fault == Fault(
        "", f"the override {text!r} has no '='", "write PATH=VALUE, such as training.lr=0.1"
    )


@pytest.mark.parametrize("text", ["=3", " = 3"])
def test_no_path(text: str) -> None:
    fault = parse_override(text)
    assert isinstance(fault, Fault)
    assert "names no path before '='" in fault.problem


@pytest.mark.parametrize(
    "path", ["run..rounds", "fleet.*.count", "fleet[0].count", "a b", ".a", "a.", "[a]\nb=3\nc"]
)
def test_a_malformed_path(path: str) -> None:
    fault = parse_override(f"{path}=3")
    assert isinstance(fault, Fault)
    first = path.partition("=")[0]
    assert fault.problem == f"the override {f'{path}=3'!r}: the path {first!r} is malformed"
    assert "entries of a list are numbered from 0, as in fleet.0.count" in fault.mend


@given(st.lists(st.text(min_size=1), min_size=1, max_size=4), st.integers() | st.booleans())
def test_any_path_can_be_written(keys: Any, value: Any) -> None:
    if any("=" in key for key in keys):
        return
    written = f"{toml.path(*keys)}={toml.value(value)}"
    assert parse_override(written) == Override(tuple(keys), value)


def test_tables_are_made_and_entries_replaced() -> None:
    document = {"fleet": [{"count": 1}, {"count": 2}]}
    assert apply_override(document, Override(("fleet", "1", "count"), 5)) is None
    assert apply_override(document, Override(("a", "b", "c"), 1)) is None
    assert document == {"fleet": [{"count": 1}, {"count": 5}], "a": {"b": {"c": 1}}}


def test_the_short_form_of_a_choice_gives_way() -> None:
    document: dict[str, Any] = {"participation": {"selector": "uniform"}}
    assert apply_override(document, Override(("participation", "selector", "params", "x"), 1)) is None
    assert document == {"participation": {"selector": {"name": "uniform", "params": {"x": 1}}}}


def test_an_entry_that_is_not_there(faults: Faults) -> None:
    found = faults(overrides=["fleet.1.count=3"])
    assert str(found["fleet.1"]) == (
        "fleet.1: override of fleet.1.count: fleet is a list of 1, and has no entry '1' — "
        "entries are numbered 0 to 0"
    )
    assert "has no entry 'first'" in faults(overrides=["fleet.first.count=3"])["fleet.first"].problem


def test_a_path_through_a_value(faults: Faults) -> None:
    found = faults("[training]\nlr = 0.5\n", overrides=["training.lr.x=3"])
    assert str(found["training.lr.x"]) == (
        "training.lr.x: override of training.lr.x: training.lr is 0.5, not a table that could hold 'x' — "
        "set training.lr itself"
    )
    # From Python, whatever is there.
    found_there = apply_override({"training": None}, Override(("training", "lr"), 1))
    assert found_there is not None
    assert found_there.problem.endswith("training is None, not a table that could hold 'lr'")


def test_an_unknown_path(faults: Faults) -> None:
    found = faults(overrides=["trainin.lr=3", "training.lrr=3"])
    assert found["trainin"].mend.startswith("did you mean 'training'?")
    assert found["training.lrr"].mend.startswith("did you mean 'lr'?")


def test_values_are_checked_like_the_files(faults: Faults) -> None:
    assert "has no unit" in faults(overrides=["fleet.0.up=5"])["fleet.0.up"].problem
    assert '"fast" is a text, a number is wanted' in str(
        faults(overrides=["training.lr=fast"])["training.lr"]
    )


def test_what_is_set_is_what_is_run(load: Load) -> None:
    scenario = load(overrides=["training.lr=0.5", "fleet.0.up=5 Mbit/s", "models.mlp.params.hidden=[3]"])
    assert scenario.training.lr == 0.5
    assert scenario.fleet[0].up.value == 5e6
    assert scenario.models["mlp"].params.hidden == (3,)
