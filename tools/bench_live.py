"""Processor time that a live page adds to a run: without a page, with an unread one, with an open one.

Two runs: 100 rounds of 1,000 clients without training, and quickstart. A page is a process that reads events.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

from bench_harness import Bench, main, without_training

from fedsim.page.live_page import LivePage
from fedsim.page.live_session import run_on
from fedsim.runtime.run import run
from fedsim.scenario import Plan, load_scenario

MAX_RATIO = 1.01
READER = """
import sys, urllib.request
events = urllib.request.urlopen(sys.argv[1])
print(flush=True)
for line in events: pass
"""


@contextmanager
def page(way: str) -> Iterator[LivePage | None]:
    """Have no page, one that nobody opens, or one that a process reads."""
    if way == "none":
        yield None
        return
    with LivePage() as live:
        if way == "unread":
            yield live
            return
        command = [sys.executable, "-c", READER, f"{live.url}events"]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as reader:
            assert reader.stdout is not None
            reader.stdout.readline()  # it is connected
            yield live
            reader.kill()


def cost(source: str | Mapping[str, Any], way: str) -> tuple[float, str]:
    """Return the processor time of all threads, s, and the trace hash."""
    plan = Plan.of(load_scenario(source), "bench")
    with page(way) as live, run_on(live, plan, Path("nowhere")) as observe:
        started = process_time()
        result = run(plan.parts, observe=observe)
        return process_time() - started, result.trace_hash


def measure(bench: Bench) -> None:
    """Compare both runs with and without a page."""
    sources: dict[str, str | Mapping[str, Any]] = {
        "without training": without_training(10_000, bench.options.rounds, 1_000),
        "quickstart": "quickstart",
    }
    for name, source in sources.items():
        cost(source, "none")  # what is computed once in a process
        ways = {way: partial(cost, source, way) for way in ("none", "unread", "open")}
        costs = {way: list(zip(*values, strict=True)) for way, values in bench.in_turns(ways).items()}
        trace_hashes = {trace_hash for _, hashes in costs.values() for trace_hash in hashes}
        assert len(trace_hashes) == 1, "a page changes the run"
        all_s, _ = costs.pop("none")
        bench.show(name, all_s, "s")
        for way, (page_s, _) in costs.items():
            bench.ratio(f"{name}, page {way}", page_s, all_s, at_most=MAX_RATIO)


if __name__ == "__main__":
    main(__doc__, measure, rounds={"type": int, "default": 100, "help": "of the run without training"})
