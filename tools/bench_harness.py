"""What the benches share: options, measurements in turns, figures with quartiles and limits.

Every bench has these options:

- ``--check``: exit with status 1 if a figure misses its limit.
- ``--repeats N``: measure each side so often; medians count.
- ``--against ROOT``: run the bench on the ``fedsim`` package of another source tree too, in turns with this
  tree, and print the ratio of each figure.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

ROOT = Path(__file__).resolve().parents[1]

T = TypeVar("T")


class Bench:
    """The figures of a bench: prints each and compares it with its limit."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.figures: dict[str, float] = {}
        self.missed: list[str] = []

    def in_turns(self, ways: Mapping[str, Callable[[], T]]) -> dict[str, list[T]]:
        """Measure each way ``--repeats`` times, every other time in the opposite order."""
        measured: dict[str, list[T]] = {name: [] for name in ways}
        for repeat in range(self.options.repeats):
            for name in ways if repeat % 2 else reversed(list(ways)):
                gc.collect()
                measured[name].append(ways[name]())
        return measured

    def show(
        self,
        name: str,
        values: ArrayLike,
        unit: str = "",
        *,
        at_most: float | None = None,
        at_least: float | None = None,
    ) -> float:
        """Print the median of a figure, its quartiles and its limit; return the median."""
        lower, median, upper = map(float, np.percentile(np.asarray(values), (25, 50, 75)))
        self.figures[name] = median
        text = f"{name:48} {median:10.4g} {unit:8}"
        if lower != upper:
            text += f" ({lower:.4g} to {upper:.4g})"
        for words, limit, is_kept in (
            ("at most", at_most, at_most is None or median <= at_most),
            ("at least", at_least, at_least is None or median >= at_least),
        ):
            if limit is not None:
                text += f" {words} {limit:g}: {'ok' if is_kept else 'MISSED'}"
            if not is_kept:
                self.missed.append(name)
        print(text, flush=True)
        return median

    def ratio(
        self,
        name: str,
        values: Sequence[float],
        base: Sequence[float],
        *,
        at_most: float | None = None,
        at_least: float | None = None,
    ) -> float:
        """Show the ratios of values that were measured in turns; return their median."""
        ratios = [value / other for value, other in zip(values, base, strict=True)]
        return self.show(name, ratios, "x", at_most=at_most, at_least=at_least)


def main(
    doc: str | None, measure: Callable[[Bench], None], repeats: int = 5, **own_options: Mapping[str, Any]
) -> None:
    """Measure and exit with the status; ``own_options`` are arguments of ``add_argument`` by name."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="exit with status 1 if a limit is missed")
    parser.add_argument("--repeats", type=int, default=repeats, help="measurements of each side")
    parser.add_argument("--against", type=Path, metavar="ROOT", help="another source tree to compare with")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON at the end")
    for name, settings in own_options.items():
        parser.add_argument(f"--{name}", **settings)
    options = parser.parse_args()
    bench = Bench(options)
    if options.against:
        _compare_trees(bench, options.against.resolve())
    else:
        measure(bench)
    if options.json:
        print(json.dumps(bench.figures))
    sys.exit(bool(options.check and bench.missed))


def _compare_trees(bench: Bench, other: Path) -> None:
    """Run the bench on both trees in turns; show the ratio of each figure."""
    passed = [word for word in sys.argv if word != "--check" and not word.startswith("--against")]
    own = [word for word in passed if Path(word) != bench.options.against] + ["--json", "--repeats", "1"]

    trees = {"here": ROOT, "other": other}
    measured: dict[str, list[dict[str, float]]] = bench.in_turns(
        {name: partial(run_script, *own, variables={"PYTHONPATH": str(tree)}) for name, tree in trees.items()}
    )
    for name in measured["here"][0]:
        here, there = ([figures[name] for figures in measured[tree]] for tree in ("here", "other"))
        if all(there):
            bench.ratio(f"{name}, here / {other.name}", here, there)


def run_script(*arguments: str, variables: Mapping[str, str] | None = None) -> Any:
    """Run a Python program in a new process; return the JSON in the last line that it prints."""
    command, environment = [sys.executable, *arguments], {**os.environ, **(variables or {})}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def processor_s(work: Callable[[], object]) -> float:
    """Return the processor time that a function takes, s."""
    started = time.process_time()
    work()
    return time.process_time() - started


def peak_mib() -> float:
    """Return the highest resident memory of this process so far, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def without_training(num_clients: int, rounds: int, clients_per_round: int | None = None) -> dict[str, Any]:
    """Return the tables of a scenario that trains nothing: clients with sample counts, the null executor."""
    half = num_clients // 2
    groups = {"low": half, "high": num_clients - half}
    return {
        "run": {"name": "bench", "rounds": rounds},
        "data": {"name": "sizes", "params": {"samples": 100, "input_shape": [16]}},
        "models": {"linear": {}},
        "training": {"lr": 0.05, "batch_size": 10, "epochs": 1},
        "fleet": [{"count": count, "device": device} for device, count in groups.items()],
        "participation": {"clients_per_round": clients_per_round or num_clients},
        "network": {"model": "naive"},
        "engine": {"executor": "null"},
        "evaluation": {"every": 0},
    }
