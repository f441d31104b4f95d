"""The figures of a run: from its folder, or from its rounds alone while it goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np

from fedsim.errors import UserError
from fedsim.figures import client_quality, gantt, holdings, link_use, participation, round_curves, spending
from fedsim.figures.chart_types import Figure, LineChart, Section, Target
from fedsim.figures.ticks import tick_label
from fedsim.quoting import quoted
from fedsim.report.cost_breakdown import Columns
from fedsim.report.read_parquet import read_columns
from fedsim.report.read_results import read_provenance, read_scenario
from fedsim.report.run_trace import read_spans
from fedsim.runtime.budget import MEASURES

ROUNDS_NEEDED = tuple(
    dict.fromkeys((*gantt.ROUNDS_NEEDED, *round_curves.NEEDED, *spending.NEEDED, *participation.NEEDED))
)
"""Columns of ``rounds`` that figures are made of."""

CLIENTS_NEEDED = tuple(
    dict.fromkeys(("label", *client_quality.CLIENTS_NEEDED, *spending.NEEDED, *participation.PARTS))
)
"""Columns of ``clients``."""

MAX_GROUPS = 12
"""Device groups that are told apart, those with the most clients; all others together are one more."""

QUALITY = "quality", "How good it gets"
SPENDING = "spending", "Where time and bytes went"
WAITING = "waiting", "Who held the others up"
CLIENTS = "clients", "Who is left behind"
HOLDINGS = "holdings", "Who has which data"
PARTICIPATION = "taking-part", "Who takes part"
LINK = "link", "The server's link"


def run_sections(folder: Path, rounds: tuple[int, int] | None = None) -> list[Section]:
    """Return the figures of a run, under headings; what was not measured has none."""
    scenario = read_scenario(folder)
    of_rounds = read_columns(folder / "rounds.parquet", ROUNDS_NEEDED, optional=spending.OPTIONAL)
    clients = labelled(read_columns(folder / "clients.parquet", CLIENTS_NEEDED, optional=spending.OPTIONAL))
    if rounds is not None:
        _check_rounds(rounds, of_rounds)
    groups = by_group(clients)
    spent = {label: spending.spent(rows) for label, rows in groups.items()}
    sections = filled(
        Section(*QUALITY, round_curves.quality_figures(of_rounds, targets_of(scenario))),
        Section(*SPENDING, spending.spending_figures(spent, "by device group" if len(spent) > 1 else "")),
        Section(*WAITING, waiting_figures(folder, scenario, of_rounds, clients, rounds)),
        Section(*CLIENTS, _client_figures(folder, of_rounds, clients, groups)),
        Section(*HOLDINGS, holding_figures(folder, clients)),
        Section(
            *PARTICIPATION,
            [*participation.participation_figures(of_rounds), *participation.outcomes_by_group(groups)],
        ),
        Section(
            *LINK,
            link_use.link_figures(read_columns(folder / "messages.parquet", link_use.NEEDED), scenario),
        ),
    )
    is_simulated = read_provenance(folder)["bus"] == "memory"
    return sections if is_simulated else [_in_real_time(section) for section in sections]


def round_sections(
    rounds: Columns, targets: Sequence[Target] = (), *, is_simulated: bool = True
) -> list[Section]:
    """Return the figures that the rounds of a run tell, such as those so far of a run that goes on."""
    sections = filled(
        Section(*QUALITY, round_curves.quality_figures(rounds, targets)),
        Section(*SPENDING, spending.spending_figures({"all clients": spending.spent(rounds)})),
        Section(*PARTICIPATION, participation.participation_figures(rounds)),
    )
    return sections if is_simulated else [_in_real_time(section) for section in sections]


def waiting_figures(
    folder: Path,
    scenario: Mapping[str, Any],
    rounds: Columns,
    clients: Columns,
    wanted: tuple[int, int] | None = None,
) -> list[Figure]:
    """Return who did what when, and for whom rounds waited, given what was read of a run's folder."""
    if not len(rounds["round"]):
        return []
    spans, groups = read_spans(folder), clients["group"].tolist()
    figures = [gantt.gantt_figure(spans, rounds, groups, wanted)]
    if wanted is not None and figures == [None]:
        raise UserError(f"nobody did anything in the rounds {wanted[0]} to {wanted[1]}: choose others")
    if scenario.get("participation", {}).get("pacing", {}).get("name") == "synchronous":
        figures.append(gantt.held_up_figure(spans, rounds, groups, wanted))
    return [figure for figure in figures if figure is not None]


