"""FedAsync: the specification's sanity checks (5.F.1), and what published code has got wrong."""

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedsim.algorithms.base import Reply
from fedsim.params import Model
from fedsim.runtime.policies.pacing.asynchronous import Immediate
from fedsim.wire import ModelUpdate


def _immediate(concurrency: int = 4, **params: Any) -> Any:
    return Immediate(Immediate.Config(concurrency=concurrency, **params))


def _model(value: float, mean: float = 0.0, seen: int = 0) -> Model:
    buffers = {"mean": np.array([mean], np.float32), "seen": np.array(seen)}
    return Model("mlp", {"w": np.array([value], np.float32)}, buffers)


def _merged(algorithm: Any, state: Model, *sent: tuple[Model, float]) -> Model:
    """Return the state after models, each with its discount, from clients 0, 1, ..."""
    replies = [
        Reply(client, 0, "train", 0, 3, discount, ModelUpdate.of(model, num_samples=1 + client))
        for client, (model, discount) in enumerate(sent)
    ]
    merged: Model = asyncio.run(algorithm.merge(None, state, replies))
    return merged


def _w(model: Model) -> float:
    return float(model.params["w"][0])


# Arithmetic


def test_the_server_goes_some_of_the_way_less_if_the_reply_is_stale(world: Any) -> None:
    algorithm = world.algorithm("fedasync")
    fresh = _merged(algorithm, _model(10.0, 1.0, 2), (_model(2.0, 3.0, 7), 1.0))
    assert _w(fresh) == pytest.approx(0.4 * 10 + 0.6 * 2)
    assert float(fresh.buffers["mean"][0]) == pytest.approx(0.4 * 1 + 0.6 * 3)
    assert int(fresh.buffers["seen"]) == 7
    stale = _merged(algorithm, _model(10.0), (_model(2.0), 0.25))
    assert _w(stale) == pytest.approx(0.85 * 10 + 0.15 * 2)


def test_several_replies_are_mixed_in_one_after_the_other(world: Any) -> None:
    algorithm = world.algorithm("fedasync", alpha=0.5)
    assert _w(_merged(algorithm, _model(8.0), (_model(0.0), 1.0), (_model(2.0), 1.0))) == 3.0
    assert _w(_merged(algorithm, _model(8.0), (_model(2.0), 1.0), (_model(0.0), 1.0))) == 2.5
    assert _w(_merged(algorithm, _model(8.0), (_model(2.0), 1.0), (_model(0.0), 0.5))) == 3.75


def test_it_never_goes_beyond_a_reply_that_counts_more_than_one(world: Any) -> None:
    assert _w(_merged(world.algorithm("fedasync"), _model(10.0), (_model(2.0), 5.0))) == 2.0


def test_alpha_is_not_decayed_in_place(world: Any) -> None:
    algorithm, state = world.algorithm("fedasync", alpha=0.5), _model(8.0)
    for value in (4.0, 2.0, 1.0):  # each halves the distance to 0, whatever came before
        state = _merged(algorithm, state, (_model(0.0), 1.0))
        assert _w(state) == value
    _merged(algorithm, state, (_model(0.0), 0.01))
    assert _w(_merged(algorithm, _model(8.0), (_model(0.0), 1.0))) == 4.0


# Runs


def test_alpha_0_leaves_the_model_as_it_is(world: Any) -> None:
    algorithm = world.algorithm("fedasync", alpha=0.0)
    merges = world.recorded(algorithm, "merge")
    parts = world.parts(algorithm, pacing=_immediate(), clients_per_round=4)
    world.run(algorithm, pacing=_immediate(), clients_per_round=4)
    assert len(merges) == 12
    assert {after.digest() for _, after in merges} == {parts.initial()("mlp").digest()}


@pytest.mark.parametrize("replies_per_round", [1, 3])
def test_one_client_and_alpha_1_is_local_in_chunks(replies_per_round: int, world: Any) -> None:
    # A round of three merges is three turns of the one client.
    one = {"num_clients": 1, "training": {"momentum": 0.5, "keep_optimiser": True}}
    algorithm = world.algorithm("fedasync", alpha=1.0, rho=0.0)
    pacing, rounds = _immediate(1), 3 // replies_per_round
    chunks = world.run(algorithm, pacing=pacing, rounds=rounds, clients_per_round=replies_per_round, **one)
    local = world.run(world.algorithm("local"), **one)
    assert chunks.model_hash == local.model_hash
    assert chunks.final.mean == local.final.mean


def test_with_alpha_1_the_last_writer_wins(world: Any) -> None:
    algorithm = world.algorithm("fedasync", alpha=1.0, rho=0.0)
    merges = world.recorded(algorithm, "merge")
    result = world.run(algorithm, pacing=_immediate(), clients_per_round=4, rounds=1)
    for (_, _, (reply,)), after in merges:
        assert after.digest() == reply.message.model.digest()
    assert result.by_client["merged"].sum() == 4


def test_the_version_rises_with_each_merge(world: Any) -> None:
    algorithm = world.algorithm("fedasync")
    merges = world.recorded(algorithm, "merge")
    world.run(algorithm, pacing=_immediate(staleness="polynomial"), clients_per_round=4, rounds=2)
    assert [server.version for (server, _, _), _ in merges] == list(range(8))
    replies = [reply for (_, _, (reply,)), _ in merges]
    assert [reply.version + reply.staleness for reply in replies] == list(range(8))
    # Four begin with version 0, and the last of them comes after three merges or more.
    assert sum(reply.version == 0 for reply in replies) == 4
    assert max(reply.staleness for reply in replies) >= 3
    assert all(reply.discount == (1 + reply.staleness) ** -0.5 for reply in replies)


def test_without_the_proximal_term_clients_train_as_in_fedavg(world: Any) -> None:
    changes = {"num_clients": 1, "rounds": 2}
    free, held = (world.algorithm("fedasync", alpha=1.0, rho=rho) for rho in (0.0, 1.0))
    fedavg = world.run(world.algorithm("fedavg"), **changes)
    assert world.run(free, **changes).model_hash == fedavg.model_hash
    near = world.run(world.algorithm("fedprox", mu=1.0), **changes)
    assert world.run(held, **changes).model_hash == near.model_hash


def test_in_synchronous_rounds_a_cohort_is_mixed_in_by_client(world: Any) -> None:
    algorithm = world.algorithm("fedasync")
    merges = world.recorded(algorithm, "merge")
    world.run(algorithm, rounds=1)
    (((_, before, replies), after),) = merges
    assert [reply.client for reply in replies] == [0, 1, 2, 3]
    for reply in replies:
        before = _merged(algorithm, replace(before), (reply.message.model, 1.0))
    assert after.digest() == before.digest()
