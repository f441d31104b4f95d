"""Studies from Python: what is varied goes in, answers come out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import pyarrow as pa

from fedsim.api.interruptible_thread import call
from fedsim.api.progress import Progress, each_round_listener, study_listener
from fedsim.api.results import Comparison, Result, Temporary
from fedsim.api.runs import place_of, plain_torch
from fedsim.errors import OutputError, UserError
from fedsim.page.live_session import study_on
from fedsim.page.write_report import write_report
from fedsim.quoting import quoted
from fedsim.ranges import Processes, ends
from fedsim.report import validation
from fedsim.report.places import COMPARISON, RUNS, kind_of
from fedsim.report.read_results import read_object
from fedsim.report.saved_models import EndModels
from fedsim.report.tables import arrow_rows, arrow_table
from fedsim.report.text_table import to_html
from fedsim.report.tracking import warn
from fedsim.scenario import Algorithm, Overrides, Source
from fedsim.studies.answer_files import Answers, answer_rows, evaluations, read_folder
from fedsim.studies.comparison_plans import comparison_plan
from fedsim.studies.perform import On, Watch, perform
from fedsim.studies.perform import Progress as StudyProgress
from fedsim.studies.plan import StudyPlan, StudySource, load_study
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

    def __init__(self, answers: Answers, folder: Path, temporary: Temporary | None = None) -> None:
        self.folder = folder
        self.failed = answers.failed
        self._answers = answers
        self._temporary = temporary  # removed when nobody holds it any more

    @cached_property
    def runs(self) -> Mapping[str, Result]:
        """The runs that have ended, by the names of their folders."""
        return {
            label: Result(self.folder / label, temporary=self._temporary) for label in self._answers.summaries
        }

    @cached_property
    def answers(self) -> pa.Table:
        """One row for each variant, point of the grid and target: the columns of ``answers.csv``."""
        return arrow_rows(ANSWERS.with_paths(self._answers.plan.varied), answer_rows(self._answers))

    @cached_property
    def evaluations(self) -> pa.Table:
        """One row for each evaluation of each run: the columns of ``study.parquet``."""
        plan = self._answers.plan
        return arrow_table(EVALUATIONS.with_paths(plan.varied), evaluations(plan, self._answers.curves))

    def write_report(
        self, file: str | Path, *, figures: str | Path | None = None, force: bool = False
    ) -> Path:
        """Write the report of the study, as :meth:`Result.write_report` does that of a run."""
        return write_report(self.folder, file, figures=figures, force=force)

    def __repr__(self) -> str:
        blocks = [
            "\n".join([grid.title, *grid.lines(), *(f"  {note}" for note in grid.notes)])
            for grid in self._answers.tables
        ]
        return "\n\n".join([*blocks, *self._failures()])

    def _repr_html_(self) -> str:
        failures = (f"<p>{escape(failure)}</p>" for failure in self._failures())
        return "".join([*map(to_html, self._answers.tables), *failures])

    def _failures(self) -> list[str]:
        return [f"{label}: {why}" for label, why in self.failed.items()]


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
    """Do the runs of a study, and return what they answer.

    A run that is in ``out`` already is not done again, so a study that was stopped goes on where it was. A
    run that fails stops no other: ``failed`` of the result names it. With one job, runs are done in this
    process. With more they have processes of their own, and private plugins must be in a module that these
    can import, not in a notebook.

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
    plan = load_study(study)
    with study_listener(progress, plan.name) as listener:
        result, _ = _done(plan, listener, out, live, jobs=jobs, on=on, force=force, verify=verify)
    return result


