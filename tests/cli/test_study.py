import json
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import fedsim
from fedsim.algorithms.fedavg import FedAvg
from fedsim.algorithms.local import Local
from fedsim.cli import study as command
from fedsim.cli.study import watching_study, words
from fedsim.errors import RunError
from fedsim.scenario import Plan, load_scenario
from fedsim.studies import answer_files
from fedsim.studies import perform as performing
from fedsim.studies.perform import Progress
from fedsim.studies.plan import Setting, StudyRun
from fedsim.studies.study_lock import LOCKS
from tests.cli.conftest import DIVERGING, Call, left
from tests.conftest import rows_of

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
    for progress in (begun, under_way, replace(failed, ended=12), Progress(18, 18)):
        command._line("mine", 0.0, progress)
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


ANSWER_FILES = [name for name in answer_files.FILES if name != "tuning.csv"]

FILES = (LOCKS, "comparison.csv", "comparison.json", *ANSWER_FILES)


def test_algorithms_side_by_side(call: Call, here: Path) -> None:
    result = call("compare", "tiny.toml", "--algorithms", "fedavg,local")
    assert result.exit_code == 0, result.output
    parent = here / "runs" / "tiny"
    assert left(parent) == sorted([*FILES, "fedavg-seed0", "local-seed0"])
    said, empty, *lines = result.stdout.splitlines()
    assert re.fullmatch(r"To \d+ % accuracy: (local|fedavg) took .* of simulated time and .*\.", said)
    assert not empty
    assert max(map(len, lines)) <= 100
    assert [line.split()[0] for line in lines[3:5]] == ["fedavg", "local"]
    second = lines[lines.index("where time and bytes went") + 1 :]
    assert second[1].split()[:5] == ["algorithm", "download", "compute", "upload", "waiting"]
    assert [line.split()[0] for line in second[3:5]] == ["fedavg", "local"]
    # Local training sends nothing.
    assert second[4].endswith("-")
    assert "results are in runs/tiny" in result.stderr
    document = json.loads((parent / "comparison.json").read_text())
    assert [row["algorithm"] for row in document["algorithms"]] == ["fedavg", "local"]
    for run in document["runs"]:
        summary = json.loads((parent / run.pop("folder") / "summary.json").read_text())
        assert run == summary
    rows = rows_of((parent / "comparison.csv").read_text())
    assert [row["algorithm"] for row in rows] == ["fedavg", "local"]


def test_its_report_is_written_where_it_is_wished(call: Call, here: Path) -> None:
    arguments = ("compare", "tiny.toml", "--algorithms", "local", "--out", "o", "--quiet", "--report")
    (here / "o").mkdir()
    (here / "o" / "report.html").write_text("dear")
    result = call(*arguments)
    assert (result.exit_code, left(here / "o")) == (2, ["report.html"])
    assert "report.html exists already" in result.stderr
    assert call(*arguments, "--force").exit_code == 0
    again = call(*arguments)  # a report is replaced in any case
    assert again.exit_code == 0, again.output
    assert "for a browser, is o/report.html\n" in again.stderr
    assert "o/report.html" not in again.stdout
    assert "local" in (here / "o" / "report.html").read_text()


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("jobs", [(), ("--jobs", "2")])
def test_all_places_are_checked_before_anything_runs(call: Call, here: Path, jobs: tuple[str, ...]) -> None:
    other = ("--algorithm", "local", "--set", "run.rounds=1")
    assert call("run", "tiny.toml", *other, "--out", "o/local-seed0").exit_code == 0
    arguments = ("compare", "tiny.toml", "--algorithms", "fedavg,local", "--out", "o", *jobs)
    result = call(*arguments)
    assert result.exit_code == 2
    assert "local-seed0 holds a run already" in result.stderr
    assert left(here / "o") == ["local-seed0"]
    assert call(*arguments, "--force").exit_code == 0
    assert left(here / "o") == sorted([*FILES, "fedavg-seed0", "local-seed0"])


