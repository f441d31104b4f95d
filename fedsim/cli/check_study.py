"""``fedsim check`` of a study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fedsim.cli.console import heading, pairs, say, table
from fedsim.cli.error_handling import rehearsing
from fedsim.errors import UserError
from fedsim.planning.real_time import BASIS, RehearsedSetting, rehearse_study, study_s
from fedsim.report.number_format import NOTHING, duration, several, size
from fedsim.report.text_table import TextTable
from fedsim.studies.path_headings import path_headings
from fedsim.studies.plan import Setting, StudyPlan, load_study
from fedsim.studies.variant_params import plan_remarks
from fedsim.studies.worker_pool import default_jobs


def check_study(
    scenario_file: Path, overrides: Sequence[str], algorithm: str | None, jobs: int | None
) -> None:
    """Print which runs a study has, and what they cost."""
    if overrides or algorithm is not None:
        raise UserError(
            f"{scenario_file} is a study, whose variants have algorithms and values of their own: leave out "
            "--set and --algorithm, and write [set] and [[variant]] in the file"
        )
    plan = load_study(scenario_file)
    with rehearsing(scenario_file):
        known = rehearse_study(plan, str(scenario_file))
    points = len({setting.point for setting in plan.settings})
    said = [several(len(plan.settings) // points, "variant")]
    said += [several(points, "point") + " of the grid"] if plan.grid else []
    said += [several(len(plan.seeds), "seed")]
    say(f"{scenario_file}: {plan.name}, a study: {', '.join(said)}")
    table(_one_run_of_each(plan, known))
    trials, jobs = sum(map(len, plan.trials.values())), jobs or default_jobs(len(plan.runs))
    heading("Cost")
    lines = [("trials, of the tuning", str(trials))] if trials else []
    lines += [
        ("runs", str(len(plan.settings) * len(plan.seeds))),
        (f"real time, {jobs} at once", _real_time(plan, known, jobs)),
    ]
    pairs(lines)
    say(f"  {BASIS}")
    say("  runs that are there already are not done again")
    for remark in plan_remarks(plan):
        say(f"  {remark}")


def _one_run_of_each(plan: StudyPlan, known: Mapping[Setting, RehearsedSetting]) -> TextTable:
    rows = []
    for setting, one in known.items():
        rehearsal = one.rehearsal
        planned = (
            str(rehearsal.planned),
            duration(rehearsal.simulated_s),
            size(rehearsal.totals.sent_up),
            size(rehearsal.totals.sent_down),
        )
        rows.append(
            (
                setting.variant,
                *map(str, setting.point),
                *([NOTHING] * len(planned) if rehearsal.planned is None else planned),
                NOTHING if one.forecast is None else duration(one.forecast.round_s),
                duration(one.run_s(None)),
            )
        )
    headings = ["variant", *path_headings(plan.grid)]
    headings += ["rounds", "simulated\ntime", "bytes up", "bytes down", "real time\nof a round", "real time"]
    notes = [f"with the first values of {', '.join(plan.tuned)}"] if plan.tuned else []
    if len(known) < len(plan.settings):
        where = " at points of the grid" if plan.grid else ""
        rehearsed = f"rehearsed: {len(known)} of {len(plan.settings)} variants{where}"
        notes.insert(0, f"{rehearsed}; the others are taken to be like these")
    return TextTable(headings, rows, notes, title="One run of each")


def _real_time(plan: StudyPlan, known: Mapping[Setting, RehearsedSetting], jobs: int) -> str:
    if problem := next((one.problem for one in known.values() if one.problem), ""):
        return problem
    taken_s = study_s(plan, known, jobs)
    return "as long as it takes to reach the accuracy" if taken_s is None else f"about {duration(taken_s)}"
