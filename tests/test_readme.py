"""README.md keeps what it promises: its example algorithm runs, its scenario is valid, its files exist."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import fedsim
from fedsim.report import number_format
from fedsim.report.remarks import remarks
from fedsim.runtime.run import run
from fedsim.scenario import build, load_scenario
from fedsim.studies.plan import load_study

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
SHORT = 'participation.pacing={name="synchronous", params={over_selection = 1.3}}'


def _between(start: str, end: str, language: str) -> str:
    found = re.search(f"{re.escape(start)}\n```{language}\n(.*?)```\n{re.escape(end)}", README, re.S)
    assert found is not None
    return found[1]


def test_example_algorithm_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lab_of_the_readme").mkdir()
    (tmp_path / "lab_of_the_readme" / "fedmedian.py").write_text(
        _between("<!-- example: fedmedian -->", "<!-- end of example -->", "python")
    )
    monkeypatch.syspath_prepend(tmp_path)
    scenario = load_scenario(
        ROOT / "scenarios" / "quickstart.toml",
        [
            "run.rounds=2",
            "evaluation.every=1",
            "data.limit=600",
            "data.partition.name=iid",
            "data.partition.params={}",
            "data.public.size=0",
        ],
        algorithm="lab_of_the_readme.fedmedian",
    )
    try:
        result = run(build(scenario))
    finally:
        for name in ("lab_of_the_readme", "lab_of_the_readme.fedmedian"):
            sys.modules.pop(name, None)
    assert result.final is not None
    assert sum(row.merged for row in result.rounds) == 16


def _notebook(rounds: int = 30) -> str:
    text = _between("<!-- notebook -->", "<!-- end of notebook -->", "python")
    assert text.count('"run.rounds": 30') == 1
    return text.replace('"run.rounds": 30', f'"run.rounds": {rounds}')


@pytest.mark.slow
def test_the_notebook_runs_as_a_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "notebook.py"
    look = """
drawn = [line.get_ydata() for line in plt.gca().lines]
assert [sum(y == y for y in ys) >= 5 for ys in drawn] == [True, True], drawn
plt.savefig("accuracy.png")
print(comparison)
"""
    file.write_text(_notebook(rounds=5) + look)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path))
    runpy.run_path(str(file), run_name="__main__")
    assert (tmp_path / "accuracy.png").stat().st_size > 10_000
    assert re.search(r"^fedmd +[\d.]+", capsys.readouterr().out, re.M)
    assert len(_notebook().splitlines()) <= 12


@pytest.mark.slow
def test_the_notebook_runs_in_jupyter(tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    v4 = pytest.importorskip("nbformat.v4")
    notebook = v4.new_notebook(cells=[v4.new_code_cell(_notebook(rounds=5))])
    file = tmp_path / "notebook.ipynb"
    nbformat.write(notebook, file)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "nbconvert", "--execute", "--to", "notebook", "--inplace", str(file)]
    done = subprocess.run(  # noqa: S603
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    [cell] = nbformat.read(file, as_version=4).cells
    shown = {kind for output in cell.outputs for kind in output.get("data", {})}
    assert {"image/png", "text/html"} <= shown


NET = """
from torch import nn

class Net(nn.Sequential):
    def __init__(self, in_features, num_classes, hidden):
        super().__init__(nn.Linear(in_features, hidden), nn.ReLU(), nn.Linear(hidden, num_classes))
