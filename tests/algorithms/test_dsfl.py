"""DS-FL: the specification's sanity checks (5.C.3)."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedsim.algorithms.base import Reply
from fedsim.algorithms.common.distillation import softmax
from fedsim.algorithms.dsfl import ClientState, ServerState
from fedsim.params import Array, Model
from fedsim.rng import Key
from fedsim.runtime.run import run
from fedsim.wire import LogitsDown, LogitsUp, indices_digest
from tests.algorithms.stand_ins import Server, normed, nth

POSITIONS = np.array([4, 9, 1])


def _entropy(rows: Array) -> Array:
    entropy: Array = -(rows * np.log(np.maximum(rows, 1e-300))).sum(axis=1)
    return entropy


def test_sharpening_by_hand() -> None:
    soft = softmax(np.array([[0.5, 0.3, 0.2]]), 0.1)
    raised = np.exp([5.0, 3.0, 2.0])
    np.testing.assert_allclose(soft, [raised / raised.sum()], rtol=1e-6)
    assert _entropy(soft)[0] < _entropy(np.array([[0.5, 0.3, 0.2]]))[0]
    # A mean that is nearly one-hot gets softer: no class gets less than exp(-1 / T_e) of the largest.
    nearly = np.array([[0.99999, 0.00001, 0.0]])
    assert _entropy(softmax(nearly, 0.1))[0] > _entropy(nearly)[0]


class _Server(Server):
    def __init__(self) -> None:
        training = SimpleNamespace(batch_size=8, make_optimiser=lambda lr: lr)
        task, key = SimpleNamespace(num_outputs=2), Key.root(0)
        super().__init__(task=task, training=training, num_public=10, key=key)

    def public(self, positions: Any) -> Any:
        return positions

    async def fit(self, model: Model, **how: Any) -> Any:
        met = how["streams"]["public"].samples
        assert met.tolist() in ([4, 1], [])
        assert how["extras"]["teacher"].value.shape == (len(met), 2)
        return SimpleNamespace(model=Model("taught", {}) if len(met) else model)


def _reply(client: int, values: list[list[float]], named: Any = None) -> Reply:
    named = None if named is None else np.array(named, np.int64)
    digest = indices_digest(POSITIONS if named is None else named)
    array = np.array(values, np.float32).reshape(-1, 2)
    return Reply(client, 0, "share", 0, 0, 1.0, LogitsUp(array, "probs", 1.0, digest, named))


def _labelled(form: Any, temperature: float) -> Reply:
    message = LogitsUp(np.full((3, 2), 0.5, np.float32), form, temperature, indices_digest(POSITIONS))
    return Reply(0, 0, "share", 0, 0, 1.0, message)


STATE = ServerState(POSITIONS, 3, model=Model("mlp", {}))


def _merged(algorithm: Any, replies: list[Reply]) -> ServerState:
    """Return the server's state after both merges of a round."""
    server = _Server()

    async def both() -> ServerState:
        shared = await algorithm.merge_share(server, STATE, replies)
        assert shared.model is STATE.model
        merged: ServerState = await algorithm.merge_distil(server, shared, [])
        return merged

    return asyncio.run(both())


@pytest.mark.parametrize("aggregation", ["sa", "era"])
def test_each_sample_is_averaged_over_those_who_sent_it(aggregation: str, world: Any) -> None:
    # Client 0 holds samples 1 and 4, client 1 only 1, client 2 none; 9 nobody has (specification 3.5, E10).
    replies = [
        _reply(0, [[0.75, 0.25], [0.5, 0.5]], [1, 4]),
        _reply(1, [[0.25, 0.75]], [1]),
        _reply(2, [], []),
    ]
    algorithm = world.algorithm("dsfl", aggregation=aggregation)
    assert [algorithm.vet(_Server(), STATE, reply) for reply in replies] == [None] * 3
    merged = _merged(algorithm, replies)
    assert merged.positions.tolist() == [4, 1]
    assert merged.labels.tolist() == [[0.5, 0.5], [0.5, 0.5]]
    assert merged.model.architecture == "taught"
    _, messages = asyncio.run(algorithm.instruct_distil(_Server(), merged, [0, 1]))
    assert messages[0] is messages[1]
    assert messages[0].indices.tolist() == [4, 1]


