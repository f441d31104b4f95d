"""What jobs on a Ray cluster cost against threads, on this machine.

The workloads are those of ``bench_train.py``. Threads with two workers and Ray with two actors take turns;
figures are real time a round, the median over rounds 2 and later, and the median of the repeats' ratios
counts. The driver's time is processor time within the executor, of the loop's thread and of the one that
talks to the actors, for each job; behind it stands that of all threads, less what the same run takes without
training. Memory is that of this process and of the object store, after 20 rounds and
after 200.

``--equality`` runs examples of ``scenarios/`` and the workloads with threads and with 1, 2 and 4 actors, and
compares hashes, bytes and simulated time, on a cluster of two nodes that this machine plays. ``--killing``
does so while an actor is killed every two seconds.
"""

from __future__ import annotations

import argparse
import gc
import logging
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partialmethod
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter, process_time, thread_time
from typing import Any
from unittest.mock import patch

import ray
import torch
from bench_train import CASES, EXECUTIONS, Case
from ray.cluster_utils import Cluster

from fedsim.engine.cluster.actor_pool import ActorPool
from fedsim.engine.cluster.connection import Connection
from fedsim.engine.executors.ray import Ray
from fedsim.errors import FedsimError
from fedsim.example_files import names
from fedsim.runtime.parts import Parts
from fedsim.runtime.records.result import RoundRow, RunResult
from fedsim.runtime.run import run
from fedsim.scenario import load_scenario
from fedsim.scenario.build import build

STORE_BYTES = 800_000_000
"""Of the object store of each node."""

LIMITS = {"W2": 1.25, "W3": 3.0}
"""Highest ratio of Ray's real time a round to that of threads."""

DRIVER_MS = 1.0
"""Most processor time of the driver for a job, ms."""

MEMORY_MIB = 20.0
"""By how much memory may grow from round 20 to round 200, MiB."""

KILLED_EVERY_S = 2.0


@contextmanager
def cluster(num_nodes: int, num_cpus: int = 2) -> Iterator[str]:
    """Have a cluster that this process belongs to; yield its address."""
    node: dict[str, Any] = {
        "num_cpus": num_cpus,
        "object_store_memory": STORE_BYTES,
        "include_dashboard": False,
    }
    logging.getLogger("ray").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nodes = Cluster(initialize_head=True, head_node_args=node)
        for _ in range(num_nodes - 1):
            nodes.add_node(**node)
        ray.init(address=nodes.address, log_to_driver=False, logging_level=logging.ERROR)
    try:
        yield nodes.address
    finally:
        ray.shutdown()
        nodes.shutdown()  # type: ignore[no-untyped-call]


def on_ray(actors: int, **more: Any) -> dict[str, Any]:
    """Return the overrides of a run on the cluster."""
    return {"engine.executor": "ray", "engine.params": {"actors": actors, **more}}


class Stopwatch:
    """Takes the processor time of what Ray's executor does in this process, of a run while it is patched in.

    Attributes:
        loop_s: Within the executor, of the loop's thread, s.
        pool_s: Of the thread that talks to the actors, s.
    """

    def __init__(self) -> None:
        self.loop_s = self.pool_s = 0.0

    @contextmanager
    def started(self) -> Iterator[None]:
        """Take the time of a block."""

        def loop(*arguments: Any, of: Callable[..., Any], **more: Any) -> Any:
            began_s = thread_time()
            try:
                return of(*arguments, **more)
            finally:
                self.loop_s += thread_time() - began_s

        def pool(self_: ActorPool) -> None:
            run_pool(self_)
            self.pool_s += thread_time()

        run_pool = ActorPool._run
        with (
            patch.object(Ray, "submit", partialmethod(loop, of=Ray.submit)),
            patch.object(Ray, "wait", partialmethod(loop, of=Ray.wait)),
            patch.object(ActorPool, "_run", pool),
        ):
            yield


