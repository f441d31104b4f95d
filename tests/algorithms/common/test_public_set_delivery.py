"""Delivery of the public set where the server alone holds it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedsim.algorithms.common.public_set_delivery import ClientState, held
from fedsim.engine.jobs import InlineSamples, PublicSamples
from fedsim.params import Model
from fedsim.wire import PublicData

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


def test_a_client_that_was_sent_nothing_has_nothing() -> None:
    samples, positions = held(_client(False), STATE, POSITIONS)
    assert isinstance(samples, PublicSamples)
    assert samples.positions.tolist() == positions.tolist() == []
