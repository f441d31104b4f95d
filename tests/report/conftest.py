"""A tiny run, made by hand: four clients, a linear model on the digits, two rounds of FedAvg."""

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from fedsim import plugins
from fedsim.clock import Trace
from fedsim.data import LoadContext, Spreading, federate
from fedsim.engine.training_config import TrainingConfig
from fedsim.fleet import GroupConfig, ServerConfig, build_fleet
from fedsim.models import Architecture
from fedsim.report.keep_checkpoints import CheckpointKeeper
from fedsim.rng import Key
from fedsim.runtime.parts import Parts
from fedsim.runtime.records.dispatch_table import DispatchTable
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
    return Plan("tiny", "fedavg", '[run]\nname = "tiny"\n', make_parts())


@pytest.fixture
def tiny(tiny_scenario: str) -> dict[str, Any]:
    """Return the tables of the tiny scenario."""
    return tomllib.loads(tiny_scenario)


@pytest.fixture
def each_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a checkpoint be written after each round."""
    monkeypatch.setattr(CheckpointKeeper, "_is_due", lambda *_: True)


def replayed(events: Sequence[tuple[Any, ...]], end_s: float) -> DispatchTable:
    """Return the dispatches of events: instants, s, with kinds and values of records."""
    dispatches = DispatchTable(Trace())
    for at_s, kind, *values in events:
        dispatches._handlers[kind](at_s * 10**9, *values)
    dispatches.finish(int(end_s * 10**9))
    return dispatches


def summary(algorithm: str, seed: int = 0, **changes: Any) -> dict[str, Any]:
    """Return the summary of a run; changes of its tables replace single values."""
    accuracies = {"personal_mean": 0.9, "personal_std": 0.1, "personal_worst_decile": 0.5, "best": 0.95}
    phases = {"download_s": 1.0, "compute_s": 6.0, "upload_s": 1.0, "away_s": 0.0, "waiting_s": 30.0}
    sent = {"payload_up": 1000, "payload_down": 3000, "overhead_up": 40, "overhead_down": 60, "wasted": 400}
    part = {"asked": 9, "merged": 6, "dropped": 2, "rejected": 1, "late": 1, "clients_asked": 4}
    tables = {
        "accuracy": {"global": None, **accuracies},
        "loss": {"personal_mean": 0.3, "personal_std": 0.02, "global": None, "best": 0.25},
        "time": {**phases, "wasted_s": 2.0},
        "bytes": sent,
        "participation": part,
        "staleness": {"mean": 0.0, "p99": 0, "max": 0},
        "concurrency": {"mean": 2.5, "max": 4},
        "ineligible": {"count": 2, "clients": [1, 3], "reason": "memory"},
    }
    identity = {"fedsim": "1", "scenario": "s", "algorithm": algorithm, "seed": seed}
    counts = {"rounds": 3, "clients": 5, "merges": 3, "merges_per_hour": 108.0, "drops_by_cause": {}}
    traffic = {"bytes_up": 1000, "bytes_down": 3000, "frames_up": 1, "frames_down": 1}
    traffic |= {"parameters_up": 10, "parameters_down": 20}
    return {
        **identity,
        **counts,
        **traffic,
        **dict.fromkeys(("data_up", "data_down", "drops", "rejected"), 0),
        "simulated_s": 100.0,
        "wall_s": 1.0,
        **{name: table | changes.pop(name, {}) for name, table in tables.items()},
        **changes,
    }
