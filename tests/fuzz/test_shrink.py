"""Shrinking a scenario: what it keeps fails in the same way, and needs all that is left."""

from copy import deepcopy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fedsim.fuzz.random_scenarios import RandomScenario, random_scenario
from fedsim.fuzz.shrink import _paths, _smaller, shrunk

trees = st.recursive(
    st.integers(0, 9) | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
tables = st.dictionaries(st.sampled_from("abc"), trees, max_size=3)


def test_only_what_the_failure_needs_is_left() -> None:
    def fails(scenario: RandomScenario) -> bool:
        fleet = scenario.tables.get("fleet", [])
        return sum(group.get("count", 0) for group in fleet) >= 3 and "lr" in scenario.tables.get(
            "training", ()
        )

    tables = {
        "run": {"rounds": 4, "until": {"bytes": "1 MB"}},
        "training": {"lr": 0.1, "momentum": 0.9},
        "fleet": [{"count": 2, "up": "1 Mbit/s"}, {"count": 4, "device": "mcu"}],
    }
    left = shrunk(RandomScenario(tables, name="seed-1"), fails)
    assert left == RandomScenario({"training": {"lr": 0.1}, "fleet": [{"count": 4}]}, name="seed-1")


def test_files_that_are_not_named_any_more_are_left_out() -> None:
    scenario = RandomScenario({"fleet": [{"file": "a.csv"}, {"file": "b.csv"}]}, {"a.csv": "1", "b.csv": "2"})
    left = shrunk(scenario, lambda one: "a.csv" in one.toml)
    assert left == RandomScenario({"fleet": [{"file": "a.csv"}]}, {"a.csv": "1"})


def test_a_random_scenario_that_always_fails_shrinks_to_nothing() -> None:
    assert shrunk(random_scenario(5), lambda one: True).tables == {}


@given(tables, st.sampled_from("abc"))
def test_nothing_more_can_be_left_out(tree: dict[str, Any], name: str) -> None:
    def fails(scenario: RandomScenario) -> bool:
        return f"'{name}'" in repr(scenario.tables)

    before = deepcopy(tree)
    if not fails(RandomScenario(tree)):
        return
    left = shrunk(RandomScenario(tree), fails).tables
    assert tree == before
    smaller = [_smaller(left, path, is_kept=False) for path in _paths(left)]
    assert not any(fails(RandomScenario(one)) for one in smaller if one is not None)
