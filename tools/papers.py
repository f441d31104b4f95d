"""The scaled-down twins of the five papers: all compared methods, and which claims they show.

Prints one Markdown table for each twin (accuracy, simulated time, bytes, parameters; how much of the real
time was not learning: neither a fit nor a prediction nor an evaluation, but reading the scenario, making the
data, the server's arithmetic and fedsim itself), the same share over all its runs, then one line for each
claim, by its number in the specification: whether means over seeds show it, and with how many seeds one alone
does. One seed each unless ``--seeds`` says otherwise. A run takes one worker, so that real time can be told
apart; the results are those of any number of workers. Run from the root of the repository::

    python tools/papers.py                 # all twins
    python tools/papers.py ktpfl_small     # some
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from fedsim.engine.executors.base import Due
from fedsim.engine.executors.threads import PLUGIN as THREADS
from fedsim.engine.jobs import Evaluate, Fit, Job, Predict
from fedsim.report import number_format
from fedsim.runtime.run import RunResult, run
from fedsim.scenario import build, load_scenario

FOLDER = Path("scenarios/papers")

HEADINGS = (
    "method",
    "accuracy %",
    "best global %",
    "simulated",
    "bytes",
    "parameters",
    "real s",
    "not learning %",
)


class Timed(THREADS):
    """One worker that notes how long it learns, s: in fits, predictions and evaluations, not in calls."""

    learning_s = 0.0

    def submit(self, job: Job, due: Due, *, step_flops: float | None = None) -> Any:
        """Take a job, and remember its kind."""
        promise = super().submit(job, due, step_flops=step_flops)
        self.__dict__.setdefault("kinds", {})[promise] = isinstance(job, Fit | Predict | Evaluate)
        return promise

    def wait(self, promise: Any) -> Any:
        """Do the job, by the clock."""
        began = time.perf_counter()
        try:
            return super().wait(promise)
        finally:
            if self.__dict__["kinds"].pop(promise, False):
                self.learning_s += time.perf_counter() - began


@dataclass(frozen=True)
class Outcome:
    """One finished run.

    Attributes:
        result: What came of it.
        wall_s: Real time from reading the scenario on, s.
        learning_s: The part of it that was learning, s.
    """

    result: RunResult
    wall_s: float
    learning_s: float

    @property
    def accuracy(self) -> float:
        """Mean over clients at the end, in percent; of a regression minus its loss."""
        final = self.result.final
        assert final is not None
        if final.mean is not None:
            return 100 * final.mean
        assert final.mean_loss is not None
        return -final.mean_loss

    @property
    def parameters(self) -> int:
        """Parameters communicated, both ways."""
        totals = self.result.totals
        return totals.parameters_up + totals.parameters_down

    def parameters_to(self, goal: float) -> float:
        """Parameters communicated until the global model's accuracy first reaches a goal; infinite if never.

        The specification's C_acc (2.3), for runs that measure every round.
        """
        spent = 0
        for row in self.result.rounds:
            spent += row.traffic.parameters_up + row.traffic.parameters_down
            if row.accuracy is not None and (row.accuracy.global_ or 0) >= goal:
                return spent
        return float("inf")


Outcomes = Mapping[str, Sequence[Outcome]]


@dataclass(frozen=True)
class Case:
    """A twin: which file, with which changes, for which methods.

    Attributes:
        file: Stem of the scenario.
        methods: Label in the table to algorithm and changes.
        claims: Claim to what says whether the outcomes show it.
    """

    file: str
    methods: Mapping[str, tuple[str, tuple[str, ...]]]
    claims: Mapping[str, Callable[[Outcomes], tuple[bool, str]]]


def mean(outcomes: Outcomes, label: str) -> float:
    """Return a method's accuracy over its seeds, in percent."""
    return fmean(one.accuracy for one in outcomes[label])


