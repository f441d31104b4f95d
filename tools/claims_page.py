"""The manual's page of the papers' claims, made from ``tools/paper_claims.toml`` and the studies' results."""

from __future__ import annotations

import math
import tomllib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from claims import Comparison, Judgement, better, cells_of, judge
from papers import STUDIES, Result, finished, joined

from fedsim.report import number_format
from fedsim.studies.intervals import Interval, interval

FILE = Path(__file__).with_name("paper_claims.toml")


@dataclass(frozen=True)
class Measure:
    """How a measure is written."""

    heading: str
    decimals: int
    unit: str
    """The unit of differences."""
    factor: float = 1.0


MEASURES = {
    "accuracy": Measure("accuracy %", 1, " points"),
    "untuned": Measure("before fine-tuning %", 1, " points"),
    "std_over_clients": Measure("SD over clients", 1, " points"),
    "global": Measure("global %", 1, " points"),
    "best_global": Measure("best global %", 1, " points"),
    "loss": Measure("loss", 3, ""),
    "client_losses[0,2]": Measure("loss of clients 0 and 2", 3, ""),
    "parameters_to_60": Measure("millions of parameters to 60 %", 0, " million", 1e-6),
    "parameters_to_70": Measure("millions of parameters to 70 %", 0, " million", 1e-6),
}
ALWAYS = ("accuracy", "std_over_clients", "global", "best_global")
"""Measures of which a table has a column where all rows have them; of others where claims compare them."""
SHOWN = {"shown": "**shown**", "not shown": "not shown", "contradicted": "**contradicted**"}
TOO_CLOSE = 3.0
"""If training alone comes within so many points of the best method, a table cannot judge personal methods."""
CEILING = 97.0
"""Accuracy in percent, above which methods are hard to tell apart."""
COLLAPSED = 0.6
"""With one seed a variant has collapsed if its accuracy is below this share of that with another seed."""
IN_A_LINE = 4
"""More comparisons than this are written as a list."""


def page() -> str:
    """Return the page's sections: all verdicts, then each study with its table and its claims."""
    document = tomllib.loads(FILE.read_text("utf-8"))
    results = results_of(document)
    judged = [
        (claim, judge(claim, results[claim["study"]]) if claim.get("study") in results else None)
        for claim in document["claim"]
    ]
    counts = Counter(_verdict(claim, judgement).partition(";")[0].strip("*") for claim, judgement in judged)
    words = ", ".join(f"{number} {verdict}" for verdict, number in counts.most_common())
    lines = ["## All verdicts", "", f"Of the table's {len(judged)} rows: {words}.", ""]
    lines += ["| claim | says | study | verdict |", "|---|---|---|---|"]
    for claim, judgement in judged:
        study = document["study"].get(claim.get("study"), {}).get("title", "-")
        lines.append(f"| {claim['id']} | {claim['says']} | {study} | {_verdict(claim, judgement)} |")
    lines.append("")
    for name, about in document["study"].items():
        lines += [f"## {about['title']}", "", about["setting"], ""]
        of_study = [(claim, judgement) for claim, judgement in judged if claim.get("study") == name]
        if name in results:
            measures = _measures(document["claim"], name)
            lines += [*_study(results[name], about.get("figures", {}), measures), ""]
            lines += _claims(of_study, results)
        else:
            lines += ["Not run yet.", ""]
    return "\n".join(lines)


def results_of(document: Mapping[str, Any]) -> dict[str, Result]:
    """Return the results of those sections of the page whose studies have all run."""
    done = set(finished())
    sections = {name: studies_of(name, about) for name, about in document["study"].items()}
    return {name: joined(name, studies) for name, studies in sections.items() if done.issuperset(studies)}


def studies_of(name: str, about: Mapping[str, Any]) -> Sequence[str]:
    """Return the studies of a section of the page: what it names, or that of its own name."""
    return list(about.get("studies", [name]))


def _verdict(claim: Mapping[str, Any], judgement: Judgement | None) -> str:
    if judgement is not None:
        return SHOWN[judgement.verdict]
    return f"not tested; needs {claim['needs']}" if "needs" in claim else "not run yet"


