"""``fedsim report``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from click.testing import Result

Call = Callable[..., Result]


def test_it_says_where_the_report_is_and_how_large(call: Call, here: Path) -> None:
    assert call("run", "tiny.toml", "-q", "--out", "results").exit_code == 0
    result = call("report", "results")
    assert result.exit_code == 0, result.output
    file = here / "results.html"
    assert result.stdout == f"results.html ({round(file.stat().st_size / 1000)} kB)\n"
    # It is a report, so it is replaced.
    assert call("report", "results").exit_code == 0
    # The run can be done again to the same place.
    assert call("run", "tiny.toml", "-q", "--out", "results").exit_code == 0


def test_a_run_is_shown_client_by_client_in_the_rounds_that_are_chosen(call: Call, here: Path) -> None:
    assert call("run", "tiny.toml", "-q", "--set", "run.rounds=3", "--out", "results").exit_code == 0
    for rounds, title in (("2:3", "rounds 2 to 3"), ("3", "round 3")):
        assert call("report", "results", "--rounds", rounds).exit_code == 0
        assert f"Clients by phase, {title}" in (here / "results.html").read_text()
    for rounds, said in (
        ("3:2", "'3:2' ends before it begins: write the first round, then the last, as in 20:40"),
        ("2:", "'' is not a whole number"),
        ("0:2", "'0' is below 1"),
        ("2:9", "this run has no round 9, it ended with round 3: choose rounds from 1 to 3"),
    ):
        result = call("report", "results", "--rounds", rounds)
        assert result.exit_code == 2
        assert said in " ".join(result.stderr.split())


def test_mistakes_are_explained(call: Call, here: Path) -> None:
    result = call("report", ".")
    assert result.exit_code == 2
    assert "holds no results: name the folder of a run" in result.stderr
    assert call("run", "tiny.toml", "-q", "--out", "results").exit_code == 0
    for out, said in (
        ("tiny.toml", "tiny.toml exists already"),
        ("results/a.html", "is in the folder of a run"),
    ):
        result = call("report", "results", "--out", out)
        assert result.exit_code == 2
        assert said in result.stderr
    (here / "results" / "rounds.parquet").write_bytes(b"PAR1")
    result = call("report", "results")
    assert result.exit_code == 2
    assert "cannot be read, so these results are not whole" in result.stderr
