"""Tasks of a worker of a study: one run each."""

from __future__ import annotations

import json
import signal
import sys
import tomllib
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, TextIO

from fedsim.errors import FedsimError
from fedsim.report.places import holds_run, holds_scenario
from fedsim.report.record_run import record
from fedsim.report.summary import read_summary
from fedsim.runtime.records.result import RoundRow
from fedsim.scenario import Plan, Scenario, load_scenario
from fedsim.studies.plan import with_one_worker
from fedsim.studies.study_lock import locked

MESSAGE_INTERVAL_S = 0.5
"""Minimum real time between two messages about rounds, s."""

Task = dict[str, Any]


def tell(outlet: TextIO, message: Task) -> None:
    """Write a message to the study."""
    try:
        outlet.write(json.dumps(message) + "\n")
    except BrokenPipeError:
        # The study was killed. The end of the input says so too, by the same signal, which counts once. To
        # wait for that one could last for ever: it may come just before the wait.
        signal.raise_signal(signal.SIGTERM)


def do(task: Task, outlet: TextIO) -> Task:
    """Do a task, and return the last message about it."""
    sys.path[:] = task["path"]
    folder, watch = Path(task["folder"]), teller(partial(tell, outlet))
    return done(task, lambda: record_task(task, folder, watch), wait=task["wait"])


def done(task: Task, leave: Callable[[], None], *, wait: bool) -> Task:
    """Return the last message about a task; ``leave`` does its run unless the run is there."""
    folder = Path(task["folder"])
    try:
        with locked(folder, wait=wait) as is_mine:
            if not is_mine:
                return {"busy": True}
            if not holds_run(folder, task["scenario"]):
                leave()
            return {"finite": read_summary(folder)["finite"]}
    except Exception as error:
        return {"failed": failure_text(error)}


def failure_text(error: BaseException) -> str:
    """Return why a run failed: of a bug, or a bug of a plugin, with its traceback."""
    if isinstance(error, FedsimError):
        return str(error)
    return "".join(traceback.format_exception(error))


def record_task(
    task: Task,
    folder: Path,
    watch: Callable[[RoundRow], None],
    adapted: Callable[[Scenario], Scenario] = lambda scenario: scenario,
) -> None:
    """Do the run of a task."""
    written = task["scenario"]
    aside = {"run.trackers": task["trackers"], "run.checkpoint": task["checkpoint"]}
    loaded = load_scenario(tomllib.loads(written), aside)
    plan = Plan.of(with_one_worker(adapted(loaded)), task["source"], verify=task["verify"])
    force = task["force"] or holds_scenario(folder, written)
    plan = replace(plan, scenario_toml=written)
    record(plan, folder, force=force, watch=watch, known_as=Path(task["known_as"]), keeps_checkpoints=False)


def teller(tell: Callable[[Task], None]) -> Callable[[RoundRow], None]:
    """Return a round listener that sends messages at intervals."""
    sent_at_s = monotonic()

    def watch(row: RoundRow) -> None:
        nonlocal sent_at_s
        if monotonic() - sent_at_s >= MESSAGE_INTERVAL_S:
            sent_at_s = monotonic()
            tell({"round": row.round})

    return watch
