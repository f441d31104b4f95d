"""Claims of the five papers, by their number in the specification, as functions of outcomes.

Each returns whether the outcomes show it, by means over seeds, and the figures.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import fmean
from typing import TypeAlias

from twin_outcomes import Outcomes

Verdict: TypeAlias = tuple[bool, str]
Claim: TypeAlias = Callable[[Outcomes], Verdict]
Measure: TypeAlias = Callable[[Outcomes, str], float]

PERSONAL = ("pfeddf", "sim_pfd", "topk_pfd", "ktpfl")
HOMOGENEOUS = ("perfedavg", "fedavg_ft", "pfedme", "fedamp", "fedfomo", "pfedhn", "ktpfl_w")
"""The personalised methods of KT-pFL's table 2."""
SINGLE = ("fedavg", "feddf", "scaffold")
"""The single global models of PerFed-CKT's table 1 that its twin has."""
ALPHAS = ("100.0", "5.0", "0.5", "0.1")
TABLE_2 = ("fedavg", "fedprox", "scaffold", "moon", "feddf")
"""Methods of Fed-ET's table 2 beside Fed-ET and DS-FL."""


def mean(o: Outcomes, label: str) -> float:
    """Return a method's accuracy over its seeds, in percent."""
    return fmean(one.accuracy for one in o[label])


def best(o: Outcomes, label: str) -> float:
    """Return the best accuracy of a method's global model, over its seeds, in percent."""
    return fmean(one.best_global or 0 for one in o[label])


def descending(figures: Sequence[tuple[str, float]]) -> Verdict:
    """Return whether each figure is above the next one."""
    words = " > ".join(f"{label} {value:.1f} %" for label, value in figures)
    return all(a > b for (_, a), (_, b) in pairwise(figures)), words


def above(o: Outcomes, leaders: Sequence[str], others: Sequence[str], measure: Measure = mean) -> Verdict:
    """Return whether each leader is above the next one, and the last above all others."""
    last = max(others, key=lambda label: measure(o, label))
    return descending([(label, measure(o, label)) for label in (*leaders, last)])


def r_000_1a(kind: str, o: Outcomes) -> Verdict:
    """MNFL best."""
    return above(o, [f"ktpfl {kind}"], [f"{name} {kind}" for name in PERSONAL[:-1]])


def r_000_1b(kind: str, o: Outcomes) -> Verdict:
    """FedMD < FedDF < {pFedDF, Sim, TopK, MNFL}."""
    lowest = min((f"{name} {kind}" for name in PERSONAL), key=lambda label: mean(o, label))
    return descending([(label, mean(o, label)) for label in (lowest, f"feddf {kind}", f"fedmd {kind}")])


def r_000_2a(o: Outcomes) -> Verdict:
    """MNFL >= pFedHN >= all others."""
    return above(o, ["ktpfl_w", "pfedhn"], ["fedavg", *HOMOGENEOUS[:-2]])


def r_000_2b(o: Outcomes) -> Verdict:
    """FedAvg is worst or second worst."""
    fedavg = mean(o, "fedavg")
    below = [name for name in HOMOGENEOUS if mean(o, name) < fedavg]
    return len(below) <= 1, f"FedAvg {fedavg:.1f} %, below it: {', '.join(below) or 'none'}"


def r_001_1(o: Outcomes) -> Verdict:
    """PerFed-CKT within about a point of FedFomo's accuracy, for orders of magnitude fewer parameters."""
    ours, theirs = mean(o, "perfed_ckt"), mean(o, "fedfomo")
    spent = [fmean(one.parameters for one in o[name]) for name in ("perfed_ckt", "fedfomo")]
    ratio = spent[1] / spent[0]
    words = f"PerFed-CKT {ours:.1f} %, FedFomo {theirs:.1f} % for {ratio:.0f} times the parameters"
    return ours >= theirs - 1 and ratio >= 100, words


def r_001_3(o: Outcomes) -> Verdict:
    """Single global models are below personalised ones under strong skew."""
    return above(o, ["perfed_ckt"], SINGLE)


def r_001_6(o: Outcomes) -> Verdict:
    """Without clusters worse than alone, with them better, for the two clients that are alike."""

    def loss(label: str) -> float:
        return fmean(fmean((one.losses[0], one.losses[2])) for one in o[label])

    alone, one, two = loss("local"), loss("C = 1"), loss("C = 2")
    return two < alone < one, f"loss {two:.4f} (C = 2) < {alone:.4f} (alone) < {one:.4f} (C = 1)"


def r_002(kind: str, o: Outcomes) -> Verdict:
    """PersFL above FedAvg."""
    return above(o, [f"persfl {kind}"], [f"fedavg {kind}"])


