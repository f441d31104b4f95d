"""HypCluster: the specification's sanity checks (5.D.8)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedsim.algorithms.base import Reply
from fedsim.algorithms.common.model_clusters import ClusterUpdate
from fedsim.params import Model

SCALARS = 64 * 16 + 16 + 16 * 10 + 10


def _model(value: float) -> Model:
    return Model("mlp", {"w": np.full((2,), value, np.float32)})


def _reply(client: int, value: float, num_samples: int, cluster: int) -> Reply:
    model = _model(value)
    message = ClusterUpdate(model.architecture, model.params, model.buffers, num_samples, cluster)
    return Reply(client, 0, "train", 0, 0, 1.0, message)


@pytest.mark.parametrize(("weighting", "mean"), [("samples", 3.0), ("uniform", 2.5)])
def test_each_cluster_has_its_own_mean_and_an_empty_one_keeps_its_model(
    weighting: str, mean: float, world: Any
) -> None:
    noted: dict[str, Any] = {}
    server = SimpleNamespace(note=lambda event, **values: noted.update({event: values}))
    state = (_model(7.0), _model(8.0), _model(9.0))
    replies = [_reply(0, 1.0, 10, 2), _reply(1, 6.0, 5, 0), _reply(2, 4.0, 20, 2)]
    algorithm = world.algorithm("hypcluster", clusters=3, weighting=weighting)
    merged = asyncio.run(algorithm.merge(server, state, replies))
    assert [model.params["w"].tolist() for model in merged] == [[6.0] * 2, [8.0] * 2, [mean] * 2]
    assert merged[1] is state[1]
    assert noted == {"cluster sizes": {"sizes": [1, 0, 2]}}


@pytest.mark.parametrize("weighting", ["samples", "uniform"])
def test_one_cluster_equals_fedavg_bit_for_bit(weighting: str, world: Any) -> None:
    one, fedavg = (
        world.run(world.algorithm(name, weighting=weighting, **params), clients_per_round=3)
        for name, params in (("hypcluster", {"clusters": 1}), ("fedavg", {}))
    )
    assert one.model_hash == fedavg.model_hash
    assert one.totals.parameters_up == fedavg.totals.parameters_up


def test_all_models_come_down_and_one_goes_up(world: Any) -> None:
    totals = world.run(world.algorithm("hypcluster", clusters=3), rounds=1).totals
    assert totals.parameters_down == 4 * 3 * SCALARS
    assert totals.parameters_up == 4 * SCALARS
    assert 0 < totals.bytes_up - 4 * 4 * SCALARS < 4 * 600
    assert 0 < totals.bytes_down - 4 * 3 * 4 * SCALARS < 4 * 1500


def _starting_with(algorithm: Any, variants: tuple[int, ...], states: list[Any]) -> Any:
    """Let the models start with these variants, and keep the server's states."""
    merge = algorithm.merge

    async def watched(server: Any, state: Any, replies: Any) -> Any:
        states.append(await merge(server, state, replies))
        return states[-1]

    algorithm.start = lambda server: tuple(server.initial_model(variant=number) for number in variants)
    algorithm.merge = watched
    return algorithm


def test_permuting_the_start_models_permutes_the_result(world: Any) -> None:
    ends = []
    for variants in ((0, 1, 2), (2, 0, 1)):
        states: list[Any] = []
        algorithm = _starting_with(world.algorithm("hypcluster", clusters=3), variants, states)
        result = world.run(algorithm, num_clients=8)
        ends.append(([model.digest() for model in states[-1]], result.model_hash))
    (first, hash_of_first), (second, hash_of_second) = ends
    assert second == [first[2], first[0], first[1]]
    assert hash_of_first == hash_of_second


def test_of_equal_models_the_first_is_taken_and_the_others_never_move(world: Any) -> None:
    states: list[Any] = []
    algorithm = _starting_with(world.algorithm("hypcluster"), (0, 0), states)
    world.run(algorithm, rounds=1)
    first, second = states[0]
    assert first.digest() != second.digest()
    assert second.digest() == world.parts(world.algorithm("fedavg")).initial()("mlp").digest()


def test_clients_without_validation_samples_compare_on_what_they_train_on(world: Any) -> None:
    data = world.holding(world.data(), "val", [[]] * 4)
    results = [world.run(world.algorithm("hypcluster", choose_on=on), data=data) for on in ("train", "val")]
    assert results[0].model_hash == results[1].model_hash


def test_a_cluster_that_there_is_not_is_rejected(world: Any) -> None:
    algorithm = world.algorithm("hypcluster")
    train = algorithm.train

    async def lying(client: Any, state: Any, message: Any) -> Any:
        after, reply = await train(client, state, message)
        return after, replace(reply, cluster=client.client - 1)

    algorithm.train = lying
    result = world.run(algorithm, rounds=2)
    assert result.by_client["rejected"].tolist() == [2, 0, 0, 2]
    assert result.rejections == {
        "cluster -1, and there are 2 from 0 on": 2,
        "cluster 2, and there are 2 from 0 on": 2,
    }


def test_fine_tuning_goes_on_from_the_chosen_model(world: Any) -> None:
    seen, tuned = (world.algorithm("hypcluster", finetune_epochs=epochs) for epochs in (0, 1))
    models = world.watched(seen)
    world.run(seen)
    assert all(one["personal"].digest() == one["untuned"].digest() for one in models.values())
    models = world.watched(tuned)
    totals = world.run(tuned).totals
    assert all(one["personal"].digest() != one["untuned"].digest() for one in models.values())
    assert totals.parameters_down == (3 + 1) * 4 * 2 * SCALARS  # all models once more at the end


@pytest.mark.slow
def test_nothing_changes_a_bit_over_sockets(world: Any) -> None:
    world.run_every_way(lambda: world.algorithm("hypcluster"))
