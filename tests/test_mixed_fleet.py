"""Every method on three device classes, with drop-outs, a deadline, mixed nets and any number of workers."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from fedsim.errors import ScenarioError
from fedsim.plugins import available
from fedsim.runtime.parts import Parts
from fedsim.runtime.run import RunResult, run
from fedsim.scenario import build, load_scenario

PLUGINS = {found.name: found.plugin for found in available("fedsim.algorithms")}
MIXING = [name for name, plugin in PLUGINS.items() if getattr(plugin, "mixed_architectures", False)]

HIDDEN = {"a": [8], "b": [16], "c": [16, 16], "d": [32]}
HEAD = {"width": 12, "hidden": [8]}
SCENARIO: dict[str, Any] = {
    "run": {"name": "mixed", "rounds": 3},
    "data": {
        "name": "digits",
        "limit": 500,
        "public": {"size": 60},
        "partition": {"name": "dirichlet_class", "params": {"alpha": 0.5, "min_size": 4}},
    },
    "models": {
        label: {"name": "mlp", "params": {"hidden": hidden, "representation": HEAD}}
        for label, hidden in HIDDEN.items()
    },
    "training": {"lr": 0.1, "batch_size": 16},
    "participation": {
        "clients_per_round": 8,
        "client_timeout": "2 min",
        "pacing": {"name": "synchronous", "params": {"deadline": "70 ms", "interval": "1 s"}},
    },
}
QUICK = {
    "server_steps": 10,
    "server_epochs": 2,
    "distill_epochs": 1,
    "finetune_epochs": 1,
    "lambdas": [0.0, 0.5],
    "temperatures": [5.0],
}
"""Settings of those that have them, which mean the same with less."""
SHARED_LAYERS = {
    "fedgkt": {"cut": -1},  # features of one width come from the adapter
    "fedper": {"personal_layers": 4},  # a base without parameters is all that the four have in common
}


def _loaded(algorithm: str, workers: int = 1, *, mixed: bool | None = None) -> Parts:
    mixed = algorithm in MIXING if mixed is None else mixed
    group = {"count": 4, "drop_out": "3000 /h", "variation": 0.5}
    group |= {"models": dict.fromkeys(HIDDEN, 1)} if mixed else {"model": "b"}
    fields = PLUGINS[algorithm].Config.model_fields
    params = {name: value for name, value in QUICK.items() if name in fields and algorithm != "centralized"}
    params |= SHARED_LAYERS.get(algorithm, {})
    tables = SCENARIO | {
        "fleet": [{**group, "device": device} for device in ("low", "mid", "high")],
        "server": {"model": "d"} if mixed else {},
        "engine": {"workers": workers},
        "algorithm": {"name": algorithm, "params": params},
    }
    return build(load_scenario(tables))


def _result(algorithm: str, workers: int, verify: bool) -> RunResult:
    return run(replace(_loaded(algorithm, workers), verify=verify))


@cache
def _reference(algorithm: str) -> RunResult:
    return _result(algorithm, 1, True)


QUICKLY = {"ktpfl", "scaffold"}
"""Some of each kind; the others are slow tests."""


@pytest.mark.parametrize(
    "algorithm",
    [
        pytest.param(name, marks=[] if name in QUICKLY else pytest.mark.slow)
        for name in PLUGINS
        if name not in ("centralized", "local")  # nobody is waited for
    ],
)
def test_a_mixed_fleet_runs(algorithm: str) -> None:
    result = _reference(algorithm)
    # Who is late is counted when it is heard of: mostly in the row of the round after.
    rows = [row for row in result.rounds if row.round in (1, 2, 3)]
    late, dropped = sum(row.late for row in rows), sum(row.dropped for row in rows[:2])
    assert all(row.merged for row in rows)
    assert late > 0, "the deadline cuts somebody off"
    assert dropped > late, "of who has dropped out nothing comes, late or not"
    assert result.final is not None
    assert result.final.mean is not None


@pytest.mark.parametrize("algorithm", sorted(PLUGINS.keys() - set(MIXING)))
def test_who_cannot_mix_architectures_says_so(algorithm: str) -> None:
    with pytest.raises(ScenarioError, match=f"{algorithm} needs the same model everywhere"):
        _loaded(algorithm, mixed=True)


@pytest.mark.parametrize(
    ("algorithm", "workers"),
    [
        pytest.param(name, workers, marks=[] if workers == 4 and name in QUICKLY else pytest.mark.slow)
        for name in PLUGINS
        for workers in (2, 4)
    ],
)
def test_workers_make_no_difference(algorithm: str, workers: int) -> None:
    reference = _reference(algorithm)
    result = _result(algorithm, workers, False)
    assert (result.trace_hash, result.model_hash) == (reference.trace_hash, reference.model_hash)
