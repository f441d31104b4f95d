import json
import shutil
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedsim
from fedsim import toml_writer
from fedsim.algorithms.fedavg import FedAvg
from fedsim.errors import OutputError
from fedsim.network.cells import Cells
from fedsim.network.edges import Edges
from fedsim.network.fluid import Fluid, FluidConfig
from fedsim.report.places import CONTENTS, holds_run, is_own, run_place
from fedsim.report.provenance import Bus
from fedsim.report.record_run import record
from fedsim.runtime.parts import EvaluationConfig
from fedsim.scenario import Plan, Scenario, load_scenario, resolved_toml

DOCUMENT = {"run": {"name": "tiny", "rounds": 1}, "fleet": [{"count": 4}]}
FIRST = Path("runs/tiny/fedavg-seed0")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def scenario(**overrides: object) -> Scenario:
    return load_scenario(DOCUMENT, {key.replace("__", "."): value for key, value in overrides.items()})


def leave(folder: Path, of: Scenario, **provenance: str) -> None:
    """Leave what a run leaves, as far as it is looked at."""
    folder.mkdir(parents=True)
    (folder / "summary.json").write_text("{}")
    (folder / "scenario.toml").write_text(resolved_toml(of))
    said = {"status": "complete", "fedsim": fedsim.__version__, "bus": "memory"} | provenance
    (folder / "run.json").write_text(json.dumps(said))


def test_the_first_place_is_taken_while_it_is_free() -> None:
    assert run_place(scenario(), "memory") == FIRST
    FIRST.mkdir(parents=True)
    assert run_place(scenario(), "memory") == FIRST


def test_the_same_run_goes_to_the_same_place() -> None:
    leave(FIRST, scenario())
    assert run_place(scenario(), "memory") == FIRST


def test_another_run_gets_a_number_and_keeps_it() -> None:
    leave(FIRST, scenario())
    second = run_place(scenario(training__lr=0.5), "memory")
    assert second == Path("runs/tiny/fedavg-seed0-2")
    leave(second, scenario(training__lr=0.5))
    third = run_place(scenario(training__lr=0.25), "memory")
    assert third == Path("runs/tiny/fedavg-seed0-3")
    leave(third, scenario(training__lr=0.25))
    assert run_place(scenario(training__lr=0.5), "memory") == second
    assert run_place(scenario(), "memory") == FIRST


def test_force_means_the_first_place() -> None:
    leave(FIRST, scenario())
    assert run_place(scenario(training__lr=0.5), "memory", force=True) == FIRST


@pytest.mark.parametrize("provenance", [{"fedsim": "0.0.1"}, {"bus": "http"}, {"status": "under way"}])
def test_another_version_or_bus_may_have_had_other_results(provenance: dict[str, str]) -> None:
    leave(FIRST, scenario(), **provenance)
    assert not holds_run(FIRST, resolved_toml(scenario()))
    assert run_place(scenario(), "memory") == Path("runs/tiny/fedavg-seed0-2")


def test_in_real_time_no_run_is_the_same() -> None:
    leave(FIRST, scenario())
    assert not holds_run(FIRST, resolved_toml(scenario()), "http")
    assert run_place(scenario(), "http") == Path("runs/tiny/fedavg-seed0-2")


def test_whatever_else_is_there_is_left_alone() -> None:
    leave(FIRST, scenario())
    (FIRST / "my-plot.png").write_text("dear")
    assert run_place(scenario(), "memory") == Path("runs/tiny/fedavg-seed0-2")
    Path("runs/tiny/fedavg-seed0-2").write_text("a file")
    Path("runs/tiny/fedavg-seed0-3").symlink_to("nowhere")
    assert run_place(scenario(), "memory") == Path("runs/tiny/fedavg-seed0-4")


@pytest.mark.parametrize("content", ["", "[]", "{", "\N{SNOWMAN}"])
def test_what_cannot_be_read_is_another_run(content: str) -> None:
    leave(FIRST, scenario())
    (FIRST / "run.json").write_text(content)
    assert not holds_run(FIRST, resolved_toml(scenario()))
    (FIRST / "run.json").unlink()
    assert not holds_run(FIRST, resolved_toml(scenario()))


