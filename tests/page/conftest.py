"""A page with every kind of chart, and with texts that would be markup if anything read them so."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import fedsim
from fedsim.figures.chart_types import (
    Axis,
    BarChart,
    Figure,
    GanttChart,
    HeatChart,
    Line,
    LineChart,
    Part,
    PointChart,
    Points,
    Section,
    Target,
)
from fedsim.page.html import html
from fedsim.page.page_content import Page, PageTable
from fedsim.report.text_table import TextTable

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from playwright.sync_api import Page as Tab

Open = Callable[..., AbstractContextManager["Tab"]]

HOSTILE = "</script><script>window.broken = 1</script><!-- <img src=x onerror='broken = 1'> \u2028 & \"'"
"""A name that a scenario may have."""

ALGORITHMS = ("fedavg", "fedmd", "scaffold", "ditto", "feddf", "ktpfl", "moon", "local")


@pytest.fixture
def hostile() -> str:
    return HOSTILE


@pytest.fixture
def sample_page() -> Page:
    return make_sample_page()


@pytest.fixture(scope="module")
def sample_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("page") / "sample.html"
    file.write_text(html(make_sample_page()))
    return file


TINY: dict[str, Any] = {
    "run": {"name": "tiny", "rounds": 2},
    "data": {"limit": 80, "global_test": 0.2},
    "models": {"mlp": {"params": {"hidden": [4]}}},
    "training": {"lr": 0.1, "batch_size": 10},
    "fleet": [
        {"name": HOSTILE, "count": 3, "device": "low"},
        {"name": "phones", "count": 2, "device": "high"},
    ],
    "engine": {"workers": 1},
}


@pytest.fixture
def tiny_tables() -> dict[str, Any]:
    """A scenario of two rounds, whose names would be markup if anything read them so."""
    return TINY


@pytest.fixture(scope="session")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a comparison of two algorithms with that scenario."""
    place = tmp_path_factory.mktemp("results") / "tiny"
    fedsim.compare(TINY, ["fedavg", "local"], seeds=[0, 1], out=place)
    return place


@pytest.fixture
def open_page(browser: "Browser") -> Open:
    """Return what opens a file in a tab, and fails if a script fails or the page asks for anything else."""

    @contextmanager
    def open_page(file: Path, *, width: int = 1440, theme: Any = "light", **more: Any) -> Iterator["Tab"]:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme, **more)
        tab, faults = context.new_page(), list[str]()
        tab.set_default_timeout(20_000)
        tab.on("pageerror", lambda error: faults.append(f"error: {error}"))
        tab.on("console", lambda message: faults.append(f"console: {message.text}"))
        tab.on("request", lambda request: faults.append(f"request: {request.url}"))
        tab.goto(file.as_uri())
        if more.get("java_script_enabled", True):
            tab.wait_for_selector("html[data-ready]", state="attached")
        yield tab
        assert faults == [f"request: {file.as_uri()}"]
        context.close()

    return open_page


def make_sample_page() -> Page:
    return Page(
        title=f"quickstart {HOSTILE}",
        kind="comparison",
        answer="To 70 %: FedMD 5 min and 60 MB, FedAvg 33 s and 150 MB.",
        table=PageTable("table-main", _table()),
        remarks=[f"the run covers 3 min, and availability {HOSTILE} changes over 1 d"],
        sections=[
            Section("accuracy", "What each reaches", [_curves("s"), _curves("B")]),
            Section("costs", "Where time and bytes went", [_bars(), _steps()]),
            Section("clients", "Who did what", [_gantt(), _points(), _heat()]),
        ],
        tables=[PageTable("more", _table()), PageTable("words", _words())],
        facts=[("algorithm", "fedavg"), ("trace hash", "0123456789abcdef" * 4), ("name", HOSTILE)],
    )


def _table() -> TextTable:
    rows = [
        ("fedavg", "33.3 ± 1.2", "33 s*", "150 MB"),
        ("fedmd", "70.1 ± 0.3*", "5 min 3 s", "60.2 MB*"),
        (HOSTILE, "-", "1 h 2 min", "1.25 GB"),
    ]
    headings = ["algorithm", "accuracy\n%", "time", "bytes"]
    return TextTable(headings, rows, ["* best in its column"], title="to reach 70 %")


