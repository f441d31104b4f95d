"""How much of the server's link is in use: bytes a second up and down, from the table of messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedsim.errors import UnitError
from fedsim.figures.chart_descriptions import amount
from fedsim.figures.chart_types import Axis, Figure, Line, LineChart, Target
from fedsim.figures.round_curves import TIME
from fedsim.params import Array
from fedsim.report.cost_breakdown import Columns
from fedsim.report.merge_statistics import accumulated
from fedsim.units import parse

BINS = 60
"""Stretches of equal length, of which each has a value."""

SHOWN_FROM = 0.1
"""Share of its capacity that has to be used for the capacity to be shown; otherwise a note tells it."""

_WAYS = {"to the server": True, "from the server": False}
"""Lines, and whether the frames that they show go up."""

NEEDED = ("up", "bytes", "overhead", "sent_at_s", "arrived_at_s")
"""Columns of ``messages`` that the figure is made of."""


def link_figures(messages: Columns, scenario: Mapping[str, Any]) -> list[Figure]:
    """Return the bytes a second to the server and from it; nothing where no frame took time."""
    sent, arrived = messages["sent_at_s"], messages["arrived_at_s"]
    there = np.isfinite(arrived) & (arrived > sent)
    if not there.any():
        return []
    end_s = float(arrived[there].max())
    edges = np.linspace(0.0, end_s, BINS + 1)
    num_bytes = (messages["bytes"] + messages["overhead"]).astype(float)
    lines, sentences, most = list[Line](), list[str](), dict[str, float]()
    for label, is_up in _WAYS.items():
        of = there & (messages["up"] == is_up)
        if of.any():
            rate = bytes_by(edges, sent[of], arrived[of], num_bytes[of]) / (end_s / BINS)
            lines.append(Line(label, edges, np.append(rate, rate[-1])))
            most[label] = float(rate.max())
            mean, peak = (amount(value, "B/s") for value in (float(rate.mean()), most[label]))
            sentences.append(f"{label}: {mean} on average, at most {peak}")
    notes = [
        "Bytes, overhead included, are spread evenly from the sending of a frame to its arrival, so a value "
        "can be above what the link carried at the time.",
        f"Each value is a mean over {amount(end_s / BINS, 's')}.",
    ]
    known = capacity(scenario)
    limits = {label: known[is_up] for label, is_up in _WAYS.items() if label in most and is_up in known}
    if len(limits) == 2 and len({*limits.values()}) == 1:
        limits, most["each way"] = {"each way": known[True]}, max(most.values())
    targets = []
    for label, limit in limits.items():
        words = f"{amount(limit, 'B/s')} {label}"
        if most[label] >= SHOWN_FROM * limit:
            targets.append(Target(limit, f"capacity, {words}"))
        else:
            used = amount(max(most[label] / limit, 0.001), "share")
            notes.append(f"The server's link can carry {words}, of which at most {used} was used.")
    if lost := int(np.count_nonzero(~np.isfinite(arrived))):
        notes.append(f"Without the frames that never arrived: {lost}.")
    chart = LineChart(TIME, Axis("rate", "B/s"), lines, targets, is_stepped=True)
    return [Figure("link-use", "Use of the server's link", f"{'; '.join(sentences)}.", chart, notes)]


def bytes_by(edges: Array, sent_at_s: Array, arrived_at_s: Array, num_bytes: Array) -> Array:
    """Return the bytes between each two of ``edges`` ``[n + 1]``, each frame spread evenly over its way."""
    rates = num_bytes / (arrived_at_s - sent_at_s)
    return np.maximum(np.diff(accumulated(sent_at_s, arrived_at_s, rates, edges)), 0.0)


def capacity(scenario: Mapping[str, Any]) -> dict[bool, float]:
    """Return how many bytes a second the server's link carries to the server (True) and from it (False).

    Nothing is known of links that change over time, or are not shared.
    """
    network, server = scenario.get("network", {}), scenario.get("server", {})
    if network.get("model") != "fluid":
        return {}
    capacities = {}
    for is_up, name in ((True, "down"), (False, "up")):  # what clients send up goes down the server's link
        if f"server_{name}" not in network.get("params", {}):
            try:
                capacities[is_up] = parse(server.get(name), "bit rate") / 8
            except UnitError:  # it is drawn, so no constant
                continue
    return capacities
