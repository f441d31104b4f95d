"""What a study answers as tables for people."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest

from fedsim.report import number_format
from fedsim.report.comparison import BEST
from fedsim.report.text_table import TextTable
from fedsim.runtime.budget import MEASURES
from fedsim.studies.answers import Answer
from fedsim.studies.budgets import Budget
from fedsim.studies.fronts import FrontPoint, stretches
from fedsim.studies.intervals import WORDS, Interval, interval
from fedsim.studies.path_headings import path_headings
from fedsim.studies.plan import StudyPlan
from fedsim.studies.tuning import Tuning

Show = Callable[[float], str]
Cell = Callable[[Answer], str]

ACCURACIES: dict[str, tuple[str, Show]] = {
    "best %": ("best_accuracy", number_format.percent),
    "final %": ("final_accuracy", number_format.percent),
    "std %": ("final_accuracy_std", number_format.percent),
    "worst\n10 %": ("final_accuracy_worst_decile", number_format.percent),
    "Jain\nindex": ("final_accuracy_jain", number_format.number),
}
"""What is shown of accuracy, and how."""

WASTE: dict[str, tuple[str, Show]] = {
    "staleness": ("staleness_mean", number_format.number),
    "wasted time": ("wasted_s", number_format.duration),
    "wasted\nwork %": ("wasted_s_share", number_format.percent),
    "wasted bytes": ("wasted_bytes", number_format.size),
    "wasted\nbytes %": ("wasted_bytes_share", number_format.percent),
}
"""What is shown of work in vain, and how."""

AMOUNTS: dict[str, Show] = {"time_s": number_format.duration, "bytes": number_format.size}
"""How what a budget bounds is shown."""


def tables(
    plan: StudyPlan,
    answers: Sequence[Answer],
    fronts: Mapping[str, Sequence[FrontPoint]],
    budgets: Sequence[Budget] = (),
) -> list[TextTable]:
    """Return the tables.

    They are of costs to each target, of accuracy within budgets and at the end, each with the differences to
    the baseline, of work in vain where there is any, and of who is the most accurate within which budget.
    """
    found = []
    for target in plan.config.targets:
        rows = [answer for answer in answers if answer.target == target]
        found.append(_to_target(plan, rows, target))
        if others := _compared(plan, rows):
            found.append(_cost_differences(plan, others, target))
    first = plan.config.targets[0] if plan.config.targets else None
    rows = [answer for answer in answers if answer.target == first]
    others = _compared(plan, rows)
    if known := [one for one in budgets if math.isfinite(one.amount)]:
        found.append(_within(plan, rows, known))
        if others:
            found.append(_differences_within(plan, others, known))
    found.append(_accuracy(plan, rows))
    if others:
        found.append(_accuracy_differences(plan, others))
    if any((one := row.figures.get(name)) and one.mean for row in rows for name, _ in WASTE.values()):
        found.append(_waste(plan, rows))
    return [*found, _fronts(plan, rows, fronts)]


def _to_target(plan: StudyPlan, rows: Sequence[Answer], target: float) -> TextTable:
    columns = {
        **_names(plan),
        "reached": lambda row: f"{row.reached} of {row.seeds}",
        "time": _least(rows, "time_to_target_s", number_format.duration),
        "bytes up": _least(rows, "bytes_up_to_target", number_format.size),
        "bytes down": _least(rows, "bytes_down_to_target", number_format.size),
    }
    notes = [
        f"accuracy: {MEASURES[plan.config.of].words}; reached: at the first evaluation that shows it",
        f"means over the seeds that have reached it; {_plus_minus(plan)}",
    ]
    grid = TextTable.of(rows, columns, notes=notes, title=f"to reach {100 * target:g} %")
    if any(cell.endswith(BEST) for row in grid.rows for cell in row):
        notes.append(f"{BEST} least of those that have reached it with every seed, unless ± exceeds it")
    return grid


def _cost_differences(plan: StudyPlan, rows: Sequence[Answer], target: float) -> TextTable:
    columns = {
        **_names(plan),
        "pairs": _pairs("time_to_target_s"),
        "time": _difference("time_to_target_s", number_format.duration),
        "bytes up": _difference("bytes_up_to_target", number_format.size),
        "bytes down": _difference("bytes_down_to_target", number_format.size),
    }
    notes = [f"of runs with the same seed; pairs: seeds with which both reach it; {_plus_minus(plan)}"]
    title = f"difference to {plan.config.baseline}, to reach {100 * target:g} %"
    return TextTable.of(rows, columns, notes=notes, title=title)


def _within(plan: StudyPlan, rows: Sequence[Answer], budgets: Sequence[Budget]) -> TextTable:
    def part(row: Answer, column: str) -> str:
        one = row.figures[column]
        return f" ({one.count} of {row.seeds})" if one is not None and one.count < row.seeds else ""

    def shown(column: str) -> Cell:
        return lambda row: _spread(row.figures[column], number_format.percent) + part(row, column)

    columns = {
        **_names(plan),
        "seeds": lambda row: str(row.seeds),
        **{f"% within\n{_amount(one)}": shown(one.column) for one in budgets},
    }
    notes = [f"accuracy: {MEASURES[plan.config.of].words}, of the last evaluation within the budget"]
    notes += [f"{_amount(one)}: {_LEAST[one.bounds]}" for one in budgets if not one.is_stated]
    for one in budgets:
        ended = [
            f"{plan.name_of(row.setting)} {number} of {row.seeds}"
            for row in rows
            if (number := row.ended_before[one.column])
        ]
        if ended and one.is_stated:
            notes.append(f"runs that ended before {_amount(one)} count as they were then: {', '.join(ended)}")
    if any(part(row, one.column) for row in rows for one in budgets):
        notes.append("(1 of 2): of two seeds, one was evaluated within the budget")
    notes.append(_plus_minus(plan))
    title = "accuracy at equal time and at equal bytes"
    return TextTable.of(rows, columns, notes=notes, title=title)


_LEAST = {
    "time_s": "the earliest end of a run",
    "bytes": "the least that a run has sent at its end, of those that send anything",
}
"""What a budget is that the study does not state."""


def _differences_within(plan: StudyPlan, rows: Sequence[Answer], budgets: Sequence[Budget]) -> TextTable:
    columns = {
        **_names(plan),
        **{f"within\n{_amount(one)}": _difference(one.column, number_format.percent) for one in budgets},
    }
    notes = [f"of runs with the same seed; in percentage points; {_plus_minus(plan)}"]
    title = f"difference to {plan.config.baseline}, at equal time and at equal bytes"
    return TextTable.of(rows, columns, notes=notes, title=title)


def _amount(budget: Budget) -> str:
    return AMOUNTS[budget.bounds](budget.amount)


def _accuracy(plan: StudyPlan, rows: Sequence[Answer]) -> TextTable:
    columns = _names(plan) | _figures(ACCURACIES)
    notes = [
        f"best, final: {MEASURES[plan.config.of].words}; "
        "std, worst 10 %, Jain index: over clients, at the end",
        _plus_minus(plan),
    ]
    return TextTable.of(rows, columns, notes=notes, title="accuracy")


def _accuracy_differences(plan: StudyPlan, rows: Sequence[Answer]) -> TextTable:
    columns = {
        **_names(plan),
        "pairs": _pairs("final_accuracy"),
        **{heading: _difference(name, show) for heading, (name, show) in ACCURACIES.items()},
    }
    notes = [f"of runs with the same seed; in percentage points, but for Jain's index; {_plus_minus(plan)}"]
    return TextTable.of(rows, columns, notes=notes, title=f"difference to {plan.config.baseline}, accuracy")


def _waste(plan: StudyPlan, rows: Sequence[Answer]) -> TextTable:
    notes = [
        "staleness: merges between a dispatch and that of its reply, mean over replies",
        "wasted: work and bytes of replies that were not merged, and bytes of frames that were lost",
        f"until the last evaluation; {_plus_minus(plan)}",
    ]
    return TextTable.of(rows, _names(plan) | _figures(WASTE), notes=notes, title="staleness and waste")


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


def _compared(plan: StudyPlan, rows: Sequence[Answer]) -> list[Answer]:
    """Return the answers for all but the baseline; none if there is none."""
    baseline = plan.config.baseline
    return [row for row in rows if row.setting.variant != baseline] if baseline is not None else []


def _names(plan: StudyPlan) -> dict[str, Cell]:
    """Return the columns that say which setting a row is of."""

    def value(number: int) -> Cell:
        return lambda row: str(row.setting.point[number])

    points = {heading: value(number) for number, heading in enumerate(path_headings(plan.grid))}
    return {"variant": lambda row: row.setting.variant, **points}


def _figures(shown: Mapping[str, tuple[str, Show]]) -> dict[str, Cell]:
    """Return the number of seeds and what else is shown, as columns by their headings."""

    def cell(name: str, show: Show) -> Cell:
        return lambda row: _spread(row.figures[name], show)

    return {
        "seeds": lambda row: str(row.seeds),
        **{heading: cell(name, show) for heading, (name, show) in shown.items()},
    }


def _least(rows: Sequence[Answer], name: str, show: Show) -> Cell:
    """Show a cost, and mark the least of those that have reached the target with every seed.

    A mean is not marked where half of its interval exceeds it.
    """
    every = max((row.seeds for row in rows), default=0)
    means = [one.mean for row in rows if row.reached == every and (one := row.figures[name]) is not None]
    least = min(means) if len(set(means)) > 1 else None

    def cell(row: Answer) -> str:
        one = row.figures[name]
        if one is None or row.reached < every or one.mean != least or (one.half or 0) > one.mean:
            return _spread(one, show)
        return _spread(one, show) + BEST

    return cell


def _pairs(name: str) -> Cell:
    return lambda row: str(one.count if (one := row.differences.get(name)) else 0)


def _difference(name: str, show: Show) -> Cell:
    def cell(row: Answer) -> str:
        one = row.differences.get(name)
        sign = "+" if one is not None and one.mean >= 0 else "-"
        return number_format.NOTHING if one is None else sign + _spread(one, lambda value: show(abs(value)))

    return cell


def _plus_minus(plan: StudyPlan) -> str:
    return f"±: half of the {WORDS[plan.config.interval]}"


def _spread(one: Interval | None, show: Show) -> str:
    if one is None:
        return number_format.NOTHING
    return show(one.mean) if one.half is None else f"{show(one.mean)} ± {show(one.half)}"
