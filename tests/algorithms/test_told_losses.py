"""Losses that clients tell under every algorithm: a question, or a report, changes nothing else."""

from typing import Any

import numpy as np
import pytest

from fedsim.config import Config
from fedsim.params import Array
from fedsim.plugins import available
from fedsim.rng import Key
from fedsim.runtime import told_losses
from fedsim.runtime.policies.selectors.base import Candidates
from fedsim.runtime.policies.selectors.power_of_choice import PLUGIN as POWER_OF_CHOICE
from fedsim.runtime.policies.selectors.power_of_choice import PowerOfChoice
from fedsim.runtime.policies.selectors.random_draws import Uniform

NAMES = [found.name for found in available("fedsim.algorithms")]
WITHOUT = {"centralized": "concerns a cohort", "local": "concerns a cohort"}


class Noting(PowerOfChoice):
    """Notes the losses that it chooses by."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.seen: list[Array] = []

    def select(self, candidates: Candidates, count: int, key: Key) -> Array:
        self.seen.append(candidates.known("losses"))
        return super().select(candidates, count, key)


def noting(losses: str) -> Noting:
    return Noting(POWER_OF_CHOICE.Config.model_validate({"losses": losses}))


@pytest.mark.parametrize("name", WITHOUT)
def test_some_have_no_loss_to_tell(name: str, world: Any) -> None:
    algorithm = world.quick(name)
    (fault,) = told_losses.faults(algorithm, noting("asked"))
    assert WITHOUT[name] in fault.problem


@pytest.mark.parametrize("losses", ["asked", "last"])
@pytest.mark.parametrize(
    "name",
    [
        name if name in ("fedavg", "fedmd", "scaffold") else pytest.param(name, marks=pytest.mark.slow)
        for name in NAMES
        if name not in WITHOUT
    ],
)
def test_where_all_are_chosen_the_models_are_those_of_any_selector(
    name: str, losses: str, world: Any
) -> None:
    algorithm, selector = world.quick(name), noting(losses)
    usual = world.run(world.quick(name), rounds=2)
    told = world.run(algorithm, rounds=2, selector=selector)
    assert told.model_hash == usual.model_hash
    assert told.totals.bytes_up > usual.totals.bytes_up
    assert not told.rejections
    known = selector.seen[-1]
    assert len(known) == 4
    assert ((known > 0) & np.isfinite(known)).all()


@pytest.mark.parametrize(
    "params",
    [
        {"losses": "asked", "samples": 3},
        pytest.param({"losses": "last", "candidates": 3}, marks=pytest.mark.slow),
    ],
)
def test_who_is_chosen_depends_neither_on_workers_nor_on_the_bus(params: Any, world: Any) -> None:
    selector = POWER_OF_CHOICE(POWER_OF_CHOICE.Config.model_validate(params))
    made = {"selector": selector, "num_clients": 6, "clients_per_round": 2, "rounds": 4}
    first, *others = [world.run(world.algorithm("fedavg"), workers=workers, **made) for workers in (1, 2, 4)]
    assert {other.trace_hash for other in others} == {first.trace_hash}
    assert {other.model_hash for other in others} == {first.model_hash}
    everywhere = world.check_every_way(lambda: world.algorithm("fedavg"), **made)
    assert everywhere.model_hash == first.model_hash
    usual = world.run(world.algorithm("fedavg"), **{**made, "selector": Uniform(Config())})
    assert first.model_hash != usual.model_hash


def test_a_regression_tells_its_squared_error(world: Any) -> None:
    changes = world.regression(([[1.0], [1.0]], [1.0, 3.0]), ([[1.0], [2.0]], [0.0, 4.0]))
    selector = noting("asked")
    world.run(world.algorithm("fedavg"), selector=selector, rounds=1, **changes)
    start = world.run(world.algorithm("fedavg"), rounds=1, training={"epochs": 0}, **changes)
    model = start.models[0]["global"]
    errors = [_error(model, x, y) for x, y in (([1.0, 1.0], [1.0, 3.0]), ([1.0, 2.0], [0.0, 4.0]))]
    assert selector.seen[0] == pytest.approx(errors, rel=1e-6)


def _error(model: Any, x: list[float], y: list[float]) -> float:
    weight, bias = (np.asarray(array, np.float64).ravel() for array in model.params.values())
    return float(np.square(np.array(x) * weight + bias - np.array(y)).mean())
