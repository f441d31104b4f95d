"""The table and the pictures of the manual's page on phones, made from the result of the study ``phones``.

The manual makes the table. This draws the pictures into ``docs/static``, from the root of the repository::

    python tools/phones_page.py
"""

from __future__ import annotations

import math
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

from papers import STUDIES, read_curves, read_result

from fedsim.figures.chart_types import Figure, Section
from fedsim.figures.drawing import write_figures
from fedsim.figures.study_curves import study_curve_figures
from fedsim.report import number_format
from fedsim.studies.budgets import Budget, accuracy_within
from fedsim.studies.intervals import Interval, interval, is_best
from fedsim.studies.plan import load_study

STUDY = "phones"
PICTURES = Path(__file__).parents[1] / "docs" / "static"
ROUNDS = ("local", "fedavg_ft", "ditto", "fedper", "fedme", "fedmd", "perfed_ckt")
"""What the pictures of time and bytes show."""
BUFFERED = tuple(name + how for name in ("fedavg_ft", "ditto", "perfedavg") for how in ("", ", buffered"))
"""What the picture of pacings shows."""


def table() -> str:
    """Return the accuracy of each variant within each budget of the study, and in the end, in Markdown."""
    result, curves = read_result(STUDY), read_curves(STUDY)
    at = load_study(STUDIES / f"{STUDY}.toml").config.at
    budgets = [Budget("time_s", amount, True) for amount in at.simulated]
    budgets += [Budget("bytes", amount, True) for amount in at.bytes]
    shows = {"time_s": number_format.duration, "bytes": number_format.size}
    heads = [f"within {shows[budget.bounds](budget.amount)}" for budget in budgets]
    found: dict[str, list[Interval | None]] = {}
    for cell, by_seed in curves.items():
        within = [
            [100 * accuracy_within(curve, budget, "personal_mean") for curve in by_seed.values()]
            for budget in budgets
        ]
        within.append([*result.values(cell, "accuracy").values()])
        found[cell] = [None if any(map(math.isnan, values)) else interval(values) for values in within]
    took = number_format.duration(result.real_s)
    lines = [
        f"Settings of commit {result.commit}. All runs and trials took {took} of real time, one by one.",
        "",
        f"| accuracy % | {' | '.join(heads)} | in the end | after | bytes |",
        "|---" * (len(heads) + 4) + "|",
    ]
    for cell, own in found.items():
        words = []
        for number, one in enumerate(own):
            others = [row[number] for row in found.values()]
            star = "*" if is_best(one, others, len(curves[cell]), highest=True) else ""
            words.append("-" if one is None else f"{one.mean:.1f} ± {one.half or 0:.1f}{star}")
        words.append(number_format.duration(fmean(result.values(cell, "simulated_s").values())))
        words.append(number_format.size(fmean(result.values(cell, "bytes").values())))
        lines.append(f"| {cell} | {' | '.join(words)} |")
    return "\n".join(lines)


def figures() -> dict[str, Figure]:
    """Return the pictures by the names of their files."""
    config, curves = load_study(STUDIES / f"{STUDY}.toml").config, read_curves(STUDY)
    by_time, by_bytes = study_curve_figures({name: curves[name] for name in ROUNDS}, config)
    pacings, _ = study_curve_figures({name: curves[name] for name in BUFFERED}, config)
    named = {"phones-time": by_time, "phones-bytes": by_bytes, "phones-buffered": pacings}
    return {name: replace(figure, name=name) for name, figure in named.items()}


def main() -> int:
    """Draw the pictures; return the exit status."""
    with TemporaryDirectory() as folder:
        write_figures([Section("", "", list(figures().values()))], Path(folder))
        for name in figures():
            shutil.copy(Path(folder) / f"{name}.png", PICTURES / f"{name}.png")
            print(f"wrote {PICTURES / name}.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
