"""The live page in a browser: a run is followed from its start to its end, over a connection that is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import fedsim
from fedsim.figures.chart_types import Figure, GanttChart, Section
from fedsim.page import live_server
from fedsim.page.html import html
from fedsim.page.live_page import LivePage
from fedsim.page.live_run import LiveRun
from fedsim.page.live_server import LiveServer
from fedsim.page.live_snapshot import Snapshot, panels
from fedsim.page.page_content import Page, PageTable
from fedsim.report.text_table import TextTable

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from playwright.sync_api import Page as Tab

pytestmark = pytest.mark.slow

HOSTILE = "</script><script>window.broken = 1</script><img src=x onerror='broken = 1'>"

SHORT: dict[str, Any] = {
    "run": {"name": "live", "rounds": 3},
    "data": {"limit": 80, "global_test": 0.2},
    "models": {"mlp": {"params": {"hidden": [4]}}},
    "fleet": [{"name": HOSTILE, "count": 3, "device": "low"}],
    "engine": {"workers": 1},
    "evaluation": {"every": 1},
}


class Steps:
    """Lets a run go on by one round at a time."""

    def __init__(self) -> None:
        self._go, self._is_there = threading.Semaphore(0), threading.Semaphore(0)

    def __call__(self, row: Any) -> None:
        """End of a round: wait until somebody lets the run go on."""
        self._is_there.release()
        self._go.acquire(timeout=60)

    def wait(self) -> None:
        assert self._is_there.acquire(timeout=60)

    def go(self) -> None:
        self._go.release()


@contextmanager
def tab_of(browser: Browser, url: str, faults: list[str], **more: Any) -> Iterator[Tab]:
    """Open a page that is followed, and note what goes wrong in it."""
    context = browser.new_context(**{"viewport": {"width": 1440, "height": 900}, **more})
    tab = context.new_page()
    tab.set_default_timeout(60_000)
    tab.on("pageerror", lambda error: faults.append(f"error: {error}"))
    tab.on("request", lambda request: None if request.url.startswith(url) else faults.append(request.url))
    tab.goto(url)
    tab.wait_for_selector("html[data-ready]", state="attached")
    yield tab
    context.close()


def test_a_run_is_followed_from_its_start_to_its_end(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LiveServer, "_may_update", lambda self: True)  # the run takes no time while it waits
    steps, faults = Steps(), list[str]()
    with LivePage() as page, tab_of(browser, page.url, faults) as tab:
        options: dict[str, Any] = {"live": page, "progress": steps, "out": tmp_path / "run"}
        run = threading.Thread(target=lambda: fedsim.run(SHORT, **options), daemon=True)
        run.start()
        steps.wait()
        tab.get_by_text("1 of 3 rounds").wait_for()
        tab.locator("#fleet .plot").wait_for()
        tab.locator("#accuracy-by-time canvas").first.wait_for()
        assert tab.locator("[role=status]").text_content() == "Live"
        assert tab.locator("progress").get_attribute("value") == "0.3333"
        assert tab.title().startswith("33 % · ")
        assert "round 1 has ended: 3 asked, 3 merged" in (tab.locator("#events").text_content() or "")
        steps.go()
        steps.wait()
        tab.get_by_text("2 of 3 rounds").wait_for()
        for _ in range(2):
            steps.go()
        run.join()
        tab.locator("#time-by-phase .plot").wait_for()  # of the report
        assert tab.locator("progress").is_hidden()
        page.close()
        tab.get_by_text("It has ended; this page stays as it is.").wait_for()
        assert tab.locator("#accuracy-by-time canvas").count() > 0
        assert tab.evaluate("window.broken") is None
        assert tab.locator("img").count() == 0
    assert faults == []


def test_a_phone_shows_all_of_it_without_scrolling_sideways(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, faults, observe = Steps(), list[str](), LiveRun.observe

    def observe_and_wait(self: LiveRun, *run: Any) -> None:
        observe(self, *run)
        steps(None)

    monkeypatch.setattr(LiveRun, "observe", observe_and_wait)
    monkeypatch.setattr(LiveServer, "_may_update", lambda self: True)
    phone: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
    widths = """() => ["html", ".plot", ".lines", ".table"].flatMap((what) =>
        [...document.querySelectorAll(what)].map((one) => [what, one.clientWidth, one.scrollWidth]))"""
    with LivePage() as page:
        options: dict[str, Any] = {"live": page, "progress": steps, "out": tmp_path / "run"}
        run = threading.Thread(target=lambda: fedsim.run(SHORT, **options), daemon=True)
        run.start()
        steps.wait()
        with tab_of(browser, page.url, faults, **phone) as tab:
            tab.locator("#fleet .plot").wait_for()
            before_the_first_round = tab.evaluate(widths)
            steps.go()
            steps.wait()
            tab.locator("#accuracy-by-time canvas").first.wait_for()
            tab.locator("#events td").first.wait_for()
            after_it = tab.evaluate(widths)
            for _ in range(3):
                steps.go()
            run.join()
    assert {what for what, *_ in before_the_first_round} == {"html", ".plot", ".table"}
    assert {what for what, *_ in after_it} == {"html", ".plot", ".lines", ".table"}
    for shown in (before_the_first_round, after_it):
        assert shown[0] == ["html", 390, 390]
        assert [one for one in shown if one[2] > one[1]] == []
    assert faults == []


class Source:
    """What a page shows, set by hand; a look that nobody has seen changes it."""

    def __init__(self) -> None:
        self.answer = "first"
        self.looks = 0

    def __call__(self) -> dict[str, str]:
        self.looks += 1
        table = TextTable(("what", "how much"), [("looks", str(self.looks)), ("others", "1")])
        page = Page("by hand", "run", self.answer, PageTable("looks", table))
        return panels(Snapshot(page, "running", 0.5))


@pytest.fixture
def serve() -> Iterator[Callable[..., LiveServer]]:
    started = list[LiveServer]()

    def start(source: Callable[[], dict[str, str]]) -> LiveServer:
        page = html(Page("by hand", "run", "waiting"), start=("live",), connects=True)
        started.append(LiveServer(page.encode(), source, interval_s=0.01, max_time_share=1.0).start())
        return started[-1]

    yield start
    for server in started:
        server.close()


def cut(server: LiveServer) -> None:
    server._loop.call_soon_threadsafe(lambda: [page.cancel() for page in server._pages])


def test_a_connection_is_lost_and_regained(browser: Browser, serve: Callable[..., LiveServer]) -> None:
    source, faults = Source(), list[str]()
    server = serve(source)
    with tab_of(browser, server.url, faults) as tab:
        tab.get_by_text("first").wait_for()
        cut(server)
        tab.get_by_text("Connection lost; trying again.").wait_for()
        source.answer = "second"
        tab.get_by_text("second").wait_for()
        assert tab.locator("[role=status]").text_content() == "Live"
    assert faults == []


def test_a_page_that_was_turned_away_tries_again(
    browser: Browser, serve: Callable[..., LiveServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_server, "MAX_PAGES", 0)
    faults = list[str]()
    with tab_of(browser, serve(Source()).url, faults) as tab:
        tab.get_by_text("Connection lost; trying again.").wait_for()
        monkeypatch.setattr(live_server, "MAX_PAGES", 1)
        tab.get_by_text("first").wait_for()
    assert faults == []


def test_a_gantt_chart_is_replaced_by_that_of_a_run(
    browser: Browser, serve: Callable[..., LiveServer]
) -> None:
    first, faults = [4], list[str]()

    def source() -> dict[str, str]:
        rounds, at_s = np.arange(first[0], first[0] + 4), 10.0 * np.arange(4)
        zeros = np.zeros(4, np.int64)
        chart = GanttChart(
            ["client 0"], ["compute"], zeros, zeros, rounds, at_s, at_s + 9, rounds, at_s, at_s + 10
        )
        section = Section("waiting", "Waiting", [Figure("gantt", "Clients by phase", "", chart)])
        return panels(Snapshot(Page("by hand", "run", "", sections=[section]), "ended", 1.0))

    with tab_of(browser, serve(source).url, faults) as tab:
        tab.get_by_text("Last in rounds 4 to 6").wait_for()
        tab.get_by_role("button", name="Later rounds").press("Enter")
        tab.get_by_text("Last in rounds 5 to 7").wait_for()
        first[0] = 20
        tab.get_by_text("Last in rounds 20 to 22").wait_for()
    assert faults == []


def test_the_keyboard_stays_where_it_is(browser: Browser, serve: Callable[..., LiveServer]) -> None:
    source, faults = Source(), list[str]()
    with tab_of(browser, serve(source).url, faults) as tab:
        head = tab.locator("#looks th button").nth(1)
        head.focus()
        head.press("Enter")
        seen = tab.locator("#looks td").first.text_content() or ""
        tab.wait_for_function(
            "seen => document.querySelector('#looks tbody').textContent.includes(seen) === false",
            arg=f"looks{seen}",
        )
        assert tab.evaluate("document.activeElement.textContent").startswith("how much")
        assert "how much" in (tab.locator("#looks th[aria-sort]").text_content() or "")
    assert faults == []
