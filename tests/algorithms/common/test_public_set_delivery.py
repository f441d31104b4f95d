"""Delivery of the public set where the server alone holds it."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedsim.algorithms.common.public_set_delivery import ClientState, held
from fedsim.engine.jobs import InlineSamples, PublicSamples
from fedsim.params import Model
from fedsim.runtime.run import run
from fedsim.wire import PublicData
from tests.algorithms.stand_ins import nth

POSITIONS = np.array([2, 0])
STATE = ClientState(Model("mlp", {}))
VALUES = np.arange(12, dtype=np.float32).reshape(3, 4) / np.float32(255)


def _client(public_at_clients: bool) -> Any:
    return SimpleNamespace(
        public_at_clients=public_at_clients, public=PublicSamples, warn=lambda event, **values: None
    )


def _server(public_at_clients: bool) -> Any:
    values = VALUES.__getitem__
    return SimpleNamespace(public_at_clients=public_at_clients, public_values=values, num_public=3)


@pytest.mark.parametrize("name", ["dsfl", "perfed_ckt"])
def test_what_is_sent_is_held(name: str, world: Any) -> None:
    algorithm = world.algorithm(name)
    assert algorithm.exchanges[0].instruct == algorithm.instruct_hand_out
    _, messages = asyncio.run(algorithm.instruct_hand_out(_server(False), None, [0, 3]))
    assert messages[0] is messages[3]
    assert isinstance(messages[0], PublicData)
    before = algorithm.join(SimpleNamespace(client=0, initial_model=lambda label, variant: None))
    state, reply = asyncio.run(algorithm.local_hand_out(_client(False), before, messages[0]))
    assert reply is None
    found, positions = held(_client(False), state, POSITIONS)
    assert positions is POSITIONS
    assert isinstance(found, InlineSamples)
    assert found.x.tolist() == VALUES[[2, 0]].tolist()
    assert state.received is messages[0].values  # as they came, a byte a number
    assert state.received.dtype == np.uint8


@pytest.mark.parametrize("name", ["dsfl", "perfed_ckt"])
def test_nothing_is_sent_where_clients_hold_the_set(name: str, world: Any) -> None:
    _, messages = asyncio.run(world.algorithm(name).instruct_hand_out(_server(True), None, [0, 3]))
    assert messages == {}
    found, positions = held(_client(True), STATE, POSITIONS)
    assert positions is POSITIONS
    assert isinstance(found, PublicSamples)
    assert found.positions is POSITIONS


@pytest.mark.parametrize(
    ("name", "params", "num_sent"), [("dsfl", {}, 40), ("perfed_ckt", {"clusters": 1, "public_size": 30}, 30)]
)
def test_it_is_handed_out_once(name: str, params: dict[str, Any], num_sent: int, world: Any) -> None:
    data = replace(world.data(), public_at_clients=False)
    sent = world.run(world.algorithm(name, **params), data=data)
    totals, there = sent.totals, world.run(world.algorithm(name, **params)).totals
    assert 4 * num_sent * (64 * 4 + 8) < totals.data_down < 4 * (num_sent * (64 * 4 + 8) + 300)
    assert sent.rounds[0].traffic.data_down == totals.data_down
    assert (totals.parameters_up, totals.bytes_up) == (there.parameters_up, there.bytes_up)
    assert totals.parameters_down == there.parameters_down


@pytest.mark.parametrize(("name", "rejected"), [("dsfl", 0), ("perfed_ckt", 3)])
def test_a_client_that_it_does_not_reach_trains_alone_and_says_so(
    name: str, rejected: int, world: Any
) -> None:
    algorithm, local = world.algorithm(name), world.algorithm("local")
    seen, its, notes = world.watched(algorithm), world.watched(local), world.notes()
    changes = {"data": replace(world.data(), public_at_clients=False), "client_timeout_s": 60.0}
    first = nth([1], receiver=0)
    result = run(world.parts(algorithm, lost=first, **changes), log=notes)
    world.run(local)
    assert notes.of("no public samples") == [{"client": 0, "instead": "training alone"}] * 3
    assert result.by_client["dropped"].tolist() == [1, 0, 0, 0]
    assert result.rejections == ({"no public samples": rejected} if rejected else {})
    assert result.by_client["rejected"].tolist() == [rejected, 0, 0, 0]
    same = [seen[k]["personal"].digest() == its[k]["personal"].digest() for k in range(4)]
    assert same == [True, False, False, False]


def test_a_client_that_was_sent_nothing_has_nothing() -> None:
    samples, positions = held(_client(False), STATE, POSITIONS)
    assert isinstance(samples, PublicSamples)
    assert samples.positions.tolist() == positions.tolist() == []
