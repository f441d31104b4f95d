"""Training without tasks: the same events, numbers and errors as with the hook."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from fedsim.algorithms.fedavg import PLUGIN as FEDAVG
from fedsim.algorithms.fedavg_ft import PLUGIN as FEDAVG_FT
from fedsim.algorithms.fedprox import PLUGIN as FEDPROX
from fedsim.algorithms.local import PLUGIN as LOCAL
from fedsim.clock import Trace
from fedsim.config import Config
from fedsim.engine.executors.base import ExecutorConfig
from fedsim.engine.executors.threads import PLUGIN as THREADS
from fedsim.engine.training_config import TrainingConfig
from fedsim.errors import JobError
from fedsim.fleet import Availability, Fleet
from fedsim.fleet.load import ExponentialLoad
from fedsim.network.naive import PLUGIN as NAIVE
from fedsim.params import Array
from fedsim.runtime.clients import plain_training
from fedsim.runtime.policies.pacing.asynchronous import Buffered
from fedsim.runtime.policies.pacing.synchronous import PLUGIN as SYNCHRONOUS
from fedsim.runtime.policies.workloads.epochs import VariableEpochs
from fedsim.runtime.run import run

SIZES = (2, 5, 1, 3, 4)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The clients that were served without a task."""
    clients: list[int] = []
    start = plain_training.PlainTraining.start

    def noting(self: Any, client: int, waiting: Any, over: Any) -> Any:
        clients.append(client)
        return start(self, client, waiting, over)

    monkeypatch.setattr(plain_training.PlainTraining, "start", noting)
    return clients


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


def away_fleet(world: Any) -> Any:
    fleet = world.make_parts(FEDAVG(FEDAVG.Config()), SIZES).fleet
    return Fleet(fleet.groups, fleet.server, fleet.server_model, Coming(len(SIZES)))


def both_ways(world: Any, algorithm: Callable[[], Any], **changes: Any) -> list[Any]:
    """Return hashes and records of a run without tasks, and of one with them."""
    ways = []
    for way in (plain_training.plain_training, lambda *_: None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("fedsim.runtime.run.plain_training", way)
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
def test_every_event_has_its_place(pacing: str, patience_s: float, world: Any, served: list[int]) -> None:
    changes = {"rounds": 4, "client_timeout_s": patience_s, **PACINGS[pacing]()}
    quick, long = both_ways(world, fedavg, **changes)
    assert quick == long
    assert served


@pytest.mark.parametrize("on_leave", ["lost", "resume", "restart"])
def test_clients_may_go_away(on_leave: str, world: Any, served: list[int]) -> None:
    changes = {"rounds": 4, "client_timeout_s": 1e4, "on_leave": on_leave}
    changes |= {"fleet": away_fleet(world), "network": NAIVE(Config())}
    quick, long = both_ways(world, fedavg, **changes)
    assert quick == long
    assert served
    kinds = {record[1] for record in quick[2]}
    assert kinds >= ({"abandon"} if on_leave == "lost" else {"leave", "return"})


def test_devices_may_vary(world: Any, served: list[int]) -> None:
    fleet = world.make_parts(FEDAVG(FEDAVG.Config()), SIZES).fleet
    (group,) = fleet.groups
    columns = {**group.columns, "variation": 0.3}
    varying = replace(group, columns=columns, loads=(ExponentialLoad(),))
    changes = {"rounds": 2, "client_timeout_s": 1e6}

    def ways(its: Fleet) -> list[Any]:
        return both_ways(world, fedavg, fleet=its, **changes)

    (quick, long), (steady, _) = ways(Fleet([varying], fleet.server, fleet.server_model)), ways(fleet)
    assert quick == long != steady
    assert served


def test_a_frame_may_be_lost(world: Any, served: list[int]) -> None:
    network = world.Wires(lost=[(1, -1, 0), (-1, 2, 1)], broken=[(3, -1, 1)])
    changes = {"rounds": 3, "client_timeout_s": 1e4, "network": network}
    quick, long = both_ways(world, fedavg, **changes)
    assert quick == long
    assert served


def test_what_plain_training_does_not_serve_goes_on_behind_it(world: Any, served: list[int]) -> None:
    """FedAvg-FT asks all at the end, also one that is still at work on a dispatch that was given up."""
    changes = {"rounds": 2, "client_timeout_s": 2500.0}
    quick, long = both_ways(world, lambda: FEDAVG_FT(FEDAVG_FT.Config()), **changes)
    assert quick == long


def test_a_step_may_be_the_algorithms_own(world: Any, served: list[int]) -> None:
    schedule = {"schedule": {"name": "cosine", "by": "step"}, "batch_size": 2}
    changes = {"training": TrainingConfig.model_validate(schedule), "client_timeout_s": 1e5}
    quick, long = both_ways(world, partial(FEDPROX, FEDPROX.Config(mu=1.0)), **changes)
    plain, _ = both_ways(world, fedavg, **changes)
    assert quick == long
    assert quick[1] != plain[1]
    assert served


@pytest.mark.parametrize(
    ("algorithm", "changes"),
    [
        (partial(FEDPROX, FEDPROX.Config(gamma=0.5)), {}),
        (partial(LOCAL, LOCAL.Config()), {}),
        (fedavg, {"verify": True}),
        (
            partial(FEDAVG, FEDAVG.Config()),
            {"workload": VariableEpochs(VariableEpochs.Config()), "training": TrainingConfig(epochs=2)},
        ),
        (fedavg, {"training": TrainingConfig(momentum=0.5, keep_optimiser=True)}),
    ],
)
def test_what_is_more_than_that_runs_the_hook(
    algorithm: Any, changes: dict[str, Any], world: Any, served: list[int]
) -> None:
    parts = world.make_parts(algorithm(), client_timeout_s=1e5, **{"verify": False, **changes})
    run(parts, trace=Trace(keep=parts.verify))
    assert not served


def test_an_error_ends_the_run_as_that_of_a_hook_does(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise JobError("cannot be counted")

    monkeypatch.setattr(plain_training, "duration_s", fail)
    with pytest.raises(JobError, match="cannot be counted"):
        world.play(FEDAVG(FEDAVG.Config()), verify=False)


def test_a_failing_fit_names_its_client_and_round(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise ValueError("out of ideas")

    monkeypatch.setattr("fedsim.engine.executors.threads.Threads.wait", broken)
    changes = {"verify": False, "executor": executor(), "client_timeout_s": 1e5}
    with pytest.raises(JobError, match=r"at client \d in round 1: ValueError: out of ideas"):
        world.play(FEDAVG(FEDAVG.Config()), **changes)
