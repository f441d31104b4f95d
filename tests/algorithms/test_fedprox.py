"""FedProx: the specification's sanity checks (5.B.1)."""

import asyncio
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import torch

from fedsim.algorithms.common.proximal import Proximal
from fedsim.params import Model
from fedsim.rng import Key
from fedsim.wire import ModelBroadcast


def test_adds_mu_times_the_distance() -> None:
    model: Any = SimpleNamespace(params={"w": torch.tensor([3.0, -1.0])})
    extras = {"anchor": {"w": torch.tensor([1.0, 1.0])}}
    (corrected,) = Proximal(0.5)(model, [torch.tensor([0.25, 0.25])], extras)
    assert corrected.tolist() == [1.25, -0.75]


def test_larger_mu_stays_nearer(world: Any) -> None:
    def distance(mu: float) -> float:
        parts = world.parts(world.algorithm("fedprox", mu=mu), num_clients=1, rounds=1)
        start = parts.initial()("mlp").params
        result = world.run(parts.algorithm, num_clients=1, rounds=1, training={"epochs": 5})
        moved = result.models[0]["global"].params
        return sum(float(((moved[name] - array) ** 2).sum()) for name, array in start.items())

    distances = [distance(mu) for mu in (0.0, 0.1, 1.0, 5.0)]
    assert all(near < far for far, near in pairwise(distances))


def test_gamma_lets_clients_do_less(world: Any) -> None:
    whole = world.run(world.algorithm("fedprox"), training={"epochs": 10})
    partial = world.run(world.algorithm("fedprox", gamma=0.1), training={"epochs": 10})
    assert partial.simulated_s < whole.simulated_s
    assert sum(row.merged for row in partial.rounds) == 12  # partial work is merged like any other


def test_gamma_means_less_work_within_a_single_pass_too(world: Any) -> None:
    whole = world.run(world.algorithm("fedprox"), training={"epochs": 1})
    partial = world.run(world.algorithm("fedprox", gamma=0.1), training={"epochs": 1})
    assert partial.simulated_s < whole.simulated_s
    assert partial.model_hash != whole.model_hash


def test_work_is_a_share_of_the_mini_batches(world: Any) -> None:
    # The share lies between a half of six mini-batches and the whole.
    done = []

    class Client:
        def __init__(self, turn: int) -> None:
            self.key = Key.root(turn)

        def usual_steps(self, architecture: str) -> int:
            return 6

        def num_samples(self) -> int:
            return 20

        async def fit(self, model: Model, *, steps: int | None, **_: Any) -> Any:
            done.append(steps)
            return SimpleNamespace(model=model)

    message = ModelBroadcast.of(Model("mlp", {}))
    for turn in range(40):
        (train,) = world.algorithm("fedprox", gamma=0.5).exchanges
        asyncio.run(train.local(Client(turn), None, message))
    assert set(done) == {4, 5, 6}


def test_gamma_counts_steps_too(world: Any) -> None:
    whole = world.run(world.algorithm("fedprox"), training={"steps": 40})
    partial = world.run(world.algorithm("fedprox", gamma=0.1), training={"steps": 40})
    assert partial.simulated_s < whole.simulated_s
