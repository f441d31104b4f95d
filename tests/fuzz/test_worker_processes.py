"""Processes that examine scenarios, and end in the middle or take too long."""

import os
from pathlib import Path

import pytest

from fedsim.fuzz import worker_processes
from fedsim.fuzz.random_scenarios import RandomScenario, random_scenario
from fedsim.fuzz.worker_processes import WorkerProcesses

DEADLY = """
import os
from fedsim.algorithms.fedavg import FedAvg

class Deadly(FedAvg):
    "FedAvg that ends its process."

    def start(self, server):
        os._exit(7)

PLUGIN = Deadly
"""

pytestmark = pytest.mark.slow


def test_verdicts_come_for_all_and_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_processes, "IN_MEMORY", tmp_path)
    scenarios = [random_scenario(seed) for seed in range(3)]
    with WorkerProcesses(2) as processes:
        verdicts = {scenario.name: verdict for scenario, verdict in processes.verdicts(scenarios)}
    assert {name: verdict.end for name, verdict in verdicts.items()} == dict.fromkeys(
        ("seed-0", "seed-1", "seed-2"), "finished"
    )
    assert not list(tmp_path.iterdir())


def test_a_process_that_ends_is_a_failure_and_another_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deadlylab").mkdir()
    (tmp_path / "deadlylab/deadly.py").write_text(DEADLY)
    monkeypatch.syspath_prepend(tmp_path)
    deadly = RandomScenario(
        {
            "run": {"rounds": 1},
            "algorithm": {"name": "deadlylab.deadly"},
            "models": {"linear": {}},
            "fleet": [{"count": 2}],
        }
    )
    with WorkerProcesses(1) as processes:
        ((_, first), (_, second)) = processes.verdicts([deadly, random_scenario(1)])
    assert first.faults == ("its process ended with status 7",)
    assert second.end == "finished"


def test_a_scenario_that_takes_too_long_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_processes, "MAX_S", 0.0)
    with WorkerProcesses(1) as processes:
        ((_, verdict),) = processes.verdicts([random_scenario(0)])
    assert verdict.faults == ("the runs took more than 0 s of real time",)
    assert os.getpid()  # and this process goes on
