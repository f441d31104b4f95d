"""The small versions of the five papers: all compared methods, and which claims they show.

Prints a Markdown table for each paper, with what each method reaches and sends. Below it is a line for each
claim, by its number in the specification: whether means over seeds show it, and with how many seeds one alone
does. Run from the root of the repository::

    python tools/papers.py                                     # all papers
    python tools/papers.py ktpfl_small                         # some
    python tools/papers.py persfl_small --methods fedper,apfl  # some methods
    python tools/papers.py --seeds 0,1,2 --keep runs/twins     # continue where an earlier command ended

``--keep`` writes the outcome of each run to a file, and repeats no run that has one, so several commands can
share the work. Name another folder when code or scenarios have changed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, stdev

import twin_claims as claims
from twin_claims import ALPHAS, PERSONAL, Claim
from twin_outcomes import Outcome, kept_outcome

from fedsim.report import number_format

HEADINGS = (
    *("method", "accuracy %", "others %", "best global %"),
    *("simulated", "bytes", "parameters"),
)

Methods = Mapping[str, tuple[str, tuple[str, ...]]]
"""Label in the table to algorithm and changes to the scenario."""


@dataclass(frozen=True)
class Case:
    """The small version of a paper: a scenario, the compared methods, and the claims by number."""

    file: str  # stem of the scenario
    methods: Methods
    claims: Mapping[str, Claim]


def plain(*names: str, changes: tuple[str, ...] = (), suffix: str = "") -> Methods:
    """Return methods that are labelled as they are called."""
    return {name + suffix: (name, changes) for name in names}


OWN = ("data.public={ size = 500 }",)
"""A public set held out of the clients' own data set, in place of another data set's images."""
DS3 = ("data.partition={ name = 'two_class_lognormal' }",)
PERSFL = ("fedavg", "persfl", "persfl_gd", "fedper", "pfedme", "perfedavg", "apfl")
MILD = ("data.partition.params.alpha=0.5",)
LARGE = tuple(f"fleet.{number}.models={{ large = 1 }}" for number in range(3))
"""The large model at clients."""
CUT = (
    *(f"fleet.{number}.models={{ small = 1 }}" for number in range(3)),
    "models.above={ name = 'mlp', params = { hidden = [128, 288, 256], "
    "representation = { width = 64, hidden = [32] } } }",
    "server.model='above'",
)
"""One small model at all clients, and at the server the layers of the large one on top of its first layer."""


def alpha(value: str) -> tuple[str, ...]:
    """Return the change to a label distribution's parameter."""
    return (f"data.partition.params.alpha_label={value}",)


CASES = (
    Case(
        "ktpfl_small",
        {
            **plain("fedmd", "feddf", *PERSONAL, suffix=" other"),
            **plain("fedmd", "feddf", *PERSONAL, suffix=" own", changes=OWN),
        },
        {
            f"{claim} {kind}": partial(says, kind)
            for claim, says in (("R-000-1a", claims.r_000_1a), ("R-000-1b", claims.r_000_1b))
            for kind in ("other", "own")
        },
    ),
    Case(
        "ktpfl_homogeneous_small",
        plain("fedavg", *claims.HOMOGENEOUS, "l2sgd"),
        {"R-000-2a": claims.r_000_2a, "R-000-2b": claims.r_000_2b},
    ),
    Case(
        "perfed_ckt_small",
        plain(
            *("local", "fedavg", "feddf", "perfed_ckt", "scaffold", "perfedavg", "ditto", "fedfomo"),
            *("hypcluster", "ifca", "fedavgm", "fedadam", "fedyogi", "fedadagrad"),
        ),
        {"R-001-1": claims.r_001_1, "R-001-3": claims.r_001_3},
    ),
    Case(
        "perfed_ckt_toy",
        {
            "local": ("local", ()),
            "C = 1": ("perfed_ckt", ("algorithm.params.clusters=1",)),
            "C = 2": ("perfed_ckt", ("algorithm.params.clusters=2",)),
        },
        {"R-001-6": claims.r_001_6},
    ),
    Case(
        "persfl_small",
        {
            **plain(*PERSFL, suffix=" DS-1"),
            **plain(*PERSFL, suffix=" DS-3", changes=DS3),
        },
        {
            f"{claim} {kind}": partial(says, kind)
            for claim, says in (("R-002", claims.r_002), ("R-002-2a", claims.r_002_2a))
            for kind in ("DS-1", "DS-3")
        },
    ),
    Case(
        "fedet_small",
        {
            **plain("fedet", "feddf", "dsfl", "fedgems"),
            **plain("fedavg", "fedprox", "scaffold", "moon", changes=LARGE),
            **plain("fedgkt", changes=CUT),
            **plain("fedet", changes=MILD, suffix=" 0.5"),
            **plain("fedgkt", changes=(*CUT, *MILD), suffix=" 0.5"),
        },
        {
            "R-003-2a": claims.r_003_2a,
            "R-003-2c": claims.r_003_2c,
            "R-003-3a": claims.r_003_3a,
            "R-003-3b": claims.r_003_3b,
            "R-003-5": claims.r_003_5,
        },
    ),
    Case(
        "fedme_small",
        {
            **{f"fedavg_ft {value}": ("fedavg_ft", alpha(value)) for value in ALPHAS},
            **plain(
                *("local", "centralized", "fedme", "hypcluster", "mapper", "fml", "pfedme"), suffix=" 0.5"
            ),
        },
        {
            "R-004-4a": claims.r_004_4a,
            "R-004-4b": claims.r_004_4b,
            "R-004-4c": claims.r_004_4c,
            "R-004-7a": claims.r_004_7a,
        },
    ),
)


