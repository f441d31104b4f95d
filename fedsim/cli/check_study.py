"""``fedsim check`` of a study."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedsim.cli.console import heading, pairs, say, table
from fedsim.errors import RunError, UserError
from fedsim.report import number_format
from fedsim.report.forecast import BASIS
from fedsim.report.number_format import several
from fedsim.report.text_table import TextTable
from fedsim.scenario.load import keys_of
from fedsim.studies.perform import default_jobs
from fedsim.studies.plan import load_study
from fedsim.studies.study_forecast import rehearse_study, study_s


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
    try:
        known = rehearse_study(plan, str(scenario_file))
    except RunError as error:
        if type(error) is not RunError:  # a bug, of fedsim or of a plugin, is no fault of the study
            raise
        raise UserError(f"{scenario_file}: a rehearsal failed: {error}") from error
    points = len({setting.point for setting in plan.settings})
    runs, trials = len(plan.settings) * len(plan.seeds), sum(map(len, plan.trials.values()))
    said = [several(len(plan.settings) // points, "variant")]
    said += [several(points, "point") + " of the grid"] if plan.grid else []
    said += [several(len(plan.seeds), "seed")]
    say(f"{scenario_file}: {plan.name}, a study: {', '.join(said)}")
    rows = []
    for setting, one in known.items():
        rehearsal, real_s = one.rehearsal, one.run_s(None)
        known_rounds = rehearsal.planned is not None
        cells = (
            str(rehearsal.planned),
            number_format.duration(rehearsal.simulated_s),
            number_format.size(rehearsal.totals.sent_up),
            number_format.size(rehearsal.totals.sent_down),
        )
        rows.append(
            (
                setting.variant,
                *map(str, setting.point),
                *(cells if known_rounds else [number_format.NOTHING] * len(cells)),
                number_format.duration(one.forecast.round_s),
                number_format.duration(real_s),
            )
        )
    headings = ["variant", *(keys_of(path)[-1].replace("_", "\n") for path in plan.grid)]
    headings += ["rounds", "simulated\ntime", "bytes up", "bytes down", "real time\nof a round", "real time"]
    notes = []
    if len(known) < len(plan.settings):
        notes.append(
            f"rehearsed: {len(known)} of {len(plan.settings)}; the others are taken to be like these"
        )
    notes += [f"with the first values of {', '.join(plan.tuned)}"] if plan.tuned else []
    table(TextTable(headings, rows, notes, title="One run of each"))
    jobs = jobs or default_jobs(plan)
    whole_s = study_s(plan, known, jobs)
    took = "as long as it takes to reach the accuracy" if whole_s is None else number_format.duration(whole_s)
    heading("Cost")
    lines = [("trials, of the tuning", str(trials))] if trials else []
    lines += [
        ("runs", str(runs)),
        (f"real time, {jobs} at once", took if whole_s is None else f"about {took}"),
    ]
    pairs(lines)
    say(f"  {BASIS}")
    say("  runs that are there already are not done again")
