"""What an algorithm may declare and say, shown on FedAvg with exchanges beside its own."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from fedsim.algorithms.base import Exchange, Exchanges, mirrored, unmirrored
from fedsim.algorithms.contexts import ServerContext
from fedsim.algorithms.fedavg import FedAvg
from fedsim.params import Model
from fedsim.runtime.run import run
from fedsim.wire import ModelUpdate


def extended(exchange: Exchange) -> FedAvg[Any]:
    class Extended(FedAvg[Any]):
        @property
        def exchanges(self) -> Exchanges:
            return (*super().exchanges, exchange)

    return Extended(FedAvg.Config())


def test_both_sides_may_say_something_in_the_log(world: Any) -> None:
    class Talking(FedAvg[Any]):
        async def send(self, server: ServerContext, state: Any, cohort: Sequence[int]) -> Any:
            server.note("asked", num_clients=len(cohort))
            server.warn("careful", round=server.round)
            return await super().send(server, state, cohort)

    notes = world.notes()
    run(world.parts(Talking(FedAvg.Config()), rounds=2), log=notes)
    assert notes.of("asked") == [{"num_clients": 4}] * 2
    assert [values["round"] for values in notes.of("careful")] == [1, 2]


def test_unmirrored_returns_what_stands_without_a_merge() -> None:
    @dataclass(frozen=True)
    class State:
        model: Model
        asked: int
        times_merged: int = mirrored()

    model = Model("mlp", {})
    assert unmirrored(State(model, 1, 5), State(model, 2, 6)) == State(model, 2, 5)
    assert unmirrored(None, None) is None


def test_an_exchange_of_a_name_alone_asks_everyone_and_changes_nothing(world: Any) -> None:
    plain, silent = world.run(world.algorithm("fedavg")), world.run(extended(Exchange("silent")))
    assert [(row.asked, row.merged) for row in silent.rounds] == [(8, 8)] * 3
    assert (silent.totals, silent.model_hash) == (plain.totals, plain.model_hash)


@pytest.mark.parametrize(
    ("exchange", "fault"),
    [
        (Exchange("train"), "two of its exchanges are called 'train'"),
        (Exchange("silent", reply=ModelUpdate), "that no client makes"),
    ],
)
def test_exchanges_that_cannot_be_are_told(exchange: Exchange, fault: str, world: Any) -> None:
    assert [fault in str(one) for one in world.parts(extended(exchange)).misfits()] == [True]
