"""The result of a study or a comparison in one sentence.

The sentence says what each variant took to reach one accuracy. The variants that reached it with the most
seeds come first, and of these the fastest. Of the accuracies that a study asks for, or else of round ones, it
is the highest that two variants reach with every seed. On a grid it is the highest that at every point some
variant reaches, and the sentence says which is the fastest where. A variant is called the fastest of those
that reached the accuracy with as many seeds, and the number of seeds is said where it is not all.
Where no accuracy was measured it says how the runs have ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fedsim.report import number_format
from fedsim.runtime.budget import MEASURES
from fedsim.studies.answer_files import Answers
from fedsim.studies.curves import Curves
from fedsim.studies.plan import Setting, StudyPlan
from fedsim.studies.study_answers import Answer, answers

MAX_NAMED = 4
"""Maximum number of variants or points that are all named; of more only the best are."""

ROUND = (0.01, 0.02, 0.03, 0.04, *(number / 20 for number in range(1, 20)))
"""Candidates for the accuracy to speak of if a study has no targets."""

SIMULATED = " of simulated time"


def _share(value: float) -> str:
    return f"{number_format.percent(value)} %"


ENDS: Mapping[str, tuple[str, Callable[[float], str], bool]] = {
    "accuracy": ("an accuracy of", _share, True),
    "global": ("an accuracy on the global test set of", _share, True),
    "loss": ("a loss of", number_format.number, False),
    "global_loss": ("a loss on the global test set of", number_format.number, False),
}
"""Measures at the end: their words, how they are shown, whether more is better."""


def answer_sentence(result: Answers) -> str:
    """Return the sentence, with a full stop."""
    sentence = _to_target(result) or _at_end(result)
    missing = [run.label for run in result.plan.runs if run.seed not in result.curves[run.setting]]
    if missing:
        more = f" and {len(missing) - 1} more" if missing[1:] else ""
        sentence += f"; missing: {missing[0]}{more}"
    return f"{sentence}."


def _to_target(result: Answers) -> str:
    """Return the costs of reaching an accuracy; empty if none can be chosen."""
    plan, column = result.plan, MEASURES[result.plan.config.of].column
    measured = {
        setting: curves
        for setting, curves in result.curves.items()
        if any(np.isfinite(curve[column]).any() for curve in curves.values())
    }
    target = _target(plan, measured) if measured else None
    if target is None:
        return ""
    rows = sorted(
        answers(measured, plan.config.model_copy(update={"targets": (target,), "baseline": None})),
        key=lambda row: (-row.reached, _mean(row, "time_to_target_s")),
    )
    reached = [row for row in rows if row.reached]
    words = [] if plan.config.of == "personal_mean" else [MEASURES[plan.config.of].words]
    words += _over_seeds(plan)
    if _is_grid(plan) and any(row.reached < len(plan.seeds) for row in reached):
        words.append("of variants that reached it with the most seeds")
    accuracy = f"{100 * target:g} % accuracy{_aside(*words)}"
    if not reached:
        best = max(rows, key=lambda row: _mean(row, "best_accuracy"))
        shown = _share(_mean(best, "best_accuracy"))
        return f"{accuracy} was not reached: the best was {shown}, of {_name(plan, best.setting)}"
    if _is_grid(plan):
        return _at_points(plan, reached, accuracy)
    if len(rows) > MAX_NAMED:
        return _best(plan, rows, reached, accuracy)
    first, *others = reached
    took = [f"{_name(plan, first.setting)} took {_costs(plan, first, SIMULATED)}"]
    took += [f"{_name(plan, row.setting)} {_costs(plan, row)}" for row in others]
    sentence = f"To {accuracy}: {', '.join(took)}"
    if short := [_name(plan, row.setting) for row in rows if not row.reached]:
        sentence += f"; {_listed(short)} did not reach it"
    if unknown := [_name(plan, setting) for setting in result.ends if setting not in measured]:
        sentence += f"; it was not measured for {_listed(unknown)}"
    return sentence


def _target(plan: StudyPlan, measured: Mapping[Setting, Curves]) -> float | None:
    """Return the accuracy to speak of; None without targets if no round one was reached."""
    column = MEASURES[plan.config.of].column
    best = {
        setting: [max(curve[column][np.isfinite(curve[column])], default=0.0) for curve in curves.values()]
        for setting, curves in measured.items()
    }
    least = {setting: min(values) for setting, values in best.items()}
    if _is_grid(plan):
        points = {setting.point for setting in least}
        wanted = min(
            max(value for setting, value in least.items() if setting.point == point) for point in points
        )
    else:
        wanted = sorted(least.values(), reverse=True)[:2][-1]
    for level in (wanted, max(least.values()), max(max(values) for values in best.values())):
        if below := [target for target in plan.config.targets or ROUND if target <= level]:
            return max(below)
    return min(plan.config.targets, default=None)


def _at_points(plan: StudyPlan, reached: Sequence[Answer], accuracy: str) -> str:
    """Return which variant is the fastest at each point of a grid."""
    points = list(dict.fromkeys(setting.point for setting in plan.settings))
    fastest = {row.setting.point: row for row in reversed(reached)}
    others = [point for point in points if point not in fastest]
    if len(points) > MAX_NAMED:
        counts = Counter(row.setting.variant for row in fastest.values()).most_common()
        where = [
            f"{variant} at {number}" + ("" if place else f" of {len(points)} points of the grid")
            for place, (variant, number) in enumerate(counts)
        ]
        short = [str(len(others))] if others else []
    else:
        won = [fastest[point] for point in points if point in fastest]
        where = [
            f"{_name(plan, row.setting)} ({_costs(plan, row, '' if number else SIMULATED)})"
            for number, row in enumerate(won)
        ]
        short = [" ".join(plan.point_words(Setting("", "", point))) for point in others]
    sentence = f"The fastest to {accuracy}: {', '.join(where)}"
    return f"{sentence}; at {_listed(short)} nobody reached it" if short else sentence


def _best(plan: StudyPlan, rows: Sequence[Answer], reached: Sequence[Answer], accuracy: str) -> str:
    """Return how many reached an accuracy with the most seeds, and which of them took least."""
    seeds = reached[0].reached
    leading = [row for row in reached if row.reached == seeds]
    fastest, fewest = leading[0], min(leading, key=lambda row: _mean(row, "bytes_to_target"))
    sentence = f"{len(leading)} of {len(rows)} reached {accuracy}"
    if len(leading) < len(reached):
        sentence += (
            f" with {seeds} seeds, others with fewer" if seeds < len(plan.seeds) else " with every seed"
        )
    first = f"{sentence}: {_name(plan, fastest.setting)} took the least time"
    if fewest is fastest:
        return f"{first} and the fewest bytes, {_costs(plan, fastest, SIMULATED)}"
    second = f"{_name(plan, fewest.setting)} the fewest bytes ({_costs(plan, fewest)})"
    return f"{first} ({_costs(plan, fastest, SIMULATED)}), {second}"


def _at_end(result: Answers) -> str:
    """Return the measures at the end, and the costs of whole runs."""
    plan, ends = result.plan, result.ends
    if not ends:
        return "No run has ended"
    what = next((name for name in ENDS if any(end[name] is not None for end in ends.values())), None)
    words, show, is_more_better = ENDS[what] if what else ("", number_format.duration, False)
    key = what or "simulated_s"
    there = {setting: value for setting, end in ends.items() if (value := end[key]) is not None}
    order = sorted(there, key=lambda setting: there[setting], reverse=is_more_better)
    is_cut = len(order) > MAX_NAMED
    aside = [f"the {'best' if what else 'fastest'} {MAX_NAMED} of {len(order)}"] if is_cut else []
    parts: list[str] = []
    for setting in order[:MAX_NAMED]:
        size = number_format.size(ends[setting]["bytes"])
        time = number_format.duration(ends[setting]["simulated_s"]) + ("" if parts else SIMULATED)
        verb = "" if parts else f"has {words} " if what else "took "
        measured = f"{show(there[setting])} after " if what else ""
        parts.append(f"{_name(plan, setting)} {verb}{measured}{time} and {size}")
    head = "At the end" if what else "No accuracy was measured"
    return f"{head}{_aside(*aside, *_over_seeds(plan))}: {', '.join(parts)}"


def _is_grid(plan: StudyPlan) -> bool:
    """Whether there are several variants and several points."""
    variants = {setting.variant for setting in plan.settings}
    points = {setting.point for setting in plan.settings}
    return min(len(variants), len(points)) > 1


def _name(plan: StudyPlan, setting: Setting) -> str:
    """Return the name of a setting: its variant, its point, or both, as needed."""
    words = [setting.variant] if len({other.variant for other in plan.settings}) > 1 or not plan.grid else []
    return " ".join([*words, *plan.point_words(setting)])


def _costs(plan: StudyPlan, row: Answer, words: str = "") -> str:
    time, seeds = number_format.duration(_mean(row, "time_to_target_s")), len(plan.seeds)
    of = f" ({row.reached} of {seeds} seeds)" if row.reached < seeds else ""
    return f"{time}{words} and {number_format.size(_mean(row, 'bytes_to_target'))}{of}"


def _mean(row: Answer, name: str) -> float:
    """Return the mean of a quantity over seeds; infinity where there is none, which sorts last."""
    value = row.figures[name]
    return np.inf if value is None else value.mean


def _over_seeds(plan: StudyPlan) -> list[str]:
    return ["means over seeds"] if len(plan.seeds) > 1 else []


def _aside(*words: str) -> str:
    return f" ({'; '.join(words)})" if words else ""


def _listed(words: Sequence[Any]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last
