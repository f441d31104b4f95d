"""The tables and the pictures of the manual's page on phones, made from the results of two studies.

The manual makes the tables. This draws the pictures into ``docs/static``, from the root of the repository::

    python tools/phones_page.py
"""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

import numpy as np
from papers import STUDIES, read_curves, read_result

from fedsim.figures.chart_types import Figure, LineChart, Section, Target
from fedsim.figures.drawing import write_figures
from fedsim.figures.study_curves import study_curve_figures
from fedsim.params import Array
from fedsim.report import number_format
from fedsim.studies.intervals import Interval, interval, is_best
from fedsim.studies.plan import load_study

STUDY = "phone_fleet"
"""The study of which most of the page is made."""
PUBLIC = "phone_public"
"""The same with the public images on the phones from the start."""
PICTURES = Path(__file__).parents[1] / "docs" / "static"
COLOURS = ("local", "fedavg_ft", "ditto", "fedper", "persfl", "fedmd", "perfed_ckt", "perfedavg")
"""Methods of pictures, one for each of the eight colours, which then repeat with other dashes: a method under
other conditions is eight places on. ``perfedavg`` is in no picture; it fills the eighth place."""
IMAGES_THERE = "fedmd, images on phones"
ROUNDS = tuple(name for name in COLOURS if name != "perfedavg")
"""What the picture of time shows."""
SENDING = (*(name for name in ROUNDS if name != "local"), IMAGES_THERE)
"""What the picture of bytes shows; training alone, which sends nothing, is a level in it."""
BUFFERED = tuple(name + how for name in ("fedavg_ft", "ditto", "fedper") for how in ("", ", buffered"))
"""What the picture of pacings shows."""
ALONE, LAST_S = "local", 60.0
"""What others are compared with; for how long before the last budget of time evaluations are averaged."""
IN_ROUNDS = "local, ten a round"
"""Training alone by the phones of a round, which other methods are compared with after as many rounds."""
MODELS, PREDICTIONS = ("fedavg_ft", "ditto", "fedper"), ("fedmd", "fedmd, KL", "ktpfl", "dsfl", "perfed_ckt")
"""What the table of rounds has: methods that exchange models, and methods that exchange predictions."""
DIFFERENCE = 2
"""Which column of the table has the differences."""
COSTS: dict[str, tuple[str, Callable[[float], str]]] = {
    "rounds or merges": ("rounds", "{:.0f}".format),
    "ends after": ("simulated_s", number_format.duration),
    "bytes": ("bytes", number_format.size),
    "of them images": ("data_bytes", number_format.size),
    "computing": ("client_compute_s", number_format.duration),
    "energy": ("joules", number_format.energy),
    "of it tails": ("tail_joules", number_format.energy),
}
"""The columns of the table of costs: of which values they are means, and how these are written."""


def late_accuracy(curve: Mapping[str, Array], until_s: float) -> float:
    """Return the mean accuracy of the evaluations in the last minute before an instant, in percent."""
    at_s = curve["simulated_s"]
    return 100 * float(
        np.mean(curve["accuracy_personal_mean"][(at_s > until_s - LAST_S) & (at_s <= until_s)])
    )


def accuracy_at(curve: Mapping[str, Array], key: str, amount: float) -> float:
    """Return the accuracy after an amount of time, bytes or rounds, in percent.

    It is interpolated: evaluations are ten seconds apart, in which some methods send far more than others.
    Before the first evaluation it is NaN; after the last one it stays.
    """
    spent = curve["bytes_up"] + curve["bytes_down"] if key == "bytes" else curve[key]
    return 100 * float(np.interp(amount, spent, curve["accuracy_personal_mean"], left=math.nan))


