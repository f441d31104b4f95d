"""Whole runs on a real cluster of one node of this machine."""

import logging
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fedsim
from fedsim.engine.cluster.numeric_fingerprint import versions
from fedsim.errors import RunError, UserError
from fedsim.report.atomic_folder import MARK
from fedsim.scenario import load_scenario
from fedsim.studies import ray_runs
from fedsim.studies.comparison_plans import plan_of
from fedsim.studies.perform import perform
from fedsim.studies.ray_runs import RayWorker, ray_workers
from fedsim.studies.study_lock import locked

ray = pytest.importorskip("ray")
cluster_utils = pytest.importorskip("ray.cluster_utils")


def tables(**overrides: Any) -> Any:
    return load_scenario(
        {"run": {"rounds": 2}, "data": {"name": "digits", "limit": 100}, "fleet": [{"count": 3}]}, overrides
    )


def test_a_run_becomes_pieces_and_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_runs, "PIECE_BYTES", 4)
    (tmp_path / "a").write_bytes(b"123456789")
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "b").write_bytes(b"xy")
    assert list(ray_runs._pieces(tmp_path)) == [
        *({"name": "a", "piece": piece} for piece in (b"1234", b"5678", b"9")),
        {"name": "empty", "piece": b""},
        {"folder": "models"},
        {"name": "models/b", "piece": b"xy"},
    ]


def test_a_node_with_another_fedsim_or_other_instructions_is_refused() -> None:
    numbers = versions()
    greeting = {"host": "far", "fedsim": fedsim.__version__, "numbers": numbers}
    ray_runs._check(greeting)
    with pytest.raises(RunError, match="far runs fedsim 0, this is fedsim"):
        ray_runs._check({**greeting, "fedsim": "0"})
    with pytest.raises(
        RunError, match=r"far computes other numbers: torch \(.* here, 0 there\).*ATEN_CPU_CAPABILITY"
    ):
        ray_runs._check({**greeting, "numbers": {**numbers, "torch": "0"}})


def test_runs_that_spread_their_jobs_are_refused_before_a_cluster_is_joined(tmp_path: Path) -> None:
    plan = plan_of([tables(**{"engine.executor": "ray"})])
    with pytest.raises(UserError, match=r"write engine\.executor = 'threads'"):
        perform(plan, tmp_path, on="ray")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    logging.getLogger("ray").setLevel(logging.ERROR)
    node = {"num_cpus": 2, "object_store_memory": 100_000_000, "include_dashboard": False}
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")
        both = cluster_utils.Cluster(initialize_head=True, head_node_args=node)
        patch.setenv("RAY_ADDRESS", both.address)
        yield both
    both.shutdown()


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name not in ("run.json", MARK)}


@pytest.mark.slow
def test_folders_are_those_of_runs_here_and_what_fails_is_told(
    cluster: Any, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    scenarios = [tables(**{"algorithm.name": name}) for name in ("fedavg", "local")]
    wrong = tables(**{"data.root": "/nowhere", "data.name": "mnist", "run.seed": 7})
    plan, failing = (plan_of(some) for some in (scenarios, [wrong]))
    perform(plan, tmp_path / "there", on="ray")
    with pytest.raises(RunError, match=r"1 run of the comparison\n  fedavg-seed7: .*1 fault"):
        perform(failing, tmp_path / "failing", on="ray")
    request.getfixturevalue("in_process")
    perform(plan, tmp_path / "here")
    for run in plan.runs:
        assert files(tmp_path / "here" / run.label) == files(tmp_path / "there" / run.label)


@pytest.mark.slow
def test_a_run_that_is_lost_is_done_again(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run,) = plan_of([tables()]).runs
    task = {
        "force": False,
        "verify": False,
        "path": sys.path,
        "scenario": run.scenario_toml,
        "folder": str(tmp_path / run.label),
        "source": run.label,
        "trackers": [],
        "checkpoint": {},
        "known_as": str(tmp_path / run.label),
        "wait": False,
    }
    attempts = []
    attempt = RayWorker._attempt

    def losing(self: RayWorker, task: Any, hidden: Path, tell: Any) -> None:
        attempts.append(hidden)
        if len(attempts) == 1:
            (hidden / "half").write_text("half")
            raise ray_runs._LostError
        attempt(self, task, hidden, tell)

    monkeypatch.setattr(RayWorker, "_attempt", losing)
    with ray_workers() as (start, num_cpus):
        assert num_cpus == 2
        assert start().do(task, lambda message: None) == {"finite": True}
        assert start().do({**task, "scenario": ""}, lambda message: None).keys() == {"failed"}
    assert len(attempts) == 3
    assert not (tmp_path / run.label / "half").exists()
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == [run.label]


def test_whoever_waits_for_another_study_can_be_ended(tmp_path: Path) -> None:
    task = {"folder": str(tmp_path / "run"), "scenario": "", "trackers": [], "checkpoint": {}, "wait": True}
    worker = RayWorker(None)  # type: ignore[arg-type]
    with locked(tmp_path / "run", wait=True):
        assert worker.do({**task, "wait": False}, print) == {"busy": True}
        worker.end()
        assert worker.do(task, print) == {"failed": "it was given up"}
