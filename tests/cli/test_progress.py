import json
import os
import re
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim.bus import Totals
from fedsim.cli.progress import Lines, TimeLeft, Words, watching
from fedsim.page.live_run import LiveRun
from fedsim.page.live_snapshot import Snapshot
from fedsim.runtime.evaluation import Accuracy
from fedsim.runtime.records.result import RoundRow
from tests.cli.conftest import Call


def row(number: int, accuracy: float | None = None, loss: float = 0.5) -> RoundRow:
    found = None
    if accuracy is not None:
        found = Accuracy(np.array([0]), np.array([accuracy]), np.array([1]), None, np.array([loss]), None)
    return RoundRow(number, 0.0, 10.0 * number, 1, 1, 0, 0, 0, Totals(), found)


def rounds_of(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"round (\d+)", text)]


@pytest.mark.parametrize("rounds", [20, None])
def test_quick_rounds_give_lines_for_the_first_and_the_last(
    rounds: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    with watching("x", rounds) as watch:
        for number in range(22):  # 0 and, of 20, 21 are before the first and after the last
            watch(row(number))
    assert rounds_of(capsys.readouterr().err) == [1, rounds or 21]


def test_slow_rounds_give_a_line_every_ten_seconds_and_later_fewer(
    capsys: pytest.CaptureFixture[str],
) -> None:
    seconds = iter(range(0, 1000, 2))
    lines = Lines("x", Words(1000), clock=lambda: float(next(seconds)))
    for number in range(1, 101):  # round 1 at 0 s, 2 at 2 s, ...
        lines(row(number))
    at_s = [2 * (number - 1) for number in rounds_of(capsys.readouterr().err)]
    assert at_s == [*range(0, 120, 10), 122, 136, 150, 166, 184]  # from 100 s on a tenth more each time


def test_of_a_run_that_fails_no_last_line_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        with watching("x", 20) as watch:
            watch(row(1))
            watch(row(2))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert rounds_of(capsys.readouterr().err) == [1]


def test_the_last_accuracy_stays(capsys: pytest.CaptureFixture[str]) -> None:
    seconds = iter((0.0, 10.0, 20.0))
    lines = Lines("x", Words(3), clock=lambda: next(seconds))
    for one in (row(1), row(2, 0.5), row(3)):
        lines(one)
    assert capsys.readouterr().err.splitlines() == [
        "x: round 1/3, 10 s simulated",
        "x: round 2/3, 20 s simulated, accuracy 50.0 %, about 10 s left",
        "x: round 3/3, 30 s simulated, accuracy 50.0 %",
    ]


def test_without_accuracy_there_is_a_loss(capsys: pytest.CaptureFixture[str]) -> None:
    Lines("x", Words(1), clock=lambda: 0.0)(row(1, float("nan"), 0.012345))
    assert capsys.readouterr().err == "x: round 1/1, 10 s simulated, loss 0.0123\n"


def test_the_time_left_is_told_by_the_rounds_since_the_first_one(capsys: pytest.CaptureFixture[str]) -> None:
    seconds = iter((100.0, 110.0, 120.0, 130.0))  # of these, 100 s passed before the first round ended
    lines = Lines("x", Words(4), clock=lambda: next(seconds))
    for number in (1, 2, 3, 4):
        lines(row(number))
    said = [line.partition("simulated")[2] for line in capsys.readouterr().err.splitlines()]
    assert said == ["", ", about 20 s left", ", about 10 s left", ""]


def test_the_time_left_is_that_of_all_runs() -> None:
    time_left, said = TimeLeft(runs=2), list[str]()
    for ended, number, now_s in ((0, 1, 0.0), (0, 2, 10.0), (1, 1, 20.0), (1, 2, 30.0)):
        time_left.ended = ended
        said.append(Words(2, time_left=time_left)(row(number), now_s))
    assert [words.partition("simulated")[2] for words in said] == [
        "",
        ", about 20 s left",
        ", about 10 s left",
        "",
    ]


def test_where_there_is_little_room_the_time_left_comes_before_the_time_of_the_run() -> None:
    words = Words(3, is_short=True)
    assert [words(row(number, 0.5), 10.0 * number) for number in (1, 2, 3)] == [
        "10 s simulated, accuracy 50.0 %",
        "about 10 s left, accuracy 50.0 %",
        "30 s simulated, accuracy 50.0 %",
    ]


def test_quiet_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with watching("x", 1, quiet=True) as watch:
        watch(row(1))
    assert capsys.readouterr() == ("", "")


def test_a_terminal_gets_a_bar(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with watching("x", 2) as watch:
        for number in range(4):
            watch(row(number, 0.5))
    shown = capsys.readouterr().err
    assert "2/2" in shown
    assert "0:00:00" in shown
    assert "accuracy 50.0 %" in shown


def test_a_narrow_terminal_shows_no_real_time(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    with watching("run 4 of 4, fedavg-seed0", 60) as watch:
        watch(row(60, 0.5))
    shown = capsys.readouterr().err
    assert "60/60" in shown
    assert "10 min simulated, accuracy 50.0 %" in shown
    assert "0:00:00" not in shown


def url_of(said: str) -> str:
    (url,) = re.findall(r"^live page: (http://127\.0\.0\.1:\d+/)$", said, re.MULTILINE)
    return str(url)


def test_a_run_says_where_its_page_is_and_ends_as_without(call: Call, here: Path) -> None:
    plain = call("run", "tiny.toml", "--out", "plain")
    live = call("run", "tiny.toml", "--out", "live", "--live")
    assert live.exit_code == 0, live.output
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(url_of(live.stderr))  # noqa: S310
    for name in ("trace.msgpack", "rounds.parquet", "log.jsonl", "scenario.toml"):
        assert (here / "plain" / name).read_bytes() == (here / "live" / name).read_bytes()
    shorn = re.sub(r"wall time.*", "", live.stdout)
    assert shorn == re.sub(r"wall time.*", "", plain.stdout)


def test_the_page_is_there_while_the_run_goes_on(
    call: Call, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page is read where the run tells of its beginning, in the run's own thread."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    seen = list[bytes]()
    observe = LiveRun.observe

    def look(self: LiveRun, *parts: Any) -> None:
        observe(self, *parts)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/") as page:
            seen.append(page.read())

    monkeypatch.setattr(LiveRun, "observe", look)
    result = call("run", "tiny.toml", f"--live={port}", "--quiet")
    assert result.exit_code == 0, result.output
    assert url_of(result.stderr) == f"http://127.0.0.1:{port}/"
    assert seen[0].startswith(b"<!doctype html>")


def test_a_comparison_has_a_page_too(call: Call) -> None:
    result = call("compare", "tiny.toml", "--algorithms", "fedavg,local", "--live")
    assert result.exit_code == 0, result.output
    url_of(result.stderr)


@pytest.mark.slow  # runs in other processes
def test_studies_have_pages_too(call: Call, here: Path) -> None:
    varied = call("compare", "tiny.toml", "--algorithms", "local", "--set", "training.lr=0.1,0.2", "--live")
    assert varied.exit_code == 0, varied.output
    url_of(varied.stderr)
    (here / "study.toml").write_text('base = "tiny.toml"\nseeds = [0]\n[[variant]]\nalgorithm = "local"\n')
    study = call("study", "study.toml", "--live", "--jobs", "1")
    assert study.exit_code == 0, study.output
    url_of(study.stderr)
    beside = call("compare", "tiny.toml", "--algorithms", "fedavg,local", "--jobs", "2", "--live", "--force")
    assert beside.exit_code == 0, beside.output


@pytest.mark.slow  # a run between processes
def test_a_run_over_sockets_has_a_page(call: Call, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(place for place in sys.path if place))
    looks = list[Snapshot]()
    observe = LiveRun.observe

    def look(self: LiveRun, *parts: Any) -> None:
        looks.append(self.snapshot())
        observe(self, *parts)
        looks.append(self.snapshot())

    monkeypatch.setattr(LiveRun, "observe", look)
    result = call("run", "tiny.toml", "--bus", "http", "--processes", "1", "--live")
    assert result.exit_code == 0, result.output
    url_of(result.stderr)
    before, after = looks
    assert before.page.answer == "Waiting for clients to join."
    assert after.page.answer.startswith("0 of 2 rounds, ")
    assert " passed." in after.page.answer


def test_a_port_that_is_taken_is_taught_before_anything_is_done(call: Call, here: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        result = call("run", "tiny.toml", "--live", port)
    assert result.exit_code == 2
    assert f"127.0.0.1:{port}: address already in use. Choose another --live PORT" in result.stderr
    assert not (here / "runs").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("--live", "tiny.toml"),
        ("tiny.toml", "--live", "80"),
        ("tiny.toml", "--live=65536"),
        ("tiny.toml", "--live=8_000"),
        ("tiny.toml", "--live="),
    ],
)
def test_what_is_no_port_is_taught(call: Call, arguments: tuple[str, ...]) -> None:
    result = call("run", *arguments)
    assert result.exit_code == 2
    said = " ".join(result.stderr.split())
    assert "is no port: write one from 1024 to 65535, or leave it out" in said
    assert "Traceback" not in result.stderr


@pytest.mark.slow  # a process of its own
def test_without_it_nothing_of_pages_is_imported(here: Path) -> None:
    program = (
        "import sys; from fedsim.cli import main\n"
        "main(['run', 'tiny.toml', '--quiet'], standalone_mode=False)\n"
        "pages = [name for name in sys.modules if name.startswith(('fedsim.figures', 'fedsim.page.'))]\n"
        "print(sorted(pages))"
    )
    paths = {"PYTHONPATH": ":".join(path for path in sys.path if path)}
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program], cwd=here, env=paths, capture_output=True, check=True
    )
    assert done.stdout.splitlines()[-1] == b"['fedsim.page.live_session']"
    assert json.loads((here / "runs/tiny/fedavg-seed0/summary.json").read_text())["rounds"] == 2
