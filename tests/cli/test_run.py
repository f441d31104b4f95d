import errno
import json
import os
import shutil
import signal
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from fedsim.algorithms.fedavg import FedAvg
from fedsim.cli import progress
from fedsim.errors import JobError
from tests.cli.conftest import DIVERGING, Call, left


def test_a_run_leaves_its_folder_and_says_where(call: Call, here: Path) -> None:
    result = call("run", "tiny.toml")
    assert result.exit_code == 0, result.output
    folder = here / "runs" / "tiny" / "fedavg-seed0"
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["scenario"], summary["rounds"], summary["clients"]) == ("tiny", 2, 4)
    assert "tiny: fedavg, seed 0" in result.stdout
    assert "worst 10 %" in result.stdout
    assert "2 rounds" in result.stdout
    assert "where time and bytes went" in result.stdout
    assert "8 to 4 of 4 clients: merged 8, dropped 0, rejected 0, late 0" in result.stdout
    assert "tiny fedavg-seed0: round 1/2" in result.stderr
    assert "results are in runs/tiny/fedavg-seed0" in result.stderr


def test_what_a_user_has_to_know_of_the_times_is_noted(call: Call, here: Path) -> None:
    presence = "fleet.0.availability={name = 'duty_cycle', params = {on_share = 0.9}}"
    result = call("run", "tiny.toml", "--quiet", "--set", presence)
    assert result.exit_code == 0, result.output
    *_, noted = result.stderr.splitlines()
    folder = here / "runs" / "tiny" / "fedavg-seed0"
    *_, line, end = map(json.loads, (folder / "log.jsonl").read_text().splitlines())
    assert noted == f"note: {line.pop('remark')}"
    assert "and availability 'duty_cycle' changes over 1 d" in noted
    assert line == {"level": "warning", "event": "simulated time"}
    assert end["event"] == "end"


@pytest.mark.slow  # a run between processes
def test_real_time_gets_no_such_note(call: Call, here: Path) -> None:
    presence = "fleet.0.availability={name = 'duty_cycle', params = {on_share = 0.9}}"
    result = call("run", "tiny.toml", "--bus", "http", "--processes", "1", "--set", presence)
    assert result.exit_code == 0, result.output
    assert "duty_cycle" not in result.stderr
    assert "simulated time" not in (here / "runs" / "tiny" / "fedavg-seed0" / "log.jsonl").read_text()


def test_options_replace_what_the_file_says(call: Call, here: Path) -> None:
    options = ("--algorithm", "local", "--seed", "7", "--set", "run.rounds=1", "--set", "run.name=mine")
    result = call("run", "tiny.toml", *options, "--quiet", "--verify")
    assert result.exit_code == 0, result.output
    folder = here / "runs" / "mine" / "local-seed7"
    scenario = tomllib.loads((folder / "scenario.toml").read_text())
    assert (scenario["run"]["rounds"], scenario["run"]["seed"], scenario["algorithm"]["name"]) == (
        1,
        7,
        "local",
    )
    assert json.loads((folder / "run.json").read_text())["verify"] is True
    assert "round" not in result.stderr


def test_the_resolved_scenario_runs_again_to_the_same_result(call: Call, here: Path) -> None:
    assert call("run", "tiny.toml", "--out", "first").exit_code == 0
    assert call("run", "first/scenario.toml", "--out", "second").exit_code == 0
    for name in ("trace.msgpack", "messages.parquet", "evaluations.parquet", "log.jsonl", "scenario.toml"):
        assert (here / "first" / name).read_bytes() == (here / "second" / name).read_bytes()


def test_a_second_run_is_refused_until_forced(call: Call, here: Path) -> None:
    assert call("run", "tiny.toml", "--out", "o").exit_code == 0
    refused = call("run", "tiny.toml", "--out", "o", "--set", "run.rounds=1")
    assert refused.exit_code == 2
    assert "the option force" in refused.stderr
    assert refused.stderr.startswith("fedsim: ")
    assert json.loads((here / "o" / "summary.json").read_text())["rounds"] == 2
    assert call("run", "tiny.toml", "--out", "o", "--set", "run.rounds=1", "--force").exit_code == 0
    assert json.loads((here / "o" / "summary.json").read_text())["rounds"] == 1
    assert left(here) == ["o", "tiny.toml"]


def test_the_same_run_again_needs_no_force_and_another_gets_a_number(call: Call, here: Path) -> None:
    for place in ((), ("--out", "o")):
        for _ in range(2):
            assert call("run", "tiny.toml", *place).exit_code == 0
    other = call("run", "tiny.toml", "--set", "run.rounds=1")
    assert other.exit_code == 0
    assert other.stderr.splitlines()[-1] == "results are in runs/tiny/fedavg-seed0-2"
    assert left(here / "runs" / "tiny") == ["fedavg-seed0", "fedavg-seed0-2"]
    assert call("run", "tiny.toml", "--set", "run.rounds=1", "--force").exit_code == 0
    assert json.loads((here / "runs/tiny/fedavg-seed0/summary.json").read_text())["rounds"] == 1


