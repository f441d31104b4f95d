"""A driver without tasks: the same events, numbers and errors as with a task for each client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from fedsim.algorithms.ditto import PLUGIN as DITTO
from fedsim.algorithms.fedavg import PLUGIN as FEDAVG
from fedsim.algorithms.fedavg_ft import PLUGIN as FEDAVG_FT
from fedsim.algorithms.fedprox import PLUGIN as FEDPROX
from fedsim.algorithms.local import PLUGIN as LOCAL
from fedsim.algorithms.scaffold import PLUGIN as SCAFFOLD
from fedsim.clock import Trace, now_s
from fedsim.config import Config
from fedsim.engine.executors.base import ExecutorConfig
from fedsim.engine.executors.threads import PLUGIN as THREADS
from fedsim.engine.training_config import TrainingConfig
from fedsim.errors import JobError
from fedsim.fleet import Availability, Fleet
from fedsim.fleet.load import ExponentialLoad
from fedsim.network.naive import PLUGIN as NAIVE
from fedsim.params import Array
from fedsim.runtime.clients.host import ClientHost, in_task
from fedsim.runtime.clients.virtual_driver import VirtualDriver
from fedsim.runtime.policies.pacing.asynchronous import Buffered
from fedsim.runtime.policies.pacing.synchronous import PLUGIN as SYNCHRONOUS
from fedsim.runtime.policies.workloads.epochs import VariableEpochs
from fedsim.runtime.run import run

SIZES = (2, 5, 1, 3, 4)


def fedavg() -> Any:
    return FEDAVG(FEDAVG.Config())


def executor() -> Any:
    return THREADS(ExecutorConfig())


def synchronous(**params: Any) -> Any:
    return SYNCHRONOUS(SYNCHRONOUS.Config.model_validate(params))


class Coming(Availability):
    """Clients are there and away in turns, each of its own length."""

    period_s = 5

    def _states(self, clients: Array, tick: int) -> Array:
        there: Array = (tick // 1024 // (self.period_s * (clients + 1))) % 2 == 0
        return there

    def _look(self, client: int, tick: int) -> tuple[bool, int]:
        length = 1024 * self.period_s * (client + 1)
        return (tick // length) % 2 == 0, length * (tick // length + 1)


def away_fleet(world: Any, num_clients: int = len(SIZES)) -> Any:
    fleet = world.make_parts(FEDAVG(FEDAVG.Config()), SIZES[:num_clients]).fleet
    return Fleet(fleet.groups, fleet.server, fleet.server_model, Coming(num_clients))


def both_ways(world: Any, algorithm: Callable[[], Any], **changes: Any) -> list[Any]:
    """Return hashes and records of a run without tasks, and of one with them, both on the loop."""
    ways = []
    for serve in (VirtualDriver, in_task):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("fedsim.runtime.run.CohortDrivers", lambda *_: None)
            patch.setattr("fedsim.runtime.run.ClientHost", partial(ClientHost, serve=serve))
            trace = Trace(keep=True)
            parts = world.make_parts(algorithm(), SIZES, executor=executor(), verify=False, **changes)
            result = run(parts, trace=trace)
            ways.append((result.trace_hash, result.model_hash, trace.kept))
    return ways


PACINGS: dict[str, Callable[[], dict[str, Any]]] = {
    "rounds": dict,
    "over-selection": lambda: {"clients_per_round": 2, "pacing": synchronous(over_selection=2.0)},
    "deadline": lambda: {"pacing": synchronous(deadline="2000 s")},
    "carried": lambda: {"clients_per_round": 3, "pacing": synchronous(deadline="1500 s", late="carry")},
    "asynchronous": lambda: {
        "clients_per_round": 4,
        "pacing": Buffered(Buffered.Config(buffer=2, concurrency=4)),
    },
}


@pytest.mark.parametrize("pacing", PACINGS)
@pytest.mark.parametrize("patience_s", [2500.0, 1e5])
def test_every_event_has_its_place(pacing: str, patience_s: float, world: Any) -> None:
    changes = {"rounds": 4, "client_timeout_s": patience_s, **PACINGS[pacing]()}
    quick, long = both_ways(world, fedavg, **changes)
    assert quick == long


@pytest.mark.parametrize("on_leave", ["lost", "resume", "restart"])
def test_clients_may_go_away(on_leave: str, world: Any) -> None:
    changes = {"rounds": 4, "client_timeout_s": 1e4, "on_leave": on_leave}
    changes |= {"fleet": away_fleet(world), "network": NAIVE(Config())}
    quick, long = both_ways(world, fedavg, **changes)
    assert quick == long
    kinds = {record[1] for record in quick[2]}
    assert kinds >= ({"abandon"} if on_leave == "lost" else {"leave", "return"})


def test_devices_may_vary(world: Any) -> None:
    fleet = world.make_parts(FEDAVG(FEDAVG.Config()), SIZES).fleet
    (group,) = fleet.groups
    columns = {**group.columns, "variation": 0.3}
    varying = replace(group, columns=columns, loads=(ExponentialLoad(),))
    changes = {"rounds": 2, "client_timeout_s": 1e6}

    def ways(its: Fleet) -> list[Any]:
        return both_ways(world, fedavg, fleet=its, **changes)

    (quick, long), (steady, _) = ways(Fleet([varying], fleet.server, fleet.server_model)), ways(fleet)
    assert quick == long != steady


def test_a_frame_may_be_lost(world: Any) -> None:
    network = world.Wires(lost=[(1, -1, 0), (-1, 2, 1)], broken=[(3, -1, 1)])
    changes = {"rounds": 3, "client_timeout_s": 1e4, "network": network}
    quick, long = both_ways(world, fedavg, **changes)
    assert quick == long


def test_two_dispatches_may_wait_for_a_client(world: Any) -> None:
    """FedAvg-FT asks all at the end, also one that is still at work on a dispatch that was given up."""
    changes = {"rounds": 2, "client_timeout_s": 2500.0}
    quick, long = both_ways(world, lambda: FEDAVG_FT(FEDAVG_FT.Config()), **changes)
    assert quick == long


@pytest.mark.parametrize(
    ("algorithm", "changes"),
    [
        (partial(FEDPROX, FEDPROX.Config(gamma=0.5)), {}),
        (partial(LOCAL, LOCAL.Config()), {}),
        (fedavg, {"workload": VariableEpochs(VariableEpochs.Config()), "training": TrainingConfig(epochs=2)}),
        (fedavg, {"training": TrainingConfig(momentum=0.5, keep_optimiser=True)}),
        (partial(DITTO, DITTO.Config()), {}),
        (partial(SCAFFOLD, SCAFFOLD.Config()), {}),
    ],
)
def test_states_and_several_jobs(algorithm: Any, changes: dict[str, Any], world: Any) -> None:
    quick, long = both_ways(world, algorithm, client_timeout_s=1e5, **changes)
    assert quick == long


def test_a_hook_that_cannot_begin_ends_the_run(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise JobError("cannot be counted")

    monkeypatch.setattr("fedsim.engine.compute_context.duration_s", fail)
    with pytest.raises(JobError, match="cannot be counted"):
        world.play(FEDAVG(FEDAVG.Config()), verify=False)


@pytest.mark.parametrize("serve", [VirtualDriver, in_task])
def test_a_client_that_drops_out_is_told_where_it_waits(
    serve: Any, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hook is cancelled, its job ends, and the client begins anew with the next dispatch."""
    monkeypatch.setattr("fedsim.runtime.run.ClientHost", partial(ClientHost, serve=serve))
    told: list[Any] = []

    async def local(exchange: str, client: Any, state: Any, message: Any) -> Any:
        try:
            await client.call(int, flops=8.0)
        except asyncio.CancelledError:
            told.append((client.client, client.dispatch, now_s()))
            raise
        return None, world.word()

    algorithm = world.Scripted(local=local, join=lambda client: None)
    _, records = world.play(
        algorithm,
        sizes=(1, 1),
        fleet=away_fleet(world, 2),
        on_leave="lost",
        client_timeout_s=20.0,
        rounds=2,
        network=NAIVE(Config()),
    )
    ended = [(values[0], values[1]) for _, kind, *values in records if values[-1] == "cancelled"]
    assert [one[:2] for one in told] == ended != []
