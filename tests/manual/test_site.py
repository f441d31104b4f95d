"""The built manual: nothing is missing, nothing asked of other machines; a browser shows it from files."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import manual_blocks
import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from playwright.sync_api import Page as Tab

pytestmark = pytest.mark.slow

LOOKED_AT = ("index", "first_run", "how_to/data", "reference/scenario", "reference/python", "search")
"""Pages of each form, seen in all themes and widths."""
RESOURCE = re.compile(
    r"<(?:link(?![^>]*rel=.(?:next|prev))|script|img|iframe|source)\b[^>]*?(?:href|src)\s*=\s*[\"'](?:https?:)?//"
    r"|@import|url\(\s*[\"']?(?:https?:)?//",
    re.I,
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the manual, built as ``make docs`` does."""
    pytest.importorskip("sphinx", reason="the manual is built with the extra docs")
    folder = tmp_path_factory.mktemp("manual")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-E",
        "-W",
        "--keep-going",
        str(manual_blocks.DOCS),
        str(folder),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_there(site: Path) -> None:
    assert all((site / f"{page}.html").is_file() for page in manual_blocks.pages())
    assert (site / "demo" / "report.html").stat().st_size > 100_000
    assert "made by:" not in "".join(file.read_text("utf-8") for file in site.rglob("*.html"))


def test_nothing_is_asked_of_other_machines(site: Path) -> None:
    for file in [*site.rglob("*.html"), *site.rglob("*.css")]:
        assert RESOURCE.search(file.read_text("utf-8")) is None, file


def _open(browser: Browser, file: Path, *, width: int = 1440, theme: Any = "light") -> tuple[Tab, list[str]]:
    """Return a tab that shows a file, and what fails in it or is asked of other machines."""
    tab = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme).new_page()
    tab.set_default_timeout(20_000)
    faults = list[str]()
    tab.on("pageerror", lambda error: faults.append(f"error: {error}"))
    tab.on("console", lambda message: faults.append(f"console: {message.text}"))
    tab.on("request", lambda request: _note(faults, request.url))
    tab.goto(file.as_uri())
    return tab, faults


def _note(faults: list[str], url: str) -> None:
    if not url.startswith(("file:", "data:")):
        faults.append(f"request: {url}")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_pages_fit(browser: Browser, site: Path, width: int, theme: str) -> None:
    for page in LOOKED_AT:
        tab, faults = _open(browser, site / f"{page}.html", width=width, theme=theme)
        assert faults == [], page
        assert tab.evaluate("document.documentElement.scrollWidth") == width, page
        assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == (
            "rgb(255, 255, 255)" if theme == "light" else "rgb(19, 20, 22)"
        )
        tab.context.close()


@pytest.mark.parametrize(("width", "theme"), [(390, "light"), (1440, "dark")])
def test_pages_keep_nobody_out(browser: Browser, site: Path, axe: str, width: int, theme: str) -> None:
    for page in LOOKED_AT:
        tab, _ = _open(browser, site / f"{page}.html", width=width, theme=theme)
        tab.evaluate(axe)
        # Style sheets cannot be read anew from a file, and need not be.
        found = tab.evaluate("axe.run({ preload: false })")["violations"]
        assert [one for one in found if one["impact"] in ("serious", "critical")] == [], page
        tab.context.close()


@pytest.mark.parametrize(
    ("query", "leads_to", "excerpt"),
    [
        ("straggler", "how_to/pacing.html#", "Wait less for stragglers"),
        ("3G", "questions.html#", "No device class is a 3G phone"),
        ("energy", "how_to/energy.html#", "What a run costs its devices in joules"),
        ("quantisation", "questions.html#", "fedsim has no codecs"),
        ("quantization", "questions.html#", "fedsim has no codecs"),
        ("compression", "questions.html#", "fedsim has no codecs"),
        ("custom metric", "how_to/metrics.html#", "A metric of your own"),
        ("Colab", "first_run.html#", "is a notebook for Colab, Kaggle and Binder"),
        ("Docker", "first_run.html#", "The Dockerfile makes an image"),
    ],
)
def test_search_leads_to_the_section(
    browser: Browser, site: Path, query: str, leads_to: str, excerpt: str
) -> None:
    tab, faults = _open(browser, site / "index.html")
    tab.locator("input[name=q]").first.fill(query)
    tab.keyboard.press("Enter")
    first = tab.locator("#search-results li").first
    first.locator("p.context").wait_for()
    assert (first.locator("a").get_attribute("href") or "").startswith(leads_to)
    assert excerpt in first.inner_text()
    assert faults == []
    tab.context.close()


def test_search_excerpts_have_the_words(browser: Browser, site: Path) -> None:
    """Results that are settings or names of Python's have a description in place of an excerpt."""
    tab, faults = _open(browser, site / "search.html")
    tab.goto((site / "search.html").as_uri() + "?q=client_timeout")
    tab.wait_for_function("Search.status?.innerText")
    results = tab.locator("#search-results li").all_inner_texts()
    assert "Scenario files" in results[0]
    assert len(results) > 3
    assert all("client_timeout" in result for result in results)
    assert faults == []
    tab.context.close()


def test_the_picture_of_the_first_run_leads_to_the_report(browser: Browser, site: Path) -> None:
    tab, faults = _open(browser, site / "first_run.html")
    image = tab.locator("img.figure")
    assert image.evaluate("image => image.naturalWidth") > 100
    assert len(image.get_attribute("alt") or "") > 20
    image.click()
    tab.wait_for_selector("html[data-ready]", state="attached")
    assert faults == []
    tab.context.close()
