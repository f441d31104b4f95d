"""A run repeats itself to the last bit: with any number of workers, again, and in another process.

The fleet is unequal and the leases are short, so that clients answer late and are asked again. Under
``POLICIES`` links are shared, rounds have deadlines, and clients leave and drop out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from fedsim.data import LoadContext, Spreading, federate
from fedsim.engine.executors.base import ExecutorConfig
from fedsim.engine.training_config import TrainingConfig
from fedsim.fleet import GroupConfig, ServerConfig, build_fleet
from fedsim.models import Architecture
from fedsim.plugins import load
from fedsim.rng import Key
from fedsim.runtime.parts import Parts
from fedsim.runtime.run import RunResult, run

ALGORITHMS = ("fedavg", "fedmd")
CLIENTS = 8
TIMEOUT_S = {"fedavg": 0.5, "fedmd": 0.12}
POLICIES = "fedavg with policies"


def _made(folder: str, name: str, **settings: Any) -> Any:
    plugin = load(folder, name)
    return plugin(plugin.Config.model_validate(settings))


def _run(algorithm: str, workers: int, seed: int = 0, *, policies: bool = False) -> RunResult:
    key = Key.root(3)
    data = federate(
        _made("fedsim.data", "digits").load(LoadContext(None, CLIENTS, key)),
        _made("fedsim.data.partitions", "dirichlet_class", alpha=0.5),
        Spreading(
            num_clients=CLIENTS, shares=(0.7, 0.1, 0.2), public_size=40, global_test_share=0.1, limit=500
        ),
        key,
    )
    common = {"count": 4, "model": "mlp", "drop_out": "1 /s" if policies else "0 /s"}
    groups = [
        GroupConfig.model_validate({"device": "high", **common}),
        GroupConfig.model_validate({"device": "low", "up": "100 kbit/s", **common}),
    ]
    coming = _made("fedsim.fleet.availability", "renewal", on="2 s", off="1 s") if policies else None
    late = {"deadline": "250 ms", "late": "carry", "over_selection": 1.4} if policies else {}
    return run(
        Parts(
            algorithm=_made("fedsim.algorithms", algorithm),
            data=data,
            fleet=build_fleet(
                groups,
                ServerConfig(),
                Key.root(seed),
                default_model="mlp",
                availability=[coming] * 2 if coming else None,
            ),
            architectures={
                "mlp": Architecture("mlp", _made("fedsim.models", "mlp", hidden=(16,)), data.task)
            },
            network=_made("fedsim.network", "fluid" if policies else "naive"),
            executor=load("fedsim.engine.executors", "threads")(ExecutorConfig(workers=workers)),  # type: ignore[arg-type]
            selector=_made("fedsim.runtime.policies.selectors", "uniform"),
            pacing=_made("fedsim.runtime.policies.pacing", "synchronous", **late),
            training=TrainingConfig(lr=0.1, batch_size=16),
            rounds=12 if policies else 4,
            seed=seed,
            clients_per_round=5,
            client_timeout_s=TIMEOUT_S[algorithm],
        )
    )


def _fingerprint(result: RunResult) -> list[Any]:
    accuracy = result.final.mean if result.final else None
    return [result.trace_hash, result.model_hash, result.simulated_s, accuracy]


@pytest.fixture(scope="module")
def first() -> dict[str, RunResult]:
    return {algorithm: _run(algorithm, workers=1) for algorithm in ALGORITHMS}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_scenario_is_eventful(algorithm: str, first: dict[str, RunResult]) -> None:
    result = first[algorithm]
    merged = sum(row.merged for row in result.rounds)
    assert result.drops["timeout"] >= 2
    assert sum(row.late for row in result.rounds) >= 1
    assert merged >= 5
    assert result.final is not None


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_neither_repetition_nor_workers_change_a_bit(
    algorithm: str, workers: int, first: dict[str, RunResult]
) -> None:
    assert _fingerprint(_run(algorithm, workers)) == _fingerprint(first[algorithm])


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_seed_changes_everything(algorithm: str, first: dict[str, RunResult]) -> None:
    other, one = _run(algorithm, workers=1, seed=1), first[algorithm]
    assert other.trace_hash != one.trace_hash
    assert other.model_hash != one.model_hash


@pytest.mark.slow
@pytest.mark.parametrize(("hash_seed", "num_threads"), [("0", "1"), ("1", "2")])
def test_a_process_with_another_hash_seed_and_more_threads_changes_nothing(
    hash_seed: str, num_threads: str, first: dict[str, RunResult]
) -> None:
    other = subprocess.run(  # noqa: S603
        [sys.executable, __file__],
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "OMP_NUM_THREADS": num_threads},
        capture_output=True,
        text=True,
        check=True,
    )
    results = first | {POLICIES: _run("fedavg", workers=1, policies=True)}
    assert {"dropped out", "timeout"} <= results[POLICIES].drops.keys()
    expected = {name: _fingerprint(result) for name, result in results.items()}
    assert json.loads(other.stdout) == expected


if __name__ == "__main__":
    made = {name: _run(name, workers=2) for name in ALGORITHMS}
    made[POLICIES] = _run("fedavg", workers=2, policies=True)
    json.dump({name: _fingerprint(result) for name, result in made.items()}, sys.stdout)
