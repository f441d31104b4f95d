import tomllib
from pathlib import Path
from typing import Any

import pytest

from fedsim import toml_writer
from fedsim.errors import DataError, ScenarioError, UserError
from fedsim.input_paths import located, looking_in, placed
from fedsim.scenario import load_scenario, resolved_toml
from fedsim.scenario.build import build, read_resolved, with_own_root
from fedsim.studies.comparison_plans import command_plan
from fedsim.studies.plan import load_study

PHONES = "speed_gflops,memory_gb,up_mbps,down_mbps,latency_ms\n{},2,10,40,50\n"
SCENARIO = """
run.rounds = 1
[data]
name = "sizes"
params = { samples = 10, input_shape = [4] }
[[fleet]]
count = 1
file = "phones.csv"
up_trace = "link.csv"
availability = { name = "trace", params = { file = "there.csv" } }
[network]
params = { server_down_trace = "link.csv" }
[engine]
executor = "null"
"""


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three folders: the scenario's, the working one and that of FEDSIM_DATA."""
    for name in ("own", "work", "data"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("FEDSIM_DATA", str(tmp_path / "data"))
    return tmp_path


def write(folder: Path, speed: int = 1) -> None:
    (folder / "phones.csv").write_text(PHONES.format(speed))
    (folder / "link.csv").write_text("at_s,Mbps\n0,8\n")
    (folder / "there.csv").write_text("client,on_at_s,off_at_s\na,0,60\n")


def test_the_first_folder_that_has_it_is_taken(places: Path) -> None:
    for name in ("data", "work", "own"):
        (places / name / "a.csv").touch()
        with looking_in([places / "own"]):
            assert placed("a.csv") == f"{places / name}/./a.csv"
    assert placed("a.csv") == f"{places}/work/./a.csv"  # a scenario without a file
    assert placed("/b.csv") == "/b.csv"
    assert placed("~/b.csv") == "~/b.csv"


def test_where_it_was_looked_for_is_told(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with looking_in([places / "own"]):
        path = placed("a.csv")
    folders = f"looked in {places}/own, {places}/work and {places}/data"
    with pytest.raises(DataError, match=f"^there is no a.csv: {folders}$"):
        located(path)
    monkeypatch.delenv("FEDSIM_DATA")
    with pytest.raises(DataError, match=rf"{places}/own and {places}/work \(FEDSIM_DATA is not set\)$"):
        located(path)
    with pytest.raises(DataError, match=r"^there is no /none/a\.csv$"):
        located("/none/a.csv")


def test_a_placed_path_is_looked_for_again_on_another_machine(places: Path) -> None:
    (places / "data" / "a.csv").touch()
    assert located("/elsewhere/./a.csv") == places / "data" / "a.csv"
    (places / "work" / "a.csv").touch()
    assert located("/elsewhere/./a.csv") == places / "work" / "a.csv"


def test_a_pattern_is_there_if_a_file_matches(places: Path) -> None:
    (places / "data" / "part-1.csv").touch()
    assert located(placed("part-*.csv")) == places / "data" / "part-*.csv"


@pytest.mark.parametrize("name", ["own", "work", "data"])
def test_every_file_of_a_scenario_is_looked_for_by_the_rule(
    places: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(places / name)
    (places / "own" / "one.toml").write_text(SCENARIO)
    scenario = load_scenario(places / "own" / "one.toml")
    built = build(scenario)
    # Repeated from its run folder, elsewhere, where other files have these names.
    (places / "run").mkdir()
    (places / "run" / "scenario.toml").write_text(resolved_toml(scenario))
    (places / "else").mkdir()
    write(places / "else", 9)
    monkeypatch.chdir(places / "else")
    again = load_scenario(places / "run" / "scenario.toml")
    assert again == scenario
    assert build(again).fleet.device(0) == built.fleet.device(0)


def test_a_scenario_without_a_file_has_no_folder_of_its_own(places: Path) -> None:
    write(places / "own")
    tables = tomllib.loads(SCENARIO)
    with pytest.raises(
        ScenarioError, match=f"there is no phones.csv: looked in {places}/work and {places}/data"
    ):
        load_scenario(tables)
    write(places / "work")
    assert load_scenario(tables).fleet[0].file == f"{places}/work/./phones.csv"


TABLE = """
run.rounds = 1
[data]
name = "table"
params = {{ file = "t.csv" }}
{}
[[fleet]]
count = 1
"""
ROWS = "a,label\n1,0\n2,1\n3,0\n4,1\n5,0\n6,1\n7,0\n8,1\n9,0\n1,1\n"


def test_the_root_stands_in_for_the_variable(places: Path) -> None:
    (places / "own" / "sets").mkdir()
    for folder in ("own/sets", "data"):
        (places / folder / "t.csv").write_text(ROWS)
    (places / "own" / "t.toml").write_text(TABLE.format('root = "sets"'))
    scenario = load_scenario(places / "own" / "t.toml")
    assert scenario.data.params.file == f"{places}/own/sets/./t.csv"  # type: ignore[attr-defined]
    assert len(build(scenario).data.sizes("train")) == 1


def test_another_machine_reads_its_own_copy(places: Path) -> None:
    (places / "own" / "t.csv").write_text(ROWS)
    (places / "own" / "t.toml").write_text(TABLE.format(""))
    sent = resolved_toml(load_scenario(places / "own" / "t.toml"))
    (places / "own" / "t.csv").rename(places / "own" / "gone.csv")
    (places / "sets").mkdir()
    (places / "sets" / "t.csv").write_text(ROWS)
    parts = build(with_own_root(read_resolved(sent), str(places / "sets")))
    assert parts.data.num_clients == 1


def test_a_folder_that_a_machine_names_goes_before_the_path_that_was_sent(places: Path) -> None:
    (places / "own" / "t.csv").write_text(ROWS)
    (places / "own" / "t.toml").write_text(TABLE.format(""))
    sent = resolved_toml(load_scenario(places / "own" / "t.toml"))
    (places / "sets").mkdir()
    params: Any = read_resolved(sent, places / "sets").data.params
    assert params.file == f"{places}/own/./t.csv"  # the folder does not have it
    (places / "sets" / "t.csv").write_text(ROWS)
    params = read_resolved(sent, places / "sets").data.params
    assert params.file == f"{places}/sets/./t.csv"
    with pytest.raises(UserError, match=r"run\.rounds|data"):
        read_resolved("[run]\n", places / "sets")


def test_a_study_looks_in_the_folders_of_its_base_and_its_own(
    places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(places / "own")
    (places / "own" / "one.toml").write_text(SCENARIO)
    (places / "studies").mkdir()
    (places / "studies" / "other.csv").write_text(PHONES.format(5))
    study = {
        "base": "../own/one.toml",
        "variant": [{"algorithm": "fedavg"}],
        "grid": {"fleet.0.file": ["phones.csv", "other.csv"]},
    }
    (places / "studies" / "s.toml").write_text(toml_writer.document(study))
    plan = load_study(places / "studies" / "s.toml")
    files = [tomllib.loads(run.scenario_toml)["fleet"][0]["file"] for run in plan.runs]
    assert files == [f"{places}/own/./phones.csv", f"{places}/studies/./other.csv"]
    # What it leaves in its folder runs again from elsewhere.
    (places / "study.toml").write_text(plan.toml)
    monkeypatch.chdir(places)
    assert load_study(places / "study.toml").runs == plan.runs


def test_a_missing_base_is_looked_for_by_the_rule(places: Path) -> None:
    (places / "own" / "s.toml").write_text('base = "none.toml"\n[[variant]]\nalgorithm = "fedavg"\n')
    with pytest.raises(ScenarioError, match=f"base: there is no none.toml: looked in {places}/own, "):
        load_study(places / "own" / "s.toml")


def test_the_short_form_looks_in_the_folder_of_its_scenario(places: Path) -> None:
    write(places / "own")
    (places / "own" / "one.toml").write_text(SCENARIO)
    plan = command_plan(places / "own" / "one.toml", ["run.rounds=1,2"], ["fedavg"], None)
    assert all(f"{places}/own/./phones.csv" in run.scenario_toml for run in plan.runs)


def test_a_root_of_another_machine_is_looked_for_here(places: Path) -> None:
    (places / "own" / "t.toml").write_text(TABLE.format('root = "sets"'))
    scenario = load_scenario(places / "own" / "t.toml")
    assert scenario.data.root == f"{places}/own/./sets"
    assert with_own_root(scenario, "/mine").data.root == "/mine"
    (places / "data" / "sets").mkdir()
    assert with_own_root(scenario, "/mine").data.root == f"{places}/data/sets"
