"""The figures of a study or a comparison, from its folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from fedsim.figures import gantt
from fedsim.figures.chart_types import Figure, Section
from fedsim.figures.client_quality import ranked_figures
from fedsim.figures.participation import outcome_figures
from fedsim.figures.run_figures import (
    CLIENTS,
    HOLDINGS,
    PARTICIPATION,
    QUALITY,
    SPENDING,
    WAITING,
    filled,
    holding_figures,
    labelled,
)
from fedsim.figures.spending import spending_figures
from fedsim.figures.study_curves import study_curve_figures
from fedsim.report.cost_breakdown import Figures, means
from fedsim.report.read_parquet import read_columns
from fedsim.report.run_trace import read_spans
from fedsim.report.summary import read_summary
from fedsim.studies.answer_files import Answers

MAX_GANTTS = 8
"""Variants of which one run is shown client by client: the first ones."""

MAX_ROUNDS = 12
"""Rounds of each of them that a reader can choose from."""


def study_sections(answers: Answers, folder: Path) -> list[Section]:
    """Return the figures of a study or a comparison, under headings, of the runs that have ended."""
    plan = answers.plan
    curves = {plan.name_of(setting): its_curves for setting, its_curves in answers.curves.items()}
    folders = _folders(answers, folder)
    spent = {plan.name_of(setting): figures for setting, figures in answers.ends.items()}
    of = "mean over seeds" if len(plan.seeds) > 1 else ""
    return filled(
        Section(*QUALITY, study_curve_figures(curves, plan.config)),
        Section(*SPENDING, spending_figures(spent, of)),
        Section(*CLIENTS, _client_figures(folders)),
        Section(*PARTICIPATION, outcome_figures(_outcomes(folders), of)),
        Section(*WAITING, _gantt_figures(folders)),
        Section(*HOLDINGS, _holding_figures(folders)),
    )


def _folders(answers: Answers, folder: Path) -> dict[str, dict[int, Path]]:
    """Return the folders of the runs that have ended, by the name of their variant and by seed."""
    plan = answers.plan
    folders: dict[str, dict[int, Path]] = {plan.name_of(setting): {} for setting in answers.curves}
    for run in plan.runs:
        if run.seed in answers.curves[run.setting]:
            folders[plan.name_of(run.setting)][run.seed] = folder / run.label
    return {name: by_seed for name, by_seed in folders.items() if by_seed}


def _outcomes(folders: Mapping[str, Mapping[int, Path]]) -> dict[str, Figures]:
    """Return how many dispatches of each variant came to what, as means over seeds."""
    return {
        name: means([read_summary(place)["participation"] for place in by_seed.values()])
        for name, by_seed in folders.items()
    }


def _client_figures(folders: Mapping[str, Mapping[int, Path]]) -> list[Figure]:
    """Return the accuracies of clients at the end, or else their losses, a line for each variant."""
    columns = {
        name: [read_columns(place / "clients.parquet", ("accuracy", "loss")) for place in by_seed.values()]
        for name, by_seed in folders.items()
    }
    return ranked_figures(columns, "variant")


def _gantt_figures(folders: Mapping[str, Mapping[int, Path]]) -> list[Figure]:
    """Return who did what when in the first run of each variant."""
    figures, notes = list[Figure](), list[str]()
    if len(folders) > MAX_GANTTS:
        notes.append(f"Of {len(folders)} variants only the first {MAX_GANTTS} are shown so.")
    for number, (name, by_seed) in enumerate([*folders.items()][:MAX_GANTTS], 1):
        seed, place = next(iter(by_seed.items()))
        clients = labelled(read_columns(place / "clients.parquet", ("group", "label")))
        rounds = read_columns(place / "rounds.parquet", gantt.ROUNDS_NEEDED)
        figure = gantt.gantt_figure(
            read_spans(place), rounds, clients["group"].tolist(), most_rounds=MAX_ROUNDS
        )
        if figure is not None:
            title = f"{figure.title}: {name}, seed {seed}"
            figures.append(
                replace(figure, name=f"gantt-{number}", title=title, notes=[*figure.notes, *notes])
            )
    return figures


def _holding_figures(folders: Mapping[str, Mapping[int, Path]]) -> list[Figure]:
    """Return who has which data in the first run."""
    for name, by_seed in folders.items():
        for seed, place in by_seed.items():
            its_figures = holding_figures(place, read_columns(place / "clients.parquet", ("num_train",)))
            note = f"Shown is {name} with seed {seed}; the data of other seeds and variants can differ."
            return [replace(figure, notes=[*figure.notes, note]) for figure in its_figures]
    return []