def plain(*names: str, changes: tuple[str, ...] = ()) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return methods that are labelled as they are called."""
    return {name: (name, changes) for name in names}


def r_000_1a(kind: str) -> Callable[[Outcomes], tuple[bool, str]]:
    """MNFL best."""

    def shown(o: Outcomes) -> tuple[bool, str]:
        ours, name = mean(o, f"ktpfl {kind}"), max(PERSONAL[:-1], key=lambda name: mean(o, f"{name} {kind}"))
        return ours > mean(
            o, f"{name} {kind}"
        ), f"MNFL {ours:.1f} %, {name} {mean(o, f'{name} {kind}'):.1f} %"

    return shown


def r_000_1b(kind: str) -> Callable[[Outcomes], tuple[bool, str]]:
    """FedMD < FedDF < {pFedDF, Sim, TopK, MNFL}."""

    def shown(o: Outcomes) -> tuple[bool, str]:
        personal = min(mean(o, f"{name} {kind}") for name in PERSONAL)
        order = [mean(o, f"fedmd {kind}"), mean(o, f"feddf {kind}"), personal]
        return order[0] < order[1] < order[2], f"{order[0]:.1f} < {order[1]:.1f} < {order[2]:.1f} %"

    return shown


def r_001_3(o: Outcomes) -> tuple[bool, str]:
    """Single global models are below personalised ones under strong skew."""
    single = max(mean(o, n) for n in ("fedavg", "feddf"))
    personal = mean(o, "perfed_ckt")
    return single < personal, f"best single {single:.1f} %, PerFed-CKT {personal:.1f} %"


def r_001_6(o: Outcomes) -> tuple[bool, str]:
    """Without clusters worse than alone, with them better, for the two clients that are alike."""

    def loss(label: str) -> float:
        losses = []
        for one in o[label]:
            final = one.result.final
            assert final is not None
            losses.append(float(np.mean(final.losses[[0, 2]])))
        return fmean(losses)

    alone, one, two = loss("local"), loss("C = 1"), loss("C = 2")
    return two < alone < one, f"loss {two:.4f} (C = 2) < {alone:.4f} (alone) < {one:.4f} (C = 1)"


def r_002(kind: str) -> Callable[[Outcomes], tuple[bool, str]]:
    """PersFL above FedAvg."""

    def shown(o: Outcomes) -> tuple[bool, str]:
        ours, theirs = mean(o, f"persfl {kind}"), mean(o, f"fedavg {kind}")
        return ours > theirs, f"PersFL {ours:.1f} %, FedAvg {theirs:.1f} %"

    return shown


def r_003_3a(o: Outcomes) -> tuple[bool, str]:
    """FedAvg with the large model needs 2 to 4 times Fed-ET's parameters for the same accuracy."""
    best = {n: fmean(one.result.best_global or 0 for one in o[n]) for n in ("fedet", "fedavg")}
    goal = 0.9 * min(best.values())
    ours, theirs = (fmean(one.parameters_to(goal) for one in o[n]) for n in ("fedet", "fedavg"))
    ratio = theirs / ours
    return 2 <= ratio <= 4, f"{ratio:.2f} times, to reach {100 * goal:.1f} % (nine tenths of the lower best)"


def r_004_4a(o: Outcomes) -> tuple[bool, str]:
    """Centralized >= FedMe >= FedAvg, all fine-tuned, > Local."""
    order = [mean(o, f"{name} 0.5") for name in ("centralized", "fedme", "fedavg_ft", "local")]
    said = " >= ".join(f"{accuracy:.1f}" for accuracy in order[:3])
    return order[0] >= order[1] >= order[2] > order[3], f"{said} > {order[3]:.1f} %"


def r_004_7a(o: Outcomes) -> tuple[bool, str]:
    """With growing skew FedAvg falls, and fine-tuned FedAvg rises."""

    def untuned(alpha: str) -> float:
        finals = [one.result.final for one in o[f"fedavg_ft {alpha}"]]
        return fmean(100 * final.others["untuned"] for final in finals if final is not None)

    plain_ = [untuned(alpha) for alpha in ALPHAS]
    tuned = [mean(o, f"fedavg_ft {alpha}") for alpha in ALPHAS]
    said = " to ".join(f"{a:.1f}" for a in plain_) + " %; tuned " + " to ".join(f"{a:.1f}" for a in tuned)
    return plain_[-1] < plain_[0] and tuned[-1] > tuned[0], f"alpha {', '.join(ALPHAS)}: {said} %"


PERSONAL = ("pfeddf", "sim_pfd", "topk_pfd", "ktpfl")
ALPHAS = ("100.0", "5.0", "0.5", "0.1")
OWN = ("data.public={ size = 500 }",)
"""A public set held out of the clients' own data set, in place of another data set's images."""
DS3 = ("data.partition={ name = 'two_class_lognormal' }",)
LARGE = tuple(f"fleet.{number}.models={{ large = 1 }}" for number in range(3))


def alpha(value: str) -> tuple[str, ...]:
    """Return the change to a label distribution's parameter."""
    return (f"data.partition.params.alpha_label={value}",)


