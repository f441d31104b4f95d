"""Whole runs of tasks without images: a regression, which has a loss alone, and a text, which has both."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from fedsim import toml_writer
from fedsim.cli import main

REGRESSION: dict[str, Any] = {
    "run": {"name": "lines", "rounds": 8},
    "data": {
        "name": "synthetic_regression",
        "params": {"num_features": 3, "samples_per_client": 40}
        | dict.fromkeys(("between", "within", "noise"), 0.0),
        "split": [0.75, 0.0, 0.25],
        "global_test": 0.1,
        "partition": "by_user",
    },
    "models": {"linear": {}},
    "training": {"lr": 0.3, "batch_size": 8},
    "fleet": [{"count": 4, "device": "high"}],
}
TEXT: dict[str, Any] = {
    "run": {"name": "words", "rounds": 3},
    "data": {
        "name": "texts",
        "params": {"file": "t.csv", "length": 4, "vocabulary": 12},
        "split": [0.5, 0.0, 0.5],
        "partition": "by_user",
    },
    "models": {"lstm_text": {"params": {"hidden": 4, "embedding": 3}}},
    "fleet": [{"count": 3, "device": "high"}],
}


def run(folder: Path, scenario: dict[str, Any]) -> tuple[dict[str, Any], str]:
    (folder / "s.toml").write_text(toml_writer.document(scenario))
    result = CliRunner().invoke(main, ["run", "s.toml", "--out", "out", "--verify", "--force"])
    assert result.exit_code == 0, result.output
    return json.loads((folder / "out" / "summary.json").read_text()), result.stdout


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDSIM_DATA", raising=False)
    return tmp_path


def test_a_regression_learns_and_has_no_accuracy(here: Path) -> None:
    summary, printed = run(here, REGRESSION)
    accuracy = {name: value for name, value in summary["accuracy"].items() if name != "others"}
    assert set(accuracy.values()) == {None}
    rounds = pq.read_table(here / "out" / "rounds.parquet").to_pylist()
    assert {row["accuracy_mean"] for row in rounds} == {None}
    losses = [row["loss_mean"] for row in rounds]
    assert losses[-1] == summary["loss"]["personal_mean"] == summary["loss"]["best"]
    # All clients have one truth and there is no noise, so nothing keeps the loss up.
    assert losses[-1] < 0.1 * losses[0]
    assert summary["loss"]["global"] < 0.1 * losses[0]
    clients = pq.read_table(here / "out" / "clients.parquet").to_pylist()
    assert all(row["accuracy"] is None and row["loss"] >= 0 for row in clients)
    assert f"loss        {summary['loss']['personal_mean']:.3g} ±" in printed


def test_a_regression_is_compared_by_its_loss(here: Path) -> None:
    (here / "s.toml").write_text(toml_writer.document(REGRESSION))
    arguments = ["compare", "s.toml", "--algorithms", "fedavg,local", "--set", "run.rounds=1"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    assert "loss: mean over clients" in result.stdout
    assert "accuracy" not in result.stdout


def test_a_regression_has_no_classes_to_spread(here: Path) -> None:
    (here / "s.toml").write_text(toml_writer.document(REGRESSION).replace("by_user", "dirichlet_class"))
    result = CliRunner().invoke(main, ["run", "s.toml"])
    assert result.exit_code == 2
    assert "data.partition" in result.output
    assert "class" in result.output


def test_a_text_has_accuracy_and_loss(here: Path) -> None:
    lines = [f"{user},{n % 2},{'good day' if n % 2 else 'bad night'} {n}" for user in "abc" for n in range(8)]
    (here / "t.csv").write_text("\n".join(["user,label,text", *lines]) + "\n")
    summary, printed = run(here, TEXT)
    assert 0 <= summary["accuracy"]["personal_mean"] <= 1
    assert 0 < summary["loss"]["personal_mean"] < 1
    assert "accuracy" in printed
