"""The energy of a run that is in a folder, whatever it was run for; and energy as tables for people."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from fedsim.errors import UserError
from fedsim.fleet import build_fleet
from fedsim.fleet.power import POWERS, EnergyConfig
from fedsim.quoting import quoted
from fedsim.report import number_format
from fedsim.report.cost_breakdown import energy_words
from fedsim.report.energy import MODEL, PARTS, Energy, estimated
from fedsim.report.read_parquet import read_columns
from fedsim.report.run_columns import DISPATCHES
from fedsim.report.run_trace import replay
from fedsim.report.summary import read_summary
from fedsim.report.tables import arrow_table
from fedsim.report.text_table import TextTable
from fedsim.rng import Key
from fedsim.scenario.load import Overrides, load_scenario

_MESSAGES = ("client", "dispatch", "up", "bytes", "overhead")
_FREE = re.compile(rf"fleet\.\d+\.({'|'.join(POWERS)}|radio(\..+)?)|energy(\..+)?")
"""Paths of a scenario on which no run depends."""

_KEYS = ("client", "dispatch", "round", "label")


def run_energy(folder: Path, overrides: Overrides = ()) -> tuple[Energy, pa.Table]:
    """Return the energy of a finished run, and that of each of its dispatches as a table.

    Args:
        folder: The run's folder.
        overrides: Values that replace those of its scenario, such as ``{"fleet.0.compute_power": "3 W"}`` or
            ``{"energy.carbon_intensity": "300 g/kWh"}``. Powers and what energy costs can be replaced; a run
            with other values of anything else would have been another run.

    Raises:
        UserError: Something else is to be replaced.
        OutputError: The folder is no finished run's, or is damaged.
        ScenarioError: What is wrong with the values.
    """
    given = overrides if isinstance(overrides, Mapping) else [text.partition("=")[0] for text in overrides]
    if other := [path for path in given if not _FREE.fullmatch(str(path))]:
        raise UserError(
            f"{quoted(other[0])} is part of what the run was: only powers and what energy costs can be "
            "replaced, such as fleet.0.compute_power, fleet.0.radio or energy.pue"
        )
    replayed = replay(folder)
    scenario = load_scenario(folder / "scenario.toml", overrides)
    fleet = build_fleet(scenario.fleet, scenario.server, Key.root(scenario.run.seed))
    ended_ns = round(read_summary(folder)["simulated_s"] * 1e9)
    frames = read_columns(folder / "messages.parquet", _MESSAGES)
    config = scenario.energy or EnergyConfig()
    energy = estimated(fleet, config, replayed.dispatches, frames, ended_ns)
    columns = replayed.dispatches.columns()
    columns["label"] = fleet.labels()[columns["client"]]
    return energy, arrow_table(DISPATCHES, {name: columns[name] for name in _KEYS} | dict(energy.joules))


def energy_table(energy: Energy, labels: np.ndarray, title: str) -> TextTable:
    """Return what devices of each label have drawn, and what all of it costs, for people.

    Args:
        energy: The energy of a run.
        labels: The label of each dispatch's device.
        title: Of the table.
    """
    names, of = np.unique(labels.astype(str), return_inverse=True)
    sums = energy.sums(of, len(names))
    total = energy.summary()
    rows = [
        (str(name), *(number_format.energy(float(sums[part][place])) for part in PARTS))
        for place, name in enumerate(names)
    ]
    rows.append(("all clients", *(number_format.energy(total[part]) for part in PARTS)))
    notes = [energy_words(total)]
    headings = ("device", *(part.removesuffix("_j") for part in PARTS))
    return TextTable(headings, rows, [*notes, MODEL], title=title)