def main() -> int:
    """Run, print; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("twins", nargs="*", help="stems of scenarios; all by default")
    parser.add_argument("--methods", help="such as fedper,apfl; all by default")
    parser.add_argument("--seeds", default="0", help="such as 0,1,2")
    parser.add_argument("--rounds", type=int, help="instead of the scenario's")
    parser.add_argument("--keep", type=Path, help="folder of the runs' outcomes")
    arguments = parser.parse_args()
    seeds = [int(seed) for seed in arguments.seeds.split(",")]
    wanted = arguments.methods and arguments.methods.split(",")
    rounds = () if arguments.rounds is None else (f"run.rounds={arguments.rounds}",)
    for case in CASES:
        if arguments.twins and case.file not in arguments.twins:
            continue
        print(f"\n### {case.file}\n")
        print(f"| {' | '.join(HEADINGS)} |")
        print("|---" * len(HEADINGS) + "|")
        outcomes: dict[str, list[Outcome]] = {}
        for label, (algorithm, changes) in case.methods.items():
            if wanted and algorithm not in wanted:
                continue
            name, changes = f"{case.file} {label}", (*changes, *rounds)
            if rounds:
                name += f" {arguments.rounds} rounds"
            outcomes[label] = [
                kept_outcome(arguments.keep, name, case.file, algorithm, changes, seed) for seed in seeds
            ]
            print(row(label, outcomes[label]), flush=True)
        if not outcomes:
            continue
        print()
        for name, claim in case.claims.items():
            print(f"- {name}: {judged(claim, outcomes, len(seeds))}")
    return 0


def judged(claim: Claim, outcomes: Mapping[str, Sequence[Outcome]], num_seeds: int) -> str:
    """Return whether the outcomes show a claim, and with how many seeds one alone does."""
    try:
        shown, figures = claim(outcomes)
    except KeyError as missing:
        return f"not judged, as there is no run of {missing}"
    each = [claim({label: [runs[n]] for label, runs in outcomes.items()}) for n in range(num_seeds)]
    times = f"with {sum(one for one, _ in each)} of {num_seeds} seeds"
    return f"{'shown' if shown else 'NOT shown'} ({figures}; {times})"


def spread(values: Sequence[float]) -> str:
    """Return the standard deviation over seeds, with its sign; nothing of one seed."""
    return f" ± {stdev(values):.2g}" if len(values) > 1 else ""


def row(label: str, runs: Sequence[Outcome]) -> str:
    """Return a method's line of the table."""
    others = [f"{name} {fmean(one.others[name] for one in runs):.1f}" for name in runs[0].others]
    best = [one.best_global for one in runs if one.best_global is not None]
    cells = (
        label,
        f"{fmean(one.accuracy for one in runs):.4g}" + spread([one.accuracy for one in runs]),
        ", ".join(others) or "-",
        f"{fmean(best):.1f}" + spread(best) if best else "-",
        number_format.duration(fmean(one.simulated_s for one in runs)),
        number_format.size(fmean(one.bytes for one in runs)),
        f"{fmean(one.parameters for one in runs):,.0f}",
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
