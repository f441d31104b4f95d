"""What a run of fedsim costs, against a bare sequential loop in plain torch that does the same training.

FedAvg, one local epoch, learning rate 0.05, the fluid network, no evaluation:

- W1: an MLP 64-64-10 on digits, 10 of 100 clients a round, some 14 samples each, batch 10;
- W2: FedAvg's CNN on generated images of 1 x 28 x 28, 20 of 1,000 clients, 60 samples each, batch 20;
- W3: logistic regression of 64 features, 1,000 of 10,000 clients, 6 generated samples each, batch 6.

A figure is real time a round, the median over rounds 2 and later; behind a ratio stands that of processor
time, of all threads, which other load of the machine changes less. The bare loop (``bench_train_bare.py``)
and the runs take turns, each repeat in the opposite order, and the median of the repeats' ratios counts: a
machine that is slow for a while is slow for all.

``--variants`` measures variations of W1, each against a bare loop that trains likewise, and sets their ratios
in proportion to that of W1. ``--memory`` compares the peak memory of fresh processes that run W2.
``--device cuda`` trains on a GPU, fedsim and the bare loop alike; the limits are for a CPU of two cores, so
none is applied there.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bench_train_bare import Instant, Samples, Training, cnn, fedavg, logistic, mlp, now, peak_mib
from numpy.typing import NDArray
from torch import nn

from fedsim.data.client_split import Split
from fedsim.runtime.parts import Parts
from fedsim.runtime.records.result import RoundRow
from fedsim.runtime.run import run
from fedsim.scenario import load_scenario
from fedsim.scenario.build import build

EXECUTIONS: dict[str, dict[str, Any]] = {
    "1 worker": {"engine.workers": 1},
    "2 workers": {"engine.workers": 2},
    "auto workers": {"engine.workers": "auto"},
    "no training": {"engine.executor": "null"},
}
LOG_NORMAL = {"name": "two_class_lognormal", "params": {"least": 1, "sigma": 1.0}}
MEMORY_LIMIT = 1.3
VARIANT_LIMIT = 1.25

Timings = dict[str, list[NDArray[np.float64]]]
"""By side, which is "bare" or an execution: real and processor time a round, s, ``[2]``, for each repeat."""


@dataclass(frozen=True)
class Case:
    """One workload, for both sides.

    Attributes:
        name: What it is.
        net: Makes the bare loop's net.
        training: What the bare loop trains in a round.
        scenario: Tables of the scenario.
        rounds: Rounds of a run, unless told otherwise.
        limit: Highest ratio of fedsim's time a round to the bare loop's; None: any.
        limited: Executions of which the fastest counts.
        overrides: What differs from the tables, by path.
    """

    name: str
    net: Callable[[], nn.Module]
    training: Training
    scenario: Mapping[str, Any]
    rounds: int
    limit: float | None
    limited: tuple[str, ...]
    overrides: Mapping[str, Any] = field(default_factory=dict)

    def parts(self, rounds: int | None = None, **overrides: Any) -> Parts:
        """Return what a run is made of."""
        given = {"run.rounds": rounds or self.rounds, **self.overrides, **overrides}
        return build(load_scenario(self.scenario, given))

    def on(self, device: str) -> Case:
        """Return it on a device; limits are for the CPU."""
        if device == "cpu":
            return self
        return replace(self, limit=None, overrides={**self.overrides, "engine.device": device})

    @property
    def window(self) -> int:
        """Rounds that are timed together: in each window equally much is done."""
        return self.training.evaluate_every or 1


def scenario(
    data: Mapping[str, Any], model: Mapping[str, Any], num_clients: int, training: Training
) -> dict[str, Any]:
    """Return the tables of a scenario of FedAvg on slow and fast devices, half of each."""
    return {
        "run": {"name": "bench", "rounds": 1},
        "data": {"split": [1.0, 0.0, 0.0], **data},
        "models": {"net": model},
        "training": {"lr": training.lr, "batch_size": training.batch_size, "epochs": 1},
        "fleet": [{"count": num_clients // 2, "device": device} for device in ("low", "high")],
        "participation": {"clients_per_round": training.asked},
        "evaluation": {"every": 0},
    }


def _generated(each: int, *shape: int) -> dict[str, Any]:
    return {"name": "bench_fixture.Generated", "params": {"shape": shape, "each": each}}


def _cases() -> dict[str, Case]:
    w1, w2, w3 = (Training(batch_size=size, asked=asked) for size, asked in ((10, 10), (20, 20), (6, 1000)))
    mlp_64 = {"name": "mlp", "params": {"hidden": [64]}}
    both = ("1 worker", "2 workers")
    return {
        "W1": Case(
            "W1, MLP 64-64-10, 10 of 100 clients",
            mlp,
            w1,
            scenario({"name": "digits", "global_test": 0.2}, mlp_64, 100, w1),
            rounds=60,
            limit=0.7,
            limited=both,
        ),
        "W2": Case(
            "W2, FedAvg's CNN, 20 of 1,000 clients",
            cnn,
            w2,
            scenario(_generated(60, 1, 28, 28), {"name": "cnn"}, 1000, w2),
            rounds=4,
            limit=0.45,
            limited=("2 workers",),
        ),
        "W3": Case(
            "W3, logistic 64-10, 1,000 of 10,000 clients",
            logistic,
            w3,
            scenario(_generated(6, 64), {"name": "linear"}, 10_000, w3),
            rounds=6,
            limit=0.4,
            limited=both,
        ),
    }


CASES = _cases()


def variants() -> list[Case]:
    """Return W1 and its variations."""
    w1 = CASES["W1"]

    def vary(name: str, overrides: Mapping[str, Any], net: Callable[[], nn.Module] = mlp, **own: Any) -> Case:
        return replace(w1, name=name, overrides=overrides, net=net, training=replace(w1.training, **own))

    own_test = {"data.global_test": 0.0, "data.split": [0.8, 0.0, 0.2]}
    diurnal = {"name": "diurnal", "params": {"share": 0.5}}
    return [
        replace(w1, name="W1"),
        vary("momentum 0.9", {"training.momentum": 0.9}, momentum=0.9),
        vary("weight decay 1e-4", {"training.weight_decay": 1e-4}, weight_decay=1e-4),
        vary("Adam", {"training.optimiser": "adam"}, adam=True),
        vary("FedProx", {"algorithm.name": "fedprox", "algorithm.params.mu": 0.1}, mu=0.1),
        vary("log-normal sizes", {"data.partition": LOG_NORMAL}),
        vary("evaluation every 5 rounds", {"evaluation.every": 5, **own_test}, evaluate_every=5),
        # fedsim also trains those who come too late, so the bare loop trains them too.
        vary("13 asked for 10", {"participation.pacing.params.over_selection": 1.3}, asked=13, merged=10),
        vary("diurnal fleet", {"fleet.0.availability": diurnal, "fleet.1.availability": diurnal}),
        *(vary(f"width {n}", {"models.net.params.hidden": [n]}, partial(mlp, n)) for n in (48, 100)),
    ]


def fedsim_ends(parts: Parts, asked: int, profiler: cProfile.Profile | None = None) -> list[Instant]:
    """Run, and return the instant at which each round has ended; all rounds but the first are profiled.

    Raises:
        RuntimeError: Another number of clients was asked than the bare loop trains.
    """
    ends: list[Instant] = []

    def watch(row: RoundRow) -> None:
        ends.append(now())
        if row.asked != asked:
            raise RuntimeError(f"round {row.round} asked {row.asked} clients instead of {asked}")
        if profiler is not None:
            (profiler.disable if len(ends) == parts.rounds else profiler.enable)()

    run(parts, watch=watch)
    return ends


def bare_ends(case: Case, parts: Parts) -> list[Instant]:
    """Train the same samples in the bare loop, and return the instant at which each round has ended."""
    data = parts.data

    def samples(split: Split, client: int) -> Samples:
        rows = data.indices(client, split)
        x, y = torch.from_numpy(data.x[rows]), torch.from_numpy(data.y[rows])
        return x.to(parts.device), y.to(parts.device)

    everyone = range(data.num_clients)
    clients = [samples("train", client) for client in everyone]
    x, y = zip(*(samples("test", client) for client in everyone), strict=True)
    net, test = case.net().to(parts.device), (torch.cat(x), torch.cat(y))
    return fedavg(net, clients, test, case.training, parts.num_rounds)


def seconds_a_round(ends: Sequence[Instant], window: int) -> NDArray[np.float64]:
    """Return the median over windows of rounds, the first round left out, of both times, s, ``[2]``."""
    return np.asarray(np.median(np.diff(ends[::window], axis=0), axis=0) / window)


def measure(
    cases: Sequence[Case], executions: Sequence[str], rounds: int | None, repeats: int
) -> dict[str, Timings]:
    """Let the bare loop and the executions of all cases take turns, and return their times by case."""
    sides = [(case, side) for case in cases for side in ("bare", *executions)]
    timings: dict[str, Timings] = {case.name: {side: [] for side in ("bare", *executions)} for case in cases}
    for repeat in range(repeats):
        for case, side in sides if repeat % 2 else reversed(sides):
            parts = case.parts(rounds, **EXECUTIONS.get(side, {}))
            ends = bare_ends(case, parts) if side == "bare" else fedsim_ends(parts, case.training.asked)
            timings[case.name][side].append(seconds_a_round(ends, case.window))
    return timings


def ratios(timings: Timings, side: str) -> NDArray[np.float64]:
    """Return the times of an execution in proportion to the bare loop's, ``[repeats, 2]``."""
    return np.array(timings[side]) / np.array(timings["bare"])


