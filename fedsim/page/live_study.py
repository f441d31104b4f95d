"""A running study or comparison on the live page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic, process_time

from fedsim.figures.chart_types import Section
from fedsim.figures.run_figures import QUALITY
from fedsim.figures.study_curves import study_curve_figures
from fedsim.page.live_reader import RunReader
from fedsim.page.live_snapshot import (
    Followed,
    Rates,
    Snapshot,
    State,
    event_tables,
    fleet_section,
    sentence,
)
from fedsim.page.page_content import Page, PageTable
from fedsim.report import number_format
from fedsim.report.cost_breakdown import Columns
from fedsim.report.places import holds_run
from fedsim.report.run_text import SIMULATED
from fedsim.report.tables import rounds_so_far
from fedsim.report.text_table import TextTable
from fedsim.runtime.parts import Parts
from fedsim.runtime.records.recorder import Recorder
from fedsim.runtime.records.result import RoundRow
from fedsim.studies.curves import curve_of, read_curve
from fedsim.studies.perform import Progress
from fedsim.studies.plan import TUNING, StudyPlan, StudyRun

MAX_LISTED = 60
"""Runs of the table: running ones first, then failed ones, then others."""

MAX_READ = 4
"""Curves that are read from folders for one snapshot: there may be many when a page is opened."""

_ORDER: tuple[str, ...] = ("running", "failed", "ended", "waiting")


@dataclass(slots=True)
class _RunState:
    """A run of the study, with the last round that is known to have ended."""

    run: StudyRun
    state: State = "waiting"
    round: int = 0
    failure: str = ""

    @property
    def is_done(self) -> bool:
        return self.state in ("ended", "failed")


class LiveStudy(Followed):
    """A study or comparison that is to begin; ``is_here`` if its runs are done in this process."""

    def __init__(self, plan: StudyPlan, parent: Path, *, is_here: bool = False) -> None:
        super().__init__(plan.name, process_time if is_here else monotonic)
        self._plan, self._parent = plan, parent
        # Which candidates become runs is known after the trials.
        self._runs: dict[str, _RunState] = {}
        self._total = plan.num_runs
        self._begin(plan.all_trials or plan.runs)
        self._reader: tuple[str, RunReader] | None = None  # of the run in this process, by label
        self._label = ""
        self._rates = Rates()
        self._curves: dict[str, Columns] = {}
        self._shown: object = None
        self._sections: list[Section] = []

    def _begin(self, runs: Sequence[StudyRun]) -> None:
        """Take the next runs. They alone tell the time left: of earlier ones, more ran at once."""
        for run in runs:
            if run.label not in self._runs:
                is_kept = holds_run(self._parent / run.label, run.scenario_toml)
                self._runs[run.label] = _RunState(run, "ended" if is_kept else "waiting")
        self._done_before = sum(state.is_done for state in self._runs.values())
        self._began_s = monotonic()

    def observe(self, recorder: Recorder, parts: Parts) -> None:
        """Read the run in this process from now on, as it begins."""
        self._rates, self._reader = Rates(), (self._label, RunReader(recorder, parts))

    def update(self, progress: Progress) -> None:
        """Take the progress of runs."""
        if (run := progress.run) is None:
            self._begin(progress.begun)
            return
        self._label = run.label
        if progress.said:
            self._reader = None
        state = self._runs.setdefault(run.label, _RunState(run))
        state.round = progress.rounds.get(run.label, state.round)
        state.failure = "" if progress.said == "ended" else progress.said
        state.state = "running" if not progress.said else "failed" if state.failure else "ended"

    def _progress(self) -> Snapshot:
        runs, label, reader = [replace(run) for run in self._runs.copy().values()], "", None
        if (here := self._reader) is not None:
            label, reader = here
            for run in runs:
                if run.run.label == label:
                    run.round = reader.round
        states = [run.state for run in runs]
        done = sum(self._share(run, label, reader) for run in runs)
        words = sentence(
            f"{states.count('ended')} of {number_format.several(self._total, 'run')} ended",
            f"{number} under way" if (number := states.count("running")) else "",
            f"{number} failed" if (number := states.count("failed")) else "",
        )
        new = max(1, self._total - self._done_before)
        share = (done - self._done_before) / new
        left = self._failure or sentence(number_format.time_left(monotonic() - self._began_s, share))
        rows = [] if reader is None else reader.rows
        ended = [run for run in runs if run.state == "ended" and not run.run.label.startswith(f"{TUNING}/")]
        shown = ended, label, len(rows)
        if shown != self._shown or len(self._curves) < len(ended):
            self._shown, self._sections = shown, self._quality(ended, label, rows)
        sections = list(self._sections)
        tables = [_table(runs)]
        if reader is not None:
            sections.insert(0, fleet_section(reader, SIMULATED))
            so_far = self._rates.table(reader.counts(), SIMULATED, f"{label} so far")
            tables += [so_far, *event_tables(reader, SIMULATED)]
        page = Page(
            self._plan.name,
            self._plan.kind,
            f"{words} {left}".rstrip(),
            table=tables[0],
            sections=sections,
            tables=tables[1:],
        )
        state: State = "failed" if self._failure else "running"
        return Snapshot(page, state, min(1.0, done / max(1, self._total)))

    def _share(self, run: _RunState, label: str, reader: RunReader | None) -> float:
        if run.is_done:
            return 1.0
        if reader is not None and run.run.label == label:
            return reader.share(reader.counts()) or 0.0
        return run.round / run.run.rounds if run.run.rounds else 0.0

    def _quality(self, runs: list[_RunState], label_here: str, rows: Sequence[RoundRow]) -> list[Section]:
        """Return the curves of runs that have ended, and of the one in this process so far."""
        curves: dict[str, dict[int, Columns]] = {}
        to_read = MAX_READ
        for run in (state.run for state in runs):
            label = run.label
            if label not in self._curves:
                if (to_read := to_read - 1) < 0:
                    continue
                self._curves[label] = read_curve(self._parent / label)
            curves.setdefault(self._plan.name_of(run.setting), {})[run.seed] = self._curves[label]
        so_far = curve_of(rounds_so_far(rows))
        if len(so_far["round"]):
            curves[f"{label_here}, so far"] = {0: so_far}
        config = self._plan.config
        figures = study_curve_figures(curves, config) if curves else []
        return [Section(*QUALITY, figures)] if figures else []


def _table(runs: list[_RunState]) -> PageTable:
    def detail(run: _RunState) -> str:
        if run.state != "running":
            return run.failure.splitlines()[-1] if run.failure else ""
        return f"round {run.round}" + (f" of {run.run.rounds}" if run.run.rounds else "")

    listed = sorted(runs, key=lambda run: _ORDER.index(run.state))[:MAX_LISTED]
    rows = [(run.run.label, run.state, detail(run)) for run in listed]
    more = len(runs) - len(listed)
    notes = [f"and {number_format.several(more, 'run')} more"] if more else []
    return PageTable("runs", TextTable(("run", "state", ""), rows, notes, frozenset({0, 1, 2}), "Runs"))
