"""Doing the runs of a study or a comparison, and leaving its folder.

======================= ================================================================
one folder for each run :mod:`fedsim.report.record_run`
``tuning``              the folders of the trials, if anything is tuned
``study.toml``          the study, with the tables of its base; runs again as it is
``study.parquet``       one row for each evaluation of each run
``answers.csv`` ...     what the runs answer (:mod:`fedsim.studies.answer_files`)
======================= ================================================================

A comparison has ``comparison.json`` and ``comparison.csv`` in the place of ``study.toml``. A run that is
there already is not done again, so a study that was killed goes on where it was.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from fedsim.durable import telling
from fedsim.errors import RunError, UserError
from fedsim.report.atomic_folder import MEND, write_file
from fedsim.report.number_format import several
from fedsim.report.places import STUDY, holds_run, holds_scenario
from fedsim.report.record_run import Recorded, record
from fedsim.report.tracking import Tell, warn
from fedsim.runtime.records.recorder import Observe, unobserved
from fedsim.runtime.records.result import RoundRow
from fedsim.scenario import Plan, Scenario
from fedsim.scenario.build import require_numerics
from fedsim.scenario.choices import EXECUTOR
from fedsim.studies.answer_files import NOT_FINITE, Answers, write_answers
from fedsim.studies.plan import StudyPlan, StudyRun
from fedsim.studies.ray_runs import ray_workers
from fedsim.studies.study_lock import locked
from fedsim.studies.study_place import check_place
from fedsim.studies.tuning import read_tuning
from fedsim.studies.worker import failure_text
from fedsim.studies.worker_pool import Process, Worker, WorkerPool, default_jobs


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a study is.

    Attributes:
        total: Runs of the study.
        kept: Runs that were there before.
        ended: Runs that have ended since, well or not.
        rounds: The last round that has ended of each run under way, by its label.
        run: The run that this is about; None at the beginning.
        said: What became of it; empty while it is under way.
        share: The share of the work that is done, in ``[0, 1]``, as far as rounds tell.
        begun: At the beginning of the trials, and of what follows them: the runs, also those that were there.
        at_once: Then: how many runs are done at once; 0 where all were there.
        row: The round that has ended, of a run in this process.
        recorded: What a run in this process has left.
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
    row: RoundRow | None = None
    recorded: Recorded | None = None


On = Literal["ray"]
"""Where else than on this machine runs are done."""

Watch = Callable[[Progress], None]
"""Called at the beginning of a study, now and then as rounds end, and when a run ends."""


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
    observe: Observe = unobserved,
    tell: Tell = warn,
    again: bool = False,
) -> Answers:
    """Do the runs that are not there yet, then write the tables.

    With one job, runs are done in this process, where the last three arguments apply: ``observe`` is given
    what records a run, ``tell`` is called if a tracker fails, and ``again`` repeats runs that are there.
    ``known_as`` is the folder by which trackers know the study if the results go to a temporary one. Failed
    runs of a study are in ``failed`` of the answers. A comparison raises, in this process at the first one.
    """
    check_place(plan, parent, force=force)
    if on is None:
        require_numerics(run.scenario.engine for run in plan.all_runs)
    if plan.kind == "study":
        _make(parent)
        with locked(parent / STUDY, wait=True):
            write_file(parent / STUDY, plan.toml.encode())
    with _workers(on, plan.all_runs) as (start, most):
        work = _Work(plan, parent, force, verify, watch, known_as or parent, observe, tell, again, start)
        work.jobs = jobs or most
        work.is_here = jobs == 1 and on is None
        work.do(plan.all_trials)
        work.do(plan.chosen(read_tuning(plan, parent).chosen).runs)
    if plan.kind == "comparison" and work.failed:
        error = _failure(work.failed, plan.kind)
        error.add_note(f"runs that have ended are kept in {parent}")
        raise error
    answers = write_answers(plan, parent)
    return replace(answers, failed={**answers.failed, **work.failed, **work.unsuccessful})


def _make(folder: Path) -> None:
    with telling(folder, MEND):
        folder.mkdir(parents=True, exist_ok=True)


def check_failed(failed: Mapping[str, str], kind: str) -> None:
    """Raise a RunError that lists the runs of a study or comparison that have failed, if any."""
    if failed:
        raise _failure(failed, kind)


def _failure(failed: Mapping[str, str], kind: str) -> RunError:
    each = "\n  ".join(f"{label}: {why}" for label, why in failed.items())
    return RunError(f"{several(len(failed), 'run')} of the {kind}\n  {each}")


@contextmanager
def _workers(on: On | None, runs: Sequence[StudyRun]) -> Iterator[tuple[Callable[[], Worker], int]]:
    """Yield a function that starts a worker, and the maximum number of workers."""
    if on is None:
        yield Process, default_jobs(len(runs))
        return
    for run in runs:
        executor = run.scenario.engine.executor
        if EXECUTOR.find(executor).is_elsewhere:
            raise UserError(
                f"{run.label} spreads its jobs over the cluster (engine.executor = {executor!r}), "
                "to which whole runs would go: write engine.executor = 'threads', whose results are the same"
            )
    with ray_workers() as (start, num_cpus):
        yield start, min(num_cpus, len(runs))


@dataclass(slots=True)
class _Work:
    """Does runs, here or by workers, and counts them."""

    plan: StudyPlan
    parent: Path
    force: bool
    verify: bool
    watch: Watch
    known_as: Path
    observe: Observe
    tell: Tell
    again: bool
    start: Callable[[], Worker]
    jobs: int = 1
    is_here: bool = False
    kept: int = 0
    ended: int = 0
    rounds: dict[str, int] = field(default_factory=dict)
    lengths: Mapping[str, int | None] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    unsuccessful: dict[str, str] = field(default_factory=dict)

    def do(self, runs: Sequence[StudyRun]) -> None:
        """Do those runs that are not there yet."""
        pending = [run for run in runs if self.again or not self._is_there(run)]
        self.kept += len(runs) - len(pending)
        self.lengths = {run.label: run.rounds for run in runs}
        at_once = min(self.jobs, len(pending))
        if runs:
            self.watch(Progress(self.plan.num_runs, self.kept, self.ended, begun=runs, at_once=at_once))
        if pending and self.is_here:
            for run in pending:
                self._do_here(run)
        elif pending:
            self._do_by_workers(pending, at_once)

    def _do_here(self, run: StudyRun) -> None:
        recorded = None
        try:
            plan = Plan.of(run.scenario, self.plan.source, verify=self.verify)
            folder = self.parent / run.label
            _make(folder.parent)
            with locked(folder, wait=True):
                if self.again or not self._is_there(run):
                    recorded = self._record(run, plan, folder)
        except Exception as error:
            if isinstance(error, RunError) and self.plan.kind == "comparison":
                error.add_note(f"it was {run.label}; runs that had ended before are kept in {self.parent}")
            self.failed[run.label] = failure_text(error)
            if self.plan.kind == "comparison":
                self._note_end(run, self.failed[run.label])
                raise
        outcome = self.failed.get(run.label, "ended")
        if recorded is not None and recorded.result.failure is not None:
            outcome = recorded.result.failure
            if self.plan.kind == "comparison":  # of a study, only what its folder tells is a failure
                self.unsuccessful[run.label] = outcome
        self._note_end(run, outcome, recorded)

    def _record(self, run: StudyRun, plan: Plan, folder: Path) -> Recorded:
        self._note_round(run, 0)
        return record(
            plan,
            folder,
            force=self.force or holds_scenario(folder, run.scenario_toml),
            watch=lambda row: self._note_round(run, row.round, row),
            observe=self.observe,
            tell=self.tell,
            known_as=self.known_as / run.label,
            keeps_checkpoints=False,
        )

    def _do_by_workers(self, runs: Sequence[StudyRun], at_once: int) -> None:
        tasks = [
            {
                "force": self.force,
                "verify": self.verify,
                "path": sys.path,
                "scenario": run.scenario_toml,
                "folder": str((self.parent / run.label).resolve()),
                "source": run.label,
                **_aside(run.scenario),
                "known_as": str((self.known_as / run.label).resolve()),
            }
            for run in runs
        ]
        for folder in {(self.parent / run.label).parent for run in runs}:
            _make(folder)
        with WorkerPool(tasks, at_once, self.start) as pool:
            for number, message in pool.messages():
                run = runs[number]
                if "round" in message:
                    self._note_round(run, message["round"])
                elif "failed" in message:
                    self.failed[run.label] = message["failed"]
                    self._note_end(run, message["failed"])
                else:
                    self._note_end(run, "ended" if message["finite"] else NOT_FINITE)

    def _is_there(self, run: StudyRun) -> bool:
        return holds_run(self.parent / run.label, run.scenario_toml)

    def _note_round(self, run: StudyRun, number: int, row: RoundRow | None = None) -> None:
        self.rounds[run.label] = number
        self.watch(replace(self._progress(run), row=row))

    def _note_end(self, run: StudyRun, outcome: str, recorded: Recorded | None = None) -> None:
        self.rounds.pop(run.label, None)
        self.ended += 1
        self.watch(replace(self._progress(run), said=outcome, recorded=recorded))

    def _progress(self, run: StudyRun) -> Progress:
        under_way = sum(
            number / length for label, number in self.rounds.items() if (length := self.lengths[label])
        )
        total = self.plan.num_runs
        share = min(1.0, (self.ended + under_way) / max(1, total - self.kept))
        return Progress(total, self.kept, self.ended, dict(self.rounds), run, share=share)


def _aside(scenario: Scenario) -> dict[str, Any]:
    """Return the settings of a run that its resolved scenario does not have."""
    run = scenario.run.model_dump(mode="json", exclude_none=True)
    return {name: run[name] for name in ("trackers", "checkpoint")}
