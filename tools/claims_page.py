"""The manual's page of the papers' claims, made from ``tools/paper_claims.toml`` and the studies' results."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from claims import Comparison, Judgement, better, judge
from papers import Result, finished, read_result

from fedsim.report import number_format
from fedsim.studies.intervals import interval

FILE = Path(__file__).with_name("paper_claims.toml")
MEASURES = {
    "accuracy": ("accuracy %", 1, " points"),
    "std_over_clients": ("SD over clients", 1, " points"),
    "global": ("global %", 1, " points"),
    "best_global": ("best global %", 1, " points"),
    "loss": ("loss", 3, ""),
    "client_losses[0,2]": ("loss of clients 0 and 2", 3, ""),
}
"""Headings of measures, with the decimals and the unit of differences."""
SHOWN = {"shown": "**shown**", "not shown": "not shown", "contradicted": "**contradicted**"}
TOO_CLOSE = 3.0
"""If training alone comes within so many points of the best method, a table cannot judge personal methods."""
CEILING = 97.0
"""Accuracy in percent, above which methods are hard to tell apart."""
COLLAPSED = 0.6
"""With one seed a variant has collapsed if its accuracy is below this share of that with another seed."""


def page() -> str:
    """Return the page's sections: all verdicts, then each study with its table and its claims."""
    document = tomllib.loads(FILE.read_text("utf-8"))
    results = {name: read_result(name) for name in finished()}
    judged = [
        (claim, judge(claim, results[claim["study"]]) if claim.get("study") in results else None)
        for claim in document["claim"]
    ]
    lines = ["## All verdicts", "", "| claim | says | study | verdict |", "|---|---|---|---|"]
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


def _verdict(claim: Mapping[str, Any], judgement: Judgement | None) -> str:
    if judgement is not None:
        return SHOWN[judgement.verdict]
    return f"not tested; needs {claim['needs']}" if "needs" in claim else "not run yet"


def _measures(claims: Sequence[Mapping[str, Any]], study: str) -> set[str]:
    """Return the measures by which claims and their experiments compare a study's cells."""
    return {
        claim.get("measure", "accuracy")
        for claim in claims
        if study in (claim.get("study"), *(one.get("study") for one in claim.get("experiments", ())))
    }


def _study(result: Result, figures: Mapping[str, str], measures: Collection[str]) -> Iterator[str]:
    """Yield a study's command, its cost and its table; ``figures`` are the paper's, by cell."""
    yield "```console"
    yield f"$ fedsim study scenarios/papers/studies/{result.name}.toml"
    yield "```"
    yield ""
    seeds = len({row["seed"] for row in result.rows})
    yield (
        f"Settings of commit {result.commit}, {seeds} seeds. All runs and trials took "
        f"{number_format.duration(result.real_s)} of real time, one after the other."
    )
    yield ""
    shown = [name for name in MEASURES if _is_shown(name, result, measures)]
    heads = ["variant", *(path.split(".")[-1] for path in result.tuned)]
    heads += [*(["paper %"] if figures else []), *(MEASURES[name][0] for name in shown)]
    yield f"| {' | '.join([*heads, 'simulated', 'computing', 'bytes', 'parameters'])} |"
    yield "|---" * (len(heads) + 4) + "|"
    for label, by_seed in result.cells.items():
        rows = list(by_seed.values())
        cells = [label, *(rows[0][path] for path in result.tuned)]
        cells += [figures.get(label, "-")] if figures else []
        cells += [_spread(rows, name) for name in shown]
        cells += [number_format.duration(_mean(rows, name)) for name in ("simulated_s", "client_compute_s")]
        cells += [number_format.size(_mean(rows, "bytes")), f"{_mean(rows, 'parameters'):,.0f}"]
        yield f"| {' | '.join(cells)} |"
    yield ""
    yield from _collapses(result)
    yield from _limits(result)


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


def _limits(result: Result) -> Iterator[str]:
    """Yield a warning where training alone is as good as the best method, or the best is near 100 %."""
    points: dict[str, dict[bool, list[float]]] = {}
    for cell, rows in result.cells.items():
        one = next(iter(rows.values()))
        if one["accuracy"] and one["algorithm"] != "centralized":
            by_kind = points.setdefault(cell.partition(" @ ")[2], {True: [], False: []})
            by_kind[one["algorithm"] == "local"].append(_mean(list(rows.values()), "accuracy"))
    for point, by_kind in points.items():
        at = f" with {point}" if point else ""
        alone, best = max(by_kind[True]), max(by_kind[False])
        if best - alone < TOO_CLOSE:
            yield (
                f"Training alone comes within {TOO_CLOSE:g} points of the best method{at}, or is better: "
                "there this study cannot judge personal methods."
            )
        if best > CEILING:
            yield f"The best method is above {CEILING:g} %{at}: there methods are hard to tell apart."


def _claims(
    judged: Sequence[tuple[Mapping[str, Any], Judgement | None]], results: Mapping[str, Result]
) -> Iterator[str]:
    for claim, judgement in judged:
        assert judgement is not None
        measure = claim.get("measure", "accuracy")
        words = [_words(claim, one, measure) for one in judgement.comparisons]
        yield f"**{claim['id']}**: {claim['says']} *Paper:* {claim['paper']}"
        yield f"*Here:* {SHOWN[judgement.verdict]}. {'; '.join(dict.fromkeys(words))}."
        yield ""
        for experiment in claim.get("experiments", ()):
            result = results.get(experiment.get("study", claim["study"]))
            if result is not None:
                first, second = experiment["cells"]
                one = better(result, first, second, measure)
                yield f"- {experiment['asks']} {_difference(one, measure)}."
        yield ""
        if "reason" in claim:
            yield claim["reason"].strip()
            yield ""


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
    if measure.startswith("parameters"):
        return f"{one.words}: {one.interval.mean / 1e6:+.0f} ± {(one.interval.half or 0) / 1e6:.0f} million"
    if measure not in MEASURES:
        return f"{one.words}: {one.interval.mean:+.3g} ± {one.interval.half or 0:.2g}"
    _, decimals, unit = MEASURES[measure]
    spread = "" if one.interval.half is None else f" ± {one.interval.half:.{decimals}f}"
    return f"{one.words}: {one.interval.mean:+.{decimals}f}{spread}{unit}"


def _is_shown(name: str, result: Result, measures: Collection[str]) -> bool:
    """Whether a table has a column: claims compare it, or all rows have it (losses: without accuracies)."""
    if name in measures:
        return any(row.get(name) for row in result.rows)
    there = [name for name in MEASURES if all(row.get(name) for row in result.rows)]
    return name in there and (name != "loss" or "accuracy" not in there)


def _mean(rows: Sequence[Mapping[str, str]], name: str) -> float:
    return fmean(float(row[name]) for row in rows)


def _spread(rows: Sequence[Mapping[str, str]], name: str) -> str:
    if not all(row[name] for row in rows):
        return "-"
    found, decimals = interval([float(row[name]) for row in rows]), MEASURES[name][1]
    assert found is not None
    spread = "" if found.half is None else f" ± {found.half:.{decimals}f}"
    return f"{found.mean:.{decimals}f}{spread}"