def test_labels_are_sharpened_unless_they_should_not_be(world: Any) -> None:
    replies = [_reply(0, [[0.75, 0.25], [0.5, 0.5]], [1, 4]), _reply(1, [[0.5, 0.5]], [1])]
    merged = [_merged(world.algorithm("dsfl", aggregation=name), replies) for name in ("sa", "era")]
    assert merged[0].labels[1].tolist() == [0.625, 0.375]
    np.testing.assert_allclose(merged[1].labels, softmax(merged[0].labels, 0.1))


def test_replies_about_no_sample_teach_nobody(world: Any) -> None:
    merged = _merged(world.algorithm("dsfl"), [_reply(2, [], [])])
    assert merged.model is STATE.model
    assert merged.labels.shape == (0, 2)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (_reply(0, [[0.5, 0.5]] * 2, [4, 2]), "other public samples"),
        (_reply(0, [[1.5, 0.5]] * 3), "no probabilities"),
        (_labelled("probs", 2.0), "probs of temperature 2.0, not probs of temperature 1.0"),
    ],
)
def test_misfits_are_rejected(reply: Reply, reason: str, world: Any) -> None:
    assert reason in world.algorithm("dsfl").vet(_Server(), STATE, reply)


@pytest.mark.parametrize("shared", [None, np.array([7, 8, 9])])
def test_labels_of_other_samples_are_not_distilled(shared: Any, world: Any) -> None:
    state = ClientState(Model("mlp", {}), shared=shared)
    values = np.full((3, 2), 0.5, np.float32)
    whole = LogitsDown(values, "probs", 1.0, indices_digest(POSITIONS))
    assert asyncio.run(world.algorithm("dsfl").local_distil(None, state, whole)) == (state, None)


def test_clients_distil_at_the_end_of_the_round_in_which_they_predicted(world: Any) -> None:
    # Update, predict, aggregate, distil: what is measured has learned from the round's own labels.
    algorithm, steps = world.algorithm("dsfl", public_per_round=30), list[Any]()
    share, distil, models_of = algorithm.local_share, algorithm.local_distil, algorithm.models_of

    async def sharing(client: Any, state: ClientState, message: Any) -> Any:
        after, reply = await share(client, state, message)
        steps.append(("share", client.round, after.model.digest() != state.model.digest()))
        return after, reply

    async def distilling(client: Any, state: ClientState, message: Any) -> Any:
        after, reply = await distil(client, state, message)
        steps.append(("distil", client.round, after.model.digest() != state.model.digest()))
        return after, reply

    async def measured(observer: Any, server_state: Any, client_state: ClientState) -> Any:
        assert client_state.shared is None
        return await models_of(observer, server_state, client_state)

    algorithm.local_share, algorithm.local_distil = sharing, distilling
    algorithm.models_of = measured
    world.run(algorithm, num_clients=1, rounds=2)
    assert steps == [(name, number, True) for number in (1, 2) for name in ("share", "distil")]


def test_numbers_communicated_follow_the_formula(world: Any) -> None:
    clients, p, classes = 4, 30, 10
    result = world.run(world.algorithm("dsfl", public_per_round=p))
    assert [row.round for row in result.rounds] == [0, 1, 2, 3]
    traffic = [row.traffic for row in result.rounds]
    assert [one.parameters_down for one in traffic] == [0] + [clients * p * classes] * 3
    assert [one.parameters_up for one in traffic] == [0] + [clients * p * classes] * 3
    payload = 4 * p * classes + 8 * p  # labels, and what to label
    assert clients * payload < traffic[2].bytes_down < clients * (payload + 600)
    assert clients * 4 * p * classes < traffic[2].bytes_up < clients * (4 * p * classes + 300)
    assert result.totals.data_down == 0