def _measures(claims: Sequence[Mapping[str, Any]], study: str) -> set[str]:
    """Return the measures by which claims and their experiments compare a study's cells."""
    found = set()
    for claim in claims:
        for cell in [cell for of, cell in cells_of(claim) if of == study]:
            _, _, own = cell.partition(" @ ")[0].partition(" : ")
            found.add(own or claim.get("measure", "accuracy"))
    return found


def _study(result: Result, figures: Mapping[str, str], measures: Collection[str]) -> Iterator[str]:
    """Yield a study's command, its cost and its table; ``figures`` are the paper's, by cell."""
    yield "```console"
    for name in result.studies:
        yield f"$ fedsim study scenarios/papers/studies/{name}.toml"
    yield "```"
    yield ""
    seeds = len({row["seed"] for row in result.rows})
    yield (
        f"Settings of commit {result.commit}, {seeds} seeds. All runs and trials took "
        f"{number_format.duration(result.real_s)} of real time, one after the other."
    )
    yield ""
    shown = [name for name in MEASURES if _is_shown(name, result, measures)]
    printed = "best_global" if "best_global" in measures else "accuracy"  # what the paper's figures are
    heads = ["variant", *(path.split(".")[-1] for path in result.tuned)]
    for name in shown:
        heads += [*(["paper %"] if figures and name == printed else []), MEASURES[name].heading]
    yield f"| {' | '.join([*heads, 'simulated', 'computing', 'bytes', 'parameters'])} |"
    yield "|---" * (len(heads) + 4) + "|"
    ends = _grid_ends(result.studies[0])
    for label, by_seed in result.cells.items():
        rows = list(by_seed.values())
        rates = [(rows[0][path], ends[path]) for path in result.tuned]
        cells = [label, *(f"{rate}*" if float(rate) in end else rate for rate, end in rates)]
        for name in shown:
            cells += [figures.get(label, "-")] if figures and name == printed else []
            cells += [_spread(result, label, name)]
        cells += [number_format.duration(_mean(rows, name)) for name in ("simulated_s", "client_compute_s")]
        cells += [number_format.size(_mean(rows, "bytes")), f"{_mean(rows, 'parameters'):,.0f}"]
        yield f"| {' | '.join(cells)} |"
    yield ""
    if result.tuned:
        yield "A star marks the lowest or highest value of the grid: a better one may lie outside."
        yield ""
    yield from _collapses(result)
    yield from _limits(result)


def _named(point: str, name: str) -> str:
    """Return a point of a study's grid, a number with the name of what it is: ``alpha = 0.1``."""
    if not point.replace(".", "").isdigit():
        return point
    path, *_ = _settings(name)["grid"]
    return f"{path.split('.')[-1]} = {point}"


def _grid_ends(name: str) -> dict[str, tuple[float, float]]:
    """Return the lowest and the highest value of each path that a study tunes."""
    tune = _settings(name).get("tune", {})
    return {path: (min(values), max(values)) for path, values in tune.items() if path != "seeds"}


@cache
def _settings(name: str) -> dict[str, Any]:
    return tomllib.loads((STUDIES / f"{name}.toml").read_text("utf-8"))


def _collapses(result: Result) -> Iterator[str]:
    """Yield which variants have collapsed with some seeds."""
    for cell, rows in result.cells.items():
        values = {seed: float(row["accuracy"] or "nan") for seed, row in rows.items()}
        highest = max(values.values())
        if low := [f"{value:.1f}" for value in values.values() if value < COLLAPSED * highest]:
            yield (
                f"{cell} has collapsed with {len(low)} of {len(values)} seeds, where it has "
                f"{', '.join(low)} %; with the best it has {highest:.1f} %."
            )
            yield ""


def _limits(result: Result) -> Iterator[str]:
    """Yield which variants are near 100 %, and where training alone is as good as the best method."""
    points: dict[str, dict[bool, list[float]]] = {}
    for cell, rows in result.cells.items():
        one = next(iter(rows.values()))
        if one["accuracy"] and one["algorithm"] != "centralized":
            by_kind = points.setdefault(cell.partition(" @ ")[2], {True: [], False: []})
            by_kind[one["algorithm"] == "local"].append(mean := _mean(list(rows.values()), "accuracy"))
            if mean > CEILING:
                yield f"{cell} has {mean:.1f} %: above {CEILING:g} % methods are hard to tell apart."
                yield ""
    for point, by_kind in points.items():
        at = f" with {_named(point, result.name)}" if point else ""
        if all(by_kind.values()) and max(by_kind[False]) - max(by_kind[True]) < TOO_CLOSE:
            yield (
                f"Training alone comes within {TOO_CLOSE:g} points of the best method{at}, or is better: "
                "there this study cannot judge personal methods."
            )


