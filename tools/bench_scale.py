"""Runs without training: time, memory above that of the imports, and the memory of an idle client.

0. ``dispatch``: 10,000 clients, 1,000 asked a round, 100 rounds, over links of their own.
1. ``million``: 1,000,000 clients, 1,000 asked a round, 100 rounds, without training, over shared links.
2. ``diurnal``: the same with diurnal availability; at most twice the time of the first.
3. ``day``: a simulated day of 10,000 clients with an availability trace, 100 asked every 5 simulated minutes.
4. An idle client: the growth of the memory of Python and NumPy from half a million clients to a million, in
   the middle of a run that has asked ten.

Each case runs in a new process.
"""

from __future__ import annotations

import gc
import json
import sys
import tempfile
import tracemalloc
from pathlib import Path
from time import perf_counter
from typing import Any

from bench_harness import Bench, main, peak_mib, run_script, without_training

from fedsim.rng import Key
from fedsim.runtime.records.result import RoundRow
from fedsim.runtime.run import run
from fedsim.scenario import build, load_scenario

MAX_S = {"dispatch": 0.3, "million": 0.4, "diurnal": None, "day": 10 / 288}
"""Real time of a round, s."""
MAX_MIB, MAX_IDLE_BYTES = 286.0, 50.0


def tables(case: str, rounds: int, num_clients: int, clients_per_round: int) -> dict[str, Any]:
    """Return the scenario of a case."""
    scenario = without_training(num_clients, rounds, clients_per_round)
    if case != "dispatch":
        scenario["network"] = {"model": "fluid"}
    availability: Any = "diurnal" if case == "diurnal" else "always"
    if case == "day":
        availability = {"name": "trace", "params": {"file": str(trace_file()), "step": "30 min"}}
        pacing = {"name": "synchronous", "params": {"interval": "5 min"}}
        scenario["participation"] |= {"pacing": pacing, "client_timeout": "240 s"}
    for group in scenario["fleet"]:
        group["availability"] = availability
    return scenario


def trace_file() -> Path:
    """Write a grid of 500 devices and 48 half hours, each available a third of the time; return its path."""
    states = Key.root(0).child("trace").numpy().random((500, 48)) < 1 / 3
    path = Path(tempfile.mkdtemp()) / "grid.csv"
    path.write_text("".join(",".join(str(int(state)) for state in row) + "\n" for row in states))
    return path


def held_bytes(case: str, num_clients: int) -> int:
    """Return the bytes held in the middle of a run after a round of ten clients."""
    held = []

    def watch(row: RoundRow) -> None:
        gc.collect()
        held.append(tracemalloc.get_traced_memory()[0])

    tracemalloc.start()
    try:
        run(build(load_scenario(tables(case, 1, num_clients, 10))), watch=watch)
    finally:
        tracemalloc.stop()
    return held[0]


def run_case(case: str, rounds: int) -> dict[str, float]:
    """Run a case in this process; return its figures."""
    before_mib = peak_mib()
    num_clients = 10_000 if case in ("dispatch", "day") else 1_000_000
    parts = build(load_scenario(tables(case, rounds, num_clients, 100 if case == "day" else 1_000)))
    started = perf_counter()
    run(parts)
    return {"round_s": (perf_counter() - started) / rounds, "memory_mib": peak_mib() - before_mib}


def idle_bytes(case: str) -> float:
    """Return the memory of one more idle client, bytes."""
    _, few, many = (held_bytes(case, num) for num in (10_000, 500_000, 1_000_000))  # the first imports
    return (many - few) / 500_000


def measure(bench: Bench) -> None:
    """Run each case in a process of its own."""
    round_s: dict[str, float] = {}
    for case, max_s in MAX_S.items():
        rounds = 288 if case == "day" else bench.options.rounds
        figures = run_script(__file__, "--case", case, str(rounds))
        limit = 2 * round_s["million"] if case == "diurnal" else max_s
        round_s[case] = bench.show(f"{case}: a round", figures["round_s"], "s", at_most=limit)
        limit = MAX_MIB if case == "million" else None
        bench.show(f"{case}: memory at the peak", figures["memory_mib"], "MiB", at_most=limit)
    for case in ("million", "diurnal"):
        num_bytes = run_script(__file__, "--idle", case)
        bench.show(f"{case}: an idle client", num_bytes, "bytes", at_most=MAX_IDLE_BYTES)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--case", name, rounds]:
            print(json.dumps(run_case(name, int(rounds))))
        case ["--idle", name]:
            print(json.dumps(idle_bytes(name)))
        case _:
            main(__doc__, measure, repeats=1, rounds={"type": int, "default": 100})