def seconds_a_round(parts: Parts) -> tuple[float, float, RunResult]:
    """Run; return the median of real time a round, processor time of this process, s, and the result."""
    ends: list[float] = []
    process_s = process_time()
    result = run(parts, watch=lambda row: ends.append(perf_counter()))
    laps = [later - sooner for sooner, later in pairwise(ends)]
    return median(laps), process_time() - process_s, result


def compare(case: Case, repeats: int, rounds: int | None) -> bool:
    """Measure one workload; print it; say whether it keeps its limits."""
    limit = LIMITS[case.name.partition(",")[0]]
    ratios, driver_ms, process_ms = list[float](), list[float](), list[float]()
    sides = {"threads": EXECUTIONS["2 workers"], "ray": on_ray(2), "null": EXECUTIONS["no training"]}
    for repeat in range(repeats):
        watch, taken = Stopwatch(), {}
        parts = {side: case.parts(rounds, **overrides) for side, overrides in sides.items()}
        with watch.started():
            for side in sorted(sides, reverse=repeat % 2 == 1):
                taken[side] = seconds_a_round(parts[side])
        (ray_s, process_s, result), (threads_s, _, expected) = taken["ray"], taken["threads"]
        assert told(result) == told(expected)
        num_jobs = sum(sum(ways.values()) for ways in parts["ray"].executor.jobs_done.values())
        ratios.append(ray_s / threads_s)
        driver_ms.append(1e3 * (watch.loop_s + watch.pool_s) / num_jobs)
        process_ms.append(1e3 * (process_s - taken["null"][1]) / num_jobs)
        print(f"  threads {1e3 * threads_s:7.1f} ms, ray {1e3 * ray_s:7.1f} ms a round", flush=True)
    ratio, mine_ms = median(ratios), median(driver_ms)
    print(
        f"{case.name}: ray {ratio:.2f} times threads (limit {limit}); driver {mine_ms:.3f} ms a job (limit "
        f"{DRIVER_MS}), with the merge and with Ray's own threads {median(process_ms):.3f} ms"
    )
    return ratio <= limit and mine_ms <= DRIVER_MS


def memory(case: Case, few: int, many: int) -> bool:
    """Measure the memory of this process and of the object store after few and after many rounds."""
    found: dict[int, tuple[float, float]] = {}

    def watch(row: RoundRow) -> None:
        if row.round in (few, many):
            gc.collect()
            found[row.round] = _resident_mib(), _store_mib()

    run(case.parts(many, **on_ray(2)), watch=watch)
    (before, stored), (after, still) = found[few], found[many]
    print(
        f"{case.name}: this process {before:.0f} MiB after {few} rounds, {after:.0f} MiB after {many}; "
        f"object store {stored:.1f} and {still:.1f} MiB"
    )
    return after - before <= MEMORY_MIB and still - stored <= MEMORY_MIB


def _resident_mib() -> float:
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    sizes = {line.split()[0]: int(line.split()[1]) for line in lines[1:]}
    # What is mapped of the object store counts there.
    return (sizes["Private_Clean:"] + sizes["Private_Dirty:"]) / 1024


def _store_mib() -> float:
    cluster: Any = ray
    total = cluster.cluster_resources().get("object_store_memory", 0.0)
    return float(total - cluster.available_resources().get("object_store_memory", 0.0)) / 2**20


def start() -> None:
    """Print how long it takes to join a cluster that is up, and to have an actor there."""
    parts = CASES["W1"].parts(1, **on_ray(2))
    began = perf_counter()
    parts.executor.open(parts.resources())
    ready_s = perf_counter() - began
    parts.executor.close()
    print(f"on a cluster that is up: a first actor after {ready_s:.1f} s")


def start_local() -> None:
    """Print how long a cluster of one's own takes."""
    began = perf_counter()
    connection = Connection("local")
    up_s = perf_counter() - began
    began = perf_counter()
    connection.close()
    print(f"a cluster for one run: up after {up_s:.1f} s, down after {perf_counter() - began:.1f} s")