@overload
def compare(
    scenario: Source,
    algorithms: Sequence[Algorithm],
    *,
    seeds: Sequence[int] | None = None,
    overrides: Overrides | None = None,
    grid: None = None,
    targets: Sequence[float] = (),
    jobs: int | None = None,
    on: On | None = None,
    out: str | Path | None = None,
    force: bool = False,
    verify: bool = False,
    progress: Progress | Watch = None,
    live: LivePage | None = None,
) -> Comparison: ...
@overload
def compare(
    scenario: Source,
    algorithms: Sequence[Algorithm],
    *,
    seeds: Sequence[int] | None = None,
    overrides: Overrides | None = None,
    grid: Mapping[str, Sequence[Any]],
    targets: Sequence[float] = (),
    jobs: int | None = None,
    on: On | None = None,
    out: str | Path | None = None,
    force: bool = False,
    verify: bool = False,
    progress: Progress | Watch = None,
    live: LivePage | None = None,
) -> StudyResult: ...
def compare(
    scenario: Source,
    algorithms: Sequence[Algorithm],
    *,
    seeds: Sequence[int] | None = None,
    overrides: Overrides | None = None,
    grid: Mapping[str, Sequence[Any]] | None = None,
    targets: Sequence[float] = (),
    jobs: int | None = None,
    on: On | None = None,
    out: str | Path | None = None,
    force: bool = False,
    verify: bool = False,
    progress: Any = None,
    live: LivePage | None = None,
) -> Comparison | StudyResult:
    """Run each algorithm with each seed on the same scenario, and return the results side by side.

    With a grid it is a study, whose result is that of :func:`fedsim.study`.

    Args:
        scenario: A file, an example by name, a dictionary of tables, or a scenario that was loaded before.
        algorithms: The algorithms.
        seeds: The seeds; the scenario's if left out.
        overrides: Values that replace the scenario's, by path, as for :func:`load`.
        grid: Lists of values by path; each algorithm runs with every combination.
        targets: Accuracies of which the answers say what each algorithm took to reach them.
        jobs: Runs at once, in processes of their own; if left out one after the other, in this process, or
            with ``on`` as many as the cluster has CPUs.
        on: ``"ray"`` spreads the runs over a Ray cluster, that of ``RAY_ADDRESS`` or of this machine; needs
            the extra ``ray``.
        out: Folder of the run folders; if left out a temporary one, which goes with the results.
        force: Whether other results there may be replaced; those of the same runs are in any case.
        verify: Whether every invariant is checked while running; slower.
        progress: Called with each round of each run as it ends, or with several jobs as for
            :func:`fedsim.study`; or True or False, as for :func:`run`.
        live: A page that shows the runs while they go on.

    Raises:
        ScenarioError: All that is wrong with the scenario, with any of the algorithms.
        OutputError: The place of the results is occupied or cannot be written.
        RunError: A run failed; with ``out``, those that have ended are kept.
        UserError: ``jobs`` is no number of processes, or there is no cluster.
    """
    if on is None and jobs is None:
        jobs = 1
    if isinstance(algorithms, str | type):
        algorithms = [algorithms]
    plan = comparison_plan(scenario, overrides or (), algorithms, seeds, targets, grid)
    is_here = _is_here(jobs, on)
    listening = each_round_listener(progress, plan) if is_here else study_listener(progress, plan.name)
    with listening as listener:
        options = {"force": force, "verify": verify, "again": is_here and not grid}
        result, runs = _done(plan, listener, out, live, jobs=jobs, on=on, **options)
    return result if grid else Comparison(result.folder if out is None else Path(out), runs)


def _done(
    plan: StudyPlan,
    listener: Watch,
    out: str | Path | None,
    live: LivePage | None,
    *,
    jobs: int | None,
    on: On | None,
    **options: Any,
) -> tuple[StudyResult, list[Result]]:
    """Do the runs of a study; the results of a comparison's runs have the models of those done here."""
    least, most = ends(Processes)
    if jobs is not None and jobs not in range(least, most + 1):
        raise UserError(f"jobs is {quoted(jobs)}: give a number from {least} to {most}, or leave it out")
    for remark in plan_remarks(plan):
        warn(remark)
    folder, temporary = place_of(out)
    is_here, models = _is_here(jobs, on), dict[str, EndModels]()
    with study_on(live, plan, folder, is_here=is_here) as (update_page, observe):

        def watch(now: StudyProgress) -> None:
            update_page(now)
            listener(now)
            if plan.kind == "comparison" and now.run is not None and now.recorded is not None:
                models[now.run.label] = now.recorded.models

        def work() -> Answers:
            with plain_torch() if is_here else nullcontext():
                return perform(
                    plan,
                    folder,
                    jobs=jobs,
                    on=on,
                    watch=watch,
                    known_as=RUNS / plan.name if temporary else None,
                    observe=observe,
                    **options,
                )

        answers = call(work) if is_here else work()
    result = StudyResult(answers, folder.resolve(), temporary)
    if plan.kind == "study":
        return result, []
    runs = [
        Result((folder / run.label).resolve(), models=models.get(run.label), temporary=temporary)
        for run in plan.runs
    ]
    return result, runs


def _is_here(jobs: int | None, on: On | None) -> bool:
    """Whether runs are done in this process."""
    return jobs == 1 and on is None


def open(folder: str | Path) -> Result | Comparison | StudyResult:  # noqa: A001
    """Return what a folder holds: one run, the runs of a comparison, or a study, even if it has not ended.

    Raises:
        OutputError: None of them, or it cannot be read.
        ScenarioError: The folder of a study whose scenarios are not valid here.
    """
    place = Path(folder).resolve()
    kind = kind_of(place)
    if kind == "run":
        return Result(place)
    if kind == "study":
        return StudyResult(read_folder(place), place)
    if kind == "validation":
        raise OutputError(
            f"{folder} is a validation: open one of its runs, such as {place / validation.runs(place)[0]}"
        )
    runs = read_object(place / COMPARISON, ("runs",))["runs"]
    return Comparison(place, [Result(place / run["folder"]) for run in runs])
