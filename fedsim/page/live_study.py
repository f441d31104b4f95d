"""The runs of a study or a comparison while they go on, as a page shows them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic, process_time

import numpy as np

from fedsim.figures.base import Section
from fedsim.figures.run_figures import QUALITY
from fedsim.figures.study_curves import study_curve_figures
from fedsim.page.live_looks import Ended, Look, Rates, State, event_tables, fleet_section, sentence
from fedsim.page.live_server import Clock
from fedsim.page.page import Page, PageTable
from fedsim.page.run_at_hand import RunAtHand
from fedsim.report import number_format
from fedsim.report.cost_breakdown import Columns
from fedsim.report.places import holds_run
from fedsim.report.run_text import SIMULATED
from fedsim.report.text_table import TextTable
from fedsim.runtime.parts import Parts
from fedsim.runtime.records.recorder import Recorder
from fedsim.studies.curves import read_curve
from fedsim.studies.perform import Progress
from fedsim.studies.plan import TUNING, StudyPlan, StudyRun

MOST_LISTED = 60
"""Runs of the table: those under way, then those that have failed, then others."""

MOST_READ = 4
"""Curves that are read from folders in one look: there may be many when a page is opened."""

_ORDER: tuple[str, ...] = ("running", "failed", "ended", "waiting")


@dataclass(slots=True)
class _Followed:
    """A run of the study, and where it is.

    Attributes:
        run: Which.
        state: Whether it goes on.
        round: The last round that is known to have ended.
        said: Why it has failed.
    """

    run: StudyRun
    state: State = "waiting"
    round: int = 0
    said: str = ""


class LiveStudy:
    """A study or a comparison that is to begin. The thread that does it calls all but :meth:`look`.

    Args:
        plan: Its runs.
        parent: The folder of their folders.
        is_here: Whether runs are done in this process.

    Attributes:
        clock: What passes while it goes on.
    """

    def __init__(self, plan: StudyPlan, parent: Path, *, is_here: bool = False) -> None:
        self.clock: Clock = process_time if is_here else monotonic
        self._plan, self._parent = plan, parent
        trials = [trial for trials in plan.trials.values() for trial in trials]
        # Which candidates become runs is known after the trials.
        self._runs: dict[str, _Followed] = {}
        self._total = len(trials) + len(plan.settings) * len(plan.seeds)
        self._begin(trials or plan.runs)
        self._at_hand: tuple[str, RunAtHand] | None = None
        self._label = ""
        self._end: Ended | None = None
        self._failed: str | None = None
        self._rates = Rates()
        self._curves: dict[str, Columns] = {}
        self._shown: object = None
        self._sections: list[Section] = []

    def _begin(self, runs: Sequence[StudyRun]) -> None:
        """Take the runs that are next. They alone tell the time left: of those before, more went at once."""
        for run in runs:
            if run.label not in self._runs:
                is_kept = holds_run(self._parent / run.label, run.scenario_toml)
                self._runs[run.label] = _Followed(run, "ended" if is_kept else "waiting")
        self._done_before = sum(one.state in ("ended", "failed") for one in self._runs.values())
        self._began_s = monotonic()

    def observe(self, recorder: Recorder, parts: Parts) -> None:
        """The run that is done in this process begins."""
        self._rates, self._at_hand = Rates(), (self._label, RunAtHand(recorder, parts))

    def hear(self, progress: Progress) -> None:
        """Take what is known of runs."""
        if (run := progress.run) is None:
            self._begin(progress.begun)
            return
        self._label = run.label
        if progress.said:
            self._at_hand = None
        one = self._runs.setdefault(run.label, _Followed(run))
        one.round = progress.rounds.get(run.label, one.round)
        one.said = "" if progress.said == "ended" else progress.said
        one.state = "running" if not progress.said else "failed" if one.said else "ended"

    def ended(self, report: Callable[[], Page]) -> None:
        """All have ended; the page of the report is made if somebody looks."""
        self._end = Ended(self._plan.name, report)

    def failed(self, said: str) -> None:
        """It ends before that."""
        if self._end is None:
            self._failed = said

    def look(self) -> Look:
        """Return what is to be seen now."""
        if self._end is not None:
            return self._end.look
        runs, at_hand = [replace(one) for one in self._runs.copy().values()], self._at_hand
        states = [one.state for one in runs]
        shares = [self._share(one, at_hand) for one in runs]
        done = sum(shares)
        words = sentence(
            f"{states.count('ended')} of {number_format.several(self._total, 'run')} ended",
            f"{number} under way" if (number := states.count("running")) else "",
            f"{number} failed" if (number := states.count("failed")) else "",
        )
        new = max(1, self._total - self._done_before)
        share = (done - self._done_before) / new
        left = self._failed or sentence(number_format.time_left(monotonic() - self._began_s, share))
        shown = [one for one in runs if one.state == "ended"], at_hand and (at_hand[0], len(at_hand[1].rows))
        if shown != self._shown or len(self._curves) < len(shown[0]):
            self._shown, self._sections = shown, self._quality(shown[0], at_hand)
        sections = list(self._sections)
        tables = [self._table(runs, at_hand)]
        if at_hand is not None:
            sections.insert(0, fleet_section(at_hand[1], SIMULATED))
            label, run = at_hand
            so_far = self._rates.table(run.counts(), SIMULATED, f"{label} so far")
            tables += [so_far, *event_tables(run, SIMULATED)]
        page = Page(
            self._plan.name,
            self._plan.kind,
            f"{words} {left}".rstrip(),
            table=tables[0],
            sections=sections,
            tables=tables[1:],
        )
        return Look(page, "failed" if self._failed else "running", min(1.0, done / max(1, self._total)))

    def _share(self, one: _Followed, at_hand: tuple[str, RunAtHand] | None) -> float:
        if one.state in ("ended", "failed"):
            return 1.0
        if at_hand is not None and at_hand[0] == one.run.label:
            return at_hand[1].share(at_hand[1].counts()) or 0.0
        return one.round / one.run.rounds if one.run.rounds else 0.0

    def _table(self, runs: list[_Followed], at_hand: tuple[str, RunAtHand] | None) -> PageTable:
        def where(one: _Followed) -> str:
            if one.state != "running":
                return one.said.splitlines()[-1] if one.said else ""
            is_here = at_hand is not None and at_hand[0] == one.run.label
            number = at_hand[1].round if at_hand is not None and is_here else one.round
            return f"round {number}" + (f" of {one.run.rounds}" if one.run.rounds else "")

        listed = sorted(runs, key=lambda one: _ORDER.index(one.state))[:MOST_LISTED]
        rows = [(one.run.label, one.state, where(one)) for one in listed]
        more = len(runs) - len(listed)
        notes = [f"and {number_format.several(more, 'run')} more"] if more else []
        return PageTable("runs", TextTable(("run", "state", ""), rows, notes, frozenset({0, 1, 2}), "Runs"))

    def _quality(self, runs: list[_Followed], at_hand: tuple[str, RunAtHand] | None) -> list[Section]:
        """Return the curves of the runs that are there, and of the one at hand so far."""
        curves: dict[str, dict[int, Columns]] = {}
        to_read = MOST_READ
        for one in runs:
            label = one.run.label
            if label.startswith(TUNING):
                continue
            if label not in self._curves:
                if (to_read := to_read - 1) < 0:
                    continue
                self._curves[label] = read_curve(self._parent / label)
            curves.setdefault(self._plan.name_of(one.run.setting), {})[one.run.seed] = self._curves[label]
        if at_hand is not None and (so_far := _curve(at_hand[1])) is not None:
            curves[f"{at_hand[0]}, so far"] = {0: so_far}
        config = self._plan.config
        figures = study_curve_figures(curves, config) if curves else []
        return [Section(*QUALITY, figures)] if figures else []


def _curve(run: RunAtHand) -> Columns | None:
    """Return the rows of the evaluations so far, with the columns that curves are drawn from."""
    rounds = run.columns()
    measured = {
        "accuracy_personal_mean": rounds["accuracy_mean"],
        "accuracy_worst_decile": rounds["accuracy_worst_decile"],
        "accuracy_global": rounds["accuracy_global"],
        "loss_personal_mean": rounds["loss_mean"],
        "loss_global": rounds["loss_global"],
    }
    there = np.any([np.isfinite(values) for values in measured.values()], axis=0)
    sums = {
        f"bytes_{way}": np.cumsum(rounds[f"bytes_{way}"] + rounds[f"data_{way}"]) for way in ("up", "down")
    }
    every = {"simulated_s": rounds["ended_at_s"], **sums, **measured}
    return {name: values[there] for name, values in every.items()} if there.any() else None
