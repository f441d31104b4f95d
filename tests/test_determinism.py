"""A run repeats itself to the last bit: with any number of workers, again, and in another process."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from fedsim.runtime.run import RunResult, run
from fedsim.scenario import build, load_scenario

ALGORITHMS = ("fedavg", "fedmd")
POLICIES = "fedavg with policies"
GROUPS = ({"count": 4, "device": "high"}, {"count": 4, "device": "low", "up": "100 kbit/s"})
SCENARIO: dict[str, Any] = {
    "run": {"name": "determinism", "rounds": 4},
    "data": {
        "limit": 500,
        "partition": {"name": "dirichlet_client", "params": {"alpha": 0.5}},
        "public": {"size": 40},
        "global_test": 0.1,
    },
    "models": {"mlp": {"params": {"hidden": [16]}}},
    "training": {"lr": 0.1, "batch_size": 16},
    "fleet": [*GROUPS],
    "network": {"model": "naive"},
    "participation": {"clients_per_round": 5},
}
TIMEOUTS = {"fedavg": "500 ms", "fedmd": "120 ms"}
COMING = {"name": "renewal", "params": {"on": "2 s", "off": "1 s"}}
WITH_POLICIES: dict[str, Any] = {
    "run.rounds": 12,
    "network.model": "fluid",
    "fleet": [{**group, "drop_out": "1 /s", "availability": COMING} for group in GROUPS],
    "participation.pacing.params": {"deadline": "250 ms", "late": "carry", "over_selection": 1.4},
}


def _run(algorithm: str, workers: int, seed: int = 0, *, policies: bool = False) -> RunResult:
    changes = {"participation.client_timeout": TIMEOUTS[algorithm], "engine.workers": workers}
    changes |= WITH_POLICIES if policies else {}
    return run(build(load_scenario(SCENARIO, changes, algorithm=algorithm, seed=seed)))


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
