"""FedMD: the specification's sanity checks (5.C.4)."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from fedsim.algorithms.base import Reply
from fedsim.algorithms.fedmd import ServerState
from fedsim.wire import LogitsUp, indices_digest

POSITIONS = np.array([4, 1], np.int64)


def _logits(values: list[list[float]], positions: Any = POSITIONS) -> LogitsUp:
    array = np.array(values, np.float32)
    return LogitsUp(array, form="logits", temperature=1.0, indices_digest=indices_digest(positions))


def _reply(client: int, message: LogitsUp) -> Reply:
    return Reply(client, 0, "share", 0, 0, 1.0, message)


class _Server:
    class task:  # noqa: N801 - stands for an attribute
        num_outputs = 2


def test_consensus_is_the_arithmetic_mean(world: Any) -> None:
    state = ServerState(POSITIONS, np.empty((0, 2), np.float32))
    replies = [_reply(0, _logits([[1, 2], [3, 4]])), _reply(1, _logits([[3, 2], [-3, 0]]))]
    merged = asyncio.run(world.algorithm("fedmd").merge_share(None, state, replies))
    assert merged.consensus.tolist() == [[2.0, 2.0], [0.0, 2.0]]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (_logits([[1, 2], [3, 4]], np.array([1, 4])), "other public samples"),
        (_logits([[1, 2]]), r"shape \(1, 2\), not \(2, 2\)"),
        (_logits([[1, 2, 3], [1, 2, 3]]), r"shape \(2, 3\), not \(2, 2\)"),
    ],
)
def test_misfits_are_rejected(message: LogitsUp, reason: str, world: Any) -> None:
    state = ServerState(POSITIONS, np.empty((0, 2), np.float32))
    found = world.algorithm("fedmd").vet(_Server(), state, _reply(0, message))
    assert found is not None
    import re

    assert re.search(reason, found)


def test_alone_it_equals_local(world: Any) -> None:
    # The consensus of one client is its own logits: the digest's gradient is exactly zero.
    for digest in ("mae", "mse"):
        alone = world.run(world.algorithm("fedmd", pretrain_epochs=0, digest=digest), num_clients=1)
        local = world.run(world.algorithm("local"), num_clients=1)
        assert alone.model_hash == local.model_hash


def test_bytes_do_not_depend_on_the_architecture(world: Any) -> None:
    small = world.run(world.algorithm("fedmd"), models=("linear", "linear"))
    large = world.run(world.algorithm("fedmd"), models=("mlp", "mlp"))
    mixed = world.run(world.algorithm("fedmd"), models=("mlp", "linear"))
    assert small.totals == large.totals == mixed.totals


def test_numbers_communicated_follow_the_formula(world: Any) -> None:
    p, classes, clients, rounds = 40, 10, 4, 3
    totals = world.run(world.algorithm("fedmd")).totals
    assert totals.parameters_up == totals.parameters_down == p * classes * clients * rounds
    half = world.run(world.algorithm("fedmd", public_per_round=20)).totals
    assert half.parameters_up == totals.parameters_up // 2


def test_a_silent_client_misses_only_its_own_digest(world: Any) -> None:
    # The consensus frame to client 0 is lost in every round: the others go on, client 0 keeps its model.
    def consensus_to_first(parcel: Any, ordinal: int) -> bool:
        return bool(parcel.receiver == 0 and parcel.num_bytes > 1000)

    result = world.run(world.algorithm("fedmd"), lost=consensus_to_first, client_timeout_s=9.0)
    assert result.by_client["dropped"].tolist() == [3, 0, 0, 0]
    assert result.by_client["merged"].tolist() == [4, 7, 7, 7]  # pretrain, three shares; and three digests


def test_opening_comes_before_the_first_round(world: Any) -> None:
    rows = world.run(world.algorithm("fedmd")).rounds
    assert [row.round for row in rows] == [0, 1, 2, 3]
    assert rows[0].asked == 4
    assert rows[0].traffic.frames_down == 0


@pytest.mark.parametrize("digest", ["mae", "mse", "kl"])
def test_distances_run(digest: str, world: Any) -> None:
    result = world.run(world.algorithm("fedmd", digest=digest, digest_lr=0.02, digest_batch_size=16))
    assert result.final is not None
