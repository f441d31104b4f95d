import json
import tomllib
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fedsim.cli import main
from fedsim.errors import OutputError
from fedsim.report.record_comparison import check_comparison, record_comparison, write_comparison
from fedsim.scenario import load_each

Compare = Callable[..., Any]


@pytest.fixture
def compare(tiny_scenario: str, tmp_path: Path) -> Compare:
    """Return a function that compares algorithms in the folder ``o``."""
    document = tomllib.loads(tiny_scenario)

    def watching(label: str, rounds: int | None) -> AbstractContextManager[Any]:
        return nullcontext(lambda row: None)

    def call(*algorithms: str, force: bool = False, **run: Any) -> Any:
        overrides = {"run.rounds": 1, "engine.executor": "null"} | {f"run.{key}": run[key] for key in run}
        scenarios = load_each(document, overrides, algorithms, None)
        check_comparison(scenarios, tmp_path / "o", force=force)
        done = list(record_comparison(scenarios, "tiny", tmp_path / "o", watching, force=force))
        write_comparison(scenarios, tmp_path / "o")
        return done

    return call


def numbers(parent: Path) -> list[dict[str, Any]]:
    runs = json.loads((parent / "comparison.json").read_text())["runs"]
    return [{key: run[key] for key in run if key != "wall_s"} for run in runs]


def test_the_same_comparison_again_needs_no_force(compare: Compare, tmp_path: Path) -> None:
    compare("fedavg", "local")
    before = numbers(tmp_path / "o")
    compare("fedavg", "local")
    assert numbers(tmp_path / "o") == before
    compare("local", "fedavg")
    assert numbers(tmp_path / "o") == before[::-1]


def test_runs_that_had_ended_before_a_comparison_failed_are_done_again(
    compare: Compare, tmp_path: Path
) -> None:
    compare("fedavg", "local")
    for table in ("comparison.csv", "comparison.json"):
        (tmp_path / "o" / table).unlink()
    compare("fedavg", "fedprox")
    assert [run["folder"] for run in numbers(tmp_path / "o")] == ["fedavg-seed0", "fedprox-seed0"]


def test_what_a_run_has_left_is_let_go_before_the_one_after_next(
    tiny_scenario: str, tmp_path: Path, collect: Callable[[], int]
) -> None:
    overrides = {"run.rounds": 1, "engine.executor": "null"}
    scenarios = load_each(tomllib.loads(tiny_scenario), overrides, ["fedavg", "local", "fedprox"], None)
    alive = list[weakref.ref[Any]]()
    runs = record_comparison(scenarios, "tiny", tmp_path / "o", lambda *_: nullcontext(lambda row: None))
    for one in runs:
        alive.append(weakref.ref(one.result.ledger))
        collect()
        assert sum(ref() is not None for ref in alive) <= 1


def test_another_comparison_is_replaced_only_by_force(compare: Compare, tmp_path: Path) -> None:
    compare("fedavg", "local")
    before = numbers(tmp_path / "o")
    with pytest.raises(OutputError, match=r"comparison\.csv exists already: replace it with"):
        compare("fedavg")
    with pytest.raises(OutputError, match="fedavg-seed0 holds a run already: replace it with"):
        compare("fedavg", "local", rounds=2)
    assert numbers(tmp_path / "o") == before
    compare("fedavg", "local", rounds=2, force=True)
    assert [run["rounds"] for run in numbers(tmp_path / "o")] == [2, 2]


def test_two_comparisons_from_the_command_line_have_tables_of_their_own(
    tiny_scenario: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tiny.toml").write_text(tiny_scenario)
    for more, place in (([], "tiny"), (["--set", "run.rounds=1"], "tiny-2"), ([], "tiny")):
        command = ["compare", "tiny.toml", "--algorithms", "local", "--set", "engine.executor=null", *more]
        result = CliRunner().invoke(main, command)
        assert result.exit_code == 0, result.output
        assert f"results are in runs/{place}: comparison.csv" in result.stderr
    assert numbers(Path("runs/tiny"))[0]["rounds"] == 2
    assert numbers(Path("runs/tiny-2"))[0]["rounds"] == 1
