import sys

import numpy as np
import pytest

from fedsim.bus import Totals
from fedsim.cli.progress import Lines, watching
from fedsim.runtime.evaluation import Accuracy
from fedsim.runtime.records.result import RoundRow


def row(number: int, accuracy: float | None = None, loss: float = 0.5) -> RoundRow:
    found = None
    if accuracy is not None:
        found = Accuracy(np.array([0]), np.array([accuracy]), np.array([1]), None, np.array([loss]), None)
    return RoundRow(number, 0.0, 10.0 * number, 1, 1, 0, 0, 0, Totals(), found)


def rounds_of(text: str) -> list[int]:
    return [int(line.split("round ")[1].split("/")[0]) for line in text.splitlines()]


def test_quick_rounds_give_a_line_for_each_tenth(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines("x", 20, clock=lambda: 0.0)
    for number in range(22):  # 0 and 21 are before the first and after the last
        lines(row(number))
    assert rounds_of(capsys.readouterr().err) == [1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 20]


def test_slow_rounds_give_a_line_every_two_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    seconds = iter(range(100))
    lines = Lines("x", 1000, clock=lambda: float(next(seconds)))
    for number in range(1, 10):
        lines(row(number))
    assert rounds_of(capsys.readouterr().err) == [1, 3, 5, 7, 9]


def test_the_last_accuracy_stays(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines("x", 3, clock=lambda: 0.0)
    for one in (row(1), row(2, 0.5), row(3)):
        lines(one)
    assert capsys.readouterr().err.splitlines() == [
        "x: round 1/3, 10 s simulated",
        "x: round 2/3, 20 s simulated, accuracy 50.0 %",
        "x: round 3/3, 30 s simulated, accuracy 50.0 %",
    ]


def test_without_accuracy_there_is_a_loss(capsys: pytest.CaptureFixture[str]) -> None:
    Lines("x", 1, clock=lambda: 0.0)(row(1, float("nan"), 0.012345))
    assert capsys.readouterr().err == "x: round 1/1, 10 s simulated, loss 0.0123\n"


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
    assert "accuracy 50.0 %" in shown
