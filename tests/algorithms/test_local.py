"""Local: the specification's sanity checks (5.A.1)."""

from dataclasses import replace
from typing import Any

from fedsim.bus import Totals
from fedsim.runtime.run import run


def test_nothing_travels(world: Any) -> None:
    result = world.run(world.algorithm("local"))
    assert result.totals == Totals()
    assert len(result.ledger) == 0
    assert result.simulated_s > 0


def test_result_does_not_depend_on_other_clients(world: Any) -> None:
    alone = world.parts(world.algorithm("local"), clients_per_round=1)

    class OnlyFirst(type(alone.selector)):  # type: ignore[misc]
        def select(self, candidates: Any, count: int, key: Any) -> Any:
            return candidates.clients[:1]

    local = world.algorithm("local", follow_selection=True)
    first = run(replace(alone, algorithm=local, selector=OnlyFirst(alone.selector.config)))
    everyone = world.run(world.algorithm("local"))
    assert first.final is not None
    assert first.final.personal[0] == everyone.final.personal[0]
    assert sum(row.asked for row in first.rounds) == 3


def test_follow_selection_trains_the_cohort_alone(world: Any) -> None:
    some = world.run(world.algorithm("local", follow_selection=True), clients_per_round=2)
    assert [row.asked for row in some.rounds] == [2, 2, 2]
    every = world.run(world.algorithm("local"), clients_per_round=2)
    assert [row.asked for row in every.rounds] == [4, 4, 4]


def test_architectures_may_be_mixed(world: Any) -> None:
    result = world.run(world.algorithm("local"), models=("mlp", "linear"))
    assert result.final is not None
