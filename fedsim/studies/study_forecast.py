"""How long the runs of a study take for real.

Each variant is rehearsed at the first point of the grid, and at other points while there is time. A setting
that was not rehearsed is taken to be like those of its variant, or else of its algorithm, or else like all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from time import perf_counter, process_time

from fedsim.report.forecast import Forecast, tried
from fedsim.report.rehearsal import Rehearsal, rehearse
from fedsim.scenario import build
from fedsim.studies.plan import Setting, StudyPlan, with_one_worker

MOST_S = 30.0
"""Processor time after which no further variant is rehearsed, s."""

MOST_POINTS_S = 3.0
"""Processor time after which no variant is rehearsed at a further point of the grid, s."""


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """A setting that was rehearsed, with the first of the values that are tuned."""

    rehearsal: Rehearsal
    build_s: float
    forecast: Forecast | None
    problem: str = ""

    def run_s(self, rounds: int | None) -> float | None:
        """Return how long a run takes that has so many rounds, s; None where nobody knows."""
        if self.forecast is None:
            return None
        ends = [number for number in (rounds, self.forecast.rounds) if number is not None]
        return self.build_s + self.forecast.run_s(min(ends)) if ends else None


def rehearse_study(plan: StudyPlan, source: str) -> dict[Setting, Rehearsed]:
    """Return the settings that were rehearsed, at least one."""
    began_s, known = process_time(), dict[Setting, Rehearsed]()
    points = list(dict.fromkeys(setting.point for setting in plan.settings))
    for setting in sorted(plan.settings, key=lambda setting: points.index(setting.point)):
        most_s = MOST_S if setting.point == points[0] else MOST_POINTS_S
        if known and process_time() - began_s > most_s:
            break
        started_s = perf_counter()
        scenario = with_one_worker(plan.candidates[setting][0].scenario)
        parts = build(scenario, f"{source}, variant {setting.variant}")
        build_s = perf_counter() - started_s
        rehearsal = rehearse(parts)
        known[setting] = Rehearsed(rehearsal, build_s, *tried(parts, rehearsal))
    return {setting: known[setting] for setting in plan.settings if setting in known}


def study_s(plan: StudyPlan, known: Mapping[Setting, Rehearsed], jobs: int) -> float | None:
    """Return how long all trials and runs of a study take, s; None where nobody knows."""
    tuning = len(plan.config.tune.seeds) if plan.config.tune is not None else 0
    longest = total = 0.0
    for setting, candidates in plan.candidates.items():
        rounds, alike = candidates[0].scenario.run.rounds, _alike(known, setting)
        each_s = [run_s for one in alike if (run_s := one.run_s(rounds)) is not None]
        if len(each_s) < len(alike):
            return None
        taken_s = fmean(each_s)
        longest = max(longest, taken_s)
        total += taken_s * (len(plan.seeds) + tuning * len(candidates))
    return max(longest, total / jobs)


def _alike(known: Mapping[Setting, Rehearsed], setting: Setting) -> list[Rehearsed]:
    """Return the rehearsals that stand for a setting: its own if there is one."""
    if setting in known:
        return [known[setting]]
    of_variant = [one for other, one in known.items() if other.variant == setting.variant]
    of_algorithm = [one for other, one in known.items() if other.algorithm == setting.algorithm]
    return of_variant or of_algorithm or list(known.values())
