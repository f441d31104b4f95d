"""A process that does runs of a study, one after the other: ``python -m fedsim.studies.worker``.

Tasks come as lines of JSON on its standard input, and what becomes of them goes out as lines of JSON on its
standard output. When its input ends, as it does when the study is killed, the process ends too, and leaves
nothing half-written.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import tomllib
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from time import monotonic
from types import FrameType
from typing import Any, TextIO

from fedsim.errors import FedsimError
from fedsim.report.places import holds_run, holds_scenario
from fedsim.report.record_run import record
from fedsim.report.summary import read_summary
from fedsim.runtime.records.result import RoundRow
from fedsim.scenario import Plan, Scenario, load_scenario
from fedsim.studies.plan import with_one_worker
from fedsim.studies.study_lock import locked

TOLD_EVERY_S = 0.5
"""At most one line about rounds in so much real time."""

Task = dict[str, Any]


def main() -> None:
    """Do tasks until there are no more."""
    signal.signal(signal.SIGTERM, _end)
    # What plugins print must not get between the lines.
    outlet = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    tasks = SimpleQueue[Task]()
    with suppress(KeyboardInterrupt):
        threading.Thread(target=_read, args=(tasks,), daemon=True).start()
        while True:
            _tell(outlet, do(tasks.get(), outlet))


def _tell(outlet: TextIO, message: Task) -> None:
    try:
        outlet.write(json.dumps(message) + "\n")
    except BrokenPipeError:
        signal.pause()  # the study was killed: the end of the input says so too, once and for all


def _end(number: int, frame: FrameType | None) -> None:
    signal.signal(
        number, signal.SIG_IGN
    )  # a second one would cut off what the first makes the process tidy up
    raise KeyboardInterrupt


def _read(tasks: SimpleQueue[Task]) -> None:
    for line in sys.stdin:
        tasks.put(json.loads(line))
    os.kill(os.getpid(), signal.SIGTERM)


def do(task: Task, outlet: TextIO) -> Task:
    """Do a task, and return what became of it.

    Args:
        task: ``folder``, ``scenario`` (resolved, TOML), ``source`` for errors to name, ``path`` of Python,
            ``force``, ``verify``, ``trackers``, the folder by which these know the run (``known_as``), and
            whether to ``wait`` where another study does this run.
        outlet: Where rounds are told.
    """
    sys.path[:] = task["path"]
    folder, written = Path(task["folder"]), task["scenario"]
    try:
        with locked(folder, wait=task["wait"]) as is_mine:
            if not is_mine:
                return {"busy": True}
            if not holds_run(folder, written):
                record_task(task, folder, teller(partial(_tell, outlet)))
            return {"finite": read_summary(folder)["finite"]}
    except FedsimError as error:
        return {"failed": str(error)}
    except Exception:
        return {"failed": traceback.format_exc()}


def record_task(
    task: Task,
    folder: Path,
    watch: Callable[[RoundRow], None],
    adapted: Callable[[Scenario], Scenario] = lambda scenario: scenario,
) -> None:
    """Do the run of a task.

    Args:
        task: As for :func:`do`.
        folder: Where its results belong on this machine.
        watch: Told of each round as it ends.
        adapted: Gives the scenario what is another on this machine.
    """
    written = task["scenario"]
    loaded = load_scenario(tomllib.loads(written), {"run.trackers": task["trackers"]})
    plan = Plan.of(with_one_worker(adapted(loaded)), task["source"], verify=task["verify"])
    force = task["force"] or holds_scenario(folder, written)
    plan = replace(plan, scenario_toml=written)
    record(plan, folder, force=force, watch=watch, known_as=Path(task["known_as"]))


def teller(tell: Callable[[Task], None]) -> Callable[[RoundRow], None]:
    """Return what tells of rounds now and then, by messages."""
    told_at_s = monotonic()

    def watch(row: RoundRow) -> None:
        nonlocal told_at_s
        if monotonic() - told_at_s >= TOLD_EVERY_S:
            told_at_s = monotonic()
            tell({"round": row.round})

    return watch


if __name__ == "__main__":
    main()
