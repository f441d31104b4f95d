import sys

import pytest

from fedsim.cli.console import sentence, table
from fedsim.report.text_table import TextTable

GRID = TextTable(("name", "n"), [("a", "1*"), ("b", "[2]")], ["a note"], title="Title")


def show(
    grid: TextTable, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, **environment: str
) -> str:
    for name, value in ({"TERM": "xterm", "COLUMNS": "80"} | environment).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    table(grid)
    return capsys.readouterr().out


def test_plain_where_it_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    table(GRID)
    assert capsys.readouterr().out == "\nTitle\nname    n\n----  ---\na      1*\nb     [2]\n  a note\n"


def test_dressed_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    shown = show(GRID, capsys, monkeypatch)
    assert "\x1b[1;32m" in shown
    assert "[2]" in shown


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_plain_where_it_is_wished(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    assert "\x1b[" not in show(GRID, capsys, monkeypatch, **environment)


def test_numbers_are_never_cut_off_and_words_wrap(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    numbers = TextTable(("a", "b"), [("x", "9" * 30)])
    assert "9" * 30 in show(numbers, capsys, monkeypatch, COLUMNS="20")
    words = TextTable(("a", "b"), [("x", "word " * 10)], text_columns=frozenset({0, 1}))
    shown = show(words, capsys, monkeypatch, COLUMNS="20")
    assert shown.count("word") == 10
    assert max(map(len, shown.splitlines())) < 60  # 20, and what is invisible


def test_a_sentence_wraps_on_a_terminal_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sentence("word " * 10 + "end.")
    assert capsys.readouterr().out == "word " * 10 + "end.\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "20")
    sentence("word " * 10 + "end.")
    assert capsys.readouterr().out == "word word word word\n" * 2 + "word word end.\n"