class Killer(threading.Thread):
    """Kills an actor of a run every two seconds, one after the other."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(daemon=True)
        self._pool_of = parts.executor
        self._over = threading.Event()
        self.killed = 0

    def run(self) -> None:
        """Kill until it is stopped."""
        while not self._over.wait(KILLED_EVERY_S):
            pool = getattr(self._pool_of, "_pool", None)
            if pool is not None and (actors := list(pool._actors)):
                ray.kill(actors[self.killed % len(actors)].handle)
                self.killed += 1

    def stop(self) -> None:
        """Kill no more."""
        self._over.set()
        self.join()


def told(result: RunResult) -> tuple[Any, ...]:
    """Return what has to be equal."""
    rows = [(row.traffic.sent_up, row.traffic.sent_down) for row in result.rounds]
    return result.trace_hash, result.model_hash, result.simulated_s, rows


def workloads(only: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Yield names, and what makes the parts of a run with some overrides."""
    for name, case in CASES.items():
        if not only or name in only:
            yield name, lambda case=case, **overrides: case.parts(2, **overrides)
    for example in names():
        if (only and example not in only) or "/" in example:
            continue
        scenario = load_scenario(example)
        if scenario.engine.executor == "null":
            continue
        rounds = min(4, scenario.run.rounds or 4)

        def make(example: str = example, rounds: int = rounds, **overrides: Any) -> Parts:
            return build(load_scenario(example, {"run.rounds": rounds, **overrides}))

        yield example, make


def equality(only: Sequence[str], actors: Sequence[int]) -> bool:
    """Compare all; print each; say whether all are equal."""
    kept = True
    for name, make in workloads(only):
        expected = told(run(make(**EXECUTIONS["2 workers"])))
        said = []
        for number in actors:
            same = told(run(make(**on_ray(number)))) == expected
            kept &= same
            said.append(f"{number} actors {'equal' if same else 'DIFFERENT'}")
        print(f"{name}: {', '.join(said)}", flush=True)
    return kept


def killing(rounds: int, actors: Sequence[int]) -> bool:
    """Run W2 for long while actors are killed; say whether the results are those of threads."""
    case, kept = CASES["W2"], True
    expected = told(run(case.parts(rounds, **EXECUTIONS["2 workers"])))
    for number in actors:
        parts = case.parts(rounds, **on_ray(number))
        killer = Killer(parts)
        killer.start()
        try:
            same = told(run(parts)) == expected
        except FedsimError as error:
            same = False
            print(error)
        killer.stop()
        kept &= same and killer.killed > 0
        facts = parts.executor.facts["ray"]
        print(
            f"W2 for {rounds} rounds, {number} actors, of which {killer.killed} were killed: "
            f"{'equal' if same else 'DIFFERENT'}; {facts['actors_lost']} replaced, "
            f"{facts['jobs_repeated']} jobs repeated",
            flush=True,
        )
    return kept


def main() -> int:
    """Measure and print; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="fail when a limit is missed")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rounds", type=int, help="rounds of a run")
    parser.add_argument("--equality", action="store_true", help="compare results instead")
    parser.add_argument(
        "--killing", action="store_true", help="compare results while actors are killed instead"
    )
    parser.add_argument("--only", nargs="+", default=[], help="names of workloads to compare")
    parser.add_argument("--actors", nargs="+", type=int, default=[1, 2, 4])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.equality or arguments.killing:
        with cluster(num_nodes=2):
            kept = True
            if arguments.equality:
                kept = equality(arguments.only, arguments.actors)
            if arguments.killing:
                kept &= killing(arguments.rounds or 6, arguments.actors)
        return int(arguments.check and not kept)
    start_local()
    with cluster(num_nodes=1):
        start()
        kept = memory(CASES["W1"], 20, 200)
        for name in LIMITS:
            kept &= compare(CASES[name], arguments.repeats, arguments.rounds)
    return int(arguments.check and not kept)


if __name__ == "__main__":
    sys.exit(main())
