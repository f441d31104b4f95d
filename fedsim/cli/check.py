"""``fedsim check`` and ``fedsim schema``: a scenario that is not run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fedsim.bus import Totals
from fedsim.cli.console import heading, pairs, say, table
from fedsim.cli.error_handling import rehearsing
from fedsim.errors import ScenarioError, UserError
from fedsim.mkl_mode import mode_words
from fedsim.mkl_mode import remark as mkl_remark
from fedsim.planning import preview
from fedsim.planning.real_time import BASIS, RehearsedSetting, hardly_pays, rehearse_study, study_s, tried
from fedsim.planning.rehearsal import rehearse, unused_codecs
from fedsim.report import number_format
from fedsim.report.number_format import NOTHING, duration, several, size
from fedsim.report.remarks import remarks
from fedsim.report.summary import ineligible, ineligible_line
from fedsim.report.text_table import TextTable
from fedsim.runtime.records.result import RoundRow
from fedsim.scenario import build, json_schema, load_scenario
from fedsim.scenario.algorithm_params import unlike_params
from fedsim.scenario.load import is_study, read_source
from fedsim.studies.plan import Setting, StudyPlan, load_study, path_headings
from fedsim.studies.variant_params import plan_remarks
from fedsim.studies.worker_pool import default_jobs
from fedsim.wire.codecs.choices import NO_CODECS


def schema() -> None:
    """Print the JSON schema of scenario files."""
    say(json.dumps(json_schema(), indent=2, ensure_ascii=False))


def is_study_file(file: Path) -> bool:
    """Whether a file or an example is a study."""
    try:
        tables, _, _ = read_source(file, studies=True)
    except ScenarioError:  # which is told as that of a scenario
        return False
    return is_study(tables)


def check(
    scenario_file: Path, overrides: Sequence[str], algorithm: str | None, jobs: int | None = None
) -> None:
    """Print the parts of a scenario and the costs of its first rounds, or the runs of a study."""
    if is_study_file(scenario_file):
        check_study(scenario_file, overrides, algorithm, jobs)
        return
    if jobs is not None:
        raise UserError("--jobs is for studies, which have several runs: leave it out for a scenario")
    scenario = load_scenario(scenario_file, overrides, algorithm=algorithm)
    parts = build(scenario, str(scenario_file))
    ends = [] if parts.rounds is None else [number_format.several(parts.rounds, "round")]
    ends += [] if parts.until is None else [f"until {parts.until.text}"]
    say(f"{scenario_file}: {scenario.run.name}, {scenario.algorithm.name}, {', or '.join(ends)}")
    table(preview.groups(parts))
    table(preview.fleet(parts.fleet, with_powers=parts.energy is not None))
    if parts.cells is not None:
        table(preview.cells(parts.cells))
    table(preview.data(parts))
    table(preview.models(parts))
    with rehearsing(scenario_file):
        rehearsal = rehearse(parts)
        uncoded = rehearse(replace(parts, codec=NO_CODECS)) if parts.codec.is_on() else None
    real_time, problem = tried(parts, rehearsal)
    table(rehearsal.compute())
    table(rehearsal.frames())
    last, totals = rehearsal.last, rehearsal.totals
    if parts.edges is not None and (frames := rehearsal.result.edge_frames) is not None:
        table(preview.edges(parts.edges, frames.totals()))
    if parts.faults:
        table(preview.faults(parts, last))
    planned = rehearsal.planned
    without = " without faults" if parts.faults else ""
    heading(f"Cost{without}, from {number_format.several(rehearsal.rounds, 'rehearsed round')}")
    most = "" if parts.codec.has_fixed_lengths else "at most "
    pairs(
        [
            ("a round", f"{most}{_round(last)}, {last.asked} dispatches"),
            *([] if uncoded is None else [("without codecs", _round(uncoded.last))]),
            (
                "rounds" if planned is None else number_format.several(planned, "round"),
                "as many as it takes to reach the accuracy"
                if planned is None
                else f"about {number_format.duration(rehearsal.simulated_s)}, "
                f"{_both_ways(totals)}, "
                f"{number_format.count(totals.parameters_up + totals.parameters_down)} parameters",
            ),
            ("real time", problem if real_time is None else real_time.text),
        ]
    )
    say(f"  {BASIS}")
    if most:
        say("  at most: how much zstd shortens a frame depends on the values")
    numbers = ", numbers are portable" if parts.numerics == "portable" else ""
    say(f"  {mkl_remark() or f'matrix products: {mode_words()}{numbers}'}")
    if real_time is not None and (remark := hardly_pays(parts, real_time)) is not None:
        say(f"  {remark}")
    if parts.is_traced:
        say("  links that follow traces had the mean of their trace here; in a run they change over time")
    if parts.fleet.is_loaded:
        say("  loads of devices were drawn for these rounds; those of other rounds are others")
    if who := ineligible_line(ineligible(parts), len(parts.fleet)):
        say(f"  never selected: {who}")
    if last.dropped:
        causes = sorted(rehearsal.result.drops)
        hint = ", see participation.client_timeout" if "timeout" in causes else ""
        say(f"  {last.dropped} of {last.asked} dispatches were dropped: {', '.join(causes)}{hint}")
    on_times = [] if planned is None else remarks(parts, rehearsal.result, rehearsal.simulated_s)
    for remark in [*unused_codecs(rehearsal), *on_times, *unlike_params({scenario.algorithm.name: scenario})]:
        say(f"  {remark}")


def _round(row: RoundRow) -> str:
    return f"{number_format.duration(row.ended_at_s - row.began_at_s)}, {_both_ways(row.traffic)}"


def _both_ways(traffic: Totals) -> str:
    return f"{number_format.size(traffic.sent_up)} up, {number_format.size(traffic.sent_down)} down"


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
    parts = [several(len(plan.settings) // points, "variant")]
    parts += [several(points, "point") + " of the grid"] if plan.grid else []
    parts += [several(len(plan.seeds), "seed")]
    say(f"{scenario_file}: {plan.name}, a study: {', '.join(parts)}")
    table(_one_run_of_each(plan, known))
    trials, jobs = len(plan.all_trials), jobs or default_jobs(len(plan.runs))
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
    for setting, own in known.items():
        planned, totals = own.rehearsal.planned, own.rehearsal.totals
        costs = [str(planned), duration(own.rehearsal.simulated_s)]
        costs += [size(totals.sent_up), size(totals.sent_down)]
        shown = costs if planned is not None else [NOTHING] * len(costs)
        round_s = None if own.forecast is None else own.forecast.round_s
        real_time = duration(round_s), duration(own.run_s(None))
        rows.append((setting.variant, *map(str, setting.point), *shown, *real_time))
    headings = ["variant", *path_headings(plan.grid)]
    headings += ["rounds", "simulated\ntime", "bytes up", "bytes down", "real time\nof a round", "real time"]
    notes = [f"with the first values of {', '.join(plan.tuned)}"] if plan.tuned else []
    if len(known) < len(plan.settings):
        rehearsed = f"rehearsed: {len(known)} of {len(plan.settings)} variants at points of the grid"
        notes.insert(0, f"{rehearsed}; the others are taken to be like these")
    return TextTable(headings, rows, notes, title="One run of each")


def _real_time(plan: StudyPlan, known: Mapping[Setting, RehearsedSetting], jobs: int) -> str:
    if problem := next((own.problem for own in known.values() if own.problem), ""):
        return problem
    taken_s = study_s(plan, known, jobs)
    return "as long as it takes to reach the accuracy" if taken_s is None else f"about {duration(taken_s)}"
