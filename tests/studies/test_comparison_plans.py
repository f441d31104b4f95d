import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim import toml_writer
from fedsim.errors import ScenarioError
from fedsim.scenario import load_scenario, resolved_toml
from fedsim.studies.comparison_plans import command_plan, values_of
from fedsim.studies.plan import StudyPlan, load_study


def planned(tiny: dict[str, Any], *overrides: str, seeds: list[int] | None = None) -> StudyPlan:
    return command_plan(tiny["base"], overrides, ["fedavg", "fedprox"], seeds, [0.5])


def faults(tiny: dict[str, Any], *overrides: str) -> dict[str, str]:
    with pytest.raises(ScenarioError) as caught:
        planned(tiny, *overrides)
    return {fault.path: str(fault) for fault in caught.value.faults}


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("0.1", ("0.1",)),
        ("0.1,0.5", ("0.1", "0.5")),
        ("uniform, by_size", ("uniform", " by_size")),
        ("[8, 16]", ("[8, 16]",)),
        ("[8, 16],[4]", ("[8, 16]", "[4]")),
        ("{name = 'a', of = [1, 2]}, 3", ("{name = 'a', of = [1, 2]}", " 3")),
        ('"a, b"', ('"a, b"',)),
        (r'"a\", b",' + "'c, \"d'", (r'"a\", b"', "'c, \"d'")),
        ("it's", ("it's",)),
        ("", ("",)),
    ],
)
def test_commas_separate_values_unless_they_are_enclosed(text: str, values: tuple[str, ...]) -> None:
    assert values_of(text) == values


@pytest.mark.parametrize("text", ["1,", ",1", "1,,2", "it's,mine", "[1, 2", "1], [2", "{a = 1, b", '"a, b'])
def test_what_can_be_read_in_several_ways_is_refused(tiny: dict[str, Any], text: str) -> None:
    assert values_of(text) == ()
    assert "can be read in several ways" in faults(tiny, f"data.name={text}")["data.name"]


VALUES = st.recursive(
    st.integers(-9, 9) | st.booleans() | st.text("ab,[]{}\"'\\ ", max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=2),
    max_leaves=5,
)


@given(st.lists(VALUES, min_size=1, max_size=4))
def test_values_as_a_file_spells_them_come_back(values: list[Any]) -> None:
    spelt = values_of(",".join(map(toml_writer.value, values)))
    assert [tomllib.loads(f"value = {one}")["value"] for one in spelt] == values


def test_paths_with_several_values_are_the_grid_and_others_hold_for_all(tiny: dict[str, Any]) -> None:
    plan = planned(tiny, "training.lr=0.1,0.2", "fleet.0.count=2", seeds=[3, 4])
    assert [run.label for run in plan.runs][:4] == [
        "fedavg-lr-0.1-seed3",
        "fedavg-lr-0.2-seed3",
        "fedprox-lr-0.1-seed3",
        "fedprox-lr-0.2-seed3",
    ]
    assert (len(plan.runs), plan.grid, plan.config.targets) == (8, ("training.lr",), (0.5,))
    scenario = load_scenario(tomllib.loads(plan.runs[3].scenario_toml))
    assert (scenario.training.lr, scenario.num_clients, scenario.run.rounds) == (0.2, 2, 3)
    assert load_study(tomllib.loads(plan.toml)).runs == plan.runs


def test_runs_are_those_of_single_overrides(tiny: dict[str, Any]) -> None:
    tiny["base"]["run"] |= {"name": "mine", "seed": 5}
    plan = planned(tiny, "participation.selector=uniform,by_size", "training.epochs=2")
    assert (plan.name, plan.seeds) == ("mine", (5,))
    overrides = ("training.epochs=2", "participation.selector=by_size")
    one = load_scenario(tiny["base"], overrides, algorithm="fedprox")
    assert plan.runs[-1].scenario_toml == resolved_toml(one)
    named = planned(tiny, "training.lr=1,2", "run.name=other")
    assert named.name == "other"


def test_a_scenario_without_a_name_has_its_file_s(tiny: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "my phones.toml").write_text(toml_writer.document(tiny["base"]))
    plan = command_plan(tmp_path / "my phones.toml", ["training.lr=1,2"], ["fedavg"], None, [])
    assert plan.name == load_scenario(tomllib.loads(plan.runs[0].scenario_toml)).run.name == "my-phones"
    assert plan.runs == load_study(tomllib.loads(plan.toml)).runs


def test_the_last_of_single_values_of_a_path_counts(tiny: dict[str, Any]) -> None:
    plan = planned(tiny, "training.epochs=2", "training.lr=1,2", "training.epochs=3")
    assert load_scenario(tomllib.loads(plan.runs[0].scenario_toml)).training.epochs == 3


def test_faults_come_at_once_with_their_paths(tiny: dict[str, Any]) -> None:
    found = faults(tiny, "training.lr=1,2", "training=3", "training.epochs=1,", "run.seed")
    assert "it has several values, and training is set too" in found["training.lr"]
    assert "can be read in several ways" in found["training.epochs"]
    assert "has no '='" in found[""]
    assert "and training.lr is set too" in faults(tiny, "training.lr=1,2", "training.lr=3")["training.lr"]
    assert "given twice" in faults(tiny, "training.lr=0.1,0.10")['grid."training.lr"']
    found = faults(tiny, "run.seed=1,2", "algorithm.name=local", "algorithm.params={mu = 1}")
    assert "such as --seeds 0,1" in found["run.seed"]
    assert "give --algorithms instead" in found["algorithm.name"]
    assert "such as algorithm.params.mu" in found["algorithm.params"]
    with pytest.raises(ScenarioError, match="malformed"):
        planned(tiny, "a..b=1,2")
