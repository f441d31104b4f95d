"""Jobs on a Ray cluster of this machine against threads.

The workloads are those of ``bench_train.py``. Threads with two workers and Ray with two actors take turns.
Memory is that of this process and of the object store.
"""

from __future__ import annotations

import gc
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import ray
import torch
from bench_harness import Bench, main
from bench_train import CASES, EXECUTIONS, Case

from fedsim.engine.cluster.connection import Connection
from fedsim.runtime.parts import Parts
from fedsim.runtime.records.result import RoundRow, RunResult
from fedsim.runtime.run import run

MAX_RATIO = {"W2": 1.25, "W3": 3.0}
MAX_GROWTH_MIB = 20.0
ON_RAY = {"engine.executor": "ray", "engine.params": {"actors": 2}}


def timed_run(parts: Parts) -> tuple[float, RunResult]:
    """Run; return real time a round, s, and the result."""
    ends: list[float] = []
    result = run(parts, watch=lambda row: ends.append(perf_counter()))
    return median(b - a for a, b in pairwise(ends)), result


def compare(bench: Bench, name: str, case: Case) -> None:
    """Compare Ray with threads on one workload."""
    rounds = bench.options.rounds
    runs = bench.in_turns(
        {
            "threads": lambda: timed_run(case.parts(rounds, **EXECUTIONS["2 workers"])),
            "ray": lambda: timed_run(case.parts(rounds, **ON_RAY)),
        }
    )
    results = [result for timed in runs.values() for _, result in timed]
    assert len({(result.trace_hash, result.model_hash, result.simulated_s) for result in results}) == 1
    threads_s, ray_s = ([round_s for round_s, _ in runs[side]] for side in ("threads", "ray"))
    bench.show(f"{name}: threads, a round", [1e3 * each for each in threads_s], "ms")
    bench.ratio(f"{name}: ray / threads", ray_s, threads_s, at_most=MAX_RATIO[name])


def show_growth(bench: Bench, case: Case, few: int = 20, many: int = 200) -> None:
    """Show the growth of memory between two rounds of a run."""
    memory: dict[int, tuple[float, float]] = {}

    def watch(row: RoundRow) -> None:
        if row.round in (few, many):
            gc.collect()
            memory[row.round] = _private_mib(), _store_mib()

    run(case.parts(many, **ON_RAY), watch=watch)
    for index, place in enumerate(("this process", "object store")):
        growth = memory[many][index] - memory[few][index]
        bench.show(f"{place}: growth in {many - few} rounds", growth, "MiB", at_most=MAX_GROWTH_MIB)


def _private_mib() -> float:
    """Return the memory of this process without what it maps of the object store, MiB."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    sizes = {line.split()[0]: int(line.split()[1]) for line in lines[1:]}
    return (sizes["Private_Clean:"] + sizes["Private_Dirty:"]) / 1024


def _store_mib() -> float:
    module: Any = ray
    total, free = module.cluster_resources(), module.available_resources()
    return float(total.get("object_store_memory", 0.0) - free.get("object_store_memory", 0.0)) / 2**20


def show_starts(bench: Bench) -> None:
    """Show the time to have an actor on a running cluster."""
    parts = CASES["W1"].parts(1, **ON_RAY)
    started = perf_counter()
    parts.executor.open(parts.resources())
    bench.show("first actor on a running cluster", perf_counter() - started, "s")
    parts.executor.close()


def measure(bench: Bench) -> None:
    """Measure starts, memory and both workloads."""
    torch.set_num_threads(1)
    started = perf_counter()
    cluster = Connection("local")  # which the runs join
    bench.show("start of a local cluster", perf_counter() - started, "s")
    show_starts(bench)
    show_growth(bench, CASES["W1"])
    for name in MAX_RATIO:
        compare(bench, name, CASES[name])
    cluster.close()


if __name__ == "__main__":
    main(__doc__, measure, repeats=3, rounds={"type": int, "help": "of a run"})
