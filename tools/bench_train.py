"""A run of fedsim against a bare sequential loop in plain torch that does the same training.

FedAvg, one local epoch, learning rate 0.05, the fluid network, no evaluation:

- W1: an MLP 64-64-10 on digits, 10 of 100 clients a round, some 14 samples each, batch 10;
- W2: FedAvg's CNN on generated images of 1 x 28 x 28, 20 of 1,000 clients, 60 samples each, batch 20;
- W3: logistic regression of 64 features, 1,000 of 10,000 clients, 6 generated samples each, batch 6.

A figure is real time a round, the median over rounds 2 and later. The ratios of processor time, of all
threads, are shown too: other load of the machine changes them less.

``--variants`` measures variations of W1, each against a bare loop that trains likewise. ``--methods``
measures FedMD, KT-pFL (two architectures) and Ditto on digits, and FedAvg of an LSTM. ``--memory`` compares
the peak memory of new processes that run W2. ``--device cuda`` trains both sides on a GPU; the limits are for
a CPU of two cores, so none is applied there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bench_harness import Bench, main, peak_mib, run_script
from bench_train_bare import (
    Instant,
    Reader,
    Samples,
    Training,
    cnn,
    codistillation,
    ditto,
    fedavg,
    logistic,
    mlp,
    now,
)
from numpy.typing import NDArray
from torch import nn

from fedsim.data.client_split import Split
from fedsim.runtime.parts import Parts
from fedsim.runtime.records.result import RoundRow
from fedsim.runtime.run import run
from fedsim.scenario import build, load_scenario

EXECUTIONS: dict[str, dict[str, Any]] = {
    "1 worker": {"engine.workers": 1},
    "2 workers": {"engine.workers": 2},
    "auto workers": {"engine.workers": "auto"},
    "no training": {"engine.executor": "null"},
}
MAX_MEMORY_RATIO, MAX_VARIANT_RATIO, MAX_METHOD_RATIO = 1.3, 1.25, 0.7

Bare = Callable[[Sequence[Samples], torch.Tensor, int], list[Instant]]
"""A bare loop: from what clients hold, public samples and the number of rounds to the end of each round."""


@dataclass(frozen=True)
class Case:
    """One workload, for fedsim and for the bare loop."""

    name: str
    net: Callable[[], nn.Module]  # of the bare loop
    training: Training
    scenario: Mapping[str, Any]
    rounds: int
    limit: float | None  # highest ratio of fedsim's time a round to the bare loop's
    limited: tuple[str, ...] = ("1 worker", "2 workers")  # executions of which the fastest counts
    overrides: Mapping[str, Any] = field(default_factory=dict)
    bare: Bare | None = None  # instead of FedAvg
    exchanges: int = 1  # how often a round asks its clients

    def parts(self, rounds: int | None = None, **overrides: Any) -> Parts:
        """Return the parts of a run."""
        given = {"run.rounds": rounds or self.rounds, **self.overrides, **overrides}
        return build(load_scenario(self.scenario, given))

    def on(self, device: str) -> Case:
        """Return the case on a device, without its limit unless that is the CPU."""
        if device == "cpu":
            return self
        return replace(self, limit=None, overrides={**self.overrides, "engine.device": device})


def _scenario(
    data: Mapping[str, Any], model: Mapping[str, Any], num_clients: int, training: Training
) -> dict[str, Any]:
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
    return {"name": "bench_data.Generated", "params": {"shape": shape, "each": each}}


def _cases() -> dict[str, Case]:
    w1, w2, w3 = (Training(batch_size=size, asked=asked) for size, asked in ((10, 10), (20, 20), (6, 1000)))
    digits, mlp_64 = {"name": "digits", "global_test": 0.2}, {"name": "mlp", "params": {"hidden": [64]}}
    tables = (
        _scenario(digits, mlp_64, 100, w1),
        _scenario(_generated(60, 1, 28, 28), {"name": "cnn"}, 1000, w2),
        _scenario(_generated(6, 64), {"name": "linear"}, 10_000, w3),
    )
    return {
        "W1": Case("W1", mlp, w1, tables[0], rounds=60, limit=0.7),
        "W2": Case("W2", cnn, w2, tables[1], rounds=4, limit=0.45, limited=("2 workers",)),
        "W3": Case("W3", logistic, w3, tables[2], rounds=6, limit=0.4),
    }


CASES = _cases()


def variants() -> list[Case]:
    """Return W1 and its variations."""
    w1 = CASES["W1"]

    def vary(name: str, overrides: Mapping[str, Any], net: Callable[[], nn.Module] = mlp, **own: Any) -> Case:
        return replace(w1, name=name, overrides=overrides, net=net, training=replace(w1.training, **own))

    own_test = {"data.global_test": 0.0, "data.split": [0.8, 0.0, 0.2]}
    log_normal = {"name": "two_class_lognormal", "params": {"least": 1, "sigma": 1.0}}
    diurnal = {"name": "diurnal", "params": {"share": 0.5}}
    return [
        w1,
        vary("momentum 0.9", {"training.momentum": 0.9}, momentum=0.9),
        vary("weight decay 1e-4", {"training.weight_decay": 1e-4}, weight_decay=1e-4),
        vary("Adam", {"training.optimiser": "adam"}, adam=True),
        vary("FedProx", {"algorithm.name": "fedprox", "algorithm.params.mu": 0.1}, mu=0.1),
        vary("log-normal sizes", {"data.partition": log_normal}),
        vary("evaluation every 5 rounds", {"evaluation.every": 5, **own_test}, evaluate_every=5),
        # fedsim also trains the clients that reply too late, so the bare loop trains them too.
        vary("13 asked for 10", {"participation.pacing.params.over_selection": 1.3}, asked=13, merged=10),
        vary("diurnal fleet", {"fleet.0.availability": diurnal, "fleet.1.availability": diurnal}),
        *(vary(f"width {n}", {"models.net.params.hidden": [n]}, partial(mlp, n)) for n in (48, 100)),
    ]


def methods() -> list[Case]:
    """Return other methods than FedAvg on W1's clients, and another kind of net."""
    w1, training = CASES["W1"], CASES["W1"].training
    nets = {
        "net": {"name": "mlp", "params": {"hidden": [64]}},
        "small": {"name": "mlp", "params": {"hidden": [32]}},
    }
    public = {"data.public.size": 200}

    def method(
        name: str, params: Mapping[str, Any], bare: Bare, overrides: Mapping[str, Any], exchanges: int = 1
    ) -> Case:
        given = {"algorithm.name": name, "algorithm.params": params, **overrides}
        case = replace(w1, name=name, overrides=given, bare=bare, exchanges=exchanges)
        return replace(case, rounds=30, limit=MAX_METHOD_RATIO)

    def distilled(nets: Sequence[nn.Module], *, learn_weights: bool) -> Bare:
        return lambda clients, public, rounds: codistillation(
            nets, clients, public, training, rounds, learn_weights
        )

    def twice(clients: Sequence[Samples], public: torch.Tensor, rounds: int) -> list[Instant]:
        return ditto(mlp(), clients, training, rounds, 0.1)

    reading = Training(batch_size=10, asked=10)
    texts = {"name": "bench_data.GeneratedTexts", "params": {"shape": [20], "each": 30, "vocabulary": 80}}
    lstm = _scenario(texts, {"name": "lstm_chars", "params": {"layers": 1, "hidden": 64}}, 100, reading)
    fedmd = {"digest": "mse", "digest_batch_size": 32, "pretrain_epochs": 0}
    ktpfl = {"public_per_round": "all", "distill_batch_size": 32, "order": "distill_first"}
    two = {"models": nets, "fleet.0.model": "net", "fleet.1.model": "small"}
    return [
        method("fedmd", fedmd, distilled([mlp()], learn_weights=False), public, 2),
        method("ktpfl", ktpfl, distilled([mlp(), mlp(32)], learn_weights=True), {**public, **two}, 2),
        method("ditto", {"lam": 0.1}, twice, {}),
        Case("LSTM", Reader, reading, lstm, rounds=6, limit=MAX_METHOD_RATIO, limited=("2 workers",)),
    ]


