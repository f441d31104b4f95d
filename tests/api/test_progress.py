import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import fedsim
from fedsim.api import progress
from fedsim.api.progress import round_listeners, study_listener
from fedsim.bus import Totals
from fedsim.errors import UserError
from fedsim.runtime.records.result import RoundRow
from fedsim.studies.perform import Progress as StudyProgress


class Bar:
    """What a bar of tqdm has that is used, and what happened to it."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.n: float = 0
        self.total = options["total"]
        self.labels = list[str]()
        self.words = ""
        self.closed = False

    def set_description(self, label: str) -> None:
        self.labels.append(label)

    def set_postfix_str(self, words: str, refresh: bool) -> None:
        self.words = words

    def update(self, more: float) -> None:
        self.n += more

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def bars(monkeypatch: pytest.MonkeyPatch) -> list[Bar]:
    """The bars that are made in this notebook, whose packages are not the real ones."""
    made = list[Bar]()

    def tqdm(**options: Any) -> Bar:
        made.append(Bar(**options))
        return made[-1]

    notebook, ipython = ModuleType("tqdm.notebook"), ModuleType("IPython")
    notebook.tqdm = tqdm  # type: ignore[attr-defined]
    ipython.get_ipython = lambda: SimpleNamespace(config={"IPKernelApp": {}})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tqdm.notebook", notebook)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setattr(progress, "is_installed", lambda package: True)
    return made


def row(number: int, accuracy: Any = None) -> RoundRow:
    return RoundRow(number, 0.0, 10.0 * number, 1, 1, 0, 0, 1, Totals(), accuracy)


def test_true_shows_a_bar(tiny: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tqdm")
    fedsim.compare(tiny, ["fedavg", "local"], progress=True)
    shown = capsys.readouterr()
    assert "fedavg-seed0:   0%|" in shown.err
    assert "local-seed0:  50%|" in shown.err
    assert "| 2/4 [" in shown.err
    assert not shown.out


@pytest.mark.parametrize("asked", [False, None])
def test_outside_of_a_notebook_nothing_is_shown_unless_asked_for(
    tiny: dict[str, Any], capsys: pytest.CaptureFixture[str], asked: bool | None
) -> None:
    fedsim.run(tiny, progress=asked)
    shown = capsys.readouterr()
    assert not shown.err
    assert not shown.out


@pytest.mark.parametrize("asked", [True, None])
def test_a_notebook_shows_a_bar(tiny: dict[str, Any], bars: list[Bar], asked: bool | None) -> None:
    fedsim.compare(tiny, ["fedavg", "local"], progress=asked)
    [bar] = bars
    assert bar.options["total"] == 4
    assert bar.labels == ["fedavg-seed0", "local-seed0"]
    assert bar.words.startswith("accuracy ")
    assert bar.n == 4
    assert bar.closed


def test_a_notebook_shows_nothing_if_false_or_a_function_is_given(
    tiny: dict[str, Any], bars: list[Bar]
) -> None:
    rows = list[RoundRow]()
    fedsim.run(tiny, progress=False)
    fedsim.run(tiny, progress=rows.append)
    assert [one.round for one in rows] == [1, 2]
    assert bars == []


@pytest.mark.parametrize("missing", ["tqdm", "ipywidgets"])
def test_a_notebook_without_the_packages_shows_nothing(
    bars: list[Bar], monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setattr(progress, "is_installed", lambda package: package != missing)
    with round_listeners(None, [2]) as listener_of:
        listener_of("x", 2)(row(1))
    assert bars == []


def test_a_terminal_of_ipython_is_no_notebook(bars: list[Bar], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["IPython"], "get_ipython", lambda: SimpleNamespace(config={}))
    with round_listeners(None, [2]) as listener_of:
        listener_of("x", 2)(row(1))
    assert bars == []


def test_the_bar_counts_the_rounds_of_all_runs(bars: list[Bar]) -> None:
    with round_listeners(True, [2, 3]) as listener_of:
        [bar] = bars
        first = listener_of("a", 2)
        for number in (1, 2, 3):  # the third only closes the run
            first(row(number, SimpleNamespace(mean=0.5, mean_loss=None)))
        assert (bar.n, bar.total, bar.words) == (2, 5, "accuracy 50.0 %")
        second = listener_of("b", 3)
        assert bar.words == ""
        second(row(1))
        assert bar.n == 3
    assert bar.total == 3  # full, though the second run ended early


def test_a_run_without_a_number_of_rounds_has_no_total(bars: list[Bar]) -> None:
    with round_listeners(True, [2, None]) as listener_of:
        [bar] = bars
        assert bar.options["total"] is None
        listener_of("a", None)(row(7))
        assert bar.n == 7


def test_the_bar_of_a_run_that_fails_is_closed_and_not_full(bars: list[Bar]) -> None:
    def run() -> None:
        with round_listeners(True, [4]) as listener_of:
            listener_of("a", 4)(row(1))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run()
    [bar] = bars
    assert (bar.n, bar.total, bar.closed) == (1, 4, True)


def test_the_bar_of_a_study_shows_its_share_and_its_runs(bars: list[Bar]) -> None:
    with study_listener(True, "mine") as tell:
        tell(StudyProgress(6, 1, 2, share=0.25))
        [bar] = bars
        assert (bar.options["desc"], bar.n, bar.words) == ("mine", 0.25, "3 of 6 runs")


def test_a_study_tells_a_function(bars: list[Bar]) -> None:
    heard = list[StudyProgress]()
    now = StudyProgress(6, 1)
    with study_listener(heard.append, "mine") as tell:
        tell(now)
    assert heard == [now]
    assert bars == []


@pytest.mark.parametrize("wrong", ["yes", 1, [print]])
def test_what_is_neither_a_function_nor_true_nor_false_is_refused(tiny: dict[str, Any], wrong: Any) -> None:
    with pytest.raises(UserError, match="progress=print, or True for a bar, or False for nothing, and not "):
        fedsim.run(tiny, progress=wrong)


def test_without_tqdm_the_error_tells_what_to_install(
    tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with pytest.raises(UserError, match=r"give a function instead, .*pip install .*\[jupyter\]"):
        fedsim.run(tiny, progress=True)
