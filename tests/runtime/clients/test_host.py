"""The clients' side: states, the commit rule, one thing at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fedsim.algorithms.base import Exchange, Predictor
from fedsim.algorithms.fedavg import PLUGIN as FEDAVG
from fedsim.config import Config
from fedsim.engine.executors.base import ExecutorConfig
from fedsim.engine.executors.null import PLUGIN as NULL
from fedsim.engine.executors.threads import PLUGIN as THREADS
from fedsim.engine.training_config import TrainingConfig
from fedsim.network.none import PLUGIN as NONE
from fedsim.rng import Key
from fedsim.runtime.clients.held import Held


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
    joined: list[tuple[int, int, int, Key]] = []

    def join(client: Any) -> Any:
        joined.append((client.client, client.dispatch, client.round, client.key))
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


def test_a_client_draws_anew_at_every_dispatch(world: Any) -> None:
    seen: dict[tuple[int, int], Key] = {}

    async def local(exchange: str, client: Any, state: Any, message: Any) -> Any:
        seen[client.client, client.dispatch] = client.key
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


def test_what_was_refused_stays_refused_after_a_hook_that_leaves_the_state(world: Any) -> None:
    """The reply of client 1's first dispatch is lost; in the second its hook leaves the state."""
    seen: list[Any] = []

    async def local(exchange: str, client: Any, state: Any, message: Any) -> Any:
        if client.client == 1:
            seen.append(state)
        after = world.Diary((client.dispatch,), client.dispatch) if client.dispatch == 0 else None
        return after, world.word()

    world.play(world.Scripted(local=local), network=world.Wires(lost=[(1, -1, 0)]), rounds=4)
    assert seen == [world.Diary((), -1)] + [world.Diary((0,), -1)] * 3


# Optimisers that are kept

MOMENTUM = TrainingConfig(lr=0.1, momentum=0.9, keep_optimiser=True)
ADAM = TrainingConfig(lr=0.1, optimiser="adam", keep_optimiser=True)
"""One full batch a dispatch, so that Adam's count says how many dispatches its state has seen."""
PATIENT_S = 1e6


def threads(workers: int = 1) -> Any:
    return THREADS(ExecutorConfig(workers=workers))


def play_counted(world: Any, *, extra_s: Callable[[Any], float] | None = None, **changes: Any) -> Any:
    """Run; return the count of each finished dispatch by client and dispatch, the result and the trace."""
    steps: dict[tuple[int, int], float] = {}

    async def local(exchange: str, client: Any, state: Any, message: Any) -> Any:
        fitted = await client.fit(client.initial_model())
        if extra_s is not None and (flops := extra_s(client)):
            await client.call(world.nothing, flops=flops)
        steps[client.client, client.dispatch] = next(
            float(array) for name, array in fitted.states["model"].items() if name.startswith("steps/")
        )
        return None, world.word()

    settings = {"training": ADAM, "executor": threads(), "client_timeout_s": PATIENT_S, **changes}
    result, trace = world.play(world.Scripted(local=local, join=lambda client: None), **settings)
    return steps, result, trace


def test_an_optimiser_goes_on_when_its_client_is_asked_again(world: Any) -> None:
    steps, _, _ = play_counted(world, rounds=3)
    assert steps == {(client, dispatch): dispatch + 1 for client in range(3) for dispatch in range(3)}


@pytest.mark.parametrize("network", [{"lost": [(1, -1, 0)]}, {"broken": [(1, -1, 0)]}])
def test_it_goes_on_though_the_reply_was_lost(network: Any, world: Any) -> None:
    steps, result, _ = play_counted(world, network=world.Wires(**network), rounds=2)
    assert sum(result.drops.values()) == 1
    assert steps[1, 1] == 2


@pytest.mark.parametrize(("on_leave", "second"), [("lost", 1), ("resume", 2)])
def test_what_is_abandoned_keeps_the_old(on_leave: str, second: int, world: Any) -> None:
    """Its fit is over when client 0 leaves, but its answer has not left."""
    fleet = world.absent(world.make_parts(world.Scripted()).fleet, {0: [(2000, 2001)]})
    steps, _, trace = play_counted(
        world,
        fleet=fleet,
        network=NONE(Config()),
        extra_s=lambda client: 3000.0 if (client.client, client.dispatch) == (0, 0) else 0.0,
        on_leave=on_leave,
        rounds=2,
    )
    (fit_s,) = (r[0] / 1e9 for r in trace if r[1] == "job_end" and r[2:5] == (0, 0, "fit"))
    assert 0 < fit_s < 2000
    assert ((0, 0) in steps) is (on_leave == "resume")
    assert steps[0, 1] == second
    assert steps[1, 1] == 2


def test_a_state_that_a_hook_leaves_as_it_was_stays(world: Any) -> None:
    """FedAvg's hook returns None even where it is FedAvg-FT's, whose clients have a state."""
    seen: list[Any] = []

    async def local(exchange: str, client: Any, state: Any, message: Any) -> Any:
        seen.append(state)
        await client.fit(client.initial_model())
        after = world.Diary((client.dispatch,), client.dispatch) if client.dispatch == 1 else None
        return after, world.word()

    changes = {"training": MOMENTUM, "executor": threads(), "client_timeout_s": PATIENT_S}
    world.play(world.Scripted(local=local), sizes=(1,), rounds=4, **changes)
    assert seen == [world.Diary((), -1)] * 2 + [world.Diary((1,), 1)] * 2


def hashes(world: Any, executor: Any, training: TrainingConfig) -> tuple[str, str]:
    changes = {"training": training, "executor": executor, "client_timeout_s": PATIENT_S}
    result, _ = world.play(FEDAVG(FEDAVG.Config()), sizes=(5, 3, 4), rounds=3, **changes)
    assert not result.drops
    return result.model_hash, result.trace_hash


def test_it_makes_a_difference_and_none_to_time_or_traffic(world: Any) -> None:
    off = hashes(world, threads(), MOMENTUM.model_copy(update={"keep_optimiser": False}))
    on = hashes(world, threads(), MOMENTUM)
    assert on[0] != off[0]
    assert {hashes(world, threads(workers), MOMENTUM) for workers in (1, 2, 4)} == {on}
    idle = [
        hashes(world, NULL(ExecutorConfig()), MOMENTUM.model_copy(update={"keep_optimiser": keep}))
        for keep in (False, True)
    ]
    assert idle[0] == idle[1]  # the same frames and durations


def test_the_observer_s_optimisers_begin_anew_and_leave_nothing(world: Any) -> None:
    """Its fits have the name of the clients' own, and are made twice for each measurement."""
    measured: dict[int, list[Any]] = {}

    class Tuning(FEDAVG):
        async def models_of(self, observer: Any, server_state: Any, client_state: Any) -> Any:
            fitted = [await observer.fit(observer.initial_model()) for _ in range(2)]
            for one in fitted:
                one.model.compute()
            measured.setdefault(observer.round, []).extend(fitted)
            return {"global": Predictor(server_state)}

    def final(algorithm: Any) -> str:
        changes = {"training": MOMENTUM, "executor": threads(), "client_timeout_s": PATIENT_S}
        result, _ = world.play(algorithm, sizes=(4,), rounds=2, **changes)
        assert not result.drops
        return str(result.model_hash)

    assert final(Tuning(FEDAVG.Config())) == final(FEDAVG(FEDAVG.Config()))
    assert sorted(measured) == [1, 2]
    for fits in measured.values():
        assert len({fitted.model.digest() for fitted in fits}) == 1
        assert all(fitted.states == {} for fitted in fits)