"""


def test_a_table_of_ones_own_trains_a_module_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_lab").mkdir()
    (tmp_path / "my_lab" / "nets.py").write_text(NET)
    rows = [f"{number},{number % 7},{number % 2},ward {number % 3}" for number in range(60)]
    (tmp_path / "patients.csv").write_text("\n".join(["age,dose,outcome,hospital", *rows]))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    text = _between("<!-- own data -->", "<!-- end of own data -->", "toml")
    rest = {"run": {"rounds": 1}, "fleet": [{"count": 3, "device": "low", "model": "mine"}]}
    result = run(build(load_scenario(tomllib.loads(text) | rest)))
    assert result.final is not None
    assert result.rounds[0].merged == 3


def test_trackers_are_chosen_as_it_says() -> None:
    tables = tomllib.loads(_between("<!-- trackers -->", "<!-- end of trackers -->", "toml"))
    chosen = load_scenario(tables | {"fleet": [{"count": 1}]}).run.trackers
    assert [one.name for one in chosen] == ["tensorboard", "mlflow"]


def test_the_confusion_matrix_is_one() -> None:
    overrides = {"run.rounds": 1, "data.limit": 400, "data.public.size": 0, "evaluation.per_class": True}
    result = fedsim.run("quickstart", overrides=overrides)
    names: dict[str, Any] = {"result": result}
    exec(_between("<!-- classes -->", "<!-- end of classes -->", "python"), names)  # noqa: S102
    matrix = names["matrix"].to_numpy()
    assert matrix.sum() == result.evaluations.to_pandas().query("round == 1").num_samples.sum()


@pytest.fixture
def study(tmp_path: Path) -> Path:
    found = re.search(r"```toml\n(.*?)```", README, re.S)
    assert found is not None
    path = tmp_path / "study.toml"
    path.write_text(found[1])
    return path


def test_example_scenario_is_valid(study: Path) -> None:
    assert len(build(load_scenario(study)).fleet) == 20
    assert tomllib.loads(study.read_text())["algorithm"]["params"] == {"mu": 0.1}


def test_example_scenario_covers_two_days_in_which_clients_come_and_go(study: Path) -> None:
    parts = build(load_scenario(study, ["engine.executor=null", "evaluation.every=0"]))
    result = run(parts)
    assert round(result.simulated_s / 86400) == 2
    assert remarks(parts, result) == []
    assert result.by_client["asked"].all()
    # Without the interval it would be told.
    parts = build(load_scenario(study, ["engine.executor=null", "evaluation.every=0", SHORT]))
    result = run(parts)
    assert result.simulated_s < 60
    assert len(remarks(parts, result)) == 1


@pytest.mark.slow
def test_example_scenario_learns(study: Path) -> None:
    result = run(build(load_scenario(study, ["evaluation.every=100"])))
    assert result.final is not None
    assert result.final.mean == pytest.approx(0.92, abs=0.02)


def test_example_study_is_valid() -> None:
    document = tomllib.loads(_between("<!-- study -->", "<!-- end of study -->", "toml"))
    plan = load_study(document)
    assert (len(plan.settings), plan.seeds, len(plan.trials)) == (2 * 2, (0, 1, 2), 2 * 2 * 3)


def test_what_the_demo_moves_is_what_its_table_says() -> None:
    """Times and bytes do not depend on what is learned, so nothing is trained here."""
    printed = _between("<!-- demo table -->", "<!-- end of demo table -->", "")
    moved = {}
    (compared,) = re.findall(r"fedsim compare .*--algorithms (\S+)", (ROOT / "Makefile").read_text())
    for algorithm in compared.split(","):
        scenario = load_scenario(
            ROOT / "scenarios" / "quickstart.toml",
            ["engine.executor=null", "evaluation.every=0"],
            algorithm=algorithm,
        )
        result = run(build(scenario))
        totals = result.totals
        moved[algorithm] = totals.bytes_up + totals.bytes_down
        row = re.search(rf"^{algorithm} .*$", printed, re.M)
        assert row is not None
        cells = [cell.rstrip("*") for cell in re.split(r"  +", row[0])]
        assert cells[-6:-3] == [
            number_format.duration(result.simulated_s),
            number_format.size(totals.bytes_up),
            number_format.size(totals.bytes_down),
        ]
        assert cells[-2:] == [number_format.count(totals.parameters_up + totals.parameters_down), "0"]
    assert len(moved) == 4
    assert 10 * moved["fedmd"] <= moved["fedavg"]


def test_files_to_read_first_exist() -> None:
    named = re.findall(r"^\d\. `(fedsim/[\w/]+\.py)`", README, re.M)
    assert len(named) == 6
    assert all((ROOT / name).is_file() for name in named)


def test_first_commands_are_targets_of_make() -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.M))
    named = set(re.findall(r"^make (\w+)", README, re.M))
    assert named == {"demo", "test"}
    assert named <= targets
