"""What checkpoints cost, and what resuming takes, as shares of the real time of runs.

W1 and W2 are those of ``bench_train.py``, and the quickstart is that of the examples; each writes its folder.
A run with checkpoints, as often as by default, is compared with one without. Resuming is measured from the
last round of a run: until the run goes on by itself, without the start of the process.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from bench_harness import Bench, main
from bench_train import CASES

from fedsim.report.record_run import record
from fedsim.runtime.records.result import RoundRow
from fedsim.scenario import Plan, load_scenario
from fedsim.scenario.schema import CheckpointConfig

MAX_COST = 1.03
MAX_RESUME = {"W1": 0.6, "W2": 0.1}
ROUNDS = {"W1": 2000, "W2": 30, "quickstart": 60}
RESUMED = {"W1": 100, "W2": 20}


def plan_of(name: str, rounds: int, checkpoint: CheckpointConfig) -> Plan:
    """Return the plan of a workload."""
    if name == "quickstart":
        return replace(Plan.of(load_scenario(name, {"run.rounds": rounds}), name), checkpoint=checkpoint)
    return Plan(name, "fedavg", name, CASES[name].parts(rounds), checkpoint=checkpoint)


def run_s(name: str, rounds: int, checkpoint: CheckpointConfig) -> float:
    """Return the real time of a run with its folder, s."""
    plan = plan_of(name, rounds, checkpoint)
    with tempfile.TemporaryDirectory() as folder:
        began_s = time.perf_counter()
        record(plan, Path(folder) / "run")
        return time.perf_counter() - began_s


def until_s(name: str, rounds: int, folder: Path) -> float:
    """Return how long a run takes until a round has ended, s; it is interrupted in the next one."""
    once = CheckpointConfig(every_rounds=rounds, max_share=1.0)
    plan, ended_s, began_s = plan_of(name, rounds + 2, once), list[float](), time.perf_counter()

    def watch(row: RoundRow) -> None:
        if row.round == rounds:
            ended_s.append(time.perf_counter())
        if row.round > rounds:
            raise KeyboardInterrupt

    with suppress(KeyboardInterrupt):
        record(plan, folder, watch=watch, tell=lambda text: None)
    return ended_s[0] - began_s


def resume_share(name: str) -> float:
    """Return the time that a resumed run takes to its checkpoint as a share of what the run took."""
    with tempfile.TemporaryDirectory() as place:
        whole_s, resumed_s = (until_s(name, RESUMED[name], Path(place) / "run") for _ in range(2))
        return resumed_s / whole_s


def measure(bench: Bench) -> None:
    """Show the figures."""
    for name, rounds in ROUNDS.items():
        ways = {"with": CheckpointConfig(), "without": CheckpointConfig(keep=0)}
        times = bench.in_turns({way: partial(run_s, name, rounds, it) for way, it in ways.items()})
        bench.ratio(f"{name}: with checkpoints / without", times["with"], times["without"], at_most=MAX_COST)
    for name, limit in MAX_RESUME.items():
        shares = bench.in_turns({name: partial(resume_share, name)})[name]
        bench.show(f"{name}: resume after round {RESUMED[name]}", shares, "x", at_most=limit)


if __name__ == "__main__":
    main(__doc__, measure, repeats=5)