def _words() -> TextTable:
    rows = [("one", "b"), ("two", "a"), ("three", HOSTILE)]
    return TextTable(["number", "word"], rows, text_columns=frozenset({0, 1}), title="words")


def _curves(unit: str) -> Figure:
    lines = []
    for number, name in enumerate(ALGORITHMS):
        x = (
            np.linspace(0, 200 + 60 * number, 40)
            if unit == "s"
            else np.geomspace(2e6, 1e9, 40) * (number + 1)
        )
        progress = np.linspace(0, 1, 40)
        y = 0.1 + (0.85 - 0.06 * number) * (1 - np.exp(-4 * progress)) + 0.01 * np.sin(9 * progress + number)
        lines.append(Line(name if number else HOSTILE, x, y, y - 0.02, y + 0.03))
    what = "simulated time" if unit == "s" else "bytes sent"
    axis = Axis(what, "s") if unit == "s" else Axis(what, "B", "log")
    return Figure(
        f"accuracy-by-{'time' if unit == 's' else 'bytes'}",
        f"Accuracy against {what}",
        "Of eight algorithms fedmd reaches 70 % first.",
        LineChart(axis, Axis("accuracy", "share"), lines, [Target(0.7, "70 %")]),
        ["bands: over three seeds"],
    )


def _steps() -> Figure:
    x = np.arange(0, 7200, 60.0)
    y = np.where(x % 1800 < 900, 3.0, 12.0)
    y[40:44] = np.nan
    chart = LineChart(
        Axis("simulated time", "s"), Axis("transfers at once"), [Line("down", x, y)], is_stepped=True
    )
    return Figure("link-use", "Use of the server's link", "Up to 12 transfers at once.", chart)


def _bars() -> Figure:
    parts = [
        Part("compute", np.array([120.0, 80, 300])),
        Part("up", np.array([50.0, 20, 0])),
        Part("wait", np.array([500.0, 10, np.nan])),
    ]
    chart = BarChart(["fedavg", "fedmd", HOSTILE], parts, Axis("device time", "s"))
    return Figure("time-parts", "Where the time went", "fedavg waits for 500 s of 670 s.", chart)


def _points() -> Figure:
    at = np.arange(40)
    groups = [
        Points("phones", 20.0 + at, 0.5 + 0.3 * np.sin(at), [f"client {number}" for number in at]),
        Points("gateways", 40.0 + 2 * at, 0.7 + 0.2 * np.cos(at), [f"client {40 + number}" for number in at]),
    ]
    chart = PointChart(Axis("training samples", scale="log"), Axis("accuracy", "share"), groups)
    return Figure("left-behind", "Accuracy by amount of data", "Phones are less accurate.", chart)


def _heat() -> Figure:
    values = np.outer(np.arange(12), np.arange(10)) % 17 * 1.0
    chart = HeatChart(
        "client", "class", [str(row) for row in range(12)], list("0123456789"), values, Axis("samples")
    )
    return Figure("data-split", "Samples by client and class", "Client 3 has most of class 5.", chart)


def _gantt() -> Figure:
    row, phase, round_, began, ended = [], [], [], [], []
    starts = []
    start = 0.0
    for number in range(1, 9):
        starts.append(start)
        longest = start
        for client in range(12):
            at = start
            for part, length in enumerate((2.0, 10 + client * (1 + number % 3), 4.0)):
                row.append(client)
                phase.append(part)
                round_.append(number)
                began.append(at)
                at += length
                ended.append(at)
            longest = max(longest, at)
        start = longest
    chart = GanttChart(
        [f"client {client}" for client in range(12)],
        ["receives", "trains", "sends"],
        np.array(row),
        np.array(phase),
        np.array(round_),
        np.array(began),
        np.array(ended),
        np.arange(1, 9),
        np.array(starts),
        np.array([*starts[1:], start]),
    )
    return Figure("gantt", "Clients by phase", "Client 11 is last in each round.", chart)
