"""Under a workload clients do less, in every algorithm in which they train as they are told."""

from typing import Any

import pytest

from fedsim.config import Config
from fedsim.engine.executors.base import ExecutorConfig
from fedsim.engine.executors.null import PLUGIN as NULL
from fedsim.engine.training_config import TrainingConfig
from fedsim.errors import UserError
from fedsim.fleet import Fleet, GroupConfig, ServerConfig, build_fleet
from fedsim.plugins import available
from fedsim.rng import Key
from fedsim.runtime.policies.workloads.base import Work, Workload
from fedsim.runtime.policies.workloads.deadline_fitted import PLUGIN as FITTED
from fedsim.runtime.policies.workloads.epochs import VariableEpochs

NOT_TOLD = ("centralized", "l2sgd")
"""Algorithms whose clients do not train as they are told."""
SOON = ("fedavg", "fedmd", "ktpfl", "mapper", "scaffold")
"""Some of each kind; what is asked of all plugins is a slow test for the others."""
NAMES = [found.name for found in available("fedsim.algorithms")]


def fleet(variation: float = 0.0, **more: Any) -> Fleet:
    groups = [
        GroupConfig.model_validate(
            {"count": 2, "device": device, "speed": speed, "variation": variation, **more}
        )
        for device, speed in (("low", "30 kFLOP/s"), ("high", "300 kFLOP/s"))
    ]
    return build_fleet(groups, ServerConfig(), Key.root(3), default_model="mlp")


class Foretold(Workload[Config]):
    """Lets every dispatch have so many steps, and notes what was predicted of it."""

    steps: int
    foretold: list[float]

    async def training(self, work: Work) -> TrainingConfig:
        training = work.training.model_copy(update={"epochs": None, "steps": self.steps})
        self.foretold.append(await work.reply_after_s(training))
        return training


def foretelling(steps: int) -> Foretold:
    workload = Foretold(Config())
    workload.steps, workload.foretold = steps, []
    return workload


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in SOON else pytest.mark.slow)
        for name in NAMES
        if name not in NOT_TOLD
    ],
)
def test_what_is_predicted_of_a_dispatch_is_what_it_takes(name: str, world: Any) -> None:
    # A naive network and devices without load, so nothing is left to chance.
    changes = {"fleet": fleet(), "executor": NULL(ExecutorConfig()), "rounds": 2, "num_clients": 4}
    spent_s = []
    for steps in (1, 4):
        workload = foretelling(steps)
        result = world.run(world.quick(name), workload=workload, **changes)
        table = result.dispatches.columns()
        took_s = table["ended_at_s"] - table["asked_at_s"]
        assert sorted(workload.foretold) == pytest.approx(sorted(took_s), abs=1e-8)
        spent_s.append(took_s.sum())
    assert spent_s[0] < spent_s[1]


@pytest.mark.parametrize("name", NOT_TOLD)
def test_where_clients_do_not_train_as_they_are_told_a_workload_is_refused(name: str, world: Any) -> None:
    with pytest.raises(UserError, match=f"participation.workload: .* decides how long .* in '{name}'"):
        world.run(world.algorithm(name), workload=foretelling(1))


def test_passes_that_grow_are_refused_beside_it(world: Any) -> None:
    with pytest.raises(
        UserError, match=r"algorithm.params.ramp_epochs: it decides .* write workload = 'fixed'"
    ):
        world.run(world.algorithm("ktpfl", ramp_epochs=True), workload=foretelling(1))


def fitted(deadline_s: float) -> Workload[Any]:
    return FITTED(FITTED.Config.model_construct(deadline=deadline_s, min_steps=1))


WORKLOADS = {"fitted": fitted(9.0), "variable": VariableEpochs(VariableEpochs.Config(share=0.9))}
LOAD = {"distribution": "half_normal"}


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize(
    "name", ["fedavg", *(pytest.param(one, marks=pytest.mark.slow) for one in ("scaffold", "ktpfl"))]
)
def test_unequal_work_has_the_same_bits_in_memory_and_over_sockets_batched_and_one_by_one(
    name: str, workload: str, world: Any
) -> None:
    changes = {"workload": WORKLOADS[workload], "training": {"epochs": 4}, "rounds": 2}
    result = world.check_every_way(lambda: world.algorithm(name), fleet=fleet(), **changes)
    usual = world.run(world.algorithm(name), fleet=fleet(), training={"epochs": 4}, rounds=2)
    assert result.model_hash != usual.model_hash
    # Less work alone: no byte more.
    assert result.totals == usual.totals


@pytest.mark.parametrize("workload", WORKLOADS)
def test_neither_workers_nor_batches_change_a_bit_of_unequal_work_under_load(
    workload: str, world: Any
) -> None:
    def hashes(workers: int, batching: str) -> tuple[str, str]:
        result = world.run(
            world.algorithm("fedavg"),
            fleet=fleet(variation=0.3, load=LOAD),
            workload=WORKLOADS[workload],
            training={"epochs": 4},
            workers=workers,
            batching=batching,
        )
        return result.trace_hash, result.model_hash

    first = hashes(1, "auto")
    assert [hashes(2, "auto"), hashes(4, "auto"), hashes(2, "off")] == [first] * 3
