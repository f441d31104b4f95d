"""FedBuff: the specification's sanity checks (5.F.2), and what published code has got wrong."""

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedsim.algorithms.base import Reply
from fedsim.algorithms.contexts import ClientContext
from fedsim.fleet import GroupConfig, ServerConfig, build_fleet
from fedsim.params import Model, Tree
from fedsim.rng import Key
from fedsim.runtime.policies.pacing.asynchronous import Buffered, Immediate
from fedsim.runtime.start_values import StartValues
from fedsim.wire import ModelUpdate
from tests.algorithms.stand_ins import Server


def _buffered(concurrency: int = 4, **params: Any) -> Any:
    return Buffered(Buffered.Config(concurrency=concurrency, **params))


def _update(change: float, mean: float = 0.0, num_samples: int = 1) -> ModelUpdate:
    params, buffers = ({name: np.array([value], np.float32)} for name, value in (("w", change), ("m", mean)))
    return ModelUpdate("mlp", params, buffers, num_samples)


def _reply(discount: float, *update: float) -> Reply:
    return Reply(0, 0, "train", 0, 3, discount, _update(*update))  # type: ignore[arg-type]


def _stepped(algorithm: Any, *merges: list[Reply]) -> list[Model]:
    """Return the models after each merge of some, where w was 10 before."""
    start = Model("mlp", {"w": np.array([10.0], np.float32)}, {"m": np.array([9.0], np.float32)})
    state, models = algorithm.start(_Server(start)), []
    for replies in merges:
        state = asyncio.run(algorithm.merge(Server(), state, replies))
        models.append(state.model)
    return models


class _Server:
    def __init__(self, model: Model) -> None:
        self.initial_model = lambda: model


def _w(*models: Model) -> list[float]:
    return [float(model.params["w"][0]) for model in models]


@pytest.fixture
def on_a_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Round start models and what clients train to multiples of 1/256: sums of a few are exact."""

    def rounded(tree: Tree) -> Tree:
        # Plus 0, since a change of -0.0 leaves no trace.
        return {name: np.round(array * 256) / np.float32(256) + 0 for name, array in tree.items()}

    fit, initial = ClientContext.fit, StartValues.__call__

    async def coarse(self: ClientContext, *args: Any, **kwargs: Any) -> Any:
        fitted = await fit(self, *args, **kwargs)
        models = {name: replace(one, params=rounded(one.params)) for name, one in fitted.models.items()}
        return replace(fitted, models=models)

    def start(self: StartValues, *args: Any, **kwargs: Any) -> Model:
        model = initial(self, *args, **kwargs)
        return replace(model, params=rounded(model.params))

    monkeypatch.setattr(ClientContext, "fit", coarse)
    monkeypatch.setattr(StartValues, "__call__", start)


def _alike(world: Any, num_clients: int) -> dict[str, Any]:
    """Return changes to a run: clients with the same device and equally many samples."""
    data = world.data(num_clients)
    pool = np.concatenate([data.indices(client, "train") for client in range(num_clients)])
    held = np.split(pool[: len(pool) // num_clients * num_clients], num_clients)
    device = {"speed": "1 GFLOP/s", "variation": 0.0, "up": "1 MB/s", "down": "1 MB/s", "latency": "10 ms"}
    group = GroupConfig.model_validate({"count": num_clients, "model": "mlp", **device})
    fleet = build_fleet([group], ServerConfig(model="mlp"), Key.root(3))
    return {"num_clients": num_clients, "fleet": fleet, "data": world.holding(data, "train", held)}


# Arithmetic


def test_the_server_adds_the_mean_change_discounted(world: Any) -> None:
    algorithm = world.algorithm("fedbuff", server_lr=0.5)
    # By the number of replies, not by the sum of discounts; samples weigh nothing.
    (merged,) = _stepped(algorithm, [_reply(1.0, 2.0, 1.0, 99), _reply(0.25, 4.0, 3.0, 1)])
    assert _w(merged) == [10 + 0.5 * (2 + 0.25 * 4) / 2]
    assert merged.buffers["m"].tolist() == [2.0]


def test_a_single_stale_reply_makes_a_small_step(world: Any) -> None:
    assert _w(*_stepped(world.algorithm("fedbuff"), [_reply(0.25, 4.0)])) == [11.0]


def test_steps_go_on_with_momentum(world: Any) -> None:
    # Mean changes of 2 and 1 with momentum 1/2: velocities of 2 and 2.
    merges = [_reply(1.0, 2.0)], [_reply(1.0, 3.0), _reply(1.0, -1.0)]
    assert _w(*_stepped(world.algorithm("fedbuff", momentum=0.5), *merges)) == [12.0, 14.0]
    assert _w(*_stepped(world.algorithm("fedbuff"), *merges)) == [12.0, 13.0]
    assert _w(*_stepped(world.algorithm("fedbuff", momentum=0.5, server_lr=0.25), *merges)) == [10.5, 11.0]


def test_a_client_may_be_in_a_merge_twice(world: Any) -> None:
    twice = [_reply(1.0, 2.0), replace(_reply(1.0, 4.0), dispatch=1)]
    assert _w(*_stepped(world.algorithm("fedbuff"), twice)) == [13.0]


# Runs


@pytest.mark.parametrize("num_clients", [4, 6])
def test_with_all_at_work_in_a_merge_and_equal_devices_it_is_fedavgm_without_momentum(
    num_clients: int, world: Any
) -> None:
    changes = _alike(world, num_clients)
    fedavgm = world.algorithm("fedavgm", momentum=0.0, server_lr=1.0, weighting="uniform")
    rounds = world.run(fedavgm, clients_per_round=4, **changes)
    for pacing in ({}, {"pacing": _buffered(4, buffer=4, staleness="polynomial")}):
        fedbuff = world.run(world.algorithm("fedbuff"), clients_per_round=4, **changes, **pacing)
        assert fedbuff.model_hash == rounds.model_hash
        assert fedbuff.totals == rounds.totals
        assert fedbuff.simulated_s == rounds.simulated_s
        assert [row.accuracy.mean for row in fedbuff.rounds] == [row.accuracy.mean for row in rounds.rounds]


def test_one_reply_that_is_fresh_gives_the_model_of_fedasync_with_alpha_1(
    world: Any, on_a_grid: None
) -> None:
    changes = {"clients_per_round": 2, "rounds": 3}
    alone = Immediate(Immediate.Config(concurrency=1))
    fedasync = world.run(world.algorithm("fedasync", alpha=1.0, rho=0.0), pacing=alone, **changes)
    fedbuff = world.run(world.algorithm("fedbuff"), pacing=alone, **changes)
    assert fedbuff.model_hash == fedasync.model_hash
    assert fedbuff.simulated_s == fedasync.simulated_s
    assert fedbuff.totals == fedasync.totals
    one_by_one = _buffered(1, buffer=1)
    merged = world.run(world.algorithm("fedbuff"), pacing=one_by_one, clients_per_round=2, rounds=6)
    assert merged.model_hash == fedasync.model_hash
