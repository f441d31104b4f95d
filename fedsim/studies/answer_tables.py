"""What a study answers as tables for people."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import zip_longest

from fedsim.report import number_format
from fedsim.report.text_table import TextTable
from fedsim.runtime.budget import MEASURES
from fedsim.studies.budgets import Budget, FrontPoint, stretches
from fedsim.studies.comparison import BEST
from fedsim.studies.intervals import WORDS, Interval, interval, is_best
from fedsim.studies.plan import StudyPlan, path_headings
from fedsim.studies.study_answers import Answer
from fedsim.studies.tuning import Tuning

Show = Callable[[float], str]
Cell = Callable[[Answer], str]

Shown = Mapping[str, tuple[str, Show]]
"""Headings of columns with the quantities below them, and how these are shown."""

COSTS: Shown = {
    "time": ("time_to_target_s", number_format.duration),
    "bytes up": ("bytes_up_to_target", number_format.size),
    "bytes down": ("bytes_down_to_target", number_format.size),
}

ENERGY: Shown = {
    "energy": ("joules_to_target", number_format.energy),
    "CO2": ("carbon_to_target_g", number_format.mass),
}

ACCURACIES: Shown = {
    "best %": ("best_accuracy", number_format.percent),
    "final %": ("final_accuracy", number_format.percent),
    "std %": ("final_accuracy_std", number_format.percent),
    "worst\n10 %": ("final_accuracy_worst_decile", number_format.percent),
    "Jain\nindex": ("final_accuracy_jain", number_format.number),
}

WASTE: Shown = {
    "staleness": ("staleness_mean", number_format.number),
    "wasted time": ("wasted_s", number_format.duration),
    "wasted\nwork %": ("wasted_s_share", number_format.percent),
    "wasted bytes": ("wasted_bytes", number_format.size),
    "wasted\nbytes %": ("wasted_bytes_share", number_format.percent),
}

AMOUNTS: dict[str, Show] = {"time_s": number_format.duration, "bytes": number_format.size}
"""How what a budget bounds is shown."""

_SEEDS: dict[str, Cell] = {"seeds": lambda row: str(row.seeds)}


def tables(
    plan: StudyPlan,
    answers: Sequence[Answer],
    fronts: Mapping[str, Sequence[FrontPoint]],
    budgets: Sequence[Budget] = (),
    notes_on_runs: Sequence[str] = (),
) -> list[TextTable]:
    """Return the tables.

    They are of costs to each target, of accuracy within budgets and at the end, each with the differences to
    the baseline, of work in vain where there is any, and of who is the most accurate within which budget.
    Notes on runs are below that of accuracy at the end.
    """
    grids = []
    for target in plan.config.targets:
        rows = [answer for answer in answers if answer.target == target]
        grids.append(_to_target(plan, rows, target))
        title = f"to reach {100 * target:g} %"
        words = "pairs: seeds with which both reach it; "
        grids += _differences(plan, rows, COSTS, title, words, pairs_of="time_to_target_s")
    first = plan.config.targets[0] if plan.config.targets else None
    rows = [answer for answer in answers if answer.target == first]
    if known := [budget for budget in budgets if math.isfinite(budget.amount)]:
        grids.append(_within(plan, rows, known))
        shown: Shown = {
            f"within\n{_amount(budget)}": (budget.accuracy_column, number_format.percent) for budget in known
        }
        title = "at equal time and at equal bytes"
        grids += _differences(plan, rows, shown, title, "in percentage points; ")
    notes = [
        f"best, final: {MEASURES[plan.config.of].words}; "
        "std, worst 10 %, Jain index: over clients, at the end"
    ]
    notes += [_plus_minus(plan), *notes_on_runs]
    grids.append(_table(plan, rows, "accuracy", _quantities(ACCURACIES), notes))
    words = "in percentage points, but for Jain's index; "
    grids += _differences(plan, rows, ACCURACIES, "accuracy", words, pairs_of="final_accuracy")
    if any((value := row.figures.get(name)) and value.mean for row in rows for name, _ in WASTE.values()):
        notes = [
            "staleness: merges between a dispatch and that of its reply, mean over replies",
            "wasted: work and bytes of replies that were not merged, and bytes of frames that were lost",
            f"until the last evaluation; {_plus_minus(plan)}",
        ]
        grids.append(_table(plan, rows, "staleness and waste", _quantities(WASTE), notes))
    return [*grids, _fronts(plan, rows, fronts)]


def _to_target(plan: StudyPlan, rows: Sequence[Answer], target: float) -> TextTable:
    every = max((row.seeds for row in rows), default=0)

    def cost(name: str, show: Show, row: Answer) -> str:
        value, values = row.figures[name], [other.figures[name] for other in rows]
        return _spread(value, show) + (BEST if is_best(value, values, every) else "")

    columns: dict[str, Cell] = {"reached": lambda row: f"{row.reached} of {row.seeds}"}
    known = {
        heading: quantity
        for heading, quantity in ENERGY.items()
        if any(row.figures.get(quantity[0]) for row in rows)
    }
    columns |= {heading: partial(cost, *quantity) for heading, quantity in {**COSTS, **known}.items()}
    notes = [
        f"accuracy: {MEASURES[plan.config.of].words}; reached: at the first evaluation that shows it",
        f"means over the seeds that have reached it; {_plus_minus(plan)}",
    ]
    grid = _table(plan, rows, f"to reach {100 * target:g} %", columns, notes)
    if any(cell.endswith(BEST) for row in grid.rows for cell in row):
        notes.append(f"{BEST} least of those that have reached it with every seed, unless ± exceeds it")
    return grid


def _within(plan: StudyPlan, rows: Sequence[Answer], budgets: Sequence[Budget]) -> TextTable:
    def part(row: Answer, column: str) -> str:
        value = row.figures[column]
        return f" ({value.count} of {row.seeds})" if value is not None and value.count < row.seeds else ""

    def accuracy(column: str, row: Answer) -> str:
        return _spread(row.figures[column], number_format.percent) + part(row, column)

    columns = {
        f"% within\n{_amount(budget)}": partial(accuracy, budget.accuracy_column) for budget in budgets
    }
    notes = [f"accuracy: {MEASURES[plan.config.of].words}, of the last evaluation within the budget"]
    notes += [f"{_amount(budget)}: {_LEAST[budget.bounds]}" for budget in budgets if not budget.is_stated]
    for budget in budgets:
        ended = [
            f"{plan.name_of(row.setting)} {number} of {row.seeds}"
            for row in rows
            if (number := row.ended_before[budget.accuracy_column])
        ]
        if ended and budget.is_stated:
            names = ", ".join(ended)
            notes.append(f"runs that ended before {_amount(budget)} count as they were then: {names}")
    if any(part(row, budget.accuracy_column) for row in rows for budget in budgets):
        notes.append("(1 of 2): of two seeds, one was evaluated within the budget")
    notes.append(_plus_minus(plan))
    return _table(plan, rows, "accuracy at equal time and at equal bytes", _SEEDS | columns, notes)


_LEAST = {
    "time_s": "the earliest end of a run",
    "bytes": "the least that a run has sent at its end, of those that send anything",
}
"""What a budget is that the study does not state."""


def _differences(
    plan: StudyPlan, rows: Sequence[Answer], shown: Shown, of: str, words: str, *, pairs_of: str = ""
) -> list[TextTable]:
    """Return the table of differences to the baseline, if there are any rows to compare with it.

    ``pairs_of`` is the quantity whose pairs of runs are counted in a column; no column if it is empty.
    """
    others = [row for row in rows if row.setting.variant != plan.config.baseline]
    if plan.config.baseline is None or not others:
        return []

    def difference(name: str, show: Show, row: Answer) -> str:
        value = row.differences.get(name)
        sign = "" if value is None else "+" if value.mean >= 0 else "-"
        return sign + _spread(value, lambda amount: show(abs(amount)))

    def count(row: Answer) -> str:
        value = row.differences.get(pairs_of)
        return str(value.count if value else 0)

    columns: dict[str, Cell] = {"pairs": count} if pairs_of else {}
    columns |= {heading: partial(difference, *quantity) for heading, quantity in shown.items()}
    notes = [f"of runs with the same seed; {words}{_plus_minus(plan)}"]
    return [_table(plan, others, f"difference to {plan.config.baseline}, {of}", columns, notes)]


def _quantities(shown: Shown) -> dict[str, Cell]:
    """Return the columns of quantities, after one of the number of seeds."""

    def cell(name: str, show: Show, row: Answer) -> str:
        return _spread(row.figures[name], show)

    return _SEEDS | {heading: partial(cell, *quantity) for heading, quantity in shown.items()}


def _table(
    plan: StudyPlan, rows: Sequence[Answer], title: str, columns: Mapping[str, Cell], notes: Sequence[str]
) -> TextTable:
    """Return a table of rows, with columns that say which setting a row is of before the others."""
    names: dict[str, Cell] = {"variant": lambda row: row.setting.variant}
    for number, heading in enumerate(path_headings(plan.grid)):
        names[heading] = partial(_value, number)
    return TextTable.of(rows, {**names, **columns}, notes=notes, title=title)


def _value(number: int, row: Answer) -> str:
    return str(row.setting.point[number])


def _amount(budget: Budget) -> str:
    return AMOUNTS[budget.bounds](budget.amount)


def tuning_table(plan: StudyPlan, tuning: Tuning) -> TextTable:
    """Return the table of what was tried, with all candidates."""
    rows = []
    for (setting, number), by_seed in tuning.scores.items():
        tried = [str(value) for value in (*setting.point, *plan.candidates[setting][number].values)]
        mark = BEST if tuning.chosen.get(setting) == number else ""
        score = _spread(interval(list(by_seed.values()), plan.config.interval), number_format.percent)
        rows.append((setting.variant, *tried, str(len(by_seed)), score + mark))
    headings = ["variant", *path_headings([*plan.grid, *plan.tuned]), "trials", "accuracy %"]
    notes = [
        f"on the clients' validation samples, mean over clients, at the end; {BEST} chosen",
        _plus_minus(plan),
    ]
    return TextTable(headings, rows, notes, title="tuned by validation")


def _fronts(
    plan: StudyPlan, answers: Sequence[Answer], fronts: Mapping[str, Sequence[FrontPoint]]
) -> TextTable:
    fewer = {row.setting: row.seeds for row in answers if row.seeds < len(plan.seeds)}
    rows = []
    for budget, points in fronts.items():
        pieces = stretches(points)
        for piece, later in zip_longest(pieces, pieces[1:]):
            low, high = piece[0].accuracy, piece[-1].accuracy
            accuracy = (
                number_format.percent(low)
                if low == high
                else f"{number_format.percent(low)} to {number_format.percent(high)}"
            )
            setting = piece[0].setting
            name = plan.name_of(setting)
            if setting in fewer:
                name += f" ({fewer[setting]} of {len(plan.seeds)} seeds)"
            show = AMOUNTS[budget]
            until = show(later[0].cost) if later else ""
            rows.append((budget.removesuffix("_s"), show(piece[0].cost), until, name, accuracy))
    headings = ["budget", "from", "up to", "most accurate", "accuracy %"]
    notes = [
        f"accuracy: {MEASURES[plan.config.of].words}, "
        "mean over seeds, of the last evaluation within the budget"
    ]
    return TextTable(headings, rows, notes, frozenset({0, 3}), "which is most accurate within a budget")


def _plus_minus(plan: StudyPlan) -> str:
    return f"±: half of the {WORDS[plan.config.interval]}"


def _spread(value: Interval | None, show: Show) -> str:
    if value is None:
        return number_format.NOTHING
    return show(value.mean) if value.half is None else f"{show(value.mean)} ± {show(value.half)}"