def _claims(
    judged: Sequence[tuple[Mapping[str, Any], Judgement | None]], results: Mapping[str, Result]
) -> Iterator[str]:
    for claim, judgement in judged:
        assert judgement is not None
        measure = claim.get("measure", "accuracy")
        words = list(dict.fromkeys(_words(claim, one, measure) for one in judgement.comparisons))
        yield f"**{claim['id']}**: {claim['says']} *Paper:* {claim['paper']}"
        here = f"*Here:* {SHOWN[judgement.verdict]}{_by_point(claim, results)}."
        if len(words) > IN_A_LINE:
            yield from (here, "", *(f"- {one}" for one in words))
        else:
            yield f"{here} {'; '.join(words)}."
        yield ""
        if claim.get("experiments") and len(words) > IN_A_LINE:
            yield from ("Experiments:", "")
        for experiment in claim.get("experiments", ()):
            result = results.get(experiment.get("study", claim["study"]))
            if result is not None:
                first, second = experiment["cells"]
                of = experiment.get("measure", measure)
                yield f"- {experiment['asks']} {_difference(better(result, first, second, of), of)}."
        yield ""
        if "reason" in claim:
            yield claim["reason"].strip()
            yield ""


def _by_point(claim: Mapping[str, Any], results: Mapping[str, Result]) -> str:
    """Return the verdict at each point of the grid, where a claim is of several points."""
    points = claim.get("at", ())
    if len(points) < 2:
        return ""
    verdicts = {point: judge({**claim, "at": [point]}, results[claim["study"]]).verdict for point in points}
    words = (f"{_named(point, claim['study'])}: {verdict}" for point, verdict in verdicts.items())
    return f" ({', '.join(words)})"


def _words(claim: Mapping[str, Any], one: Comparison, measure: str) -> str:
    """Return a comparison of a claim: a difference, a ratio, or a single value."""
    found = one.interval
    if found is None:
        return f"{one.words}: not reached with every seed"
    if "ratio" in claim:
        mean, low, high = (math.exp(end or 0) for end in (found.mean, found.low, found.high))
        return f"{one.words}: {mean:.2f} ({low:.2f} to {high:.2f})"
    if "best_for" in claim:
        return f"{one.words} {found.mean:.0f} ± {found.half or 0:.0f} % of the clients"
    if "value" in claim:
        unit = " % of the clients" if measure.startswith("architectures") else ""
        return f"{one.words}: {found.mean:.2f} ± {found.half or 0:.2f}{unit}"
    return _difference(one, measure)


def _difference(one: Comparison, measure: str) -> str:
    if one.interval is None:
        return f"{one.words}: not reached with every seed"
    if measure not in MEASURES:
        return f"{one.words}: {one.interval.mean:+.3g} ± {one.interval.half or 0:.2g}"
    return f"{one.words}: {_written(one.interval, MEASURES[measure], '+')}{MEASURES[measure].unit}"


def _written(found: Interval, measure: Measure, sign: str = "") -> str:
    """Return a mean with half of its interval."""
    mean, half = found.mean * measure.factor, found.half
    spread = "" if half is None else f" ± {half * measure.factor:.{measure.decimals}f}"
    return f"{mean:{sign}.{measure.decimals}f}{spread}"


def _is_shown(name: str, result: Result, measures: Collection[str]) -> bool:
    """Whether a table has a column for a measure."""
    if name not in measures and name not in ALWAYS:
        return False
    has = [_spread(result, cell, name) != "-" for cell in result.cells]
    return any(has) if name in measures else all(has)


def _mean(rows: Sequence[Mapping[str, str]], name: str) -> float:
    return fmean(float(row[name]) for row in rows)


def _spread(result: Result, cell: str, name: str) -> str:
    """Return a measure of a cell with half of its interval; a dash where it has none."""
    try:
        values = list(result.values(cell, name).values())
    except (KeyError, ValueError):
        return "-"
    if not all(map(math.isfinite, values)):
        return "not reached"
    found = interval(values)
    assert found is not None
    return _written(found, MEASURES[name])
