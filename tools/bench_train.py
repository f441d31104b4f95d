"""What fedsim costs beside training: whole runs against bare loops over the same jobs, in one process.

1. 10 rounds of 100 clients with 100 generated 64-feature samples each, MLP 64-64-10, batch 10, one epoch, one
   worker, against a sequential loop that calls the same step function on the same data. Limit: 1.3 times.
2. FedAvg's CNN on 28 x 28 images, 10 rounds of 8 clients with 100 samples each, two workers, against a bare
   pool of two threads that does the same. Limit: 1.1 times.

Both sides are run in turn, several times, each of them first in every other pair, and the median of the
pairs' ratios counts: a machine that is slow for a while is slow for both.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import torch
from bench_fixture import generated, world

from fedsim.data import FederatedData
from fedsim.engine.executors.threads import PLUGIN as THREADS
from fedsim.engine.losses import Batch
from fedsim.engine.optimisers import Sgd
from fedsim.engine.steps import Descent, Work
from fedsim.engine.worker_state import BoundNet
from fedsim.models.cnn import PLUGIN as CNN
from fedsim.models.mlp import PLUGIN as MLP
from fedsim.params import Model, Tree
from fedsim.rng import Key
from fedsim.runtime.parts import Parts
from fedsim.runtime.run import run

BATCH = 10


class BareClient:
    """Trains like a client, with nothing around it."""

    def __init__(self, parts: Parts) -> None:
        (architecture,) = parts.architectures.values()
        self.net = BoundNet(architecture.skeleton())
        self.step = Descent()
        self.optimiser = Sgd(lr=0.05)

    def train(self, model: Model, x: torch.Tensor, y: torch.Tensor, seed: int) -> Tree:
        """One epoch; returns the trained parameters."""
        generator = torch.Generator().manual_seed(seed)
        params = {name: torch.from_numpy(array.copy()) for name, array in model.params.items()}
        live = self.net.bind(params, {}, trained=True)
        states = {"model": self.optimiser.start(list(live.params.values()))}
        work = Work({"model": live}, ("model",), {}, self.optimiser, states, generator)
        for rows in torch.split(torch.randperm(len(x), generator=generator), BATCH):
            self.step(work, {"train": Batch(x[rows], y[rows])})
        return {name: tensor.detach().numpy() for name, tensor in live.params.items()}


def shards(data: FederatedData) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return each client's samples as tensors."""
    rows = [data.indices(client, "train") for client in range(data.num_clients)]
    return [(torch.from_numpy(data.x[r]), torch.from_numpy(data.y[r])) for r in rows]


def bare(parts: Parts, workers: int) -> None:
    """Do the work of a FedAvg run: the same numbers of rounds, clients and steps, and the mean."""
    (architecture,) = parts.architectures.values()
    model = architecture.initial(Key.root(0))
    samples = shards(parts.data)
    per_round = parts.clients_per_round or parts.data.num_clients

    def client(seat: int, chosen: list[int], start: Model) -> list[Tree]:
        torch.set_num_threads(1)
        return [seats[seat].train(start, *samples[k], seed=k) for k in chosen]

    seats = [BareClient(parts) for _ in range(workers)]
    pool = ThreadPoolExecutor(workers)
    for _ in range(parts.rounds):
        chosen = list(range(per_round))
        if workers == 1:
            trained = client(0, chosen, model)
        else:
            tasks = [pool.submit(client, seat, chosen[seat::workers], model) for seat in range(workers)]
            trained = [one for task in tasks for one in task.result()]
        names = trained[0]
        mean = {name: sum(one[name].astype(np.float64) for one in trained) / len(trained) for name in names}
        model = Model(model.architecture, {name: np.asarray(a, np.float32) for name, a in mean.items()})
    pool.shutdown()


def seconds(work: Callable[[], object]) -> float:
    """Return how long a piece of work takes, s."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def compare(name: str, make: Callable[[], Parts], workers: int, limit: float, repeats: int) -> bool:
    """Measure one case in turn; print it; say whether it keeps its limit."""
    ours: list[float] = []
    theirs: list[float] = []
    torch.set_num_threads(1)
    for repeat in range(repeats + 1):
        sides: list[tuple[list[float], Callable[[], object]]]
        sides = [(ours, partial(run, make())), (theirs, partial(bare, make(), workers))]
        for taken, work in sides if repeat % 2 else reversed(sides):
            taken_s = seconds(work)
            if repeat:  # the first pair warms up
                taken.append(taken_s)
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    ratio, pairs = statistics.median(ratios), ", ".join(f"{one:.2f}" for one in ratios)
    print(
        f"{name}: fedsim {statistics.median(ours):.2f} s, bare {statistics.median(theirs):.2f} s, "
        f"ratio {ratio:.2f} (limit {limit}; pairs {pairs})"
    )
    return ratio <= limit


def main() -> int:
    """Measure and print; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail when a limit is missed")
    parser.add_argument("--repeats", type=int, default=9)
    arguments = parser.parse_args()
    small, images = generated(100, 100, (64,)), generated(8, 100, (1, 28, 28))
    kept = [
        compare(
            "MLP 64-64-10, one worker",
            lambda: world(small, MLP(MLP.Config(hidden=(64,))), THREADS, 1),
            1,
            1.3,
            arguments.repeats,
        ),
        compare(
            "FedAvg CNN, two workers",
            lambda: world(images, CNN(CNN.Config()), THREADS, 2),
            2,
            1.1,
            arguments.repeats,
        ),
    ]
    return int(arguments.check and not all(kept))


if __name__ == "__main__":
    sys.exit(main())
