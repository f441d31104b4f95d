from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from fedsim.cli import study as command
from fedsim.cli.study import watching_study, words
from fedsim.scenario import load_scenario
from fedsim.studies import perform as performing
from fedsim.studies.perform import Progress
from fedsim.studies.plan import Setting, StudyRun

Call = Callable[..., Result]

STUDY = """
base = "tiny.toml"
targets = [0.01]
baseline = "fedavg"
[[variant]]
algorithm = "fedavg"
[[variant]]
algorithm = "local"
"""


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch, here: Path) -> None:
    """Let every run fail, and none start a process."""

    def fail(self: Any, runs: Sequence[StudyRun]) -> None:
        self.failed |= {run.label: "no such luck" for run in runs}

    monkeypatch.setattr(performing._Work, "do", fail)
    (here / "mine.toml").write_text(STUDY)


@pytest.mark.usefixtures("failing")
def test_runs_that_failed_are_listed_at_the_end(call: Call, here: Path) -> None:
    result = call("study", "mine.toml")
    assert result.exit_code == 1
    assert result.stdout.startswith("No run has ended; missing: fedavg-seed0 and 1 more.\n\nto reach 1 %\n")
    assert "0 of 0" in result.stdout
    assert "results are in runs/mine: answers.csv, study.parquet" in result.stderr
    assert result.stderr.endswith(
        "fedsim: the run failed: 2 runs of the study\n"
        "  fedavg-seed0: no such luck\n  local-seed0: no such luck\n"
    )
    assert (here / "runs" / "mine" / "answers.tex").is_file()


@pytest.mark.usefixtures("failing")
def test_its_report_is_written_even_where_runs_failed(call: Call, here: Path) -> None:
    result = call("study", "mine.toml", "--out", "o", "--report")
    assert result.exit_code == 1
    assert "for a browser, is o/report.html\n" in result.stderr
    assert "No run has ended" in (here / "o" / "report.html").read_text()
    (here / "o" / "report.html").write_text("dear")
    result = call("study", "mine.toml", "--out", "o", "--report")
    assert result.exit_code == 2
    assert "report.html exists already" in result.stderr


@pytest.mark.usefixtures("failing")
def test_an_interrupted_study_says_how_it_goes_on(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(performing._Work, "do", interrupt)
    result = call("study", "mine.toml", "--out", "o")
    assert result.exit_code == 130
    assert "are kept in o: the same command goes on from there" in result.stderr


def test_mistakes_are_told_with_their_paths(call: Call, here: Path) -> None:
    (here / "mine.toml").write_text(STUDY.replace("0.01", "1.5") + '[grid]\n"training.lrr" = [1]\n')
    result = call("study", "mine.toml")
    assert result.exit_code == 2
    lines = result.stderr.splitlines()
    assert lines[0] == "fedsim: mine.toml: 2 faults"
    assert lines[1].startswith("  targets.0: 1.5 is above 1")
    assert lines[2].startswith('  grid."training.lrr": no key is called')
    assert "INTEGER" not in call("study", "mine.toml", "--jobs", "0").stderr


def test_where_a_study_is_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    scenario = load_scenario({"run": {"rounds": 30}, "fleet": [{"count": 1}]})
    run = StudyRun("local-seed1", Setting("local", "local"), 1, scenario, "")
    begun = Progress(18, 6, at_once=2)
    assert words(begun, 0.0) == "run 7 of 18"
    under_way = replace(begun, run=run, rounds={"local-seed1": 15}, share=0.25)
    assert words(under_way, 20.0) == "run 7 of 18: local-seed1, round 15 of 30, about 1 min left"
    ended = replace(begun, run=run, ended=1, said="ended", share=0.5)
    assert words(ended, 20.4) == "run 7 of 18: local-seed1, ended, about 20 s left"
    failed = replace(ended, said="Traceback\nZeroDivisionError: oh", share=1.0)
    assert words(failed, 20.0) == "run 7 of 18: local-seed1, failed: ZeroDivisionError: oh"
    assert command._begun(Progress(18, 0, at_once=2)) == "18 runs, 2 at once"
    assert not command._begun(Progress(18, 18))
    assert not command._begun(replace(begun, ended=4))  # trials have ended
    show = command._lines("mine", 0.0)
    for progress in (begun, under_way, replace(failed, ended=12), Progress(18, 18)):
        show(progress)
    first, second = capsys.readouterr().err.splitlines()
    assert first == "mine: 6 of 18 runs there already, 2 at once"
    assert second == "mine: run 18 of 18: local-seed1, failed: ZeroDivisionError: oh"


def test_a_terminal_shows_how_many_runs_there_are_before_any_has_ended(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with watching_study("mine", quiet=False) as watch:
        watch(Progress(6, 0, at_once=2))
    assert "mine: 6 runs, 2 at once\n" in capsys.readouterr().err