@pytest.mark.parametrize(("public_buffers", "at_clients"), [("frozen", 6), ("moving", 18)])
def test_the_servers_running_statistics_follow_the_only_samples_that_it_meets(
    public_buffers: str, at_clients: int, world: Any
) -> None:
    algorithm = world.algorithm("dsfl", kd_batch_size=10, kd_epochs=1)
    seen = world.recorded(algorithm, "models_of", lambda *call: (call[1].model, call[2].model))
    world.run(
        algorithm,
        rounds=3,
        training={"steps": 2, "public_buffers": public_buffers},
        architectures=normed(world),
    )
    server, client = seen[-1]
    assert server.buffers["body.norm.num_batches_tracked"] == 3 * 4
    assert client.buffers["body.norm.num_batches_tracked"] == at_clients


def test_averaging_and_sharpening_take_the_servers_time(world: Any) -> None:
    def simulated_s(aggregation: str) -> float:
        parts = world.parts(world.algorithm("dsfl", kd_epochs=0, aggregation=aggregation), rounds=1)
        parts.fleet.server = parts.fleet.server._replace(speed_flops=1e3)
        return float(run(parts).simulated_s)

    mean_s, sharpened_s = simulated_s("sa"), simulated_s("era")
    assert mean_s > 4 * 40 * 10 / 1e3
    assert sharpened_s == pytest.approx(mean_s + 6 * 40 * 10 / 1e3, rel=1e-3)


def test_clients_do_not_wait_for_the_servers_own_distillation(world: Any) -> None:
    def ran(speed_flops: float) -> Any:
        parts = world.parts(world.algorithm("dsfl", aggregation="sa"), rounds=1)
        parts.fleet.server = parts.fleet.server._replace(speed_flops=speed_flops)
        return run(parts)

    fast, slower, slowest = ran(1e15), ran(1e8), ran(1e6)
    assert fast.model_hash == slower.model_hash == slowest.model_hash
    mean_s = 4 * 40 * 10 / 1e8  # what they do wait for
    assert slower.simulated_s == pytest.approx(fast.simulated_s + mean_s, abs=1e-6)
    assert slowest.simulated_s > 1  # the round ends with the server's work


def test_if_nobody_confirms_its_distillation_the_server_learns_nothing(world: Any) -> None:
    def server_model(reached: set[int]) -> bytes:
        def doomed(parcel: Any, ordinal: int) -> bool:
            return parcel.num_bytes > 1000 and parcel.receiver >= 0 and parcel.receiver not in reached

        algorithm = world.algorithm("dsfl")
        seen = world.watched(algorithm)
        world.run(algorithm, lost=doomed, client_timeout_s=9.0)
        digest: bytes = seen[0]["global"].digest()
        return digest

    assert server_model(set()) == world.parts(world.algorithm("dsfl")).initial()("mlp").digest()
    assert server_model({1}) != server_model(set())


def test_confirmations_that_come_a_round_late_find_no_model_to_collect(world: Any) -> None:
    server = _Server()
    server.round = 2
    state = replace(STATE, learning=1)
    assert asyncio.run(world.algorithm("dsfl").merge_distil(server, state, [])) is state


@pytest.mark.parametrize(
    ("params", "changes"),
    [({"kd_epochs": 0}, {}), ({}, {"lost": nth(range(99), receiver=-1), "client_timeout_s": 60.0})],
)
def test_without_distillation_or_labels_clients_equal_local_and_the_server_learns_nothing(
    params: Any, changes: Any, world: Any
) -> None:
    algorithm, local = world.algorithm("dsfl", **params), world.algorithm("local")
    seen, its = world.watched(algorithm), world.watched(local)
    world.run(algorithm, **changes)
    world.run(local)
    for client in range(4):
        assert seen[client]["personal"].digest() == its[client]["personal"].digest()
    initial = world.parts(algorithm).initial()
    assert seen[0]["global"].digest() == initial("mlp").digest()


def test_the_server_learns_from_soft_labels_alone(world: Any) -> None:
    result = world.run(world.algorithm("dsfl"), rounds=12, training={"epochs": 3}, num_samples=400)
    assert result.final.global_ > 0.3
