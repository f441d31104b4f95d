"""Judge the papers' claims, which ``tools/paper_claims.toml`` lists, by the results of their studies.

A claim consists of comparisons between cells of a study; a cell is a variant at a point of the grid. Cells
are compared seed by seed, and all comparisons of a claim are tested together, by Student's t at 5 % with
Holm's procedure. A claim is *shown* if every comparison is certain on the paper's side, *contradicted* if one
is certain on the other side, and *not shown* otherwise. These keys say what is compared:

``order``
    Tiers of cells, the best first. Each cell is better than each cell of the next tier by more than
    ``margin``: 0 if left out, and perhaps negative.
``pairs``
    Pairs of cells, of which the first is better by more than ``margin``.
``alike``
    Cells of which no two differ by more than ``margin``.
``ratio``
    Two cells; the first has at least ``at_least`` and at most ``at_most`` times as much as the second.
``value``
    A cell whose value is at least ``at_least`` and at most ``at_most``.
``best_for``
    A cell that is as good as all of ``than`` or better for at least ``at_least`` percent of the clients.

``measure`` is a column of the result, ``accuracy`` if left out; ``at`` lists points at which all must hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, pairwise, product
from statistics import fmean, stdev
from typing import Any, Literal

import numpy as np
from papers import Result
from scipy.special import stdtr

from fedsim.studies.intervals import Interval, interval

LEVEL = 0.05
LESS_IS_BETTER = ("loss", "client_losses", "std_", "bytes", "parameters", "simulated_s", "client_compute_s")
"""Prefixes of measures of which less is better."""
COUNTED = ("bytes", "parameters", "best_for", "architectures")
"""Prefixes of measures that are counted, so that equal differences with every seed are certain."""

BOUNDS = ("at_least", "at_most")

Verdict = Literal["shown", "not shown", "contradicted"]


@dataclass(frozen=True)
class Comparison:
    """Two cells, seed by seed, or one."""

    words: str
    differences: Sequence[float]
    """The first minus the second; of a ratio, the differences of logarithms."""
    support: Sequence[float]
    """Differences whose mean is above 0 where the claim holds."""
    objection: Sequence[float]
    """Differences whose mean is above 0 where the claim is wrong."""
    is_counted: bool = False

    @property
    def interval(self) -> Interval | None:
        """The mean difference with its 95 % interval; None where a target was not reached."""
        return interval(self.differences) if all(map(math.isfinite, self.differences)) else None

    @property
    def p_for(self) -> float:
        """p-value of what supports the claim."""
        return self._p(self.support)

    @property
    def p_against(self) -> float:
        """p-value of what speaks against the claim."""
        return self._p(self.objection)

    def _p(self, values: Sequence[float]) -> float:
        """Return the two-sided p-value of a mean above 0; 1 where the mean is not above 0."""
        count = len(values)
        if count < 2 or not all(map(math.isfinite, values)) or fmean(values) <= 0:
            return 1.0
        error = stdev(values) / math.sqrt(count)
        if error == 0:
            return 0.0 if self.is_counted else 1.0
        return float(2 * stdtr(count - 1, -fmean(values) / error))


@dataclass(frozen=True)
class Judgement:
    """A verdict and the comparisons behind it."""

    verdict: Verdict
    comparisons: Sequence[Comparison]


def judge(claim: Mapping[str, Any], result: Result) -> Judgement:
    """Return what a result says of a claim."""
    comparisons = list(_comparisons(claim, result))
    return Judgement(verdict(comparisons), comparisons)


def verdict(comparisons: Sequence[Comparison]) -> Verdict:
    """Return the verdict on comparisons that a claim needs all of, at least one."""
    if not comparisons:
        raise ValueError("a claim compares nothing")
    if any(holm([one.p_against for one in comparisons])):
        return "contradicted"
    return "shown" if all(holm([one.p_for for one in comparisons])) else "not shown"


def cells_of(claim: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the study and the label of each cell that a claim and its experiments name."""
    named = [*chain.from_iterable(claim.get("order", ())), *chain.from_iterable(claim.get("pairs", ()))]
    named += [*claim.get("alike", ()), *claim.get("ratio", ()), *claim.get("than", ())]
    named += [claim[key] for key in ("value", "best_for") if key in claim]
    points = [f" @ {point}" if point else "" for point in claim.get("at", [""])]
    cells = [(claim["study"], name + point) for name in named for point in points]
    for experiment in claim.get("experiments", ()):
        cells += [(experiment.get("study", claim["study"]), name) for name in experiment["cells"]]
    return cells


