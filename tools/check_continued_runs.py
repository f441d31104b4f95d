"""Extend and fork runs of random scenarios, and compare the results with those of whole runs.

Checkpoints are written after each round. A seed fails if

- a run that is extended has other results than a run that had so many rounds from the beginning,
- a fork in which nothing changes has other results than the run that it comes from,
- a fork has other results if there is no checkpoint from which it could begin.

A refused scenario is no failure, nor is a run that cannot be extended::

    python tools/check_continued_runs.py [--seeds 0-199] [--workers 2]
"""

from __future__ import annotations

import contextlib
import multiprocessing
import shutil
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from check_seeds import check, limited, options

from fedsim.errors import OutputError, RunError, ScenarioError, UserError
from fedsim.fuzz.examine import Verdict, differences
from fedsim.fuzz.random_scenarios import random_scenario
from fedsim.report.continued_runs import extended_plan
from fedsim.report.forked_runs import forked
from fedsim.report.keep_checkpoints import CheckpointKeeper
from fedsim.report.read_parquet import read_columns
from fedsim.report.record_run import record
from fedsim.report.summary import read_summary
from fedsim.rng import Key
from fedsim.scenario import Plan, load_scenario

CHANGES: Sequence[tuple[str, Any]] = (
    ("participation.selector", "uniform"),
    ("participation.selector", "by_size"),
    ("participation.workload", "fixed"),
    ("participation.on_leave", "restart"),
    ("aggregation", "median"),
    ("participation.client_timeout", "20 s"),
    ("participation.pacing", "synchronous"),
    ("participation.pacing", {"name": "immediate", "params": {"concurrency": 2}}),
    ("run.until", {"bytes": "2 MB"}),
    ("faults", [{"kind": "loss", "probability": 0.2}]),
    ("faults", [{"kind": "crash", "every": "1 min", "probability": 0.2}]),
    ("faults", []),
    ("codec", {"up": {"models": {"chain": ["int8"]}}}),
    ("network", {"model": "naive"}),
)
"""Settings that forks change beside the learning rate, one each."""

MORE_ROUNDS = 3
"""Rounds beside those of the random scenario."""


def verdict(seed: int, place: Path) -> Verdict:
    """Run the scenario of a seed in an empty folder, extend and fork the run, and compare the results."""
    scenario = random_scenario(seed)
    for name, text in {**scenario.files, "scenario.toml": scenario.toml}.items():
        (place / name).write_text(text, encoding="utf-8")
    short = scenario.tables["run"]["rounds"]
    with contextlib.chdir(place), mock.patch.object(CheckpointKeeper, "_is_due", return_value=True):
        try:
            _record("whole", short + MORE_ROUNDS)
        except (UserError, RunError) as error:
            return Verdict("refused" if isinstance(error, UserError) else "ended", (), str(error))
        why = _extend(short)
        faults = [] if why else [*_compared("extended", "whole", "short")]
        faults += _forked(seed, scenario.tables["training"].get("lr", 0.05))
    return Verdict("failed" if faults else "finished", tuple(faults), why)


def _record(name: str, rounds: int) -> None:
    changes = {"run.rounds": rounds, "run.checkpoint.keep": 1000}
    record(Plan.of(load_scenario("scenario.toml", changes), "scenario.toml"), Path(name))


def _extend(rounds: int) -> str:
    """Do a shorter run, and extend it; return why it cannot be extended."""
    _record("short", rounds)
    try:
        plan = extended_plan(Path("short"), rounds + MORE_ROUNDS)
    except OutputError as error:
        return str(error)
    record(plan, Path("short"), goes_on=True, tell=_ignore)
    return ""


def _forked(seed: int, lr: float) -> Iterator[str]:
    """Fork the whole run after one of its rounds; yield what is wrong."""
    whole, draws = Path("whole"), Key.root(seed).child("fork").numpy()
    table = read_columns(whole / "rounds.parquet", ["round", "ended_at_s"])
    ends_s = table["ended_at_s"][(table["round"] >= 1) & (table["round"] < read_summary(whole)["rounds"])]
    if not len(ends_s):
        return
    at_s = float(draws.choice(ends_s))
    shutil.copytree(whole, "bare", ignore=shutil.ignore_patterns("checkpoints"))
    changes = {"training.lr": lr / 2, **dict([CHANGES[int(draws.integers(len(CHANGES)))]])}
    forks = {"same": (whole, {}), "kept": (whole, changes), "anew": (Path("bare"), changes)}
    for name, (folder, changed) in forks.items():
        try:
            plan, place = forked(folder, at_s, changed, Path(name))
        except ScenarioError:  # the other settings do not suit all scenarios
            plan, place = forked(folder, at_s, changed and {"training.lr": lr / 2}, Path(name))
        record(plan, place, goes_on=True, tell=_ignore)
    yield from _compared("forked", "whole", "same")
    yield from _compared("forked without a checkpoint", "kept", "anew")


def _compared(what: str, first: str, second: str) -> Iterator[str]:
    return (f"{what}: {one}" for one in differences(Path(first), Path(second)))


def _ignore(text: str) -> None:
    """Tell nobody from where a run goes on."""


def main() -> int:
    """Check all seeds; return the exit status."""
    arguments = options(__doc__).parse_args()
    spawn = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
    with ProcessPoolExecutor(arguments.workers, spawn) as pool:
        return check(partial(limited, verdict), arguments.seeds, pool)


if __name__ == "__main__":
    sys.exit(main())