CASES = (
    Case(
        "ktpfl_small",
        {
            f"{name} {kind}": (name, changes)
            for kind, changes in (("other", ()), ("own", OWN))
            for name in ("fedmd", "feddf", *PERSONAL)
        },
        {
            f"{claim} {kind}": says(kind)
            for claim, says in (("R-000-1a", r_000_1a), ("R-000-1b", r_000_1b))
            for kind in ("other", "own")
        },
    ),
    Case("perfed_ckt_small", plain("local", "fedavg", "feddf", "perfed_ckt"), {"R-001-3": r_001_3}),
    Case(
        "perfed_ckt_toy",
        {
            "local": ("local", ()),
            "C = 1": ("perfed_ckt", ("algorithm.params.clusters=1",)),
            "C = 2": ("perfed_ckt", ("algorithm.params.clusters=2",)),
        },
        {"R-001-6": r_001_6},
    ),
    Case(
        "persfl_small",
        {
            f"{name} {kind}": (name, changes)
            for kind, changes in (("DS-1", ()), ("DS-3", DS3))
            for name in ("fedavg", "persfl", "persfl_gd")
        },
        {"R-002 DS-1": r_002("DS-1"), "R-002 DS-3": r_002("DS-3")},
    ),
    Case(
        "fedet_small",
        {**plain("fedet", "feddf", "dsfl"), **plain("fedavg", "fedprox", changes=LARGE)},
        {"R-003-3a": r_003_3a},
    ),
    Case(
        "fedme_small",
        {
            **{f"fedavg_ft {value}": ("fedavg_ft", alpha(value)) for value in ALPHAS},
            **{f"{name} 0.5": (name, ()) for name in ("local", "centralized", "fedme")},
        },
        {"R-004-4a": r_004_4a, "R-004-7a": r_004_7a},
    ),
)


def outcome(file: str, algorithm: str, changes: Sequence[str], seed: int) -> Outcome:
    """Run one method with one seed."""
    began = time.perf_counter()
    scenario = load_scenario(FOLDER / f"{file}.toml", changes, algorithm=algorithm, seed=seed)
    timed = Timed(THREADS.Config(workers=1))
    result = run(replace(build(scenario), executor=timed))
    return Outcome(result, time.perf_counter() - began, timed.learning_s)


def main() -> int:
    """Run, print; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("twins", nargs="*", help="stems of scenarios; all by default")
    parser.add_argument("--seeds", default="0", help="such as 0,1,2")
    parser.add_argument("--rounds", type=int, help="instead of the scenario's")
    arguments = parser.parse_args()
    seeds = [int(seed) for seed in arguments.seeds.split(",")]
    rounds = () if arguments.rounds is None else (f"run.rounds={arguments.rounds}",)
    for case in CASES:
        if arguments.twins and case.file not in arguments.twins:
            continue
        print(f"\n### {case.file}\n")
        print(f"| {' | '.join(HEADINGS)} |")
        print("|---" * len(HEADINGS) + "|")
        outcomes: dict[str, list[Outcome]] = {}
        for label, (algorithm, changes) in case.methods.items():
            runs = [outcome(case.file, algorithm, (*changes, *rounds), seed) for seed in seeds]
            outcomes[label] = runs
            print(row(label, runs), flush=True)
        wall_s = sum(one.wall_s for runs in outcomes.values() for one in runs)
        learning_s = sum(one.learning_s for runs in outcomes.values() for one in runs)
        print(f"\nAll together {wall_s:.0f} s, {100 * (1 - learning_s / wall_s):.1f} % of it not learning.\n")
        for claim, says in case.claims.items():
            shown, figures = says(outcomes)
            each = [says({label: [runs[n]] for label, runs in outcomes.items()}) for n in range(len(seeds))]
            times = f"; with {sum(one for one, _ in each)} of {len(seeds)} seeds"
            print(f"- {claim}: {'shown' if shown else 'NOT shown'} ({figures}{times})")
    return 0


def spread(values: Sequence[float]) -> str:
    """Return the standard deviation over seeds, with its sign; nothing of one seed."""
    return f" ± {stdev(values):.2g}" if len(values) > 1 else ""


def row(label: str, runs: Sequence[Outcome]) -> str:
    """Return a method's line of the table."""
    totals = [one.result.totals for one in runs]
    spent = fmean(t.bytes_up + t.bytes_down + t.data_up + t.data_down for t in totals)
    best = [one.result.best_global for one in runs if one.result.best_global is not None]
    wall_s, learning_s = sum(one.wall_s for one in runs), sum(one.learning_s for one in runs)
    cells = (
        label,
        f"{fmean(one.accuracy for one in runs):.4g}" + spread([one.accuracy for one in runs]),
        f"{100 * fmean(best):.1f}" if best else "-",
        number_format.duration(fmean(one.result.simulated_s for one in runs)),
        number_format.size(spent),
        f"{fmean(one.parameters for one in runs):,.0f}",
        f"{wall_s / len(runs):.1f}",
        f"{100 * (1 - learning_s / wall_s):.1f}",
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