def test_another_comparison_is_not_written_over(call: Call, here: Path) -> None:
    (here / "o").mkdir()
    (here / "o" / "comparison.csv").write_text("dear")
    result = call("compare", "tiny.toml", "--algorithms", "local", "--out", "o")
    assert result.exit_code == 2
    assert "comparison.csv exists already" in result.stderr
    assert left(here / "o") == ["comparison.csv"]


def test_a_failed_run_is_named_and_those_before_it_are_kept(
    call: Call, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(self: Local, *_: Any) -> Any:
        raise RunError("no such luck")

    monkeypatch.setattr(Local, "train", fail)
    result = call("compare", "tiny.toml", "--algorithms", "fedavg,local", "--out", "o")
    assert result.exit_code == 1
    assert "no such luck" in result.stderr
    assert "it was local-seed0" in result.stderr
    assert left(here / "o") == [LOCKS, "fedavg-seed0"]


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("jobs", [(), ("--jobs", "2")])
def test_an_interrupted_comparison_says_what_is_kept(
    call: Call, here: Path, monkeypatch: pytest.MonkeyPatch, jobs: tuple[str, ...]
) -> None:
    async def interrupt(self: Local, *_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(Local, "train", interrupt)
    result = call("compare", "tiny.toml", "--algorithms", "fedavg,local", "--out", "o", *jobs)
    assert result.exit_code == 130
    assert "runs that have ended are kept in o: the same command goes on from there\n" in result.stderr
    assert "fedavg-seed0" in left(here / "o")


def test_runs_that_are_not_finite_are_named_once_all_have_ended(
    call: Call, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def diverge(self: FedAvg, server: Any, state: Any, replies: Any) -> Any:
        return state

    monkeypatch.setattr(FedAvg, "merge", diverge)  # so the global model stays as it was
    arguments = ("compare", "tiny.toml", "--algorithms", "local,fedavg", *DIVERGING)
    result, again = call(*arguments), call(*arguments)  # when they are there already
    assert result.exit_code == again.exit_code == 1
    assert "fedsim: the run failed: 1 run of the comparison\n  local-seed0: at " in again.stderr
    parent = here / "runs" / "tiny"
    assert left(parent) == sorted([*FILES, "fedavg-seed0", "local-seed0"])
    for run, is_finite in (("fedavg-seed0", True), ("local-seed0", False)):
        assert json.loads((parent / run / "summary.json").read_text())["finite"] == is_finite
    assert "where time and bytes went" in result.stdout
    assert "fedsim: the run failed: 2 runs of the comparison\n  local-seed0: at the end " in result.stderr
    assert "fedavg-seed0: at" not in result.stderr


def test_the_faults_of_all_algorithms_come_at_once_and_each_once(call: Call, here: Path) -> None:
    more = ("--set", "training.lr=-1", "--set", "data.public.size=0", "--seeds", "0,1")
    result = call("compare", "tiny.toml", "--algorithms", "fedavgg,fedmdd,fedmd", *more)
    assert result.exit_code == 2
    assert result.stderr.startswith("fedsim: tiny.toml: 4 faults\n")
    for problem in ("'fedavgg'", "'fedmdd'", "but fedmd exchanges", "training.lr: -1 is not above 0"):
        assert result.stderr.count(problem) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--algorithms"),
        (["--algorithms", ","], "at least one algorithm"),
        (["--algorithms", "local,local"], "named twice"),
        (["--algorithms", "local,lokal"], "lokal"),
        (["--algorithms", "local", "--seeds", "0,x"], "not a whole number"),
        (["--algorithms", "local", "--seeds", "1,1"], "named twice"),
        (["--algorithms", "local", "--seeds", "-1"], "is below 0"),
        (["--algorithms", "local", "--target", "0.5", "--target", "0.50"], "0.5 is named twice"),
        (
            ["--algorithms", "local", "--set", "training.lr=0.1,,0.2"],
            "'0.1,,0.2' can be read in several ways",
        ),
        (["--algorithms", "local", "--set", "training.lrr=0.1,0.2"], "no key is called 'lrr'"),
        (
            ["--algorithms", "local", "--set", "data.public.size=199"],
            "fedsim: tiny.toml: 1 fault\n  data.public.size: of 200 samples, 199 are",
        ),
        *(
            (["--algorithms", "local", "--target", target], "is no accuracy: write a number above 0")
            for target in ("nan", "inf", "0", "1.1", "half")
        ),
    ],
)
def test_mistakes_exit_with_2(call: Call, here: Path, arguments: list[str], said: str) -> None:
    result = call("compare", "tiny.toml", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert left(here) == ["tiny.toml"]


@pytest.mark.slow
def test_what_is_there_is_not_done_again(call: Call, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("compare", "tiny.toml", "--algorithms", "fedavg,local", "--out", "o")

    async def fail(self: Local, *_: Any) -> Any:
        raise RunError("no such luck")

    with monkeypatch.context() as patch:
        patch.setattr(Local, "train", fail)
        assert call(*arguments).exit_code == 1
    first = call(*arguments)
    assert "fedavg" not in first.stderr  # it was there
    assert "run 2 of 2, local-seed0: round 1/2" in first.stderr
    for more in ((), ("--force", "--verify")):
        again = call(*arguments, *more)
        assert (again.exit_code, again.stdout) == (0, first.stdout)
        assert "round" not in again.stderr
    for name in ("compare", "study"):
        assert "that are there already are kept" in " ".join(call(name, "--help").output.split())


@pytest.mark.usefixtures("in_process")
def test_it_says_how_many_runs_were_there(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("compare", "tiny.toml", "--algorithms", "local", "--set", "run.rounds=1", "--out", "o")
    assert "there already" not in call(*arguments).stderr
    with monkeypatch.context() as patch:
        patch.setattr(Plan, "of", Mock(side_effect=AssertionError("it runs again")))
        for jobs in ((), ("--jobs", "2")):
            assert call(*arguments, *jobs).stderr.splitlines()[-1] == (
                "1 of 1 run was there already and was not run again; "
                "a new folder, --out FOLDER, runs them anew"
            )
    more = (*arguments, "--force", "--seeds")
    assert "\n1 of 2 runs was there" in call(*more, "0,1").stderr
    assert "\n2 of 3 runs were there" in call(*more, "0,1,2", "--jobs", "2").stderr


def test_costs_to_a_target(call: Call, here: Path) -> None:
    arguments = ("compare", "tiny.toml", "--algorithms", "local,fedavg", "--target", "0.01", "--out", "o")
    result = call(*arguments, "--target", "0.99")
    assert result.exit_code == 0, result.output
    assert "to reach 1 %" in result.stdout
    assert "to reach 99 %" in result.stdout
    rows = rows_of((here / "o" / "answers.csv").read_text())
    assert [(row["variant"], row["target"]) for row in rows] == [
        *(("local", "0.01"), ("local", "0.99")),
        *(("fedavg", "0.01"), ("fedavg", "0.99")),
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
def test_several_values_of_a_path_make_a_study(call: Call, here: Path) -> None:
    arguments = ("compare", "tiny.toml", "--algorithms", "fedavg,local", "--quiet", "--target", "0.01")
    first = call(*arguments)  # which takes the first place
    result = call(*arguments, "--set", "training.lr=0.1,0.2", "--set", "run.rounds=1")
    assert (first.exit_code, result.exit_code) == (0, 0), result.output
    assert "results are in runs/tiny-2: answers.csv" in result.stderr
    labels = [f"{name}-lr-{lr}-seed0" for name in ("fedavg", "local") for lr in (0.1, 0.2)]
    parent = here / "runs" / "tiny-2"
    assert left(parent) == sorted([*ANSWER_FILES, LOCKS, "study.toml", *labels])
    rows = rows_of((parent / "answers.csv").read_text())
    assert [(row["variant"], row["training.lr"]) for row in rows] == [
        *(("fedavg", "0.1"), ("fedavg", "0.2")),
        *(("local", "0.1"), ("local", "0.2")),
    ]
    assert isinstance(opened := fedsim.open(parent), fedsim.StudyResult)
    assert list(opened.runs) == labels
    # And the other way round: what is not the same comparison does not come between the files of a study.
    other = call("compare", "tiny.toml", "--algorithms", "local", "--quiet", "--set", "run.rounds=1")
    assert "results are in runs/tiny-3" in other.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
def test_runs_beside_each_other_may_have_plugins_of_ones_own(
    call: Call, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(here)
    (here / "lab_beside").mkdir()
    own = "from fedsim.algorithms.local import Local\n\nclass Own(Local): ...\n\nPLUGIN = Own\n"
    (here / "lab_beside" / "mine.py").write_text(own)
    arguments = ("compare", "tiny.toml", "--algorithms", "fedavg,lab_beside.mine", "--quiet")
    alone, beside = call(*arguments, "--out", "a"), call(*arguments, "--out", "b", "--jobs", "2")
    assert (alone.exit_code, beside.exit_code) == (0, 0), beside.output
    assert alone.stdout == beside.stdout
    assert left(here / "a") == left(here / "b")


@pytest.mark.usefixtures("in_process")
def test_a_run_that_failed_beside_others_is_named_and_not_done_again(
    call: Call, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(self: Local, *_: Any) -> Any:
        raise RunError("no such luck")

    monkeypatch.setattr(Local, "train", fail)
    monkeypatch.setattr(Plan, "of", once := Mock(wraps=Plan.of))
    result = call("compare", "tiny.toml", "--algorithms", "local,fedavg", "--out", "o", "--jobs", "2")
    assert result.exit_code == 1
    assert result.stderr.startswith("tiny: 2 runs, 2 at once\n")
    assert result.stderr.endswith(
        "1 run of the comparison\n  local-seed0: no such luck\n  runs that have ended are kept in o\n"
    )
    assert once.call_count == 2
    assert left(here / "o") == [LOCKS, "fedavg-seed0"]


@pytest.mark.slow
def test_runs_beside_each_other_give_the_same_tables(call: Call, here: Path) -> None:
    arguments = ("compare", "tiny.toml", "--algorithms", "local,fedavg", "--seeds", "0,1")
    alone, beside = call(*arguments, "--out", "a"), call(*arguments, "--out", "b", "--jobs", "2")
    assert (alone.exit_code, beside.exit_code) == (0, 0), beside.output
    assert alone.stdout == beside.stdout
    for file in ANSWER_FILES:
        assert (here / "a" / file).read_bytes() == (here / "b" / file).read_bytes()
    for run in ("local-seed0", "fedavg-seed1"):
        for file in ("scenario.toml", "trace.msgpack", "rounds.parquet"):
            assert (here / "a" / run / file).read_bytes() == (here / "b" / run / file).read_bytes()


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("varied", [(), ("--set", "training.lr=0.1,0.2")])
def test_parameters_are_shown_and_unlike_ones_are_told(
    call: Call, here: Path, varied: tuple[str, ...]
) -> None:
    (here / "tiny.toml").write_text(
        (here / "tiny.toml").read_text() + '[algorithms.fedavg]\nweighting = "uniform"\n'
    )
    arguments = ("compare", "tiny.toml", "--algorithms", "fedavg,fedprox", "--set", "run.rounds=1", *varied)
    result = call(*arguments, "--show-params")
    assert result.exit_code == 0, result.output
    remark = 'note: fedprox has weighting = "samples" (fedavg: "uniform"): fedprox is a subclass of fedavg'
    assert remark in result.stderr
    lines = [
        line.split() for line in result.stdout.partition("Parameters of the algorithms\n")[2].splitlines()
    ]
    assert lines[0] == ["parameter", "fedavg", "fedprox"]
    assert ["weighting", '"uniform"', '"samples"'] in lines
    assert "Parameters of the algorithms" not in call(*arguments).stdout