def test_without_learning_nothing_is_measured(call: Call, here: Path) -> None:
    result = call("run", "tiny.toml", "--set", "engine.executor=null")
    assert result.exit_code == 0, result.output
    assert "not measured" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "no.toml"], "no.toml"),
        (["run", "tiny.toml", "--set", "run.rounds=none"], "run.rounds"),
        (["run", "tiny.toml", "--set", "training.lrr=1"], "training.lrr"),
        (["run", "tiny.toml", "--algorithm", "fedavgg"], "fedavg"),
        (["run", "tiny.toml", "--seed", "-1"], "--seed"),
        (["run", "tiny.toml", "--out", "tiny.toml"], "not a folder"),
        (["run", "tiny.toml", "--out", "tiny.toml/below"], "not a folder"),
        (["run", "tiny.toml", "--nonsense"], "--nonsense"),
        (["run"], "SCENARIO"),
        (["walk"], "walk"),
    ],
)
def test_mistakes_exit_with_2_say_what_and_leave_nothing(
    call: Call, here: Path, arguments: list[str], said: str
) -> None:
    result = call(*arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    assert left(here) == ["tiny.toml"]


def _fail_with(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(self: FedAvg, *_: Any) -> Any:
        raise error

    monkeypatch.setattr(FedAvg, "merge", fail)


def test_a_failed_run_exits_with_1_and_leaves_nothing(
    call: Call, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = JobError("a fit job failed: no such luck")
    error.__cause__ = ValueError("bad dice")
    _fail_with(error, monkeypatch)
    result = call("run", "tiny.toml")
    assert result.exit_code == 1
    assert "the run failed: a fit job failed: no such luck" in result.stderr
    assert "caused by ValueError: bad dice" in result.stderr
    assert "Traceback" not in result.stderr
    assert left(here) == ["tiny.toml"]


def test_a_full_disk_exits_with_1_and_leaves_nothing(call: Call, here: Path, disk: Any) -> None:
    with disk.fails(None) as calls:
        assert call("run", "tiny.toml", "--out", "o").exit_code == 0
    shutil.rmtree("o")
    with disk.fails(calls.index("write")):
        result = call("run", "tiny.toml", "--out", "o")
    assert result.exit_code == 1
    words = "No space left on device. Choose another place, or make room there"
    assert result.stderr.splitlines()[-1] == f"fedsim: the run failed: cannot write o: {words}"
    assert "Traceback" not in result.stderr
    assert left(here) == ["tiny.toml"]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
        (OSError(errno.EIO, "Input/output error", "there"), "there: Input/output error"),
    ],
)
def test_whatever_the_system_refuses_is_no_bug(
    call: Call, monkeypatch: pytest.MonkeyPatch, error: OSError, said: str
) -> None:
    _fail_with(error, monkeypatch)
    result = call("run", "tiny.toml")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == f"fedsim: the run failed: {said}"
    assert "Traceback" not in result.stderr


def test_a_bug_exits_with_1_a_traceback_and_a_word(
    call: Call, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fail_with(KeyError("fc.weight"), monkeypatch)
    result = call("run", "tiny.toml")
    assert result.exit_code == 1
    assert "KeyError" in result.stderr
    assert "Traceback" in result.stderr
    assert "a bug in fedsim" in result.stderr
    assert left(here) == ["tiny.toml"]


def test_a_run_that_merges_nothing_exits_with_1_once_all_is_written(call: Call, here: Path) -> None:
    rejected = ("--set", "training.lr=1e6", "--set", "training.steps=30", "--set", "models.linear.name=mlp")
    result = call("run", "tiny.toml", "--quiet", *rejected, "--out", "mine")
    assert result.exit_code == 1
    *_, remark, error = result.stderr.splitlines()
    assert remark == "note: 8 of 8 replies rejected as not finite: is training.lr = 1e+06 too high?"
    assert error.startswith(
        "fedsim: the run failed: no reply was ever merged: all that came were rejected (8: "
    )
    logged = [json.loads(line) for line in (here / "mine" / "log.jsonl").read_text().splitlines()]
    assert [line["remark"] for line in logged if line["event"] == "divergence"] == [remark[len("note: ") :]]
    result = call("compare", "tiny.toml", "--quiet", *rejected, "--algorithms", "fedavg,local")
    assert result.exit_code == 1
    assert "fedavg-seed0: no reply was ever merged" in result.stderr


def test_a_run_of_which_no_reply_comes_in_time_exits_with_1_too(call: Call) -> None:
    pacing = "participation.pacing={name = 'synchronous', params = {deadline = '1 ms'}}"
    result = call("run", "tiny.toml", "--quiet", "--set", pacing)
    assert result.exit_code == 1
    assert "merged 0, dropped 8" in result.stdout
    said = "the run failed: no reply was ever merged: none came in time (8: round failed)"
    assert result.stderr.splitlines()[-1] == f"fedsim: {said}"


def test_a_run_that_diverges_ends_with_a_remark_and_is_marked_in_tables(call: Call, here: Path) -> None:
    settings = ("training.lr=1000", "training.weight_decay=1", "training.steps=5", "run.rounds=3")
    diverging = [word for setting in settings for word in ("--set", setting)]
    result = call("run", "tiny.toml", "--quiet", *diverging, "--out", "o")
    said = "8 of 12 replies rejected as not finite: is training.lr = 1000 too high?"
    assert result.exit_code == 0
    assert result.stderr.splitlines()[-1] == f"note: {said}"
    assert json.loads((here / "o" / "summary.json").read_text())["divergence"] == said
    result = call("compare", "tiny.toml", "--quiet", *diverging, "--algorithms", "fedavg")
    assert result.exit_code == 0
    assert "diverged, as summary.json says: fedavg-seed0" in result.stdout


def test_models_that_are_not_finite_exit_with_1_once_all_is_written(call: Call, here: Path) -> None:
    result = call("run", "tiny.toml", "--algorithm", "local", *DIVERGING)
    assert result.exit_code == 1
    folder = here / "runs" / "tiny" / "local-seed0"
    assert json.loads((folder / "summary.json").read_text())["finite"] is False
    assert (folder / "messages.parquet").exists()
    assert "tiny: local, seed 0" in result.stdout
    *_, place, last = result.stderr.splitlines()
    assert place == "results are in runs/tiny/local-seed0"
    assert last.startswith("fedsim: the run failed: at the end ")
    assert "the first sign of it, in round 1: the loss of client 0 is " in last


@pytest.mark.parametrize(
    ("number", "status", "said"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_signals_leave_a_run_that_can_be_resumed(
    call: Call, here: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, status: int, said: str
) -> None:
    monkeypatch.setattr(progress.Lines, "__call__", lambda self, row: os.kill(os.getpid(), number))
    before = signal.getsignal(signal.SIGTERM)
    result = call("run", "tiny.toml")
    assert result.exit_code == status
    assert said in result.stderr
    assert "Traceback" not in result.stderr
    folder = here / "runs" / "tiny" / "fedavg-seed0"
    assert f"{said}: the run can be resumed in {folder}" in result.stderr
    assert signal.getsignal(signal.SIGTERM) is before
    monkeypatch.undo()
    monkeypatch.chdir(here)
    refused = call("resume", str(folder), "--set", "training.lr=1")
    assert (refused.exit_code, "training.lr: a run that goes on keeps it" in refused.stderr) == (2, True)
    resumed = call("resume", str(folder), "--set", "engine.workers=2")
    assert resumed.exit_code == 0, resumed.stderr
    assert call("run", "tiny.toml", "--out", "whole").exit_code == 0
    ends = [json.loads((place / "summary.json").read_text()) for place in (folder, here / "whole")]
    assert ends[0] | {"wall_s": 0} == ends[1] | {"wall_s": 0}
    again = call("resume", str(folder))
    assert again.exit_code == 2
    assert "has come to its end: there is nothing left to resume" in again.stderr


def test_a_run_is_extended_and_forked(call: Call, here: Path) -> None:
    assert call("run", "tiny.toml", "--out", "one").exit_code == 0
    extended = call("extend", "one", "--rounds", "3")
    assert extended.exit_code == 0, extended.stderr
    assert call("run", "tiny.toml", "--set", "run.rounds=3", "--out", "whole").exit_code == 0
    ends = [json.loads((here / name / "summary.json").read_text()) for name in ("one", "whole")]
    assert ends[0] | {"wall_s": 0} == ends[1] | {"wall_s": 0}
    forked = call("fork", "one", "--at", f"{ends[0]['simulated_s'] * 0.9} s", "--set", "training.lr=0.5")
    assert forked.exit_code == 0, forked.stderr
    assert "results are in one-fork" in forked.stderr
    difference = call("diff", "one", "one-fork")
    assert "fork.of" in difference.stdout
    late = call("fork", "one", "--at", "9 h")
    assert (late.exit_code, "choose an earlier time" in late.stderr) == (2, True)
    assert "has no unit" in call("fork", "one", "--at", "9").stderr
    assert "has 3 rounds already" in call("extend", "one", "--rounds", "3").stderr


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a second opening goes on where the first was")
def test_a_scenario_in_a_pipe_can_be_read_again(call: Call, here: Path) -> None:
    reader, writer = os.pipe()
    os.write(writer, (here / "tiny.toml").read_bytes())
    os.close(writer)
    place = Path(f"/dev/fd/{reader}")
    for _ in range(2):
        assert call("run", str(place), "--quiet", "--out", "o").exit_code == 0
    assert place.read_text() == (here / "tiny.toml").read_text()
    os.close(reader)