def fedsim_ends(parts: Parts, asked: int) -> list[Instant]:
    """Run; return the instant at which each round has ended."""
    ends: list[Instant] = []

    def watch(row: RoundRow) -> None:
        ends.append(now())
        if row.asked != asked:
            raise RuntimeError(f"round {row.round} asked {row.asked} clients instead of {asked}")

    run(parts, watch=watch)
    return ends


def bare_ends(case: Case, parts: Parts) -> list[Instant]:
    """Train the same samples in the bare loop; return the instant at which each round has ended."""
    data = parts.data

    def samples(split: Split, client: int) -> Samples:
        rows = data.indices(client, split)
        x, y = torch.from_numpy(data.x[rows]), torch.from_numpy(data.y[rows])
        return x.to(parts.device), y.to(parts.device)

    everyone = range(data.num_clients)
    clients = [samples("train", client) for client in everyone]
    if case.bare is not None:
        return case.bare(clients, torch.from_numpy(data.x[data.public]), parts.num_rounds)
    x, y = zip(*(samples("test", client) for client in everyone), strict=True)
    net, test = case.net().to(parts.device), (torch.cat(x), torch.cat(y))
    return fedavg(net, clients, test, case.training, parts.num_rounds)


def round_s(case: Case, side: str, rounds: int | None) -> NDArray[np.float64]:
    """Return real and processor time a round, s, ``[2]``: the median over all rounds but the first."""
    parts = case.parts(rounds, **EXECUTIONS.get(side, {}))
    ends = (
        bare_ends(case, parts) if side == "bare" else fedsim_ends(parts, case.exchanges * case.training.asked)
    )
    window = case.training.evaluate_every or 1  # of rounds in which equally much is done
    return np.asarray(np.median(np.diff(ends[::window], axis=0), axis=0) / window)


