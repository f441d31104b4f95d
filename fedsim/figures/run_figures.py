"""The figures of a run: from its folder, or from its rounds alone while it goes on."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedsim.figures import participation, round_curves, spending
from fedsim.figures.amounts import amount
from fedsim.figures.base import Section, Target
from fedsim.report.cost_breakdown import Columns
from fedsim.report.read_parquet import read_there
from fedsim.report.read_whole import read_whole
from fedsim.runtime.budget import MEASURES

ROUNDS_NEEDED = tuple(dict.fromkeys((*round_curves.NEEDED, *spending.NEEDED, *participation.NEEDED)))
"""Columns of ``rounds`` that figures are made of; where one is missing, what it would show is left out."""

CLIENTS_NEEDED = tuple(dict.fromkeys(("client", "group", *spending.NEEDED, *participation.PARTS)))
"""Columns of ``clients``."""

MOST_GROUPS = 12
"""Device groups that are told apart, those with the most clients; all others together are one more."""

QUALITY = "quality", "How good it gets"
SPENDING = "spending", "Where time and bytes went"
PARTICIPATION = "participation", "Who takes part"


def run_sections(folder: Path) -> list[Section]:
    """Return the figures of a run, under headings; what was not measured has none.

    Args:
        folder: The run's.

    Raises:
        OutputError: A file of the run is not there, or damaged.
    """
    scenario = read_whole(folder / "scenario.toml", lambda file: tomllib.loads(file.read_text("utf-8")))
    rounds = read_there(folder / "rounds.parquet", ROUNDS_NEEDED)
    groups = by_group(read_there(folder / "clients.parquet", CLIENTS_NEEDED))
    spent = {label: spending.spent(rows) for label, rows in groups.items()}
    return filled(
        Section(*QUALITY, round_curves.quality_figures(rounds, targets_of(scenario))),
        Section(*SPENDING, spending.spending_figures(spent, "by device group" if len(spent) > 1 else "")),
        Section(
            *PARTICIPATION,
            [*participation.participation_figures(rounds), *participation.outcomes_by_group(groups)],
        ),
    )


def round_sections(rounds: Columns, targets: Sequence[Target] = ()) -> list[Section]:
    """Return the figures that the rounds of a run tell, such as those so far of a run that goes on.

    Args:
        rounds: Those columns of :data:`ROUNDS_NEEDED` that are known.
        targets: Accuracies that are marked.
    """
    return filled(
        Section(*QUALITY, round_curves.quality_figures(rounds, targets)),
        Section(*SPENDING, spending.spending_figures({"all clients": spending.spent(rounds)})),
        Section(*PARTICIPATION, participation.participation_figures(rounds)),
    )


def targets_of(scenario: Mapping[str, Any]) -> list[Target]:
    """Return the accuracy that ends a run, if one does, given the tables of its scenario."""
    until = scenario.get("run", {}).get("until", {})
    if "accuracy" not in until:
        return []
    words = MEASURES[until.get("of", "personal_mean")].words
    return [Target(until["accuracy"], f"until {amount(until['accuracy'], 'share')}, {words}")]


def by_group(clients: Columns) -> dict[str, Columns]:
    """Return the rows of ``clients`` of each device group, in the order of the fleet."""
    if "group" not in clients:
        return {}
    sizes = Counter(clients["group"].tolist())
    shown = {label for label, _ in sizes.most_common(MOST_GROUPS)} if len(sizes) > MOST_GROUPS + 1 else sizes
    groups = {label: clients["group"] == label for label in sizes if label in shown}
    if others := [label for label in sizes if label not in shown]:
        groups[f"{len(others)} smaller groups"] = np.isin(clients["group"], others)
    return {label: {name: column[of] for name, column in clients.items()} for label, of in groups.items()}


def filled(*sections: Section) -> list[Section]:
    """Return the sections that have figures."""
    return [section for section in sections if section.figures]
