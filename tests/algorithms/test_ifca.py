"""IFCA: the specification's sanity checks (5.D.9)."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedsim.params import Model, mean_model
from tests.algorithms.stand_ins import normed

HEAD = 16 * 10 + 10
BASE = 64 * 16 + 16
SCALARS = BASE + HEAD


def _merge(server: Any, state: Any, replies: Any, after: Any) -> Any:
    return state, replies, after


def _groups(replies: Any) -> dict[int, list[Any]]:
    groups: dict[int, list[Any]] = {}
    for reply in replies:
        groups.setdefault(reply.message.cluster, []).append(reply.message.model)
    return groups


def test_a_cluster_takes_the_plain_mean_of_its_models(world: Any) -> None:
    algorithm = world.algorithm("ifca", clusters=2)
    calls = world.recorded(algorithm, "merge", _merge)
    world.run(algorithm, num_clients=8, rounds=2)
    for before, replies, after in calls:
        groups = _groups(replies)
        for number, model in enumerate(after):
            group = groups.get(number, [before[number]])
            assert model.digest() == mean_model(group, [1 / len(group)] * len(group)).digest()


def test_one_gradient_of_all_is_a_step_of_gradient_descent(world: Any) -> None:
    # One client that makes one step over all its samples in FedAvg sends the same as a gradient here.
    samples = world.data(1).num_samples(0, "train")
    training = {"batch_size": samples, "lr": 0.3}
    runs: list[Model] = []
    for name, params in (("ifca", {"clusters": 1, "option": "grad_avg"}), ("fedavg", {})):
        result = world.run(world.algorithm(name, **params), num_clients=1, rounds=1, training=training)
        runs += result.models[0].values()
    one, other = (model.params for model in runs)
    for name, array in one.items():
        np.testing.assert_allclose(array, other[name], atol=1e-6)


@pytest.mark.parametrize("shared", [False, True])
def test_gradients_are_divided_by_all_who_replied(shared: bool, world: Any) -> None:
    algorithm = world.algorithm("ifca", clusters=2, option="grad_avg", server_lr=0.2, shared_base=shared)
    calls = world.recorded(algorithm, "merge", _merge)
    world.run(algorithm, num_clients=8, rounds=2)
    for before, replies, after in calls:
        groups = _groups(replies)
        for number, (old, new) in enumerate(zip(before, after, strict=True)):
            for name, array in new.params.items():
                everyone = [model for group in groups.values() for model in group]
                whose = everyone if shared and not name.startswith("head") else groups.get(number, [])
                total = sum((model.params[name].astype(np.float64) for model in whose), start=np.zeros(1))
                np.testing.assert_allclose(array, old.params[name] - 0.2 / 8 * total, atol=1e-6)


def test_a_gradient_may_be_of_some_mini_batches(world: Any) -> None:
    algorithm = world.algorithm("ifca", option="grad_avg")
    few = world.run(algorithm, rounds=1, training={"steps": 1})
    whole = world.run(algorithm, rounds=1)
    assert few.simulated_s < whole.simulated_s
    assert few.model_hash != whole.model_hash


def test_models_on_a_shared_base_differ_in_their_heads_alone(world: Any) -> None:
    algorithm = world.algorithm("ifca", clusters=3, shared_base=True)
    calls = world.recorded(algorithm, "merge", _merge)
    world.run(algorithm, num_clients=8, rounds=2)
    for before, replies, after in calls:
        mean = mean_model([reply.message.model for reply in replies], [1 / 8] * 8)
        groups = _groups(replies)
        for number, model in enumerate(after):
            group = groups.get(number, [before[number]])
            own = mean_model(group, [1 / len(group)] * len(group))
            for name, array in model.params.items():
                wanted = own if name.startswith("head") else mean
                assert array.tobytes() == wanted.params[name].tobytes()


@pytest.mark.parametrize("option", ["model_avg", "grad_avg"])
def test_what_is_shared_comes_down_once(option: str, world: Any) -> None:
    apart, shared = (
        world.run(world.algorithm("ifca", option=option, shared_base=shared), rounds=1).totals
        for shared in (False, True)
    )
    assert apart.parameters_down == 4 * 4 * SCALARS
    assert shared.parameters_down == 4 * (BASE + 4 * HEAD)
    assert apart.parameters_up == shared.parameters_up == 4 * SCALARS
    assert 0 < shared.bytes_down - 4 * shared.parameters_down < 4 * 1500
    assert 0 < shared.bytes_up - 4 * shared.parameters_up < 4 * 600


@pytest.mark.parametrize("shared", [False, True])
def test_where_one_cluster_takes_all_the_models_begin_anew_at_first(shared: bool, world: Any) -> None:
    algorithm = world.algorithm("ifca", clusters=2, restart_rounds=3, shared_base=shared)
    calls = world.recorded(algorithm, "merge", _merge)
    chosen = {1: [1, 1, 1, 1], 2: [0, 1, 0, 0], 3: [0, 0, 0, 0], 4: [1, 1, 1, 1]}

    async def choice(party: Any, models: Any) -> int:
        return chosen[party.round][party.client] if party.dispatch >= 0 else 0

    algorithm.choice = choice
    world.run(algorithm, rounds=4)
    begun = [model.digest() for state, *_ in (calls[0], calls[1], calls[3]) for model in state]
    assert len(set(begun)) == 6
    # A cluster that not all have chosen, and one after these rounds, stays.
    for before, replies, after in (calls[1], calls[3]):
        number = replies[1].message.cluster
        group = [reply.message.model for reply in replies if reply.message.cluster == number]
        head = {name: array for name, array in after[number].params.items() if name.startswith("head")}
        mean = mean_model(group, [1 / len(group)] * len(group))
        assert head
        assert all(array.tobytes() == mean.params[name].tobytes() for name, array in head.items())
        assert len(before) == len(after) == 2


def test_a_single_reply_begins_nothing_anew(world: Any) -> None:
    alone = {"clients_per_round": 1}
    usual, restarting = (
        world.run(world.algorithm("ifca", restart_rounds=rounds), **alone).model_hash for rounds in (0, 3)
    )
    assert usual == restarting


def test_two_populations_separate(world: Any) -> None:
    # Clients 4 to 7 call every digit by another name. A model begins with what FedAvg makes of one half.
    data = world.data(8)
    own = [data.indices(client, "train") for client in range(8)]
    others = [data.indices(client, split) for client in range(4, 8) for split in ("train", "val", "test")]
    y = data.y.copy()
    y[np.concatenate(others)] += 5
    y %= 10
    data = replace(data, y=y)
    changes: dict[str, Any] = {"num_clients": 8, "training": {"epochs": 10}, "rounds": 3}
    nobody: list[list[int]] = [[]] * 4
    start = []
    for held in ([*own[:4], *nobody], [*nobody, *own[4:]]):
        half = world.run(world.algorithm("fedavg"), data=world.holding(data, "train", held), **changes)
        start.append(half.models[0]["global"])
    algorithm = world.algorithm("ifca", clusters=2)
    algorithm.start = lambda server: tuple(start)
    calls = world.recorded(algorithm, "merge", _merge)
    world.run(algorithm, data=data, **changes)
    chosen = [reply.message.cluster for reply in calls[-1][1]]
    assert chosen == [0] * 4 + [1] * 4


def test_statistics_are_averaged_and_refused_where_gradients_travel(world: Any) -> None:
    nets = normed(world)
    parts = world.parts(world.algorithm("ifca", option="grad_avg"), architectures=nets)
    assert [fault.path for fault in parts.misfits()] == ["algorithm.params.option"]
    algorithm = world.algorithm("ifca", clusters=2, shared_base=True)
    calls = world.recorded(algorithm, "merge", _merge)
    world.run(algorithm, architectures=nets, rounds=1)
    _, replies, after = calls[0]
    mean = mean_model([reply.message.model for reply in replies], [0.25] * 4)
    for model in after:
        assert model.buffers.keys() == mean.buffers.keys()
        assert all(array.tobytes() == mean.buffers[name].tobytes() for name, array in model.buffers.items())


def test_settings_of_steps_are_refused_where_gradients_travel(world: Any) -> None:
    steps = {"momentum": 0.9, "epochs": 2, "keep_optimiser": True, "schedule": "cosine", "clip_norm": 1.0}
    faults = {
        option: [
            fault.path
            for fault in world.parts(world.algorithm("ifca", option=option), training=steps).misfits()
        ]
        for option in ("model_avg", "grad_avg")
    }
    assert faults["model_avg"] == []
    refused = ("schedule", "momentum", "clip_norm", "epochs", "keep_optimiser")
    assert faults["grad_avg"] == [f"training.{name}" for name in refused]
    one_pass = world.parts(world.algorithm("ifca", option="grad_avg"), training={"epochs": 1})
    assert list(one_pass.misfits()) == []
