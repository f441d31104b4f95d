"""Judge the papers' claims, which ``tools/paper_claims.toml`` lists, by the results of their studies.

A claim is a list of comparisons between cells of a study; a cell is a variant at a point of the grid. They
are paired by seed, and tested together at the level of 5 % by Holm's procedure. A claim is *shown* if every
comparison lies on the paper's side, *contradicted* if one lies on the other side, and else *not shown*. A
claim has one of five forms:

``order``
    Tiers of cells, the best first: each cell of a tier is better than each cell of the next tier by more than
    ``margin``, which may be negative. Of losses, bytes, parameters and standard
    deviations less is better.
``alike``
    Cells of which no two differ by more than ``margin``.
``ratio``
    Two cells, of which the first has ``between[0]`` to ``between[1]`` times as much as the second.
``value``
    A cell whose value lies ``between[0]`` and ``between[1]``.
``best_for``
    A cell, and others (``than``), than which it is better for ``between[0]`` to ``between[1]`` percent of the
    clients.

``measure`` is a column of the result, ``accuracy`` if left out; ``at`` lists points at which all must hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise, product
from statistics import fmean, stdev
from typing import Any, Literal

import numpy as np
from papers import Result
from scipy.special import stdtr

from fedsim.studies.intervals import Interval, interval

LEVEL = 0.05
LESS_IS_BETTER = ("loss", "bytes", "parameters", "std")
"""How the names of measures begin of which less is better."""

Verdict = Literal["shown", "not shown", "contradicted"]


@dataclass(frozen=True)
class Comparison:
    """Two cells, seed by seed."""

    words: str
    differences: Sequence[float]
    """The first minus the second; of a ratio, the differences of logarithms."""
    evidence: Sequence[float]
    """The differences as they are judged: their mean is positive where they speak for the claim."""

    @property
    def interval(self) -> Interval:
        """The mean difference with its 95 % interval, by Student's t."""
        found = interval(self.differences)
        assert found is not None
        return found

    @property
    def p(self) -> float:
        """Two-sided p-value of the hypothesis that the mean of the evidence is 0, by Student's t."""
        count, mean = len(self.evidence), fmean(self.evidence)
        if count < 2 or not math.isfinite(mean):
            return 1.0
        error = stdev(self.evidence) / math.sqrt(count)
        if error == 0:
            return 0.0 if mean else 1.0
        return float(2 * stdtr(count - 1, -abs(mean) / error))

    @property
    def speaks_for(self) -> bool:
        """Whether the mean lies on the paper's side."""
        return fmean(self.evidence) > 0


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
    """Return the verdict on comparisons that a claim needs all of."""
    are_certain = holm([one.p for one in comparisons])
    certain = [one for one, is_certain in zip(comparisons, are_certain, strict=True) if is_certain]
    if not all(one.speaks_for for one in certain):
        return "contradicted"
    return "shown" if len(certain) == len(comparisons) else "not shown"


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


def compared(
    result: Result,
    first: str,
    second: str,
    measure: str = "accuracy",
    *,
    beyond: float = 0.0,
    way: int = 1,
    scale: Callable[[float], float] = float,
) -> Comparison:
    """Compare two cells; differences above ``beyond`` speak for a claim, with ``way = -1`` those below it."""
    ours, theirs = result.values(first, measure), result.values(second, measure)
    differences = [scale(ours[seed]) - scale(theirs[seed]) for seed in ours]
    sign = "/" if scale is math.log else "-"
    evidence = [way * (value - beyond) for value in differences]
    return Comparison(f"{first} {sign} {second}", differences, evidence)


def _comparisons(claim: Mapping[str, Any], result: Result) -> Iterator[Comparison]:
    measure, margin = claim.get("measure", "accuracy"), claim.get("margin", 0.0)
    way = -1 if measure.startswith(LESS_IS_BETTER) else 1
    for point in claim.get("at", [""]):
        at = f" @ {point}" if point else ""
        if "order" in claim:
            for higher, lower in pairwise(claim["order"]):
                for first, second in product(higher, lower):
                    yield compared(result, first + at, second + at, measure, beyond=way * margin, way=way)
        elif "alike" in claim:
            means = {name + at: fmean(result.values(name + at, measure).values()) for name in claim["alike"]}
            for first, second in combinations(sorted(means, key=lambda cell: -means[cell]), 2):
                yield compared(result, first, second, measure, beyond=margin, way=-1)
        elif "ratio" in claim:
            first, second = claim["ratio"]
            for bound, way in zip(claim["between"], (1, -1), strict=True):
                yield compared(
                    result, first + at, second + at, measure, beyond=math.log(bound), way=way, scale=math.log
                )
        else:
            words, values = _single(claim, result, at, measure)
            for bound, way in zip(claim["between"], (1, -1), strict=True):
                yield Comparison(words, values, [way * (value - bound) for value in values])


def _single(claim: Mapping[str, Any], result: Result, at: str, measure: str) -> tuple[str, list[float]]:
    """Return a cell's values by seed, or for what percentage of the clients it is better than others."""
    if "value" in claim:
        return claim["value"] + at, list(result.values(claim["value"] + at, measure).values())
    first, *others = (result.clients(name + at) for name in (claim["best_for"], *claim["than"]))
    best = {seed: np.all([own > other[seed] for other in others], axis=0) for seed, own in first.items()}
    shares = [100 * float(np.mean(clients)) for clients in best.values()]
    return f"{claim['best_for']}{at} is the best for", shares