def table() -> str:
    """Return what each variant reaches within the budgets of the study, in Markdown."""
    result, curves = read_result(STUDY), read_curves(STUDY)
    at = load_study(STUDIES / f"{STUDY}.toml").config.at
    early_s, late_s = at.simulated
    late = {
        cell: {seed: late_accuracy(curve, late_s) for seed, curve in by_seed.items()}
        for cell, by_seed in curves.items()
    }
    found: dict[str, list[Interval | None]] = {}
    for cell, by_seed in curves.items():
        columns = [
            [accuracy_at(curve, "simulated_s", early_s) for curve in by_seed.values()],
            [*late[cell].values()],
            [value - late[ALONE][seed] for seed, value in late[cell].items()],
            *([accuracy_at(curve, "bytes", amount) for curve in by_seed.values()] for amount in at.bytes),
            [*result.values(cell, "accuracy").values()],
        ]
        found[cell] = [None if any(map(math.isnan, values)) else interval(values) for values in columns]
    heads = [f"after {number_format.duration(early_s)}", "last minute", f"last minute - {ALONE}"]
    heads += [f"within {number_format.size(amount)}" for amount in at.bytes]
    heads.append("in the end")
    lines = [
        f"Settings of commit {result.commit}, {len(late[ALONE])} seeds. All runs and trials took "
        f"{number_format.duration(result.real_s)} of real time, one after the other.",
        "",
        f"| accuracy % | {' | '.join(heads)} |",
        "|---" * (len(heads) + 1) + "|",
    ]
    for cell, own in found.items():
        words = []
        for number, one in enumerate(own):
            others = [row[number] for row in found.values()]
            star = "*" if is_best(one, others, len(curves[cell]), highest=True) else ""
            sign = "+" if number == DIFFERENCE else ""
            words.append("-" if one is None else f"{one.mean:{sign}.1f} ± {one.half or 0:.1f}{star}")
        lines.append(f"| {cell} | {' | '.join(words)} |")
    return "\n".join(lines)


def table_of_costs() -> str:
    """Return what each variant costs, in Markdown."""
    result = read_result(STUDY)
    lines = [f"| | {' | '.join(COSTS)} |", "|---" * (len(COSTS) + 1) + "|"]
    for cell in result.cells:
        words = [shown(fmean(result.values(cell, column).values())) for column, shown in COSTS.values()]
        lines.append(f"| {cell} | {' | '.join(words)} |")
    return "\n".join(lines)


def table_of_rounds() -> str:
    """Return how methods compare with training alone after as many rounds, in Markdown."""
    alone = read_curves(STUDY)[IN_ROUNDS]
    first = load_study(STUDIES / f"{STUDY}.toml").config.at.bytes[0]
    lines = [
        "| images | method | rounds | in the end % | - alone, as many rounds "
        f"| within {number_format.size(first)} % | bytes | of them images |",
        "|---" * 8 + "|",
    ]
    for images, study, cells in (
        ("sent", STUDY, (*MODELS, *PREDICTIONS)),
        ("on phones", PUBLIC, PREDICTIONS),
    ):
        result, curves = read_result(study), read_curves(study)
        for cell in cells:
            early = [accuracy_at(curve, "bytes", first) for curve in curves[cell].values()]
            accuracy, rounds = result.values(cell, "accuracy"), result.values(cell, "rounds")
            difference = interval(
                [accuracy[seed] - accuracy_at(alone[seed], "round", rounds[seed]) for seed in accuracy]
            )
            mean, sent, data = (
                fmean(result.values(cell, what).values()) for what in ("accuracy", "bytes", "data_bytes")
            )
            assert difference is not None
            words = [
                images if cell in PREDICTIONS else "-",
                cell,
                f"{fmean(rounds.values()):.0f}",
                f"{mean:.1f}",
                f"{difference.mean:+.1f} ± {difference.half or 0:.1f}",
                f"{fmean(early):.1f}",
                number_format.size(sent),
                number_format.size(data),
            ]
            lines.append(f"| {' | '.join(words)} |")
    return "\n".join(lines)


def figures() -> dict[str, Figure]:
    """Return the pictures by the names of their files."""
    config = load_study(STUDIES / f"{STUDY}.toml").config
    curves = {**read_curves(STUDY), IMAGES_THERE: read_curves(PUBLIC)["fedmd"]}
    alone = fmean(late_accuracy(curve, config.at.simulated[-1]) for curve in curves[ALONE].values()) / 100
    level = Target(alone, "training alone, last minute")
    places = [*COLOURS, *(IMAGES_THERE if name == "fedmd" else f"{name}, buffered" for name in COLOURS)]

    def drawn(shown: Container[str]) -> list[Figure]:
        own = {name: curves[name] if name in shown else {} for name in places}
        return study_curve_figures(own, config)

    (by_time, _), (_, by_bytes) = drawn(ROUNDS), drawn(SENDING)
    pacings, _ = drawn(BUFFERED)
    named = {"phones-time": by_time, "phones-bytes": by_bytes, "phones-buffered": pacings}
    return {name: replace(_marked(figure, level), name=name) for name, figure in named.items()}


def _marked(figure: Figure, level: Target) -> Figure:
    """Mark a level across a chart."""
    assert isinstance(figure.chart, LineChart)
    return replace(figure, chart=replace(figure.chart, targets=(level,)))


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
