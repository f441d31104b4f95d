"""Who did what when in some rounds, and for whom rounds had to wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedsim.figures.chart_descriptions import amount, bars_text
from fedsim.figures.chart_types import Axis, BarChart, Figure, GanttChart, Part
from fedsim.params import Array
from fedsim.report.cost_breakdown import Columns
from fedsim.report.number_format import several
from fedsim.report.shown_clients import shown_clients
from fedsim.runtime.records.dispatch_phases import PHASES

MAX_CLIENTS = 30
"""Clients that a chart shows. Of more clients it shows the slowest, the middle and the fastest, a third each.

On a page the reader chooses rounds (``gantt_chart.js``), and the chart shows this many clients of them.
"""

MAX_ROUNDS = 100
"""Rounds that a reader can choose from: the first ones, unless others are wanted."""

MAX_SPANS = 6000
"""Spans; where there would be more, there are half as many rounds, or a quarter, and so on."""

ROUNDS_NEEDED = ("round", "began_at_s", "ended_at_s")
"""Columns of ``rounds`` that these figures are made of."""

MAX_HOLDERS = 10
"""Clients of whom is told for how long rounds waited for them alone."""


def gantt_figure(
    spans: Columns,
    rounds: Columns,
    groups: Sequence[str],
    wanted: tuple[int, int] | None = None,
    most_rounds: int = MAX_ROUNDS,
) -> Figure | None:
    """Return who did what when in some rounds; None where nobody did anything."""
    if not len(spans["client"]):
        return None
    dispatches = _dispatches(spans)
    busy = np.isin(rounds["round"], dispatches["round"])
    if wanted is None:
        window = np.flatnonzero(busy)[:most_rounds]
    else:
        window = np.flatnonzero(busy & (rounds["round"] >= wanted[0]) & (rounds["round"] <= wanted[1]))
    if not len(window):
        return None
    while True:
        began_at_s, ended_at_s = rounds["began_at_s"][window], rounds["ended_at_s"][window]
        within = (dispatches["began_at_s"] < ended_at_s[-1]) & (dispatches["ended_at_s"] > began_at_s[0])
        within |= np.isin(dispatches["round"], rounds["round"][window])
        clients, at_work = _chosen(dispatches, within), len(np.unique(dispatches["client"][within]))
        within &= np.isin(dispatches["client"], clients)
        chosen = within[dispatches["of_span"]] & (spans["ended_at_s"] > spans["began_at_s"])
        if np.count_nonzero(chosen) <= MAX_SPANS or len(window) == 1:
            break
        window = window[: len(window) // 2]
    row_of = {client: number for number, client in enumerate(clients.tolist())}
    phase_of = {phase: number for number, phase in enumerate(PHASES)}
    numbers = rounds["round"][window]
    chart = GanttChart(
        [_name(client, groups) for client in row_of],
        PHASES,
        np.array([row_of[client] for client in spans["client"][chosen].tolist()], np.int64),
        np.array([phase_of[phase] for phase in spans["phase"][chosen].tolist()], np.int64),
        spans["round"][chosen],
        spans["began_at_s"][chosen],
        spans["ended_at_s"][chosen],
        numbers,
        began_at_s,
        ended_at_s,
    )
    notes = ["The slowest clients are at the top, by the mean time of their dispatches in a round."]
    if len(clients) < at_work:
        third = MAX_CLIENTS // 3
        notes.append(
            f"Of the clients of a round {MAX_CLIENTS} are shown: the {third} slowest, {third} in the middle "
            f"and the {third} fastest."
        )
    if not spans["is_exact"][chosen].all():
        notes.append("Of some phases only the length is known, not when: they are in their usual order.")
    if len(window) < np.count_nonzero(busy):
        notes.append(
            f"Of {several(int(busy.sum()), 'round')} {len(window)} are shown; "
            "'fedsim report RUN --rounds A:B' shows others."
        )
    title, text = f"Clients by phase, {_rounds(numbers)}", _text(dispatches, within, list(row_of))
    return Figure("gantt", title, text, chart, notes)


def first_rounds(chart: GanttChart, most: int) -> GanttChart:
    """Return the first ``most`` rounds of a chart, with up to :data:`MAX_CLIENTS` clients, slowest first."""
    numbers = chart.round_numbers[:most]
    if not len(numbers):
        return chart
    chosen = chart.round <= numbers[-1]
    lasted_s = chart.ended_at_s - chart.began_at_s
    rows = _slowest_first(chart.row[chosen], chart.round[chosen], lasted_s[chosen], MAX_CLIENTS)
    chosen &= np.isin(chart.row, rows)
    place = np.zeros(len(chart.rows), np.int64)
    place[rows] = np.arange(len(rows))
    of_spans = ("phase", "round", "began_at_s", "ended_at_s")
    of_rounds = ("round_numbers", "round_began_at_s", "round_ended_at_s")
    return replace(
        chart,
        rows=[chart.rows[number] for number in rows.tolist()],
        row=place[chart.row[chosen]],
        **{name: getattr(chart, name)[chosen] for name in of_spans},
        **{name: getattr(chart, name)[:most] for name in of_rounds},
    )


def held_up_figure(
    spans: Columns, rounds: Columns, groups: Sequence[str], wanted: tuple[int, int] | None = None
) -> Figure | None:
    """Return for how long rounds waited for one client alone, and why; None if they never did.

    Only synchronous rounds do, which end when all have replied or have been given up.
    """
    first, last = wanted or (0, int(rounds["round"].max(initial=0)))
    spans, rounds = (
        {name: column[(table["round"] >= first) & (table["round"] <= last)] for name, column in table.items()}
        for table in (spans, rounds)
    )
    held_s = _held_up(spans, _dispatches(spans)) if len(spans["client"]) else {}
    total_s = {client: total for client, of in held_s.items() if (total := float(of.sum())) > 0}
    if not total_s:
        return None
    order = sorted(total_s, key=lambda client: (-total_s[client], client))
    bars = {_name(client, groups): held_s[client] for client in order[:MAX_HOLDERS]}
    if others := order[MAX_HOLDERS:]:
        bars[several(len(others), "other client")] = np.sum([held_s[client] for client in others], axis=0)
    by_phase = zip(PHASES, np.array([*bars.values()]).T, strict=True)
    parts = [Part(phase, values) for phase, values in by_phase if values.any()]
    chart = BarChart(list(bars), parts, Axis("time in which all others had ended", "s"))
    whole_s = float(np.sum(rounds["ended_at_s"] - rounds["began_at_s"]))
    share = amount(sum(total_s.values()) / whole_s, "share") if whole_s else "0 %"
    shown = _rounds(rounds["round"])
    text = f"{share} of the time of {shown} was waiting for one client alone. {bars_text(chart)}"
    return Figure("held-up", f"For whom rounds waited, and why, {shown}", text, chart)


def _dispatches(spans: Columns) -> Columns:
    """Return the dispatches that spans are of, and the number of each span's dispatch as ``of_span``."""
    is_new = np.ones(len(spans["client"]), np.bool_)
    is_new[1:] = np.any([np.diff(spans[name]) != 0 for name in ("client", "dispatch")], axis=0)
    first = np.flatnonzero(is_new)
    last = np.append(first[1:], len(is_new)) - 1
    return {
        **{name: spans[name][first] for name in ("client", "round", "began_at_s", "outcome")},
        "ended_at_s": spans["ended_at_s"][last],
        "of_span": np.cumsum(is_new) - 1,
    }


