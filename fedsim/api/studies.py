"""Studies from Python: what is varied goes in, answers come out."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from fedsim.api.progress import study_listener
from fedsim.api.results import Result, Temporary
from fedsim.errors import UserError
from fedsim.page.live_session import study_on
from fedsim.page.write_report import write_report
from fedsim.quoting import quoted
from fedsim.ranges import Processes, ends
from fedsim.report.markup import to_html
from fedsim.report.places import RUNS, holds_scenario
from fedsim.report.tables import arrow_rows, arrow_table
from fedsim.report.tracking import warn
from fedsim.studies.answer_files import Answers, answer_rows, evaluations, read_answers
from fedsim.studies.perform import STUDY, On, Progress, Watch, perform
from fedsim.studies.plan import StudySource, load_study
from fedsim.studies.study_columns import ANSWERS, EVALUATIONS
from fedsim.studies.variant_params import plan_remarks

if TYPE_CHECKING:
    from fedsim.page.live_page import LivePage


class StudyResult:
    """What a study answers.

    Attributes:
        folder: The folder of the run folders and the tables. A study without ``out`` has a temporary folder,
            which is removed with the results.
        failed: Why runs have failed, or that a model is not finite at their end, by the names of their
            folders. Of a folder that was opened: which runs are not there.
    """

    def __init__(self, found: Answers, folder: Path, temporary: Temporary | None = None) -> None:
        self.folder = folder
        self.failed = found.failed
        self._found = found
        self._temporary = temporary  # removed when nobody holds it any more

    @cached_property
    def runs(self) -> Mapping[str, Result]:
        """The runs that have ended, by the names of their folders."""
        return {
            run.label: Result(self.folder / run.label, temporary=self._temporary)
            for run in self._found.plan.runs
            if holds_scenario(self.folder / run.label, run.scenario_toml)
        }

    @cached_property
    def answers(self) -> pa.Table:
        """One row for each variant, point of the grid and target: the columns of ``answers.csv``."""
        return arrow_rows(ANSWERS.with_paths(self._found.plan.varied), answer_rows(self._found))

    @cached_property
    def evaluations(self) -> pa.Table:
        """One row for each evaluation of each run: the columns of ``study.parquet``."""
        plan = self._found.plan
        return arrow_table(EVALUATIONS.with_paths(plan.varied), evaluations(plan, self._found.curves))

    def write_report(
        self, file: str | Path, *, figures: str | Path | None = None, force: bool = False
    ) -> Path:
        """Write the report of the study, as :meth:`Result.write_report` does that of a run."""
        return write_report(self.folder, file, figures=figures, force=force)

    def __repr__(self) -> str:
        blocks = [
            "\n".join([grid.title, *grid.lines(), *(f"  {one}" for one in grid.notes)])
            for grid in self._found.tables
        ]
        return "\n\n".join([*blocks, *self._failures()])

    def _repr_html_(self) -> str:
        failures = (f"<p>{escape(failure)}</p>" for failure in self._failures())
        return "".join([*map(to_html, self._found.tables), *failures])

    def _failures(self) -> list[str]:
        return [f"{label}: {said}" for label, said in self.failed.items()]


def study(
    study: StudySource,
    *,
    out: str | Path | None = None,
    jobs: int | None = None,
    on: On | None = None,
    force: bool = False,
    verify: bool = False,
    progress: Watch | bool | None = None,
    live: LivePage | None = None,
) -> StudyResult:
    """Do the runs of a study in processes of their own, and return what they answer.

    A run that is in ``out`` already is not done again, so a study that was stopped goes on where it was. A
    run that fails stops no other: ``failed`` of the result names it. Private plugins must be in a module that
    another process can import, not in a notebook.

    Args:
        study: A file, an example by name, or a dictionary of a study's keys, whose ``base`` may be anything
            that :func:`fedsim.load` takes.
        out: Folder of the results; if left out a temporary one, which goes with the result.
        jobs: Runs at once; if left out, as many as the machine has cores and memory for, or the cluster CPUs.
        on: ``"ray"`` spreads the runs over a Ray cluster, that of ``RAY_ADDRESS`` or of this machine; needs
            the extra ``ray``.
        force: Whether ``out`` may replace runs of other scenarios.
        verify: Whether every invariant is checked while running; slower.
        progress: Called with how far the study is (:class:`fedsim.studies.perform.Progress`); or True or
            False, as for :func:`fedsim.run`.
        live: A page that shows the runs while they go on.

    Raises:
        ScenarioError: All that is wrong with the study.
        OutputError: The place of the results is occupied or cannot be written.
        UserError: ``jobs`` is no number of processes, or there is no cluster.
    """
    least, most = ends(Processes)
    if jobs is not None and jobs not in range(least, most + 1):
        raise UserError(f"jobs is {quoted(jobs)}: give a number from {least} to {most}, or leave it out")
    plan = load_study(study)
    for remark in plan_remarks(plan):
        warn(remark)
    temporary = Temporary() if out is None else None
    folder = temporary.path if temporary else Path(str(out))
    with study_listener(progress, plan.name) as tell, study_on(live, plan, folder, "study") as followed:

        def watch(now: Progress) -> None:
            followed.hear(now)
            tell(now)

        found = perform(
            plan,
            folder,
            jobs=jobs,
            on=on,
            force=force,
            verify=verify,
            watch=watch,
            known_as=RUNS / plan.name if temporary else None,
        )
    return StudyResult(found, folder.resolve(), temporary)


def open_study(folder: Path) -> StudyResult:
    """Return what the runs in the folder of a study answer, whether all of them are there or not."""
    return StudyResult(read_answers(load_study(folder / STUDY), folder), folder)
