"""What a live page costs a run: without one, with one that nobody opens, and with one that is open.

Two runs: 100 rounds of 1,000 clients without learning (``bench_dispatch.py``), and quickstart. Each is done
in turns in the three ways, and what counts is time of a core, of the run's thread and of the whole process,
so that other load of the machine matters little. A page is a process of its own that reads events. Limit with
``--check``: the median of the differences is at most 1 % of the process's time.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench_dispatch import SCENARIO

from fedsim.page.live_page import LivePage
from fedsim.page.live_session import run_on
from fedsim.runtime.run import run
from fedsim.scenario import Plan, load_scenario

LIMIT = 0.01
WAYS = ("none", "unread", "open")
READER = """
import sys, urllib.request
events = urllib.request.urlopen(sys.argv[1])
print(flush=True)
for line in events: pass
"""


class Cost(NamedTuple):
    """Time of a core, s: of the run's thread, and of all threads together."""

    of_thread_s: float
    of_process_s: float
    trace_hash: str

    @property
    def beside_s(self) -> float:
        """Time of a core in the other threads, which load of the machine changes little."""
        return self.of_process_s - self.of_thread_s


def main() -> int:
    """Measure and print; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail when the limit is missed")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=100, help="of the run without learning")
    arguments = parser.parse_args()
    missed = False
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "dispatches.toml"
        file.write_text(SCENARIO.format(rounds=arguments.rounds))
        for name, source in (("without learning", str(file)), ("quickstart", "quickstart")):
            missed |= _compare(name, source, arguments.turns)
    return int(arguments.check and missed)


def _compare(name: str, source: str, turns: int) -> bool:
    """Measure a run in all ways, in turns; print; return whether the limit was missed."""
    _cost(source, "none")  # what is done once in a process
    costs = {way: list[Cost]() for way in WAYS}
    for turn in range(turns):
        for way in WAYS if turn % 2 else WAYS[::-1]:
            costs[way].append(_cost(source, way))
    hashes = {cost.trace_hash for of_way in costs.values() for cost in of_way}
    assert len(hashes) == 1, "a page has changed the run"
    base = costs["none"]
    thread_s = statistics.median(cost.of_thread_s for cost in base)
    process_s = statistics.median(cost.of_process_s for cost in base)
    spread = statistics.stdev(cost.of_process_s for cost in base) / process_s if turns > 1 else 0.0
    print(
        f"{name}: {process_s:.2f} s of a core (± {100 * spread:.1f} % between turns), "
        f"{thread_s:.2f} s in the run's thread"
    )
    missed = False
    for way in WAYS[1:]:
        pairs = list(zip(costs[way], base, strict=True))
        of_thread = statistics.median(one.of_thread_s - other.of_thread_s for one, other in pairs) / thread_s
        of_process = (
            statistics.median(one.of_process_s - other.of_process_s for one, other in pairs) / process_s
        )
        beside = statistics.median(one.beside_s - other.beside_s for one, other in pairs) / process_s
        missed |= of_process > LIMIT
        print(
            f"  page {way}: {100 * of_process:+.2f} %, in the run's thread {100 * of_thread:+.2f} %, in "
            f"others {100 * beside:+.2f} %"
        )
    return missed


def _cost(source: str, way: str) -> Cost:
    plan = Plan.of(load_scenario(source), source)
    with _page(way) as page, run_on(page, plan, Path("nowhere")) as observe:
        began = time.thread_time(), time.process_time()
        result = run(plan.parts, observe=observe)
        return Cost(time.thread_time() - began[0], time.process_time() - began[1], result.trace_hash)


@contextmanager
def _page(way: str) -> Iterator[LivePage | None]:
    if way == "none":
        yield None
        return
    with LivePage() as page:
        if way == "unread":
            yield page
            return
        command = [sys.executable, "-c", READER, f"{page.url}events"]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as reader:
            assert reader.stdout is not None
            reader.stdout.readline()  # it follows
            yield page
            reader.kill()


if __name__ == "__main__":
    sys.exit(main())
