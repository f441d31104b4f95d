"""How good it is for each client, and who is left behind: by time, by device group, by amount of data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedsim.figures.chart_descriptions import amount, lines_text, listed
from fedsim.figures.chart_types import Axis, Figure, Line, LineChart, PointChart, Points, Unit
from fedsim.figures.round_curves import TIME, quality_axis
from fedsim.figures.thinning import spread_over
from fedsim.params import Array
from fedsim.report.cost_breakdown import Columns
from fedsim.report.number_format import several
from fedsim.runtime.evaluation import worst_tenth

MAX_POINTS = 1000
"""Clients that are shown as points; of more, the least accurate tenth of these, and others evenly."""

WIDE = 20.0
"""Amounts of data whose largest is so many times the least are shown on a logarithmic axis."""

EVALUATIONS_NEEDED = ("round", "accuracy", "loss")
"""Columns of ``evaluations`` that these figures are made of."""

CLIENTS_NEEDED = ("client", "group", "num_train", "accuracy", "loss")
"""Columns of ``clients``."""


def spread_figures(evaluations: Columns, rounds: Columns) -> list[Figure]:
    """Return how the accuracies of clients, or else their losses, spread over time."""
    what = _measured(evaluations)
    if what is None:
        return []
    values, there = evaluations[what], np.isfinite(evaluations[what])
    numbers, starts = np.unique(evaluations["round"][there], return_index=True)
    each = np.split(values[there], starts[1:])
    time_s = rounds["ended_at_s"][np.searchsorted(rounds["round"], numbers)].astype(float)
    low, middle, high = np.array([np.quantile(clients, (0.1, 0.5, 0.9)) for clients in each]).T
    least, most = (np.array([extreme(clients) for clients in each]) for extreme in (np.min, np.max))
    lines = [
        Line("median, and the middle 80 %", time_s, middle, low, high),
        Line("lowest", time_s, least),
        Line("highest", time_s, most),
    ]
    chart = LineChart(TIME, quality_axis(what, [least, most], "single clients"), lines)
    title = f"Spread of {what} over clients"
    return [Figure(f"{what}-spread", title, lines_text(chart), chart)]


def ranked_figure(values: Mapping[str, Sequence[Array]], what: str, by: str) -> Figure | None:
    """Return the accuracies of clients from the least to the most: a line for each group or variant."""
    lines, sentences = [], []
    for label, runs in values.items():
        there = [run[np.isfinite(run)] for run in runs]
        if not (there := [np.sort(run) for run in there if len(run)]):
            continue
        longest = max(map(len, there))
        share = np.arange(1, longest + 1) / longest
        curves = [np.interp(share, np.arange(1, len(run) + 1) / len(run), run) for run in there]
        y = np.mean(curves, axis=0)
        several_runs = len(curves) > 1
        low, high = (np.min(curves, axis=0), np.max(curves, axis=0)) if several_runs else (None, None)
        unit: Unit = "share" if what == "accuracy" else "1"
        mean = amount(float(np.mean([run.mean() for run in there])), unit)
        worst = [run if what == "accuracy" else run[::-1] for run in there]
        tenth = amount(float(np.mean([worst_tenth(run) for run in worst])), unit)
        lines.append(Line(label, share, y, low, high, f"worst 10 %: {tenth}"))
        sentences.append(f"{label}: mean {mean}, worst 10 %: {tenth}")
    if not lines:
        return None
    axis = Axis(f"share of clients, from the lowest {what} to the highest", "share")
    chart = LineChart(axis, quality_axis(what, [line.y for line in lines]), lines)
    text = f"{what.capitalize()} of clients at the end. {listed(sentences)}"
    notes = ["Lines are means over seeds at each share; bands are from the least to the largest of them."]
    has_bands = any(line.low is not None for line in lines)
    title = f"Clients from the lowest {what} to the highest, by {by}"
    return Figure(f"{what}-by-{by}", title, text, chart, notes if has_bands else ())


def ranked_figures(runs: Mapping[str, Sequence[Columns]], by: str) -> list[Figure]:
    """Return the accuracies of clients at the end, or else their losses, given columns of ``clients``."""
    for what in ("accuracy", "loss"):
        values = {label: [columns[what] for columns in some] for label, some in runs.items()}
        if (figure := ranked_figure(values, what, by)) is not None:
            return [figure]
    return []


def by_data_figures(clients: Columns) -> list[Figure]:
    """Return the accuracy of each client against its number of training samples, coloured by device group."""
    what = _measured(clients)
    if what is None:
        return []
    there = np.flatnonzero(np.isfinite(clients[what]))
    shown, notes = there, []
    if len(there) > MAX_POINTS:
        sign, tenth = 1 if what == "accuracy" else -1, MAX_POINTS // 10
        order = there[np.argsort(sign * clients[what][there], kind="stable")]  # the worst first
        rest = order[tenth:]
        shown = np.sort(np.concatenate([order[:tenth], rest[spread_over(len(rest), MAX_POINTS - tenth)]]))
        notes.append(f"Of {len(there)} clients {MAX_POINTS} are shown: the {tenth} worst, others evenly.")
    samples = clients["num_train"].astype(float)
    groups = []
    for label in dict.fromkeys(clients["group"].tolist()):
        of = shown[clients["group"][shown] == label]
        names = [f"client {client}" for client in clients["client"][of].tolist()]
        if len(of):
            groups.append(Points(label, samples[of], clients[what][of], names))
    x = samples[there]
    if x.min() == x.max():
        return []
    chart = PointChart(samples_axis(x), quality_axis(what, [clients[what][shown]]), groups)
    correlation = _rank_correlation(x, clients[what][there])
    text = f"{several(len(there), 'client')} with {x.min():.0f} to {x.max():.0f} training samples. "
    text += f"The rank correlation of {what} with the number of samples is {correlation:.2f}."
    title = f"{what.capitalize()} of clients against their amount of data"
    return [Figure(f"{what}-by-data", title, text, chart, notes)]


def samples_axis(samples: Array) -> Axis:
    """Return the axis of the clients' amounts of data."""
    is_wide = samples.min() > 0 and samples.max() > WIDE * samples.min()
    return Axis("training samples of the client", "1", "log" if is_wide else "linear")


def _measured(columns: Columns) -> str | None:
    """Return ``"accuracy"``, or else ``"loss"``, whichever has values; None where neither has."""
    for what in ("accuracy", "loss"):
        if np.isfinite(columns[what]).any():
            return what
    return None


def _rank_correlation(x: Array, y: Array) -> float:
    """Return Spearman's correlation; 0 where one of them is constant."""
    ranks = [_ranks(values) for values in (x, y)]
    if any(own.std() == 0 for own in ranks):
        return 0.0
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def _ranks(values: Array) -> Array:
    """Return the mean rank of each value among all."""
    _, group, sizes = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(sizes)
    return (ends - (sizes - 1) / 2)[group]