def holm(p_values: Sequence[float]) -> list[bool]:
    """Return which hypotheses Holm's procedure rejects.

    Holm: A simple sequentially rejective multiple test procedure, Scandinavian Journal of Statistics 6, 1979.
    """
    rejected = [False] * len(p_values)
    for rank, number in enumerate(sorted(range(len(p_values)), key=lambda n: p_values[n])):
        if p_values[number] > LEVEL / (len(p_values) - rank):
            break
        rejected[number] = True
    return rejected


def better(
    result: Result, first: str, second: str, measure: str = "accuracy", margin: float = 0
) -> Comparison:
    """Compare two cells, of which the first is to be better by more than a margin.

    A lead that is certainly smaller than the margin is no contradiction as long as it is a lead.
    """
    way = -1 if measure.startswith(LESS_IS_BETTER) else 1
    differences = _differences(result, first, second, measure)
    return Comparison(
        f"{first} - {second}",
        differences,
        [way * value - margin for value in differences],
        [min(0, margin) - way * value for value in differences],
        measure.startswith(COUNTED),
    )


def _differences(
    result: Result, first: str, second: str, measure: str, scale: Callable[[float], float] = float
) -> list[float]:
    ours, theirs = result.values(first, measure), result.values(second, measure)
    if ours.keys() != theirs.keys():
        raise ValueError(f"{first} and {second} have other seeds")
    return [scale(ours[seed]) - scale(theirs[seed]) for seed in ours]


def _comparisons(claim: Mapping[str, Any], result: Result) -> Iterator[Comparison]:
    measure, margin = claim.get("measure", "accuracy"), claim.get("margin", 0.0)
    for point in claim.get("at", [""]):
        at = f" @ {point}" if point else ""
        tiers = pairwise(claim.get("order", ()))
        pairs = [pair for higher, lower in tiers for pair in product(higher, lower)]
        for first, second in (*pairs, *claim.get("pairs", ())):
            yield better(result, first + at, second + at, measure, margin)
        means = {
            name + at: fmean(result.values(name + at, measure).values()) for name in claim.get("alike", ())
        }
        for first, second in combinations(sorted(means, key=lambda cell: -means[cell]), 2):
            differences = _differences(result, first, second, measure)
            yield _bounded(f"{first} - {second}", differences, {"at_most": margin}, measure)
        if "ratio" in claim:
            first, second = (name + at for name in claim["ratio"])
            logs = _differences(result, first, second, measure, math.log)
            for key in [key for key in BOUNDS if key in claim]:
                yield _bounded(f"{first} / {second}", logs, {key: math.log(claim[key])}, measure)
        if "value" in claim:
            values = list(result.values(claim["value"] + at, measure).values())
            for key in [key for key in BOUNDS if key in claim]:
                yield _bounded(claim["value"] + at, values, {key: claim[key]}, measure)
        if "best_for" in claim:
            own = result.clients(claim["best_for"] + at)
            others = [result.clients(name + at) for name in claim["than"]]
            best = {seed: np.all([own[seed] >= other[seed] for other in others], axis=0) for seed in own}
            shares = [100 * float(np.mean(clients)) for clients in best.values()]
            yield _bounded(f"{claim['best_for']}{at} is the best for", shares, claim, "best_for")


def _bounded(words: str, values: Sequence[float], bound: Mapping[str, Any], measure: str) -> Comparison:
    """Compare values with a bound, ``at_least`` or ``at_most``."""
    way, limit = (1, bound["at_least"]) if "at_least" in bound else (-1, bound["at_most"])
    support = [way * (value - limit) for value in values]
    return Comparison(words, values, support, [-value for value in support], measure.startswith(COUNTED))