def _chosen(dispatches: Columns, within: Array) -> Array:
    """Return the clients that are shown of any round, the slowest first."""
    client, of_round = dispatches["client"][within], dispatches["round"][within]
    lasted_s = (dispatches["ended_at_s"] - dispatches["began_at_s"])[within]
    shown = [
        _slowest_first(client[mine], of_round[mine], lasted_s[mine], MAX_CLIENTS)
        for mine in (of_round == number for number in np.unique(of_round))
    ]
    order = _slowest_first(client, of_round, lasted_s, len(client) + 3)
    return order[np.isin(order, np.concatenate(shown))]


def _slowest_first(client: Array, of_round: Array, lasted_s: Array, most: int) -> Array:
    """Return up to ``most`` clients (:func:`shown_clients`), by their mean time in a round, slowest first."""
    rounds = int(of_round.max(initial=0)) + 1
    turns, of = np.unique(client.astype(np.int64) * rounds + of_round, return_inverse=True)
    turn_s, who = np.bincount(of, lasted_s), turns // rounds
    clients, of = np.unique(who, return_inverse=True)
    mean_s = np.bincount(of, turn_s) / np.bincount(of)
    order = clients[np.argsort(-mean_s, kind="stable")]
    return order[np.isin(order, np.concatenate([*shown_clients(who, turn_s, most).values()]))]


def _held_up(spans: Columns, dispatches: Columns) -> dict[int, Array]:
    """Return for how long rounds waited for each client alone, by phase, ``[phases]``."""
    held_s: dict[int, Array] = {}
    able = np.flatnonzero(np.isin(dispatches["outcome"], ("merged", "dropped", "rejected")))
    order = able[np.lexsort((dispatches["ended_at_s"][able], dispatches["round"][able]))]
    _, starts = np.unique(dispatches["round"][order], return_index=True)
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(order)], strict=True):
        if end - start < 2:
            continue
        holder, since_s = int(order[end - 1]), float(dispatches["ended_at_s"][order[end - 2]])
        its = slice(*np.searchsorted(dispatches["of_span"], (holder, holder + 1)))
        began_at_s = np.maximum(spans["began_at_s"][its], since_s)
        alone_s = np.maximum(spans["ended_at_s"][its] - began_at_s, 0.0)
        by_phase = np.array([alone_s[spans["phase"][its] == phase].sum() for phase in PHASES])
        client = int(dispatches["client"][holder])
        held_s[client] = held_s.get(client, 0.0) + by_phase
    return held_s


def _name(client: int, groups: Sequence[str]) -> str:
    return f"client {client}, {groups[client]}" if len(set(groups)) > 1 else f"client {client}"


def _text(dispatches: Columns, within: Array, clients: Sequence[int]) -> str:
    """Say how long dispatches of the slowest and of the fastest client took."""
    lasted_s = dispatches["ended_at_s"] - dispatches["began_at_s"]
    sentences = (
        f"client {client}: {amount(float(lasted_s[within & (dispatches['client'] == client)].mean()), 's')}"
        for client in dict.fromkeys((clients[0], clients[-1]))
    )
    return f"Mean time of a dispatch, of the slowest and of the fastest client shown. {'; '.join(sentences)}."


def _rounds(numbers: Array) -> str:
    first, last = int(numbers[0]), int(numbers[-1])
    return f"round {first}" if first == last else f"rounds {first} to {last}"
