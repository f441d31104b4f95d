"""Reports: their size, and the time until a browser has drawn the last figure.

One report compares 8 algorithms with 3 seeds, 50 rounds of 100 clients. Its runs take some minutes and are
kept in ``build/bench_report``. The other is of one run with 10,000 clients. A report may take twice the time
of an empty page, and a second.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from bench_harness import ROOT, Bench, main
from playwright.sync_api import Browser, sync_playwright

import fedsim
from fedsim.page.html import html
from fedsim.page.page import Page
from fedsim.page.write_report import write_report

PLACE = ROOT / "build/bench_report"
MAX_MB = 4.0
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
    "data": {"name": "bench_data.Generated", "params": {"shape": [8], "each": 5}},
    "models": {"linear": {}},
    "training": {"lr": 0.1, "batch_size": 4},
    "participation": {"clients_per_round": 500},
    "fleet": [{**group, "count": 5000} for group in FLEET],
}


def results(name: str, make: Callable[[Path], object]) -> Path:
    """Return a folder of results; make it unless an earlier bench did."""
    folder = PLACE / name
    if not folder.exists():
        print(f"making {folder}", flush=True)
        make(folder)
    return folder


def ready_s(browser: Browser, file: Path) -> float:
    """Return the time until a new tab has drawn a file, s."""
    tab = browser.new_page(viewport={"width": 1440, "height": 900})
    started = perf_counter()
    tab.goto(file.as_uri(), wait_until="commit")
    tab.wait_for_selector("html[data-ready]", state="attached")
    elapsed_s = perf_counter() - started
    tab.close()
    return elapsed_s


def measure(bench: Bench) -> None:
    """Write both reports, and open them beside an empty page."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        raise SystemExit("no Chromium found: run make browser")
    folders = [
        results("compared", lambda out: fedsim.compare(COMPARISON, ALGORITHMS, seeds=[0, 1, 2], out=out)),
        results("many_clients", lambda out: fedsim.run(RUN, out=out)),
    ]
    files = {"empty": PLACE / "empty.html"}
    files["empty"].write_text(html(Page("nothing", "run", "Nothing.")))
    for folder in folders:
        started = perf_counter()
        files[folder.name] = write_report(folder, PLACE / f"{folder.name}.html")
        bench.show(f"{folder.name}: writing", perf_counter() - started, "s")
        bench.show(f"{folder.name}: size", files[folder.name].stat().st_size / 1e6, "MB", at_most=MAX_MB)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        ready_s(browser, files["empty"])
        times = bench.in_turns({name: partial(ready_s, browser, file) for name, file in files.items()})
        browser.close()
    empty_s = bench.show("empty: ready after", times.pop("empty"), "s")
    for name, times_s in times.items():
        bench.show(f"{name}: ready after", times_s, "s", at_most=2 * empty_s + 1)


if __name__ == "__main__":
    main(__doc__, measure)
