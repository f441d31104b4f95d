"""KT-pFL, logits version: sanity checks (5.E.1), and the round that it shares with two other algorithms."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from fedsim.algorithms.base import Reply
from fedsim.algorithms.common.public_predictions import Announced
from fedsim.algorithms.common.share_and_distil import ClientState
from fedsim.algorithms.ktpfl import State
from fedsim.errors import UserError
from fedsim.params import Array, Model
from fedsim.runtime.policies.pacing.synchronous import PLUGIN as SYNCHRONOUS
from fedsim.runtime.run import run
from fedsim.wire import LogitsDown, LogitsUp, indices_digest
from tests.algorithms.stand_ins import Server

P, N, K, ROUNDS = 40, 10, 4, 3

THREE = pytest.mark.parametrize("name", ["ktpfl", "sim_pfd", "topk_pfd"])
ORDERS = pytest.mark.parametrize("order", ["train_first", "distill_first"])


def _matrices(world: Any, algorithm: Any, **changes: Any) -> list[Array]:
    """Return the matrix c after each round in which somebody confirmed."""
    calls = world.recorded(algorithm, "merge_distil")
    world.run(algorithm, **changes)
    return [state.c for _, state in calls]


def _close(left: dict[int, Model], right: dict[int, Model], atol: float = 1e-5) -> bool:
    return left.keys() == right.keys() and all(
        np.allclose(array, right[client].params[name], atol=atol)
        for client, model in left.items()
        for name, array in model.params.items()
    )


# The round


@THREE
@ORDERS
def test_alone_it_equals_local(name: str, order: str, world: Any) -> None:
    alone = world.personal(world.algorithm(name, order=order), num_clients=1)
    assert _close(alone, world.personal(world.algorithm("local"), num_clients=1))


def test_fewer_public_samples_are_fewer_numbers(world: Any) -> None:
    half = world.run(world.algorithm("ktpfl", public_per_round=20)).totals
    assert half.parameters_up == 20 * N * K * ROUNDS
    repeated = world.algorithm("ktpfl", public_per_round=20, replacement=True)
    calls = world.recorded(repeated, "instruct_share")
    assert world.run(repeated).totals.parameters_up == half.parameters_up
    drawn = [state.positions for _, (state, _) in calls]
    assert any(len(np.unique(positions)) < 20 for positions in drawn)
    assert drawn[0].tolist() != drawn[1].tolist()
    everything = world.run(world.algorithm("ktpfl", public_per_round="all"))
    assert everything.model_hash == world.run(world.algorithm("ktpfl")).model_hash


@THREE
def test_a_public_set_at_the_server_changes_nothing_but_the_bytes(name: str, world: Any) -> None:
    parts = world.parts(world.algorithm(name))
    everywhere = run(parts)
    shipped = run(replace(parts, data=replace(parts.data, public_at_clients=False)))
    assert shipped.model_hash == everywhere.model_hash
    assert everywhere.totals.data_down == 0
    assert shipped.totals.data_down >= 4 * 64 * P * K * ROUNDS  # digits of 64 numbers that are no bytes
    assert shipped.totals.parameters_down == everywhere.totals.parameters_down


@THREE
def test_teachers_are_personal_and_sum_to_one(name: str, world: Any) -> None:
    algorithm = world.algorithm(name, **({"neighbours": 2} if name == "topk_pfd" else {}))
    calls = world.recorded(algorithm, "instruct_distil")
    world.run(algorithm)
    _, (_, messages) = calls[-1]
    assert sorted(messages) == [0, 1, 2, 3]
    for message in messages.values():
        assert message.form == "probs"
        np.testing.assert_allclose(message.values.sum(axis=1), 1, atol=1e-6)
    assert not np.allclose(messages[0].values, messages[1].values, atol=1e-4)


@THREE
def test_the_distillation_is_one_of_kl_by_hand(name: str, world: Any) -> None:
    # One batch of all public samples: one step against the gradient of KL(teacher || softmax(z / 2)).
    algorithm = world.algorithm(name, temperature=2.0, theta_sq=True, distill_lr=0.5)
    calls = world.recorded(algorithm, "local_distil")
    parts = world.parts(algorithm, models=("linear", "linear"), rounds=1)
    run(parts)
    for (_, before, message), (after, _) in calls:
        x = torch.from_numpy(parts.data.x[parts.data.public[before.announced.positions]]).reshape(P, -1)
        names = sorted(before.model.params, key=lambda each: -before.model.params[each].ndim)
        weight, bias = (torch.tensor(before.model.params[each], requires_grad=True) for each in names)
        student = F.log_softmax((x @ weight.T + bias) / 2, dim=1)
        loss = 4 * F.kl_div(student, torch.from_numpy(message.values.copy()), reduction="batchmean")
        gradients = torch.autograd.grad(loss, (weight, bias))
        for each, gradient in zip(names, gradients, strict=True):
            wanted = before.model.params[each] - 0.5 * gradient.numpy()
            np.testing.assert_allclose(after.model.params[each], wanted, atol=1e-6)


def test_passes_can_be_ramped(world: Any) -> None:
    def trained(rounds: int, epochs: int, **params: Any) -> str:
        algorithm = world.algorithm("ktpfl", **params)
        model_hash: str = world.run(algorithm, rounds=rounds, training={"epochs": epochs}).model_hash
        return model_hash

    assert trained(1, 3, ramp_epochs=True) == trained(1, 1)  # one pass in round 1
    assert trained(2, 1, ramp_epochs=True) == trained(2, 1)  # never more than the training's own
    assert trained(2, 2, ramp_epochs=True) == trained(2, 3, ramp_epochs=True)  # two in round 2
    assert trained(2, 2, ramp_epochs=True) not in {trained(2, 1), trained(2, 2)}
    with pytest.raises(UserError, match=r"ramp_epochs: .* training\.steps = 2 counts mini-batches"):
        world.run(world.algorithm("ktpfl", ramp_epochs=True), training={"steps": 2})


@THREE
def test_a_client_silent_in_the_share_is_in_no_teacher(name: str, world: Any) -> None:
    algorithm = world.algorithm(name)
    calls = world.recorded(algorithm, "instruct_distil")
    result = world.run(algorithm, lost=lambda parcel, ordinal: parcel.sender == 1, client_timeout_s=9.0)
    for (_, state, cohort), (_, messages) in calls:
        assert state.senders.tolist() == list(cohort) == sorted(messages) == [0, 2, 3]
        assert state.values.shape == (3, P, N)
    assert result.by_client["merged"].tolist() == [6, 0, 6, 6]


@THREE
def test_predictions_that_are_no_numbers_are_rejected_and_counted(name: str, world: Any) -> None:
    algorithm = world.algorithm(name)
    reply = algorithm.reply

    def poisoned(client: Any, values: Array, positions: Array) -> Any:
        return reply(client, values * np.float32(np.nan if client.client == 2 else 1), positions)

    algorithm.reply = poisoned
    calls = world.recorded(algorithm, "instruct_distil")
    result = world.run(algorithm)
    assert result.by_client["rejected"].tolist() == [0, 0, 3, 0]
    assert result.rejections == {"values holds NaN or an infinity": 3}
    assert all(state.senders.tolist() == [0, 1, 3] for (_, state, _), _ in calls)


@THREE
@pytest.mark.parametrize("late", ["drop", "carry"])
def test_clients_too_late_for_the_share_miss_the_round(name: str, late: str, world: Any) -> None:
    pacing = SYNCHRONOUS(SYNCHRONOUS.Config.model_validate({"deadline": "80 ms", "late": late}))
    result = world.run(world.algorithm(name), training={"epochs": 2}, rounds=4, pacing=pacing)
    assert [row.merged for row in result.rounds] == [4] * 4
    # Predictions that are carried into the next round are about other samples.
    assert sum(result.rejections.values()) == (4 if late == "carry" else 0)


def _said(values: list[list[float]], positions: list[int], **changes: Any) -> LogitsUp:
    fields: dict[str, Any] = {"form": "probs", "temperature": 1.0, **changes}
    return LogitsUp(
        np.array(values, np.float32), indices_digest=indices_digest(np.array(positions)), **fields
    )


def _reply(client: int, message: LogitsUp) -> Reply:
    return Reply(client, 0, "share", 0, 0, 1.0, message)


def _server() -> Server:
    task, training = SimpleNamespace(num_outputs=2), SimpleNamespace(steps=None)
    return Server(num_clients=3, num_public=10, task=task, training=training)


def _state(algorithm: Any, server: Any, positions: list[int], senders: Sequence[int] = ()) -> Any:
    state = algorithm.start(server)
    return replace(state, positions=np.array(positions), asked=len(positions), senders=np.array(senders))


@pytest.mark.parametrize("name", ["ktpfl", "fedmd"])
@pytest.mark.parametrize("public_at_clients", [True, False])
def test_public_samples_are_kept_as_they_came_and_only_until_they_are_used(
    name: str, public_at_clients: bool, world: Any
) -> None:
    data = world.data()
    data = replace(data, x=np.rint(data.x * 255).clip(0, 255).astype(np.float32) / np.float32(255))
    algorithm = world.algorithm(name)
    shared, distilled = world.recorded(algorithm, "local_share"), world.recorded(algorithm, "local_distil")
    world.run(algorithm, data=replace(data, public_at_clients=public_at_clients))
    assert (len(shared), len(distilled)) == (K * ROUNDS, K * ROUNDS)
    for (_, _, message), (state, _) in shared:
        if public_at_clients:
            assert state.announced.positions is message.indices
        else:
            assert state.announced.values is message.values
            assert state.announced.values.dtype == np.uint8
    for (_, before, _), (state, _) in distilled:
        assert before.announced is not None
        assert state.announced is None


@THREE
@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (_said([[0.5, 0.5], [1, 0]], [1, 4]), "other public samples"),
        (_said([[0.5, 0.5]], [4, 1]), "shape (1, 2), not (2, 2)"),
        (_said([[1.5, -0.5], [1, 0]], [4, 1]), "no probabilities"),
        (_said([[0.5, 0.5], [1, 0]], [4, 1], form="logits"), "logits of temperature"),
    ],
)
def test_misfits_are_rejected(name: str, message: LogitsUp, reason: str, world: Any) -> None:
    algorithm, server = world.algorithm(name), _server()
    state = _state(algorithm, server, [4, 1])
    assert reason in algorithm.vet(server, state, _reply(0, message))
    assert algorithm.vet(server, state, _reply(0, _said([[0.5, 0.5], [1, 0]], [4, 1]))) is None


def test_samples_that_some_lack_are_mixed_from_the_others(world: Any) -> None:
    # Client 1 holds samples 4 and 1, client 0 sample 4 alone, nobody sample 9 (specification 3.5, E10).
    algorithm, server = world.algorithm("ktpfl"), _server()
    state = _state(algorithm, server, [4, 9, 1])
    one, two = np.array([4]), np.array([1, 4])
    replies = [
        _reply(0, _said([[1, 0]], [4], indices=one)),
        _reply(1, _said([[0.25, 0.75], [0.5, 0.5]], [1, 4], indices=two)),
    ]
    assert [algorithm.vet(server, state, reply) for reply in replies] == [None, None]

    async def both() -> tuple[Any, Any, Any]:
        merged = await algorithm.merge_share(server, state, replies)
        sent, messages = await algorithm.instruct_distil(server, merged, [0, 1])
        return messages, sent, await algorithm.merge_distil(server, sent, [])

    messages, _, after = asyncio.run(both())
    assert messages[0].indices.tolist() == [4, 1]
    assert messages[0].values.tolist() == [[0.75, 0.25], [0.25, 0.75]]
    assert messages[0].indices_digest == indices_digest(np.array([4, 1]))
    np.testing.assert_allclose(after.c.sum(axis=1), 1, atol=1e-12)
    assert after.c[:, 2].tolist() == [1 / 3] * 3


def test_confirmations_that_come_a_round_late_find_no_step_to_collect(world: Any) -> None:
    algorithm, server = world.algorithm("ktpfl"), _server()
    state = replace(_state(algorithm, server, [4]), learning=1)
    server.round = 2
    assert asyncio.run(algorithm.merge_distil(server, state, [])) is state


@THREE
def test_nobody_having_any_sample_is_survived(name: str, world: Any) -> None:
    algorithm, server = world.algorithm(name), _server()
    nothing = np.empty(0, np.int64)
    message = LogitsUp(np.empty((0, 2), np.float32), "probs", 1.0, indices_digest(nothing), nothing)

    async def both() -> Any:
        replies = [_reply(0, message), _reply(2, message)]
        merged = await algorithm.merge_share(server, _state(algorithm, server, [4, 1]), replies)
        sent, messages = await algorithm.instruct_distil(server, merged, [0, 2])
        if name == "ktpfl":
            await algorithm.merge_distil(server, sent, [])
        return messages

    assert asyncio.run(both())[2].values.shape == (0, 2)


@THREE
def test_a_teacher_on_other_samples_is_not_learned_from(name: str, world: Any) -> None:
    state = ClientState(Model("mlp", {}), Announced(np.array([4, 1])))
    message = LogitsDown(np.zeros((2, 2), np.float32), "probs", 1.0, indices_digest(np.array([7, 8])))
    assert asyncio.run(world.algorithm(name).local_distil(None, state, message)) == (state, None)


@THREE
def test_a_client_that_held_some_samples_learns_on_those_named(name: str, world: Any) -> None:
    # Two of the three samples shared come back; the rows of the teacher follow the names.
    algorithm = world.algorithm(name)
    met: dict[str, Any] = {}

    async def fit(model: Model, **arguments: Any) -> Any:
        met.update(arguments)
        return SimpleNamespace(model=model)

    client = SimpleNamespace(training=SimpleNamespace(make_optimiser=lambda lr: None), fit=fit)
    state = ClientState(Model("mlp", {}), Announced(np.array([4, 9, 1])))
    left = np.array([4, 1])
    message = LogitsDown(np.eye(2, dtype=np.float32), "probs", 1.0, indices_digest(left), left)
    asyncio.run(algorithm.local_distil(client, state, message))
    assert met["streams"]["public"].samples.positions.tolist() == [4, 1]
    assert met["extras"]["teacher"].value.tolist() == [[1, 0], [0, 1]]


# The matrix


def test_the_matrix_learns_and_its_rows_sum_to_one(world: Any) -> None:
    last = _matrices(world, world.algorithm("ktpfl"), training={"epochs": 3})[-1]
    assert last.dtype == np.float64
    np.testing.assert_allclose(last.sum(axis=1), 1, atol=1e-6)
    assert (np.diagonal(last) > 0.25).all()


def test_a_strong_pull_keeps_equal_weights(world: Any) -> None:
    kept = _matrices(world, world.algorithm("ktpfl", rho=1e6))
    assert np.abs(kept[-1] - 0.25).max() < 1e-5
    diverged = _matrices(world, world.algorithm("ktpfl", rho=1e6, c_step="explicit"))
    assert np.abs(diverged[-1] - 0.25).max() > 0.2


def test_without_a_step_it_is_codistillation_to_the_mean(world: Any) -> None:
    still = world.personal(world.algorithm("ktpfl", c_lr=0.0))
    plain: Any = world.algorithm("ktpfl")

    async def instruct_distil(server: Any, state: State, cohort: Sequence[int]) -> Any:
        mean = np.mean(state.values, axis=0)
        message = LogitsDown(mean, "probs", 1.0, indices_digest(state.positions))
        return state, dict.fromkeys(cohort, message)

    plain.instruct_distil = instruct_distil
    assert _close(still, world.personal(plain))
    assert not _close(still, world.personal(world.algorithm("local", follow_selection=True)), atol=1e-3)


def test_only_the_block_of_those_who_answered_moves(world: Any) -> None:
    algorithm = world.algorithm("ktpfl")
    calls = world.recorded(algorithm, "merge_distil")
    world.run(algorithm, clients_per_round=2, rounds=6)
    for (_, before, _), after in calls:
        assert len(before.senders) == 2
        block = np.zeros((4, 4), bool)
        block[np.ix_(before.senders, before.senders)] = True
        assert (after.c[~block] == before.c[~block]).all()
        assert (after.c[block] != before.c[block]).all()
        np.testing.assert_allclose(after.c.sum(axis=1), 1, atol=1e-6)


def _teacher(parcel: Any) -> bool:
    return bool(parcel.sender == -1 and parcel.num_bytes > 4 * P * N)


def test_a_client_that_vanishes_before_its_distillation_has_contributed(world: Any) -> None:
    def doomed(parcel: Any, ordinal: int) -> bool:
        return _teacher(parcel) and parcel.receiver == 0

    settings: dict[str, Any] = {"rounds": 1, "training": {"epochs": 2}}
    lost: dict[str, Any] = {"lost": doomed, "client_timeout_s": 9.0}
    with_all = world.personal(world.algorithm("ktpfl"), **settings)
    without = world.personal(world.algorithm("ktpfl"), **settings, **lost)
    assert all(without[client].digest() == with_all[client].digest() for client in (1, 2, 3))
    assert without[0].digest() != with_all[0].digest()
    # It has trained, and only that.
    alone = world.personal(world.algorithm("local"), **settings)
    assert without[0].digest() == alone[0].digest()
    complete = _matrices(world, world.algorithm("ktpfl"), **settings)
    vanished = _matrices(world, world.algorithm("ktpfl"), **settings, **lost)
    assert vanished[-1].tolist() == complete[-1].tolist()


def test_if_nobody_distils_nothing_is_learned_about_weights(world: Any) -> None:
    algorithm = world.algorithm("ktpfl")
    calls = world.recorded(algorithm, "instruct_share")
    result = world.run(
        algorithm, lost=lambda parcel, ordinal: _teacher(parcel), client_timeout_s=9.0, rounds=3
    )
    assert len(result.rounds) == 3
    assert all((state.c == 0.25).all() for _, (state, _) in calls)


def test_the_step_runs_while_clients_distil(world: Any) -> None:
    algorithm = world.algorithm("ktpfl")
    original = algorithm.merge_distil
    under_way: list[int] = []

    async def merge_distil(server: Any, state: State, replies: Sequence[Reply]) -> State:
        under_way.append(len(server._background))
        merged: State = await original(server, state, replies)
        under_way.append(len(server._background))
        return merged

    algorithm.merge_distil = merge_distil
    world.run(algorithm, rounds=2)
    assert under_way == [1, 0, 1, 0]


def test_shares_of_the_data_travel_only_where_they_are_asked_for(world: Any) -> None:
    unit, data = (
        world.run(world.algorithm("ktpfl", c_weighting=weighting)) for weighting in ("unit", "data")
    )
    assert 0 < data.totals.bytes_up - unit.totals.bytes_up < 100 * K * ROUNDS
    assert data.totals.parameters_up == unit.totals.parameters_up
    algorithm = world.algorithm("ktpfl", c_weighting="data")
    parts = world.parts(algorithm)
    calls = world.recorded(algorithm, "merge_distil")
    run(parts)
    sizes = parts.data.sizes("train")
    assert all(state.num_samples.tolist() == sizes.tolist() for _, state in calls)
    np.testing.assert_allclose(algorithm._factors(calls[-1][1]), sizes / sizes.sum())
    slow, fast = calls[-1][1].c, _matrices(world, world.algorithm("ktpfl"))[-1]
    assert np.abs(slow - 0.25).max() < np.abs(fast - 0.25).max()