def test_what_may_be_replaced_is_what_a_run_leaves(plan: Plan, tmp_path: Path) -> None:
    written = plan.scenario_toml + "save_models = true\n"
    cells = Cells(["A"], np.zeros(plan.parts.data.num_clients, np.int32), [1e9], [1e9], [0.0])
    edges = Edges(cells, [0], [1], [1e9], [1e9], [0.0])
    parts = replace(plan.parts, network=Fluid(FluidConfig()), cells=cells, edges=edges)
    parts = replace(parts, evaluation=EvaluationConfig(per_class=True))
    all_is_left = replace(plan, parts=parts, save_models=True, scenario_toml=written)
    done = record(all_is_left, tmp_path / "run", profile=True)
    assert {path.name for path in done.folder.iterdir()} == CONTENTS - {"checkpoints"}  # none was due
    assert holds_run(done.folder, written)
    assert not holds_run(done.folder, written + "\n")


def test_models_that_a_run_would_not_leave_are_not_replaced(plan: Plan, tmp_path: Path) -> None:
    done = record(replace(plan, save_models=True), tmp_path / "run")
    assert not holds_run(done.folder, plan.scenario_toml)
    shutil.rmtree(done.folder / "models")
    assert holds_run(done.folder, plan.scenario_toml)


def test_what_the_system_refuses_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(self))

    loaded = scenario()
    monkeypatch.setattr(Path, "is_dir", refuse)
    with pytest.raises(OutputError, match=r"Permission denied\. Choose another place"):
        run_place(loaded, "memory")


class OwnFedAvg(FedAvg):
    """An algorithm of the user's, which may have changed since a run."""


def test_dots_in_names_that_are_no_paths_make_no_plugin_of_ones_own() -> None:
    document = {
        "run": {"name": "quick.v2", "rounds": 1},
        "models": {"small.v2": {"name": "mlp"}},
        "fleet": [{"count": 4, "name": "phones.v2", "model": "small.v2"}],
        "server": {"model": "small.v2"},
    }
    loaded = load_scenario(document)
    place = run_place(loaded, "memory")
    leave(place, loaded)
    assert run_place(loaded, "memory") == place == Path("runs/quick.v2/fedavg-seed0")


@pytest.mark.parametrize(
    "path",
    [
        "models.mlp.name",
        "participation.selector.name",
        "data.augmentation.0.name",
        "network.model",
        "fleet.0.device",
        "engine.executor",
    ],
)
def test_a_dotted_path_names_a_plugin_of_ones_own_wherever_it_is(path: str) -> None:
    tables: Any = tomllib.loads(resolved_toml(scenario()))
    tables["data"]["augmentation"] = [{"name": "crop"}]
    *above, last = path.split(".")
    place = tables
    for key in above:
        place = place[int(key) if key.isdigit() else key]
    place[last] = "lab.mine"
    written = toml_writer.document(tables)
    leave(FIRST, scenario())
    (FIRST / "scenario.toml").write_text(written)
    assert not holds_run(FIRST, written)


def test_a_run_with_a_plugin_of_ones_own_is_not_known_to_be_the_same() -> None:
    own = load_scenario(DOCUMENT, algorithm=OwnFedAvg)
    first = run_place(own, "memory")
    leave(first, own)
    assert run_place(own, "memory") == first.with_name(f"{first.name}-2")


def test_a_run_over_sockets_that_can_go_on_is_not_begun_anew_by_one_that_does_not() -> None:
    def is_ours(mine: Bus, **state: Any) -> tuple[bool, bool]:
        (FIRST / "state.json").write_text(json.dumps(state))
        written = resolved_toml(scenario())
        return is_own(FIRST, written, mine), is_own(FIRST, written, mine, goes_on=False)

    leave(FIRST, scenario(), status="running")
    (FIRST / "summary.json").unlink()
    assert is_ours("http", bus="http", has_checkpoints=True) == (True, False)
    assert is_ours("http", bus="http", has_checkpoints=False) == (True, True)
    assert is_ours("http", bus="memory", has_checkpoints=True) == (False, False)
    assert is_ours("memory", bus="memory", has_checkpoints=True) == (True, True)
    assert is_ours("memory", has_checkpoints=True) == (True, True)
    assert is_ours("memory", bus="http", has_checkpoints=True) == (False, False)
    (FIRST / "state.json").write_text(json.dumps({"bus": "http", "has_checkpoints": True}))
    assert run_place(scenario(), "http") == FIRST
    assert run_place(scenario(), "http", goes_on=False) == Path("runs/tiny/fedavg-seed0-2")
