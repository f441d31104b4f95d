"""KT-pFL, weights version: the specification's sanity checks (5.E.2)."""

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from fedsim.algorithms.base import Reply
from fedsim.algorithms.common.similarity import mixtures
from fedsim.algorithms.ktpfl_w import ServerState, scaled
from fedsim.params import Array, Model
from fedsim.wire import ModelUpdate
from tests.algorithms.stand_ins import Server

SCALARS = 64 * 16 + 16 + 16 * 10 + 10


def _model(value: float, steps: int = 0) -> Model:
    return Model(
        "mlp",
        {"w": np.array([value, -value], np.float32)},
        {"mean": np.array([value], np.float32), "steps": np.array(steps, np.int64)},
    )


def _weights(carrier: Any) -> Array:
    """Return the first parameter of a model or of a message."""
    array: Array = next(iter(carrier.params.values()))
    return array


def _states(world: Any, algorithm: Any, **changes: Any) -> list[ServerState]:
    calls = world.recorded(algorithm, "merge")
    world.run(algorithm, **changes)
    return [state for _, state in calls]


# Arithmetic


def test_mixtures_mix_buffers_as_well() -> None:
    models = [_model(1.0, 3), _model(5.0, 7)]
    one, both = mixtures(models, np.array([[0.0, 1.0], [0.75, 0.25]]))
    assert one.digest() == models[1].digest()
    assert both.params["w"].tolist() == [2.0, -2.0]
    assert both.buffers["mean"].tolist() == [2.0]
    assert both.buffers["steps"] == 7


def test_gram_is_scaled_by_the_mean_of_its_diagonal() -> None:
    assert scaled(np.array([[2.0, 1.0], [1.0, 6.0]])).tolist() == [[0.5, 0.25], [0.25, 1.5]]
    assert scaled(np.zeros((1, 1))).tolist() == [[0.0]]


def test_steps_of_the_pull_give_its_strength(world: Any) -> None:
    assert world.algorithm("ktpfl_w").config.strength == 1.0
    assert world.algorithm("ktpfl_w", pull=0.3).config.strength == 0.3
    stepped = world.algorithm("ktpfl_w", pull_epochs=2, pull_lr=0.1).config.strength
    assert stepped == pytest.approx(1 - 0.8**2)
    assert world.algorithm("ktpfl_w", pull_epochs=0, pull_lr=0.1).config.strength == 0.0


# Runs


def test_an_identity_is_local_bit_for_bit(world: Any) -> None:
    local = world.run(world.algorithm("local")).model_hash
    fixed: Any = world.algorithm("ktpfl_w", c_lr=0.0)
    fixed.start = lambda server: ServerState({}, np.eye(server.num_clients))
    assert world.run(fixed).model_hash == local


def _broadcasts(world: Any, algorithm: Any) -> list[list[Model]]:
    calls = world.recorded(algorithm, "send")
    world.run(algorithm)
    return [[messages[client].model for client in range(4)] for _, (_, messages) in calls]


def test_a_strong_pull_is_uniform_fedavg(world: Any) -> None:
    # Every client starts from the plain mean of all, as FedAvg's would: in every round, so trainings agree.
    average = _broadcasts(world, world.algorithm("fedavg", weighting="uniform"))
    still = _broadcasts(world, world.algorithm("ktpfl_w", c_lr=0.0))
    strong = _broadcasts(world, world.algorithm("ktpfl_w", rho=1e6))
    usual = _broadcasts(world, world.algorithm("ktpfl_w"))
    for number in range(3):
        wanted = average[number][0]
        assert {model.digest() for model in still[number]} == {wanted.digest()}
        for model in strong[number]:
            for name, array in model.params.items():
                np.testing.assert_allclose(array, wanted.params[name], atol=1e-5)
    assert not np.allclose(_weights(usual[2][0]), _weights(average[2][0]))


def test_the_matrix_learns_and_its_rows_sum_to_one(world: Any) -> None:
    for state in _states(world, world.algorithm("ktpfl_w")):
        np.testing.assert_allclose(state.c.sum(axis=1), 1, atol=1e-6)
        assert (np.diagonal(state.c) > 0.25).all()


def test_only_the_block_of_those_who_answered_moves(world: Any) -> None:
    algorithm = world.algorithm("ktpfl_w")
    calls = world.recorded(algorithm, "merge")
    world.run(algorithm, clients_per_round=2, rounds=6)
    for (_, before, replies), after in calls:
        members = [reply.client for reply in replies]
        block = np.zeros((4, 4), bool)
        block[np.ix_(members, members)] = True
        assert (after.c[~block] == before.c[~block]).all()
        assert (after.c[block] != before.c[block]).all()
        np.testing.assert_allclose(after.c.sum(axis=1), 1, atol=1e-6)
        assert set(after.uploads) == set(before.uploads) | set(members)  # stale models stay


def test_who_never_uploaded_is_in_no_sum(world: Any) -> None:
    # Client 1's uploads are lost: it gets mixtures of the others, they none of it.
    algorithm = world.algorithm("ktpfl_w", c_lr=0.0)
    calls = world.recorded(algorithm, "send")
    world.run(algorithm, lost=lambda parcel, ordinal: parcel.sender == 1, client_timeout_s=9.0)
    (_, (first, opening)), *later = calls
    assert not first.uploads
    assert len({id(message) for message in opening.values()}) == 1
    for _, (state, messages) in later:
        assert sorted(state.uploads) == [0, 2, 3]
        mean = np.mean([_weights(upload) for upload in state.uploads.values()], axis=0)
        for client in range(4):
            np.testing.assert_allclose(_weights(messages[client]), mean, atol=1e-6)