def compare(case: Case, rounds: int | None, repeats: int) -> bool:
    """Measure one workload; print it; say whether it keeps its limit."""
    timings = measure([case], tuple(EXECUTIONS), rounds, repeats)[case.name]
    print(f"{case.name}: bare {_ms(timings['bare'])} a round")
    medians = {}
    for side in EXECUTIONS:
        each = ratios(timings, side)
        medians[side], processor = np.median(each, axis=0)
        pairs = ", ".join(f"{one:.2f}" for one in each[:, 0])
        print(
            f"  {side:12s} {_ms(timings[side])}, ratio {medians[side]:.2f} ({processor:.2f}; pairs {pairs})"
        )
    best = min(medians[side] for side in case.limited)
    return _verdict(f"  {' or '.join(case.limited)}: {best:.2f}", best, case.limit)


def compare_variants(rounds: int | None, repeats: int, device: str) -> bool:
    """Measure the variations of W1; print them; say whether all keep the limit."""
    cases = [case.on(device) for case in variants()]
    limit = None if cases[0].limit is None else VARIANT_LIMIT
    timings = measure(cases, cases[0].limited, rounds, repeats)
    best = {
        case.name: np.min([ratios(timings[case.name], side) for side in case.limited], axis=0)
        for case in cases
    }
    kept = True
    for case in cases:
        ratio, processor = np.median(best[case.name], axis=0)
        relative, relative_processor = np.median(best[case.name] / best[cases[0].name], axis=0)
        print(f"{case.name:26s} bare {_ms(timings[case.name]['bare'])}, ratio {ratio:.2f} ({processor:.2f}),")
        text = f"    {relative:.2f} ({relative_processor:.2f}) times that of W1"
        kept &= _verdict(text, relative, limit)
    return kept


