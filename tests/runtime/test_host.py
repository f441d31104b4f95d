"""The clients' side: states, the commit rule, one thing at a time."""

from __future__ import annotations

from typing import Any

import pytest

from fedsim.algorithms.base import Exchange
from fedsim.runtime.host import Held


@pytest.mark.parametrize(
    ("network", "mirror"),
    [
        ({}, 0),  # merged: kept
        ({"lost": [(1, -1, 0)]}, -1),  # the upload is lost: back to what it was before
        ({"broken": [(1, -1, 0)]}, -1),
    ],
)
def test_mirrored_fields_count_only_once_merged(network: Any, mirror: int, world: Any) -> None:
    algorithm = world.Scripted()
    world.play(algorithm, network=world.Wires(**network), rounds=2)
    states = [state for client, _, state in algorithm.diaries if client == 1]
    assert states == [world.Diary((), -1), world.Diary((0,), mirror)]


def test_a_rejected_reply_was_not_merged(world: Any) -> None:
    algorithm = world.Scripted(
        answer=lambda client, exchange: None if (client.client, client.dispatch) == (1, 0) else world.word()
    )
    world.play(algorithm, rounds=2)
    assert [state for client, _, state in algorithm.diaries if client == 1] == [
        world.Diary((), -1),
        world.Diary((0,), -1),
    ]


def test_a_late_reply_was_not_merged(world: Any) -> None:
    algorithm = world.Scripted(
        work_s=lambda client, exchange: 20.0 if (client.client, client.dispatch) == (1, 0) else 1.0
    )
    world.play(algorithm, client_timeout_s=15.0, rounds=2)
    assert (1, 1, world.Diary((0,), -1)) in algorithm.diaries


def test_the_field_goes_back_over_several_losses(world: Any) -> None:
    algorithm = world.Scripted()
    # Merged, lost, lost, merged.
    world.play(algorithm, network=world.Wires(lost=[(1, -1, 1), (1, -1, 2)]), rounds=4)
    states = [state for client, _, state in algorithm.diaries if client == 1]
    assert [state.mirror for state in states] == [-1, 0, 0, 0]
    assert states[-1].pages == (0, 1, 2)
    assert algorithm.observed[1] == world.Diary((0, 1, 2, 3), 3)


@pytest.mark.parametrize(("lost", "mirror"), [([], 0), ([(1, -1, 0)], -1)])
def test_the_observer_sees_the_settled_state(lost: Any, mirror: int, world: Any) -> None:
    algorithm = world.Scripted()
    world.play(algorithm, network=world.Wires(lost=lost))
    assert algorithm.observed[1] == world.Diary((0,), mirror)


def test_an_exchange_without_a_reply_settles_too(world: Any) -> None:
    algorithm = world.Scripted([Exchange("talk")], answer=lambda client, exchange: None)
    world.play(algorithm, rounds=2)
    assert (1, 1, world.Diary((0,), 0)) in algorithm.diaries


def test_held_states_settle_by_the_newest_merged_dispatch() -> None:
    held = Held(3, "merged", "otherwise")
    assert [held.settled(newest) for newest in (-1, 2, 3, 4)] == [
        "otherwise",
        "otherwise",
        "merged",
        "merged",
    ]


def test_joining_is_the_same_for_whoever_asks_first(world: Any) -> None:
    joined: list[tuple[int, int, int, bytes]] = []

    def join(client: Any) -> Any:
        joined.append((client.client, client.dispatch, client.round, client.key.digest))
        return world.Diary((), -1)

    world.play(world.Scripted(join=join), clients_per_round=1, rounds=2, executor=world.Oracle())
    # By the client itself when it is asked, by the observer in every round for those who never were.
    assert len(joined) > len(set(joined)) == 3
    assert {entry[1:3] for entry in joined} == {(-1, 0)}


def test_a_client_without_state_is_asked_without(world: Any) -> None:
    seen = []

    async def local(exchange: str, client: Any, state: Any, message: Any) -> Any:
        seen.append(state)
        return None, world.word()

    world.play(world.Scripted(local=local, join=lambda client: None), sizes=(1,), rounds=2)
    assert seen == [None, None]


def test_a_client_draws_anew_at_every_asking(world: Any) -> None:
    seen: dict[tuple[int, int], bytes] = {}

    async def local(exchange: str, client: Any, state: Any, message: Any) -> Any:
        seen[client.client, client.dispatch] = client.key.digest
        return None, world.word()

    world.play(world.Scripted(local=local, join=lambda client: None), rounds=2)
    assert len(seen) == len(set(seen.values())) == 6


def test_a_client_knows_its_samples_and_its_start_model(world: Any) -> None:
    seen = []

    async def local(exchange: str, client: Any, state: Any, message: Any) -> Any:
        seen.append(
            (client.num_samples(), client.num_samples("val"), client.architecture, client.initial_model())
        )
        return None, world.word()

    world.play(world.Scripted(local=local, join=lambda client: None), sizes=(3, 5))
    assert [entry[:3] for entry in seen] == [(3, 0, "linear"), (5, 0, "linear")]
    assert seen[0][3] is seen[1][3]


def test_clients_that_remember_nothing_join_once_for_all(world: Any) -> None:
    joined: list[int] = []

    class Forgetful(world.Scripted):  # type: ignore[misc]
        def join(self, client: Any) -> None:
            joined.append(client.client)

        async def do_local(self, exchange: str, client: Any, state: Any, message: Any) -> Any:
            assert state is None
            return None, world.word()

        async def models_of(self, observer: Any, server_state: Any, client_state: Any) -> Any:
            assert client_state is None
            return {}

    world.play(Forgetful(), rounds=2)
    assert len(joined) == 1
