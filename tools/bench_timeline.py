"""Processor time to draw the timeline of a run with a million events, against reading its trace once.

The fleet has 20 clients, so every event is drawn.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench_harness import Bench, main, processor_s, without_training

from fedsim.clock import read_trace
from fedsim.report.record_run import record
from fedsim.scenario import Plan, load_scenario
from fedsim.timeline.run_timeline import save_timeline

MAX_RATIO = 10.0
CLIENTS, EVENTS_PER_DISPATCH = 20, 7


def read(folder: Path) -> int:
    """Read a trace; return the number of its records."""
    with (folder / "trace.msgpack").open("rb") as file:
        return sum(1 for _ in read_trace(file))


def measure(bench: Bench) -> None:
    """Do a run, and time what is made of its trace."""
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        rounds = max(1, bench.options.events // (EVENTS_PER_DISPATCH * CLIENTS))
        scenario = load_scenario(without_training(CLIENTS, rounds))
        folder = record(Plan.of(scenario, "bench"), place / "run").folder
        file = place / "run.pftrace"
        bench.show("trace", read(folder), "events")
        times = bench.in_turns(
            {
                "reading": lambda: processor_s(lambda: read(folder)),
                "timeline": lambda: processor_s(lambda: save_timeline(folder, file)),
            }
        )
        for name, times_s in times.items():
            bench.show(name, times_s, "s")
        bench.ratio("timeline / reading", times["timeline"], times["reading"], at_most=MAX_RATIO)
        bench.show("timeline file", file.stat().st_size / 1e6, "MB")


if __name__ == "__main__":
    main(__doc__, measure, repeats=1, events={"type": int, "default": 1_000_000})
