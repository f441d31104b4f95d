"""A tiny run, made by hand: four clients, a linear model on the digits, two rounds of FedAvg."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fedsim import plugins
from fedsim.data import LoadContext, Spreading, federate
from fedsim.engine.training_config import TrainingConfig
from fedsim.fleet import GroupConfig, ServerConfig, build_fleet
from fedsim.models import Architecture
from fedsim.rng import Key
from fedsim.runtime.parts import Parts
from fedsim.scenario import Plan


def _plugin(package: str, name: str, **settings: Any) -> Any:
    plugin = plugins.load(package, name)
    return plugin(plugin.Config(**settings))


@pytest.fixture
def make_parts() -> Callable[..., Parts]:
    """Return a function that makes the parts of the tiny run; its arguments replace parts."""

    def make(algorithm: str = "fedavg", executor: str = "threads", **changes: Any) -> Parts:
        key = Key.root(0)
        dataset = _plugin("fedsim.data", "digits").load(LoadContext(root=None, num_clients=4, key=key))
        partition = _plugin("fedsim.data.partitions", "iid")
        data = federate(
            dataset,
            partition,
            Spreading(
                num_clients=4, shares=(0.6, 0.1, 0.3), public_size=20, global_test_share=0.1, limit=200
            ),
            key,
        )
        group = GroupConfig.model_validate({"count": 4, "device": "high", "model": "linear"})
        architecture = Architecture("linear", _plugin("fedsim.models", "linear"), data.task)
        parts = Parts(
            algorithm=_plugin("fedsim.algorithms", algorithm),
            data=data,
            fleet=build_fleet([group], ServerConfig(), key, default_model="linear"),
            architectures={"linear": architecture},
            network=_plugin("fedsim.network", "naive"),
            executor=_plugin("fedsim.engine.executors", executor),
            selector=_plugin("fedsim.runtime.policies.selectors", "uniform"),
            pacing=_plugin("fedsim.runtime.policies.pacing", "synchronous"),
            training=TrainingConfig(),
            rounds=2,
        )
        return replace(parts, **changes)

    return make


@pytest.fixture
def plan(make_parts: Callable[..., Parts]) -> Plan:
    """The tiny run with its identity."""
    return Plan("tiny", "fedavg", '[run]\nname = "tiny"\n', make_parts())