@pytest.mark.parametrize("mixing", ["similarity", "topk"])
def test_weights_can_follow_from_cosines_of_parameters(mixing: str, world: Any) -> None:
    params = {"neighbours": 2} if mixing == "topk" else {}
    algorithm = world.algorithm("ktpfl_w", mixing=mixing, **params)
    states = _states(world, algorithm, clients_per_round=2, rounds=6)
    for state in states:
        known = sorted(state.uploads)
        c = state.c[known]
        np.testing.assert_allclose(c.sum(axis=1), 1)
        others = c[:, [client for client in range(4) if client not in state.uploads]]
        assert (others == 0).all()
        if mixing == "topk":
            assert ((c > 0).sum(axis=1) == min(2, len(known))).all()
    assert len(states[-1].uploads) > 2
    vectors = np.stack(
        [
            np.concatenate([array.ravel() for array in states[-1].uploads[client].params.values()])
            for client in sorted(states[-1].uploads)
        ]
    ).astype(np.float64)
    lengths = np.linalg.norm(vectors, axis=1)
    cosines = vectors @ vectors.T / np.outer(lengths, lengths)
    own = states[-1].c[np.ix_(sorted(states[-1].uploads), sorted(states[-1].uploads))]
    if mixing == "similarity":
        wanted = cosines - cosines.min(axis=1, keepdims=True)
        np.testing.assert_allclose(own, wanted / wanted.sum(axis=1, keepdims=True), atol=1e-9)
    else:
        nearest = np.argsort(-cosines, axis=1)[:, :2]
        assert [set(np.flatnonzero(row)) for row in own] == [set(row) for row in nearest]


@pytest.mark.parametrize("pull", [0.5, 1.0])
def test_clients_go_on_with_their_own_models_until_any_upload_has_arrived(pull: float, world: Any) -> None:
    result = world.run(
        world.algorithm("ktpfl_w", pull=pull),
        lost=lambda parcel, ordinal: parcel.sender >= 0,
        client_timeout_s=9.0,
    )
    assert result.by_client["merged"].tolist() == [0, 0, 0, 0]
    assert [row.traffic.parameters_down for row in result.rounds] == [4 * SCALARS, 0, 0]
    assert result.model_hash == world.run(world.algorithm("local")).model_hash


def _server() -> Server:
    return Server(
        num_clients=3,
        architecture_of=lambda client: "mlp",
        initial_model=lambda architecture="mlp": _model(0.0),
    )


def _reply(client: int, model: Model, num_samples: int = 10) -> Reply:
    return Reply(client, 0, "train", 0, 0, 1.0, ModelUpdate.of(model, num_samples=num_samples))


def _merged(algorithm: Any, replies: Sequence[Reply], absent: int | None = None) -> Array:
    """Return c after the replies; ``absent``: samples of client 1, whose model came before."""
    uploads = {} if absent is None else {1: ModelUpdate.of(_model(3.0), num_samples=absent)}
    state = ServerState(uploads, np.full((3, 3), 1 / 3))
    merged: ServerState = asyncio.run(algorithm.merge(_server(), state, replies))
    return merged.c


def test_one_step_by_hand(world: Any) -> None:
    # Two opposite models of three clients: G = [[1, -1], [-1, 1]] after scaling; with equal weights the
    # mixture is zero, so g = -2 G, and a step of 0.01 with rho = 0 moves 0.02 from the other to oneself.
    algorithm = world.algorithm("ktpfl_w", rho=0.0, c_steps=1)
    c = _merged(algorithm, [_reply(0, _model(1.0)), _reply(2, _model(-1.0))])
    third, moved = 1 / 3, 0.02
    np.testing.assert_allclose(
        c,
        [[third + moved, third, third - moved], [third] * 3, [third - moved, third, third + moved]],
        atol=1e-12,
    )


def test_data_weighting_scales_the_gradient(world: Any) -> None:
    algorithm = world.algorithm("ktpfl_w", rho=0.0, c_steps=1, c_weighting="data")
    c = _merged(algorithm, [_reply(0, _model(1.0), 30), _reply(2, _model(-1.0), 10)])
    np.testing.assert_allclose([c[0, 0] - 1 / 3, c[2, 2] - 1 / 3], [0.75 * 0.02, 0.25 * 0.02], atol=1e-12)
    # Shares are those of all samples that the server knows of: also of who is absent, and does not move.
    c = _merged(algorithm, [_reply(0, _model(1.0), 30), _reply(2, _model(-1.0), 10)], absent=60)
    np.testing.assert_allclose([c[0, 0] - 1 / 3, c[2, 2] - 1 / 3], [0.3 * 0.02, 0.1 * 0.02], atol=1e-12)
    np.testing.assert_allclose(c[1], 1 / 3)


def test_one_upload_moves_nothing(world: Any) -> None:
    np.testing.assert_allclose(_merged(world.algorithm("ktpfl_w"), [_reply(1, _model(1.0))]), 1 / 3)


def test_misfits_are_rejected(world: Any) -> None:
    algorithm = world.algorithm("ktpfl_w")
    other = Model("cnn", _model(1.0).params, _model(1.0).buffers)
    assert algorithm.vet(_server(), None, _reply(0, other)) == "architecture 'cnn', not 'mlp'"
    assert algorithm.vet(_server(), None, _reply(0, _model(1.0))) is None