def r_002_2a(kind: str, o: Outcomes) -> Verdict:
    """PersFL has the best mean."""
    others = ("fedavg", "fedper", "pfedme", "perfedavg")
    return above(o, [f"persfl {kind}"], [f"{name} {kind}" for name in others])


def r_003_2a(o: Outcomes) -> Verdict:
    """Fed-ET is the best of table 2 under strong skew."""
    return above(o, ["fedet"], [*TABLE_2, "dsfl"], best)


def r_003_2c(o: Outcomes) -> Verdict:
    """DS-FL is the lowest of table 2."""
    lowest = min([*TABLE_2, "fedet"], key=lambda name: best(o, name))
    return descending([(name, best(o, name)) for name in (lowest, "dsfl")])


def _to_goal(o: Outcomes, names: Sequence[str]) -> tuple[float, dict[str, float]]:
    """Return a goal, nine tenths of the lowest best accuracy, and the parameters that each needs to it."""
    goal = 0.9 * min(best(o, name) for name in names)
    return goal, {name: fmean(one.parameters_to(goal) for one in o[name]) for name in names}


def r_003_3a(o: Outcomes) -> Verdict:
    """FedAvg with the large model needs 2 to 4 times Fed-ET's parameters for the same accuracy."""
    goal, spent = _to_goal(o, ("fedet", "fedavg"))
    ratio = spent["fedavg"] / spent["fedet"]
    return 2 <= ratio <= 4, f"{ratio:.2f} times, to reach {goal:.1f} % (nine tenths of the lower best)"


def r_003_3b(o: Outcomes) -> Verdict:
    """Parameters for the same accuracy: Fed-ET << Scaffold < FedProx < FedAvg < MOON."""
    goal, spent = _to_goal(o, ("fedet", "scaffold", "fedprox", "fedavg", "moon"))
    values = list(spent.values())
    words = ", ".join(f"{name} {value / 1e6:.1f} M" for name, value in spent.items())
    return values == sorted(values), f"{words}, to reach {goal:.1f} %"


def r_003_5(o: Outcomes) -> Verdict:
    """FedGKT falls behind Fed-ET under strong skew, and much less under a weaker one."""
    pairs = [(best(o, f"fedet{alpha}"), best(o, f"fedgkt{alpha}")) for alpha in ("", " 0.5")]
    strong, mild = (ours - theirs for ours, theirs in pairs)
    words = "; alpha 0.5: ".join(f"Fed-ET {ours:.1f} %, FedGKT {theirs:.1f} %" for ours, theirs in pairs)
    return strong > max(mild, 0), f"alpha 0.1: {words}"


def r_004_4a(o: Outcomes) -> Verdict:
    """Centralized >= FedMe >= FedAvg >= HypCluster, all fine-tuned, > pFedMe > Local."""
    names = ("centralized", "fedme", "fedavg_ft", "hypcluster", "pfedme", "local")
    order = [mean(o, f"{name} 0.5") for name in names]
    words = " >= ".join(f"{accuracy:.1f}" for accuracy in order[:4])
    is_shown = order[:4] == sorted(order[:4], reverse=True) and order[3] > order[4] > order[5]
    return is_shown, f"{words} > {order[4]:.1f} > {order[5]:.1f} %"


def r_004_4b(o: Outcomes) -> Verdict:
    """Fine-tuned FedAvg is the best baseline."""
    others = ("hypcluster", "mapper", "fml", "pfedme", "local")
    return above(o, ["fedavg_ft 0.5"], [f"{name} 0.5" for name in others])


def r_004_4c(o: Outcomes) -> Verdict:
    """MAPPER and FML are below fine-tuned FedAvg, and MAPPER is below Local on images."""
    names = ("fedavg_ft", "fml", "local", "mapper")
    fedavg, fml, local, mapper = order = [mean(o, f"{name} 0.5") for name in names]
    words = ", ".join(f"{name} {value:.1f} %" for name, value in zip(names, order, strict=True))
    return max(mapper, fml) < fedavg and mapper < local, words


def r_004_7a(o: Outcomes) -> Verdict:
    """With growing skew FedAvg falls, and fine-tuned FedAvg rises."""
    plain = [fmean(one.others["untuned"] for one in o[f"fedavg_ft {alpha}"]) for alpha in ALPHAS]
    tuned = [mean(o, f"fedavg_ft {alpha}") for alpha in ALPHAS]
    words = " to ".join(f"{a:.1f}" for a in plain) + " %; tuned " + " to ".join(f"{a:.1f}" for a in tuned)
    return plain[-1] < plain[0] and tuned[-1] > tuned[0], f"alpha {', '.join(ALPHAS)}: {words} %"
