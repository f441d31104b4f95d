"""Doing the runs of a study, and leaving its folder.

======================= ================================================================
one folder for each run :mod:`fedsim.report.record_run`
``tuning``              the folders of the trials, if anything is tuned
``study.toml``          the study, with the tables of its base; runs again as it is
``study.parquet``       one row for each evaluation of each run
``answers.csv`` ...     what the runs answer (:mod:`fedsim.studies.answer_files`)
======================= ================================================================

A run that is there already is not done again, so a study that was killed goes on where it was.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from fedsim.durable import telling
from fedsim.errors import UserError
from fedsim.report.atomic_folder import MEND, check_files, check_folders, is_free, write_file
from fedsim.report.places import RUNS, first_fit, holds_run, holds_scenario
from fedsim.scenario.build import require_numerics
from fedsim.scenario.choices import EXECUTOR
from fedsim.studies.answer_files import FILES, Answers, write_answers
from fedsim.studies.plan import TUNING, StudyPlan, StudyRun
from fedsim.studies.ray_runs import RayRuns
from fedsim.studies.study_lock import locked
from fedsim.studies.tuning import read_tuning
from fedsim.studies.unfinished import NOT_FINITE
from fedsim.studies.worker_pool import Process, Worker, WorkerPool, default_jobs

STUDY = "study.toml"
"""The file by which a folder is known as that of a study."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a study is.

    Attributes:
        total: Runs of the study.
        kept: Runs that were there before.
        ended: Runs that have ended since, well or not.
        rounds: The round that each run has reached that is under way, by its label.
        run: The run that was just heard of; None at the beginning.
        said: What became of it; empty while it is under way.
        share: How much was done of what was to be done, in ``[0, 1]``, as far as rounds tell.
        begun: At the beginning of the trials, and of what follows them: the runs, also those that were there.
        at_once: Then: how many runs are done at once; 0 where all were there.
    """

    total: int
    kept: int
    ended: int = 0
    rounds: Mapping[str, int] = field(default_factory=dict)
    run: StudyRun | None = None
    said: str = ""
    share: float = 0.0
    begun: Sequence[StudyRun] = ()
    at_once: int = 0


On = Literal["ray"]
"""Where runs may be done, but on this machine."""

Watch = Callable[[Progress], None]
"""Told of the beginning of a study, of rounds now and then, and of each run that ends."""


def study_place(plan: StudyPlan, *, force: bool = False) -> Path:
    """Return where a study goes whose user names no folder."""
    first = RUNS / plan.name

    def fits(parent: Path) -> bool:
        may_be_made = parent.is_dir() or is_free(parent)
        is_mine = (parent / STUDY).is_file() or not any((parent / file).exists() for file in FILES)
        return (
            may_be_made
            and is_mine
            and all(
                is_free(parent / run.label) or holds_scenario(parent / run.label, run.scenario_toml)
                for run in (*plan.runs, *(trial for trials in plan.trials.values() for trial in trials))
            )
        )

    return first if force else first_fit(first, fits)


def perform(
    plan: StudyPlan,
    parent: Path,
    *,
    jobs: int | None = None,
    on: On | None = None,
    force: bool = False,
    verify: bool = False,
    watch: Watch = lambda progress: None,
    known_as: Path | None = None,
) -> Answers:
    """Do the runs that are not there yet, then write the tables."""
    trials = [trial for trials in plan.trials.values() for trial in trials]
    for run in (*trials, *plan.runs):
        folder = parent / run.label
        check_folders([folder], force=force or holds_scenario(folder, run.scenario_toml))
    check_files([parent / file for file in (STUDY, *FILES)], force=force or (parent / STUDY).is_file())
    with telling(parent, MEND):
        (parent / TUNING if trials else parent).mkdir(parents=True, exist_ok=True)
    with locked(parent / STUDY, wait=True):
        write_file(parent / STUDY, plan.toml.encode())
    total = len(trials) + len(plan.settings) * len(plan.seeds)
    with _workers(on, (*trials, *plan.runs)) as (start, most):
        work = _Work(parent, jobs or most, start, force, verify, watch, total, known_as or parent)
        work.do(trials)
        work.do(plan.chosen(read_tuning(plan, parent).chosen).runs)
    found = write_answers(plan, parent)
    return replace(found, failed={**found.failed, **work.failed})


def do_beside(
    runs: Sequence[StudyRun],
    parent: Path,
    jobs: int | None,
    *,
    on: On | None,
    force: bool,
    verify: bool,
    watch: Watch,
) -> dict[str, str]:
    """Do those of some runs that are not there yet, beside each other; see :func:`perform`."""
    with _workers(on, runs) as (start, most):
        with telling(parent, MEND):
            parent.mkdir(parents=True, exist_ok=True)
        work = _Work(parent, jobs or most, start, force, verify, watch, len(runs), parent)
        work.do(runs)
    return work.failed


@contextmanager
def _workers(on: On | None, runs: Sequence[StudyRun]) -> Iterator[tuple[Callable[[], Worker], int]]:
    """Yield what starts a worker, and how many workers there should be at most."""
    if on is None:
        require_numerics(run.engine for run in runs)  # workers are started as this process was
        yield Process, default_jobs(len(runs))
        return
    for run in runs:
        if EXECUTOR.find(run.engine.executor).is_elsewhere:
            raise UserError(
                f"{run.label} spreads its jobs over the cluster (engine.executor = {run.engine.executor!r}), "
                "to which whole runs would go: write engine.executor = 'threads', whose results are the same"
            )
    with RayRuns() as cluster:
        yield cluster.start, min(cluster.num_cpus, len(runs))


@dataclass(slots=True)
class _Work:
    """Does runs, and counts them."""

    parent: Path
    jobs: int
    start: Callable[[], Worker]
    force: bool
    verify: bool
    watch: Watch
    total: int
    known_as: Path
    kept: int = 0
    ended: int = 0
    failed: dict[str, str] = field(default_factory=dict)

    def do(self, runs: Sequence[StudyRun]) -> None:
        """Do those runs that are not there yet."""
        pending = [run for run in runs if not holds_run(self.parent / run.label, run.scenario_toml)]
        self.kept += len(runs) - len(pending)
        at_once = min(self.jobs, len(pending))
        if runs:
            self.watch(Progress(self.total, self.kept, self.ended, begun=runs, at_once=at_once))
        if not pending:
            return
        tasks = [
            {
                "force": self.force,
                "verify": self.verify,
                "path": sys.path,
                "scenario": run.scenario_toml,
                "folder": str((self.parent / run.label).resolve()),
                "source": run.label,
                "trackers": run.trackers,
                "known_as": str((self.known_as / run.label).resolve()),
            }
            for run in pending
        ]
        rounds: dict[str, int] = {}
        with WorkerPool(tasks, at_once, self.start) as pool:
            for number, message in pool.messages():
                run, said = pending[number], ""
                if "round" in message:
                    rounds[run.label] = message["round"]
                else:
                    rounds.pop(run.label, None)
                    self.ended += 1
                    if "failed" in message:
                        said = self.failed[run.label] = message["failed"]
                    else:
                        said = "ended" if message["finite"] else NOT_FINITE
                under_way = sum(
                    rounds[one.label] / one.rounds for one in pending if one.rounds and one.label in rounds
                )
                share = min(1.0, (self.ended + under_way) / (self.total - self.kept))
                self.watch(Progress(self.total, self.kept, self.ended, dict(rounds), run, said, share))
