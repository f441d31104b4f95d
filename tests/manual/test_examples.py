"""The manual's examples do what its words say of them."""

import importlib
import os
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from manual_blocks import block

import fedsim
from fedsim.report.remarks import remarks
from fedsim.runtime.run import run
from fedsim.scenario import build, load_scenario
from fedsim.studies.plan import load_study

ROOT = Path(__file__).parents[2]
SHORT = 'participation.pacing={name="synchronous", params={over_selection = 1.3}}'


def test_example_algorithm_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lab_of_the_manual").mkdir()
    text = block("how_to/algorithms", file="lab/fedmedian.py")
    (tmp_path / "lab_of_the_manual" / "fedmedian.py").write_text(text)
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
        algorithm="lab_of_the_manual.fedmedian",
    )
    try:
        result = run(build(scenario))
    finally:
        for name in ("lab_of_the_manual", "lab_of_the_manual.fedmedian"):
            sys.modules.pop(name, None)
    assert result.final is not None
    assert sum(row.merged for row in result.rounds) == 16


def _notebook(rounds: int = 30) -> str:
    text = block("how_to/python", after="This notebook")
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
    pyplot = importlib.import_module("matplotlib.pyplot")
    pyplot.close("all")  # figures of other tests
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
    bar = "application/vnd.jupyter.widget-view+json"
    assert {"image/png", "text/html", bar} <= shown


def test_a_table_of_ones_own_trains_a_module_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_lab").mkdir()
    (tmp_path / "my_lab" / "nets.py").write_text(block("how_to/models", file="my_lab/nets.py"))
    rows = [f"{number},{number % 7},{number % 2},ward {number % 3}" for number in range(60)]
    (tmp_path / "patients.csv").write_text("\n".join(["age,dose,outcome,hospital", *rows]))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    data = tomllib.loads(block("how_to/data", file="patients.toml"))["data"]
    models = tomllib.loads(block("how_to/models", file="own_model.toml"))["models"]
    fleet = [{"count": 3, "device": "low", "model": "mine"}]
    scenario = {"run": {"rounds": 1}, "data": data, "models": models, "fleet": fleet}
    result = run(build(load_scenario(scenario)))
    assert result.final is not None
    assert result.rounds[0].merged == 3


def test_trackers_are_chosen_as_it_says() -> None:
    tables = tomllib.loads(block("how_to/trackers", after="so does a scenario"))
    chosen = load_scenario(tables | {"fleet": [{"count": 1}]}).run.trackers
    assert [one.name for one in chosen] == ["tensorboard", "mlflow"]


def test_the_confusion_matrix_is_one() -> None:
    overrides = {"run.rounds": 1, "data.limit": 400, "data.public.size": 0, "evaluation.per_class": True}
    result = fedsim.run("quickstart", overrides=overrides)
    names: dict[str, Any] = {"result": result}
    code = block("how_to/python", after="## By class")
    exec(code.replace("fedsim.run(", "(lambda *given, **settings: result)("), names)  # noqa: S102
    matrix = names["matrix"].to_numpy()
    assert matrix.sum() == result.evaluations.to_pandas().query("round == 1").num_samples.sum()


def test_a_run_is_shown_live(capsys: pytest.CaptureFixture[str], tiny_scenario: str) -> None:
    text = block("how_to/python", after="A [live page]")
    assert text.count('"quickstart"') == 1
    names: dict[str, Any] = {"fedsim": fedsim, "tiny": tomllib.loads(tiny_scenario)}
    exec(text.replace('"quickstart"', "tiny"), names)  # noqa: S102
    assert names["result"].summary["rounds"] == 20
    assert capsys.readouterr().out.startswith("http://127.0.0.1:")


@pytest.fixture
def phones(tmp_path: Path) -> Path:
    path = tmp_path / "phones.toml"
    path.write_text(block("how_to/scenarios", file="phones.toml"))
    return path


def test_example_scenario_is_valid(phones: Path) -> None:
    assert len(build(load_scenario(phones)).fleet) == 20
    assert tomllib.loads(phones.read_text())["algorithm"]["params"] == {"mu": 0.1}


@pytest.mark.slow
def test_example_scenario_covers_two_days_in_which_clients_come_and_go(phones: Path) -> None:
    parts = build(load_scenario(phones, ["engine.executor=null", "evaluation.every=0"]))
    result = run(parts)
    assert round(result.simulated_s / 86400) == 2
    assert remarks(parts, result) == []
    assert (result.by_client["asked"] > 0).mean() >= 0.8
    # Without the interval it would be told.
    parts = build(load_scenario(phones, ["engine.executor=null", "evaluation.every=0", SHORT]))
    result = run(parts)
    assert result.simulated_s < 60
    assert len(remarks(parts, result)) == 1


@pytest.mark.slow
def test_example_scenario_learns(phones: Path) -> None:
    result = run(build(load_scenario(phones, ["evaluation.every=100"])))
    assert result.final is not None
    assert result.final.mean == pytest.approx(0.9, abs=0.03)


def test_example_study_is_valid() -> None:
    document = tomllib.loads(block("how_to/studies", file="my-study.toml"))
    plan = load_study(document)
    assert (len(plan.settings), plan.seeds, len(plan.trials)) == (2 * 2, (0, 1, 2), 2 * 2 * 3)
