"""Pages in a browser: nothing fails, nothing is asked for, everything can be read and reached."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedsim.figures.chart_types import (
    Axis,
    BarChart,
    Chart,
    Figure,
    GanttChart,
    HeatChart,
    Line,
    LineChart,
    Part,
    PointChart,
    Points,
    Section,
)
from fedsim.page.html import html
from fedsim.page.page_content import Page
from fedsim.page.write_report import write_report
from tests.figures.test_ticks import REACHES

if TYPE_CHECKING:
    from playwright.sync_api import Page as Tab

pytestmark = pytest.mark.slow

Open = Callable[..., AbstractContextManager["Tab"]]

FIGURES = {
    "accuracy-by-time": "canvas",
    "accuracy-by-bytes": "canvas",
    "time-parts": ".part",
    "link-use": "canvas",
    "gantt": "canvas",
    "left-behind": "canvas",
    "data-split": "canvas",
}
"""What each figure of the sample page is drawn with."""

INK = """canvas => {
    const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    return new Set(new Uint32Array(data.buffer)).size;
}"""
"""Counts the colours of a drawing."""


def page_of(folder: Path, *figures: Figure) -> Path:
    file = folder / "page.html"
    file.write_text(html(Page("t", "run", "a", sections=[Section("all", "All", figures)])))
    return file


def offering(folder: Path, page: Path, names: str) -> Path:
    """Write a copy of a page whose own functions scripts of a test can call."""
    file, offer = folder / "offering.html", f"Object.assign(window, {{ {names} }});"
    file.write_text(page.read_text().replace("\n})();", f"\n{offer}\n}})();"))
    return file


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_a_page_is_drawn_and_fits(open_page: Open, sample_file: Path, width: int, theme: str) -> None:
    with open_page(sample_file, width=width, theme=theme) as tab:
        for name, drawn_with in FIGURES.items():
            parts = tab.locator(f"#{name} .plot {drawn_with}")
            assert parts.count() > 0
            assert all((box := part.bounding_box()) and box["height"] > 5 for part in parts.all())
            if drawn_with == "canvas":
                assert parts.first.evaluate(INK) > 10
        assert tab.evaluate("document.documentElement.scrollWidth") == width
        assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == (
            "rgb(255, 255, 255)" if theme == "light" else "rgb(22, 24, 29)"
        )


def test_texts_are_shown_as_text(open_page: Open, sample_file: Path, hostile: str) -> None:
    with open_page(sample_file) as tab:
        assert tab.evaluate("window.broken") is None
        assert tab.locator("img").count() == 0
        assert tab.locator("script").count() == 2
        assert tab.locator("h1").text_content() == f"quickstart {hostile}"
        assert tab.title().startswith("quickstart </script><script>window.broken = 1</script><!-- <img")
        assert hostile in (tab.locator("#table-main tbody").text_content() or "")
        assert tab.locator("#accuracy-by-time .label").first.text_content() == hostile


@pytest.mark.parametrize("of", ["", "fedavg-seed0"])
def test_reports_of_results(open_page: Open, compared: Path, tmp_path: Path, of: str, hostile: str) -> None:
    with open_page(write_report(compared / of, tmp_path / "report.html"), width=390) as tab:
        assert tab.locator("figure").count() >= 6
        for figure in tab.locator("figure").all():
            name = figure.get_attribute("id")
            drawings = figure.locator(".plot canvas")
            assert all(drawing.evaluate(INK) > 10 for drawing in drawings.all()), name
            assert drawings.count() > 0 or figure.locator(".part").count() > 0, name
        assert tab.evaluate("document.documentElement.scrollWidth") == 390
        assert tab.evaluate("window.broken") is None
        assert tab.get_by_text(hostile.replace("\u2028", " "), exact=False).count() > 0
        assert tab.locator("img").count() == 0


def test_charts_of_nothing_are_drawn(open_page: Open, tmp_path: Path) -> None:
    none = np.zeros(0)
    gone = np.array([np.nan, np.nan])
    charts: list[Chart] = [
        LineChart(Axis("x"), Axis("y", scale="log"), []),
        LineChart(
            Axis("x", "s", "log"), Axis("y", "B"), [Line("a", none, none), Line("b", np.zeros(2), gone)]
        ),
        LineChart(Axis("x"), Axis("y"), [Line("one", np.ones(1), np.ones(1))], is_stepped=True),
        PointChart(Axis("x"), Axis("y"), []),
        PointChart(Axis("x", scale="log"), Axis("y"), [Points("a", np.zeros(2), gone, ["p", "q"])]),
        BarChart([], [], Axis("x")),
        BarChart(["a"], [Part("p", np.array([np.nan])), Part("q", np.zeros(1))], Axis("x")),
        HeatChart("row", "column", [], [], np.zeros((0, 0)), Axis("x")),
        HeatChart("row", "column", ["r"], ["c"], np.full((1, 1), np.nan), Axis("x")),
        GanttChart([], [], none, none, none, none, none, none, none, none),
    ]
    figures = [Figure(f"figure-{at}", "Nothing", "Nothing.", chart) for at, chart in enumerate(charts)]
    with open_page(page_of(tmp_path, *figures)) as tab:
        assert tab.locator("figure").count() == len(charts)
        for figure in tab.locator("figure").all():
            for key in ("ArrowRight", "End", "ArrowDown", "Escape"):
                figure.locator(".plot").press(key)
            figure.locator("summary").click()
            figure.locator("table").wait_for(state="attached")
        for entry in tab.locator(".legend button").all():
            entry.click()


def column(tab: Tab, table: str, number: int) -> list[str]:
    return tab.locator(f"#{table} tbody tr > :nth-child({number})").all_text_contents()


def test_a_table_is_sorted_by_click_and_by_key(open_page: Open, sample_file: Path) -> None:
    with open_page(sample_file) as tab:
        head = tab.locator("#table-main thead th").nth(2)
        head.get_by_role("button").click()
        assert column(tab, "table-main", 3) == ["33 s*", "5 min 3 s", "1 h 2 min"]
        assert head.get_attribute("aria-sort") == "ascending"
        tab.keyboard.press("Enter")
        assert column(tab, "table-main", 3) == ["1 h 2 min", "5 min 3 s", "33 s*"]
        assert head.get_attribute("aria-sort") == "descending"
        # What is not there is last, whichever way the others go.
        tab.locator("#table-main thead button").nth(1).press("Space")
        assert column(tab, "table-main", 2) == ["33.3 ± 1.2", "70.1 ± 0.3*", "-"]
        tab.keyboard.press("Space")
        assert column(tab, "table-main", 2) == ["70.1 ± 0.3*", "33.3 ± 1.2", "-"]
        assert tab.locator("#table-main [aria-sort]").count() == 1
        tab.locator("#words thead button").nth(0).click()
        assert column(tab, "words", 1) == ["one", "three", "two"]


def test_the_theme_is_switched_by_keys_and_remembered(open_page: Open, sample_file: Path) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    with open_page(sample_file, theme="dark") as tab:
        assert tab.evaluate(ground) == "rgb(22, 24, 29)"
        canvas = tab.locator("#left-behind .plot canvas")
        before = canvas.evaluate("canvas => canvas.toDataURL()")
        tab.get_by_role("radio", name="Auto").press("ArrowRight")
        assert tab.evaluate(ground) == "rgb(255, 255, 255)"
        assert canvas.evaluate("canvas => canvas.toDataURL()") != before
        assert tab.evaluate("localStorage.getItem('fedsim-theme')") == "light"
        assert tab.evaluate(ground) == "rgb(255, 255, 255)"
        tab.get_by_role("radio", name="Auto").check(force=True)
        assert tab.evaluate(ground) == "rgb(22, 24, 29)"


def test_all_is_reached_by_keyboard_and_seen_to_be(open_page: Open, sample_file: Path) -> None:
    wanted = "a[href], button, input, summary, [tabindex='0']"
    with open_page(sample_file) as tab:
        reachable = tab.locator(wanted).count() - 2  # of the switch of the theme, a stop is the chosen one
        tab.evaluate("document.activeElement.blur()")
        seen = 0
        while True:
            tab.keyboard.press("Tab")
            found: list[Any] = tab.evaluate("""() => {
                const one = document.activeElement;
                if (one === document.body || one.dataset.seen) return [false];
                one.dataset.seen = 1;
                const shown = one.type === "radio" ? one.nextElementSibling : one;
                return [true, getComputedStyle(shown).outlineStyle, one.outerHTML.slice(0, 80)];
            }""")
            if not found[0]:
                break
            assert found[1] != "none", found[2]
            seen += 1
        assert seen == reachable


READINGS = {
    "accuracy-by-time": "simulated time 0 s",
    "time-parts": "fedavg, compute: 2 min of 11 min 10 s",
    "link-use": "simulated time 0 s",
    "gantt": "client 11, round 1: receives for 2 s, from 0 s to 2 s",
    "left-behind": "client 0 (phones): training samples 20, accuracy 50.0 %",
    "data-split": "client 0, class 0: 0",
}
"""What is read first in each figure by the arrow keys."""


def test_charts_are_read_by_keys(open_page: Open, sample_file: Path) -> None:
    with open_page(sample_file) as tab:
        for name, first in READINGS.items():
            plot, reading = tab.locator(f"#{name} .plot"), tab.locator(f"#{name} .reading")
            assert reading.text_content() == ""
            plot.press("ArrowRight")
            assert reading.text_content() == first
            assert (tab.locator(f"#{name} output").text_content() or "").startswith(first)
            tab.keyboard.press("ArrowRight")
            assert reading.text_content() != first
            tab.keyboard.press("End")
            last = reading.text_content()
            tab.keyboard.press("ArrowRight")
            assert reading.text_content() == last
            tab.keyboard.press("Home")
            tab.keyboard.press("ArrowDown")
            assert reading.text_content() != ""
            tab.keyboard.press("Escape")
            assert reading.text_content() == ""


def test_a_reading_says_all_lines(open_page: Open, sample_file: Path) -> None:
    with open_page(sample_file) as tab:
        values = tab.locator("#link-use .value")
        assert values.all_text_contents() == ["12"]  # the last
        tab.locator("#link-use .plot").press("ArrowRight")
        assert values.all_text_contents() == ["3"]
        assert tab.locator("#link-use output").text_content() == "simulated time 0 s: down 3"
        # Charts over the same axis are read at the same place.
        assert tab.locator("#accuracy-by-bytes .reading").text_content() == ""


def test_the_legend_switches_lines_off_by_keys(open_page: Open, sample_file: Path) -> None:
    with open_page(sample_file) as tab:
        entry = tab.locator("#accuracy-by-time .legend button").nth(1)
        canvas = tab.locator("#accuracy-by-time .plot canvas").first
        before = canvas.evaluate("canvas => canvas.toDataURL()")
        assert entry.get_attribute("aria-pressed") == "true"
        entry.press("Space")
        assert entry.get_attribute("aria-pressed") == "false"
        assert canvas.evaluate("canvas => canvas.toDataURL()") != before
        tab.locator("#accuracy-by-time .plot").press("ArrowRight")
        assert "fedmd" not in (tab.locator("#accuracy-by-time output").text_content() or "")
        entry.press("Space")
        tab.locator("#accuracy-by-time .plot").press("Escape")
        assert canvas.evaluate("canvas => canvas.toDataURL()") == before


def test_data_are_there_in_words_and_as_a_table(open_page: Open, sample_file: Path) -> None:
    with open_page(sample_file) as tab:
        for name in FIGURES:
            details = tab.locator(f"#{name} details")
            assert details.locator("tbody tr").count() == 0
            details.locator("summary").press("Enter")
            details.locator("table").wait_for()
            assert details.locator(".text").is_visible()
        assert column(tab, "time-parts details", 1)[1] == "fedmd"
        assert column(tab, "time-parts details", 2) == ["2 min", "1 min 20 s", "5 min"]
        assert column(tab, "time-parts details", 4) == ["8 min 20 s", "10 s", "-"]
        rows = tab.locator("#gantt details tbody tr")
        assert rows.count() == 200
        tab.get_by_role("button", name="Show all 288 rows").click()
        assert rows.count() == 288
        assert column(tab, "gantt details", 6)[:3] == ["2 s", "10 s", "4 s"]


def test_rounds_are_chosen(open_page: Open, sample_file: Path) -> None:
    with open_page(sample_file) as tab:
        said = tab.locator("#gantt .left")
        assert said.text_content() == "Last in rounds 1 to 3: client 11, mostly trains (21 s)."
        tab.get_by_role("button", name="Later rounds").press("Enter")
        assert said.text_content() == "Last in rounds 4 to 6: client 11, mostly trains (21 s)."
        tab.get_by_label("First round").fill("8")
        tab.get_by_label("First round").press("Tab")
        assert tab.get_by_label("Last round").input_value() == "8"
        assert said.text_content() == "Last in round 8: client 11, mostly trains (43 s)."
        tab.get_by_role("button", name="Later rounds").press("Enter")
        assert tab.get_by_label("First round").input_value() == "8"


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_nobody_is_kept_out(open_page: Open, sample_file: Path, axe: str, theme: str, width: int) -> None:
    with open_page(sample_file, theme=theme, width=width) as tab:
        for name in ("time-parts", "data-split"):
            tab.locator(f"#{name} summary").click()
            tab.locator(f"#{name} details table").wait_for()
        tab.evaluate(axe)
        found = tab.evaluate("axe.run()")
        assert [
            (one["id"], one["impact"], [node["html"][:120] for node in one["nodes"]])
            for one in found["violations"]
        ] == []


def test_paper_is_light_and_has_no_buttons(open_page: Open, sample_file: Path) -> None:
    with open_page(sample_file, theme="dark") as tab:
        tab.emulate_media(media="print", color_scheme="dark")
        for hidden in (".theme", ".contents", ".controls", ".reading"):
            assert not tab.locator(hidden).first.is_visible()
        assert tab.locator("#table-main").is_visible()
        assert tab.evaluate("getComputedStyle(document.body).color") == "rgb(27, 30, 36)"
        assert tab.evaluate("document.documentElement.scrollWidth") <= 1440
        assert len(tab.pdf(format="A4")) > 20_000


def test_what_was_replaced_listens_no_more(open_page: Open, sample_file: Path, tmp_path: Path) -> None:
    live = offering(tmp_path, sample_file, "replaceSection, themeListeners, themeSwitch, DATA")
    with open_page(live, bypass_csp=True) as tab:
        before, after, to_the_system = tab.evaluate("""() => {
            let toTheSystem = 0;
            MediaQueryList.prototype.addEventListener = () => { toTheSystem += 1; };
            const before = themeListeners.size;
            for (const time of [1, 2]) {
                structuredClone(DATA.page.sections).forEach(replaceSection);
                themeSwitch();
            }
            return [before, themeListeners.size, toTheSystem];
        }""")
        assert before == after > 0
        assert to_the_system == 0


def test_parts_are_replaced_while_the_reader_reads(
    open_page: Open, sample_file: Path, tmp_path: Path
) -> None:
    """As a live page does, by scripts of its own in the same scope."""
    live = offering(
        tmp_path, sample_file, "replaceAnswer, replaceTable, replaceSection, replaceRemarks, DATA"
    )
    with open_page(live, bypass_csp=True) as tab:
        tab.evaluate("replaceAnswer('After 3 rounds, 1 min 3 s: <b>72 %</b>, 2 clients.')")
        assert tab.locator(".answer").text_content() == (
            "After 3 rounds, 1\u00a0min 3\u00a0s: <b>72\u00a0%</b>, 2 clients."
        )
        tab.locator("#table-main thead button").nth(2).click()
        tab.evaluate("""() => {
            const table = structuredClone(DATA.page.table);
            table.rows[0][2] = "2 h";
            table.keys[2][0] = 7200;
            replaceTable(table);
        }""")
        assert column(tab, "table-main", 3) == ["5 min 3 s", "1 h 2 min", "2 h"]
        hidden = tab.locator("#link-use .plot canvas").first
        before = hidden.evaluate("canvas => canvas.toDataURL()")
        tab.locator("#accuracy-by-time .legend button").nth(1).click()
        tab.evaluate("""() => {
            for (const section of structuredClone(DATA.page.sections)) {
                for (const figure of section.figures) {
                    figure.text = "Other data.";
                    figure.chart.lines?.forEach(line => { line.y = line.y.map(y => y && y / 2); });
                }
                section.figures.push({ ...section.figures[0], name: `${section.name}-new` });
                replaceSection(section);
            }
        }""")
        assert hidden.evaluate("canvas => canvas.toDataURL()") != before
        assert tab.locator("#link-use .value").all_text_contents() == ["6"]
        assert tab.locator("#link-use .text").text_content() == "Other data."
        pressed = [one.get_attribute("aria-pressed") for one in tab.locator("#accuracy-by-time button").all()]
        assert pressed == ["true", "false", *["true"] * 6]
        assert tab.locator("figure").count() == len(FIGURES) + 3


def test_without_scripts_there_is_the_answer(open_page: Open, sample_file: Path) -> None:
    with open_page(sample_file, java_script_enabled=False) as tab:
        assert tab.get_by_text("To 70 %: FedMD 5 min and 60 MB").is_visible()


def test_nothing_moves_for_those_who_ask_for_that(open_page: Open, sample_file: Path) -> None:
    with open_page(sample_file, reduced_motion="reduce") as tab:
        assert tab.evaluate("getComputedStyle(document.documentElement).scrollBehavior") == "auto"


def test_axes_follow_the_values_as_in_files(open_page: Open, sample_file: Path, tmp_path: Path) -> None:
    with open_page(offering(tmp_path, sample_file, "reach, withTargets"), bypass_csp=True) as tab:
        for (least, most), axis, marked, ends in REACHES:
            chart = {
                "y": {"unit": axis.unit, "scale": axis.scale},
                "targets": [{"value": value} for value in marked],
            }
            script = "([chart, ...ends]) => reach(chart.y, ...withTargets(chart, ...ends))"
            assert tab.evaluate(script, [chart, least, most]) == pytest.approx(ends)


def test_every_colour_of_bars_has_its_legend_and_lines_say_what_theirs_says(
    open_page: Open, tmp_path: Path
) -> None:
    lines = [Line("a", np.ones(1), np.ones(1), legend="worst 10 %: 25 %"), Line("b", np.ones(1), np.ones(1))]
    figures = [
        Figure("outcomes", "", "", BarChart(["fedavg"], [Part("merged", np.ones(1))], Axis("dispatches"))),
        Figure("ranked", "", "", LineChart(Axis("clients"), Axis("accuracy", "share"), lines)),
    ]
    with open_page(page_of(tmp_path, *figures)) as tab:
        assert tab.locator("#outcomes .legend .label").all_text_contents() == ["merged"]
        assert tab.locator("#ranked .legend .value").all_text_contents() == ["worst 10 %: 25 %", "100.0 %"]


def test_the_slowest_clients_of_the_rounds_that_are_shown(open_page: Open, tmp_path: Path) -> None:
    # In rounds 1 to 3 client 0 is the fastest of 40, in the others the slowest.
    clients, rounds = np.tile(np.arange(40), 6), np.repeat(np.arange(1, 7), 40)
    lasted_s = np.where((clients == 0) & (rounds > 3), 90.0, clients + 1)
    began_at_s = 100.0 * np.arange(6)
    chart = GanttChart(
        [f"client {client}" for client in range(40)], ["compute"], clients, clients * 0, rounds,
        100.0 * (rounds - 1), 100 * (rounds - 1) + lasted_s,
        np.arange(1, 7), began_at_s, began_at_s + 99,
    )  # fmt: skip
    with open_page(page_of(tmp_path, Figure("gantt", "", "", chart))) as tab:
        said, plot = tab.locator("#gantt .left"), tab.locator("#gantt .plot")
        for rounds_shown, slowest, lasted in (
            ("1 to 3", "client 39", "40 s"),
            ("4 to 6", "client 0", "1 min 30 s"),
        ):
            assert said.text_content() == (
                f"Last in rounds {rounds_shown}: {slowest}, mostly compute ({lasted}). "
                "Shown are the 10 slowest clients of these rounds, 10 in the middle and the 10 fastest."
            )
            plot.press("ArrowRight")  # the first span of the uppermost row
            assert (tab.locator("#gantt .reading").text_content() or "").startswith(f"{slowest}, ")
            plot.press("Escape")
            tab.get_by_role("button", name="Later rounds").press("Enter")
