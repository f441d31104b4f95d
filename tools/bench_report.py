"""Measure reports: how large they are, and how soon a browser shows them.

One compares 8 algorithms with 3 seeds, 50 rounds of 100 clients; its runs take some minutes, and are kept in
``build/bench_report``. The other is of one run with 10,000 clients. A page is ready when its last figure is
drawn; the limit is twice the time of a page that says nothing, plus a second::

    python tools/bench_report.py [--check]
"""

import argparse
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from playwright.sync_api import Browser, sync_playwright

import fedsim
from fedsim.page.html import html
from fedsim.page.page import Page
from fedsim.page.write_report import write_report

PLACE = Path(__file__).parents[1] / "build" / "bench_report"
REPEATS = 5
MOST_BYTES, MORE_S = 4e6, 1.0

ALGORITHMS = ("local", "fedavg", "fedprox", "fedavgm", "fedadam", "scaffold", "fedmd", "dsfl")
FLEET = [
    {"name": "slow phones", "count": 50, "device": "low", "up": "1 Mbit/s", "down": "4 Mbit/s"},
    {"name": "fast phones", "count": 50, "device": "high", "up": "10 Mbit/s", "down": "20 Mbit/s"},
]
COMPARISON: dict[str, Any] = {
    "run": {"name": "report", "rounds": 50},
    "data": {"name": "digits", "public": {"size": 100}, "global_test": 0.1},
    "models": {"linear": {}},
    "training": {"lr": 0.3, "batch_size": 16},
    "fleet": FLEET,
}
RUN: dict[str, Any] = {
    "run": {"name": "many", "rounds": 10},
    "data": {"name": "bench_fixture.Generated", "params": {"shape": [8], "each": 5}},
    "models": {"linear": {}},
    "training": {"lr": 0.1, "batch_size": 4},
    "participation": {"clients_per_round": 500},
    "fleet": [{**group, "count": 5000} for group in FLEET],
}


def results(name: str, make: Callable[[Path], object]) -> Path:
    """Return a folder of results, made if it is not there from an earlier time."""
    folder = PLACE / name
    if not folder.exists():
        print(f"making {folder}", flush=True)
        make(folder)
    return folder


def ready_s(browser: Browser, file: Path) -> float:
    """Return how long a new tab takes until a file is ready, s: the median."""
    times = []
    for _ in range(REPEATS):
        tab = browser.new_page(viewport={"width": 1440, "height": 900})
        began = perf_counter()
        tab.goto(file.as_uri(), wait_until="commit")
        tab.wait_for_selector("html[data-ready]", state="attached")
        times.append(perf_counter() - began)
        tab.close()
    return median(times)


def main() -> int:
    """Print all figures and return the exit status."""
    parser = argparse.ArgumentParser(description="Measure reports.")
    parser.add_argument("--check", action="store_true", help="exit with status 1 if a limit is exceeded")
    check = parser.parse_args().check
    folders = [
        results("compared", lambda out: fedsim.compare(COMPARISON, ALGORITHMS, seeds=[0, 1, 2], out=out)),
        results("many_clients", lambda out: fedsim.run(RUN, out=out)),
    ]
    failed = False
    names = ("chromium", "chromium-browser", "google-chrome")
    program = next(filter(None, map(shutil.which, names)), None)
    if program is None:
        parser.error("there is no Chromium here: make browser")
    empty = PLACE / "empty.html"
    empty.write_text(html(Page("nothing", "run", "Nothing.")))
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        ready_s(browser, empty)
        empty_s = ready_s(browser, empty)
        print(f"{'empty':14} {empty.stat().st_size / 1e6:5.2f} MB, ready after {empty_s:.2f} s")
        for folder in folders:
            began = perf_counter()
            file = write_report(folder, PLACE / f"{folder.name}.html")
            written_s = perf_counter() - began
            size, took_s, most_s = file.stat().st_size, ready_s(browser, file), 2 * empty_s + MORE_S
            is_fine = size <= MOST_BYTES and took_s <= most_s
            failed |= not is_fine
            print(
                f"{folder.name:14} {size / 1e6:5.2f} MB, ready after {took_s:.2f} s of at most {most_s:.2f} s"
                f", written in {written_s:.1f} s: {'ok' if is_fine else 'TOO MUCH'}"
            )
        browser.close()
    return 1 if check and failed else 0


if __name__ == "__main__":
    sys.exit(main())