def holding_figures(folder: Path, clients: Columns) -> list[Figure]:
    """Return who has which data in a run's folder, given columns of ``clients``."""
    classes = folder / "client_classes.parquet"
    held = read_columns(classes, holdings.NEEDED) if classes.exists() else {}
    return [*holdings.class_figures(held), *holdings.amount_figures(clients["num_train"])]


def targets_of(scenario: Mapping[str, Any]) -> list[Target]:
    """Return the accuracy that ends a run, if one does, given the tables of its scenario."""
    until = scenario.get("run", {}).get("until", {})
    if "accuracy" not in until:
        return []
    words = MEASURES[until.get("of", "personal_mean")].words
    return [Target(until["accuracy"], f"target {tick_label(until['accuracy'], 'share')}, {words}")]


def labelled(clients: Columns) -> Columns:
    """Return columns of ``clients`` with the labels of devices as groups, unless these would be too many.

    A label that several groups have is told with the group.
    """
    pairs = list(zip(clients["group"].tolist(), clients["label"].tolist(), strict=True))
    kinds = dict.fromkeys(pairs)
    if len(kinds) > MAX_GROUPS:
        return clients
    is_shared = len({label for _, label in kinds}) < len(kinds)
    names = {kind: ", ".join(dict.fromkeys(kind)) if is_shared else kind[1] for kind in kinds}
    return {**clients, "group": np.array([names[pair] for pair in pairs], object)}


def by_group(clients: Columns) -> dict[str, Columns]:
    """Return the rows of ``clients`` of each device group, in the order of the fleet."""
    sizes = Counter(clients["group"].tolist())
    shown = {label for label, _ in sizes.most_common(MAX_GROUPS)} if len(sizes) > MAX_GROUPS + 1 else sizes
    groups = {label: clients["group"] == label for label in sizes if label in shown}
    if others := [label for label in sizes if label not in shown]:
        groups[f"{len(others)} smaller groups"] = np.isin(clients["group"], others)
    return {label: {name: column[of] for name, column in clients.items()} for label, of in groups.items()}


def filled(*sections: Section) -> list[Section]:
    """Return the sections that have figures."""
    return [section for section in sections if section.figures]


def _check_rounds(wanted: Any, rounds: Columns) -> None:
    """Check what may come from a user."""
    ends = list(wanted) if isinstance(wanted, tuple | list) else []
    if len(ends) != 2 or not all(isinstance(end, Integral) for end in ends) or not 1 <= ends[0] <= ends[1]:
        raise UserError(
            f"{quoted(wanted)} are no rounds: give the first and the last, counted from 1, as in (20, 40)"
        )
    most = int(np.max(rounds.get("round", 0), initial=0))
    if most and ends[1] > most:
        raise UserError(
            f"this run has no round {ends[1]}, it ended with round {most}: choose rounds from 1 to {most}"
        )


def _in_real_time(section: Section) -> Section:
    """Return the figures of a run over sockets, whose time is not simulated."""

    def named(words: str) -> str:
        return words.replace(round_curves.TIME.label, "time")

    figures = []
    for figure in section.figures:
        chart = figure.chart
        if isinstance(chart, LineChart):
            chart = replace(chart, x=replace(chart.x, label=named(chart.x.label)))
        figures.append(replace(figure, chart=chart, title=named(figure.title)))
    return replace(section, figures=figures)


def _client_figures(
    folder: Path, rounds: Columns, clients: Columns, groups: Mapping[str, Columns]
) -> list[Figure]:
    evaluations = read_columns(folder / "evaluations.parquet", client_quality.EVALUATIONS_NEEDED)
    return [
        *client_quality.spread_figures(evaluations, rounds),
        *client_quality.ranked_figures({label: [rows] for label, rows in groups.items()}, "group"),
        *client_quality.by_data_figures(clients),
    ]
