"""FedMD: the specification's sanity checks (5.C.4)."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedsim.algorithms.base import Reply, Setting
from fedsim.algorithms.common.public_predictions import Announced
from fedsim.algorithms.common.share_and_distil import ClientState
from fedsim.algorithms.fedmd import ServerState
from fedsim.errors import UserError
from fedsim.params import Model
from fedsim.task import Task
from fedsim.wire import LogitsDown, LogitsUp, indices_digest
from tests.algorithms.stand_ins import Server

POSITIONS = np.array([4, 1], np.int64)
SERVER = Server(task=SimpleNamespace(num_outputs=2))


def _logits(values: list[list[float]], positions: Any = POSITIONS) -> LogitsUp:
    array = np.array(values, np.float32)
    return LogitsUp(array, form="logits", temperature=1.0, indices_digest=indices_digest(positions))


def _reply(client: int, message: LogitsUp) -> Reply:
    return Reply(client, 0, "share", 0, 0, 1.0, message)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (_logits([[1, 2], [3, 4]], np.array([1, 4])), "other public samples"),
        (_logits([[1, 2, 3], [1, 2, 3]]), "shape (2, 3), not (2, 2)"),
        (replace(_logits([[1, 2], [3, 4]]), form="probs"), "probs of temperature 1.0, not logits"),
    ],
)
def test_misfits_are_rejected(message: LogitsUp, reason: str, world: Any) -> None:
    state = ServerState(POSITIONS, 2)
    assert reason in world.algorithm("fedmd").vet(SERVER, state, _reply(0, message))


def test_each_sample_is_averaged_over_those_who_sent_it(world: Any) -> None:
    # Client 1 holds sample 1 alone; sample 9 nobody has (specification 3.5, E10).
    state = ServerState(np.array([4, 9, 1]), asked=3)
    one = np.array([1], np.int64)
    two = np.array([1, 4], np.int64)
    replies = [
        _reply(0, replace(_logits([[5, 6], [3, 4]], two), indices=two)),
        _reply(1, replace(_logits([[7, 8]], one), indices=one)),
    ]
    algorithm = world.algorithm("fedmd")
    assert [algorithm.vet(SERVER, state, reply) for reply in replies] == [None, None]
    merged = asyncio.run(algorithm.merge_share(SERVER, state, replies))
    assert merged.positions.tolist() == [4, 1]
    assert merged.consensus.tolist() == [[3.0, 4.0], [6.0, 7.0]]
    _, messages = asyncio.run(algorithm.instruct_distil(SERVER, merged, [0]))
    assert messages[0].indices.tolist() == [4, 1]


def test_a_consensus_on_other_samples_is_not_digested(world: Any) -> None:
    algorithm, state = world.algorithm("fedmd"), ClientState(Model("mlp", {}), Announced(POSITIONS))
    message = LogitsDown(
        np.zeros((2, 2), np.float32),
        form="logits",
        temperature=1.0,
        indices_digest=indices_digest(np.array([7, 8])),
    )
    assert asyncio.run(algorithm.local_distil(None, state, message)) == (state, None)


def test_public_labels_can_be_used_before_the_first_round(world: Any) -> None:
    rounds = {"rounds": 1, "training": {"epochs": 1}}
    without = world.run(world.algorithm("fedmd", pretrain_epochs=3), **rounds)
    using = world.run(world.algorithm("fedmd", pretrain_epochs=3, pretrain_public=True), **rounds)
    assert using.model_hash != without.model_hash
    assert using.simulated_s > without.simulated_s
    assert using.totals == without.totals


def test_public_labels_that_clients_do_not_have_are_refused(world: Any) -> None:
    labels = world.algorithm("fedmd", pretrain_public=True)
    data = replace(world.data(), public_at_clients=False)
    with pytest.raises(UserError, match="that the server alone holds — write "):
        world.run(labels, data=data)
    foreign = replace(world.data(), public_labelled=False)
    with pytest.raises(UserError, match="have no labels of this task — leave "):
        world.run(labels, data=foreign)
    for public in (data, foreign):
        assert world.run(world.algorithm("fedmd"), data=public, rounds=1).final is not None


def test_a_silent_client_misses_only_its_own_digest(world: Any) -> None:
    # The consensus frame to client 0 is lost in every round: the others go on, client 0 keeps its model.
    def consensus_to_first(parcel: Any, ordinal: int) -> bool:
        return bool(parcel.receiver == 0 and parcel.num_bytes > 1000)

    result = world.run(world.algorithm("fedmd"), lost=consensus_to_first, client_timeout_s=9.0)
    assert result.by_client["dropped"].tolist() == [3, 0, 0, 0]
    assert result.by_client["merged"].tolist() == [4, 7, 7, 7]  # pretrain, three shares; and three digests


def test_clients_are_measured_after_what_comes_last(world: Any) -> None:
    # Without a digest both orders train as `local` does, and what distils first trains after the share.
    for order in ("distill_first", "train_first"):
        algorithm = world.algorithm("fedmd", pretrain_epochs=0, digest_epochs=0, order=order)
        seen, local = world.watched(algorithm), world.algorithm("local")
        its = world.watched(local)
        world.run(algorithm)
        world.run(local)
        assert [seen[k]["personal"].digest() for k in range(4)] == [its[k]["personal"].digest() for k in its]
        digesting = world.algorithm("fedmd", pretrain_epochs=0, digest="kl", order=order)
        work: list[str] = []
        digesting.trained = _noted(digesting.trained, "train", work)
        digesting.distilled = _noted(digesting.distilled, "digest", work)
        world.run(digesting, num_clients=1, rounds=2)
        assert work == (["digest", "train"] if order == "distill_first" else ["train", "digest"]) * 2


def _noted(hook: Any, name: str, work: list[str]) -> Any:
    async def noted(*arguments: Any) -> Any:
        work.append(name)
        return await hook(*arguments)

    return noted


def test_probabilities_may_travel_in_place_of_logits(world: Any) -> None:
    algorithm = world.algorithm("fedmd", exchange="probs", digest="kl")
    merge, sent = algorithm.merge_share, []

    async def merge_share(server: Any, state: Any, replies: Any) -> Any:
        after = await merge(server, state, replies)
        sent.extend([*(reply.message.values for reply in replies), after.consensus])
        return after

    algorithm.merge_share = merge_share
    result, logits = world.run(algorithm), world.run(world.algorithm("fedmd", digest="kl"))
    assert len(sent) == 3 * (4 + 1)
    assert all((rows >= 0).all() and np.allclose(rows.sum(axis=1), 1, atol=1e-5) for rows in sent)
    assert result.model_hash != logits.model_hash
    assert result.totals.parameters_up == logits.totals.parameters_up
    state = ServerState(POSITIONS, 2)
    assert "logits of temperature" in algorithm.vet(SERVER, state, _reply(0, _logits([[1, 2], [3, 4]])))


def test_probabilities_are_digested_by_kl_divergence_alone(world: Any) -> None:
    regression = Setting(Task((1,), 1, kind="regression"), {}, None, 5, True)  # type: ignore[arg-type]
    probs = world.algorithm("fedmd", exchange="probs", digest="kl")
    assert "a regression has no probabilities of classes — write 'logits'" in world.misfits(probs, regression)
    logits = world.algorithm("fedmd", digest="kl")
    assert "and the task is a regression — write 'mae' or 'mse'" in world.misfits(logits, regression)
    assert not world.misfits(world.algorithm("fedmd"), regression)


def test_each_pass_of_the_digest_has_an_order_of_its_own(world: Any) -> None:
    met: list[Any] = []

    class Client:
        training = SimpleNamespace(make_optimiser=lambda lr: lr)

        async def fit(self, model: Model, *, streams: Any, **_: Any) -> Any:
            met.append(streams["public"])
            return SimpleNamespace(model=model)

    teacher = np.zeros((2, 2), np.float32)
    asyncio.run(world.algorithm("fedmd").distilled(Client(), Model("mlp", {}), "samples", teacher))
    assert [(stream.samples, stream.shuffled) for stream in met] == [("samples", True)]