def compare(bench: Bench, case: Case, executions: Sequence[str], limit: float | None) -> None:
    """Show the time of a workload's executions in proportion to that of the bare loop."""
    rounds = bench.options.rounds
    sides = {side: partial(round_s, case, side, rounds) for side in ("bare", *executions)}
    times = {side: np.array(values) for side, values in bench.in_turns(sides).items()}
    bench.show(f"{case.name}: bare, a round", 1e3 * times["bare"][:, 0], "ms")
    medians = {}
    for side in executions:
        real, processor = (times[side] / times["bare"]).T
        medians[side] = bench.show(f"{case.name}: {side} / bare", real, "x")
        bench.show(f"{case.name}: {side} / bare, processor time", processor, "x")
    fastest = min(medians[side] for side in case.limited)
    bench.show(f"{case.name}: {' or '.join(case.limited)}", fastest, "x", at_most=limit)


def compare_variants(bench: Bench) -> None:
    """Show the ratio of each variation of W1 to the bare loop, in proportion to that of W1."""
    cases = [case.on(bench.options.device) for case in variants()]
    for case in cases:
        compare(bench, case, case.limited, None)
    fastest = [bench.figures[f"{case.name}: {' or '.join(case.limited)}"] for case in cases]
    for case, ratio in zip(cases, fastest, strict=True):
        limit = None if case.limit is None else MAX_VARIANT_RATIO
        bench.show(f"{case.name}, in proportion to W1", ratio / fastest[0], "x", at_most=limit)


def compare_memory(bench: Bench) -> None:
    """Show the peak memory of W2 in new processes."""
    ours = bench.show("W2: peak memory of fedsim", run_script(__file__, "--peak"), "MiB")
    bare = run_script(str(Path(__file__).with_name("bench_train_bare.py")))
    bench.show("W2: peak memory of the bare loop", bare, "MiB")
    bench.show("W2: peak memory, fedsim / bare", ours / bare, "x", at_most=MAX_MEMORY_RATIO)


def measure(bench: Bench) -> None:
    """Measure what the options say."""
    options = bench.options
    if options.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("--device cuda: torch finds no CUDA device on this computer")
    if options.device == "cuda" and options.methods:
        raise SystemExit("--methods: their bare loops train on the CPU alone, so leave out --device")
    least = 6 if options.variants else 2
    if (options.rounds or least) < least:
        raise SystemExit(f"--rounds {options.rounds}: the first is not timed, so give at least {least}")
    torch.set_num_threads(1)
    if options.memory:
        compare_memory(bench)
    elif options.variants:
        compare_variants(bench)
    elif options.methods:
        for case in methods():
            compare(bench, case, ("1 worker", "2 workers"), case.limit)
    else:
        for name in options.only:
            case = CASES[name].on(options.device)
            compare(bench, case, tuple(EXECUTIONS), case.limit)


if __name__ == "__main__":
    if sys.argv[1:] == ["--peak"]:
        run(CASES["W2"].parts(3, **EXECUTIONS["2 workers"]))
        print(peak_mib())
    else:
        main(
            __doc__,
            measure,
            only={"nargs": "+", "choices": list(CASES), "default": list(CASES), "help": "workloads"},
            rounds={"type": int, "help": "of a run"},
            variants={"action": "store_true", "help": "measure variations of W1 instead"},
            methods={"action": "store_true", "help": "measure other methods than FedAvg instead"},
            memory={"action": "store_true", "help": "measure peak memory instead"},
            device={"choices": ("cpu", "cuda"), "default": "cpu", "help": "where both sides train"},
        )