def compare_memory() -> bool:
    """Measure the peak memory of W2 in fresh processes; print it; say whether it keeps its limit.

    To be called before anything else runs: a process begins with the peak of the one that started it.
    """
    ours = _peak_mib("-c", "import bench_train; bench_train.print_peak()")
    bare = _peak_mib("bench_train_bare.py")
    text = f"W2, peak memory: fedsim {ours:.0f} MiB, bare {bare:.0f} MiB, ratio {ours / bare:.2f}"
    return _verdict(text, ours / bare, MEMORY_LIMIT)


def print_peak() -> None:
    """Run three rounds of W2 with two workers and print the peak memory, MiB."""
    run(CASES["W2"].parts(3, **EXECUTIONS["2 workers"]))
    print(peak_mib())


def profile(case: Case, rounds: int | None) -> None:
    """Print where the time of a run goes, with one worker and without the first round."""
    profiler = cProfile.Profile()
    fedsim_ends(case.parts(rounds, **EXECUTIONS["1 worker"]), case.training.asked, profiler)
    pstats.Stats(profiler).sort_stats("tottime").print_stats(40)


def _peak_mib(*arguments: str) -> float:
    command, folder = [sys.executable, *arguments], Path(__file__).parent
    return float(subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE).stdout)


def _ms(timings: Sequence[NDArray[np.float64]]) -> str:
    return f"{1e3 * np.median(timings, axis=0)[0]:7.1f} ms"


def _verdict(text: str, ratio: float, limit: float | None) -> bool:
    if limit is None:
        print(text, flush=True)
        return True
    print(f"{text} (limit {limit}{'' if ratio <= limit else ', missed'})", flush=True)
    return ratio <= limit


def main() -> int:
    """Measure and print; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="fail when a limit is missed")
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), help="workloads to measure")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rounds", type=int, help="rounds of a run")
    parser.add_argument("--variants", action="store_true", help="measure variations of W1 instead")
    parser.add_argument("--memory", action="store_true", help="measure peak memory instead")
    parser.add_argument("--profile", choices=CASES, help="profile a workload instead")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where both sides train")
    arguments = parser.parse_args()
    device: str = arguments.device
    if device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: torch finds no CUDA device on this computer")
    if device == "cuda" and (arguments.check or arguments.memory):
        parser.error("--device cuda: --check and --memory are for the CPU, leave them out")
    rounds, repeats = arguments.rounds, arguments.repeats
    least = 6 if arguments.variants else 2
    if (rounds or least) < least:
        parser.error(f"--rounds {rounds}: the first is not timed, so give at least {least}")
    torch.set_num_threads(1)
    kept = True
    if arguments.profile:
        profile(CASES[arguments.profile].on(device), rounds)
    elif arguments.memory:
        kept = compare_memory()
    elif arguments.variants:
        kept = compare_variants(rounds, repeats, device)
    else:
        for name in arguments.only:
            kept &= compare(CASES[name].on(device), rounds, repeats)
    print(f"load of the machine over the last minute: {os.getloadavg()[0]:.1f}")
    return int(arguments.check and not kept)


if __name__ == "__main__":
    sys.exit(main())
