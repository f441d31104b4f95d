"""Jobs on a real cluster: two nodes on this machine, of which one computes and holds something else."""

from __future__ import annotations

import logging
import os
import select
import signal
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fedsim.algorithms.common.model_rounds import ModelTraining
from fedsim.engine.cluster import actor_pool, connection
from fedsim.engine.executors.ray import Ray
from fedsim.engine.steps import Descent
from fedsim.errors import JobError, RunError, UserError
from fedsim.processes.children import python, variables
from fedsim.runtime.parts import Parts
from fedsim.runtime.run import RunResult, run
from fedsim.scenario import load_scenario
from fedsim.scenario.build import build

ray = pytest.importorskip("ray")
cluster_utils = pytest.importorskip("ray.cluster_utils")

pytestmark = pytest.mark.slow

STORE_BYTES = 100_000_000

SCENARIO = """
[run]
rounds = 2
[data]
name = "digits"
limit = 400
global_test = 0.2
[data.public]
size = 40
[models.mlp]
[models.wide]
name = "mlp"
params.hidden = [300]
[[fleet]]
count = 4
model = "mlp"
[[fleet]]
count = 4
model = "wide"
[algorithm]
name = "fedmd"
"""

SMALL = """
[run]
rounds = 2
[data]
name = "digits"
limit = 100
[[fleet]]
count = 3
"""

LAB = '''
import os

import numpy as np

from fedsim.config import Config
from fedsim.data import Dataset, DatasetPlugin
from fedsim.engine.losses import empirical_loss
from fedsim.task import Task


class Shifted(DatasetPlugin[Config]):
    """Samples that are others on another machine."""

    def load(self, context):
        x = np.arange(600, dtype=np.float32).reshape(100, 6) / 600
        return Dataset(Task((6,), 3), x + float(os.environ.get("LAB_SHIFT", "0")), np.arange(100) % 3)


PLUGIN = Shifted


def failing(models, batches, extras):
    if batches["train"].x.device.type != "meta":  # where a step's operations are counted
        raise ValueError("no loss today")
    return empirical_loss(models, batches, extras)
'''


def started(num_cpus: int) -> Any:
    """Return a cluster of one node."""
    logging.getLogger("ray").setLevel(logging.ERROR)
    node = {"num_cpus": num_cpus, "object_store_memory": STORE_BYTES, "include_dashboard": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return cluster_utils.Cluster(initialize_head=True, head_node_args=node)


@pytest.fixture(scope="module", autouse=True)
def _lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Have a package of somebody's own, which only the path of this process leads to."""
    folder = tmp_path_factory.mktemp("lab")
    (folder / "ray_lab").mkdir()
    (folder / "ray_lab" / "shifted.py").write_text(LAB)
    sys.path.append(str(folder))
    yield
    sys.path.remove(str(folder))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes of this machine."""
    both = started(num_cpus=2)
    both.add_node(num_cpus=2, object_store_memory=STORE_BYTES)
    yield both
    both.shutdown()


@pytest.fixture(scope="module")
def odd(cluster: Any) -> dict[str, Any]:
    """Parameters for an actor on a third node, which has other instructions and other samples."""
    others = {"ATEN_CPU_CAPABILITY": "default", "LAB_SHIFT": "1"}
    cluster.add_node(num_cpus=4, object_store_memory=STORE_BYTES, env_vars=others)
    return {"address": cluster.address, "actors": 1, "num_cpus": 4}


def parts_of(scenario: str, more: Mapping[str, Any] | None = None, **params: Any) -> Parts:
    engine = {"engine.executor": "ray", "engine.params": params} if params else {}
    return build(load_scenario(tomllib.loads(scenario), {**engine, **(more or {})}))


def told(result: RunResult) -> tuple[Any, ...]:
    return result.trace_hash, result.model_hash, result.simulated_s


def test_results_are_those_of_threads_also_when_actors_die(cluster: Any) -> None:
    expected = told(run(parts_of(SCENARIO)))
    parts = parts_of(SCENARIO, address=cluster.address, actors=2)
    executor = parts.executor
    assert isinstance(executor, Ray)
    pools = []

    def kill(row: object) -> None:
        assert executor._pool is not None
        pools.append(executor._pool)
        for actor in executor._pool._actors:
            ray.kill(actor.handle)

    assert told(run(parts, watch=kill)) == expected
    facts = executor.facts["ray"]
    assert (facts["actors"], facts["numeric"]) == (2, "exact")
    assert facts["actors_lost"] > 0
    assert facts["jobs_repeated"] > 0
    assert {"fit", "predict", "evaluate"} <= executor.jobs_done.keys()
    assert pools[0]._stored == {}
    assert not ray.is_initialized()  # and the cluster is there for the next test


def test_a_job_that_fails_says_so_as_in_threads(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from ray_lab import shifted  # type: ignore[import-not-found]

    failing = {"step": Descent(shifted.failing)}
    monkeypatch.setattr(ModelTraining, "training_options", lambda *_: failing)
    said = []
    for params in ({}, {"address": cluster.address, "actors": 1}):
        parts = parts_of(SMALL, {"engine.workers": 1}, **params)
        with pytest.raises(JobError) as caught:
            run(parts)
        said.append((str(caught.value), type(caught.value.__cause__).__name__))
    assert said[0] == said[1]
    assert "client 0" in said[0][0]
    assert "no loss today" in said[0][0]


def test_a_private_plugin_is_found_by_actors(cluster: Any) -> None:
    private = {"data.name": "ray_lab.shifted", "data.limit": 90}
    expected = told(run(parts_of(SMALL, private)))
    assert told(run(parts_of(SMALL, private, address=cluster.address, actors=1))) == expected


def test_a_cluster_that_the_caller_has_joined_is_left_to_him(cluster: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)
    try:
        run(parts_of(SMALL, address="auto", actors=1))
        assert ray.is_initialized()
        with pytest.raises(UserError, match=r"this process belongs to the Ray cluster .* already"):
            run(parts_of(SMALL, address="127.0.0.1:1", actors=1))
    finally:
        ray.shutdown()


def test_a_machine_that_computes_other_numbers_is_refused(odd: dict[str, Any]) -> None:
    with pytest.raises(UserError) as caught:
        run(parts_of(SMALL, **odd))
    said = str(caught.value)
    assert "instruction set (" in said
    assert "here, DEFAULT there)" in said
    assert "ATEN_CPU_CAPABILITY=avx2" in said
    assert 'numeric = "tolerant"' in said


def test_other_numbers_can_be_accepted_and_the_record_says_so(odd: dict[str, Any]) -> None:
    parts = parts_of(SMALL, **odd, numeric="tolerant")
    run(parts)
    facts = parts.executor.facts["ray"]
    assert facts["numeric"] == "tolerant"
    (found,) = facts["other_numbers"].values()
    assert found[0].startswith("instruction set")


def test_a_machine_with_other_samples_is_refused(odd: dict[str, Any]) -> None:
    private = {"data.name": "ray_lab.shifted", "data.limit": 90}
    with pytest.raises(UserError, match=r"the data of the actor on .* are not those of .*samples \("):
        run(parts_of(SMALL, private, **odd, numeric="tolerant"))


def test_a_cluster_that_goes_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actor_pool, "CHECK_S", 0.1)
    monkeypatch.setattr(connection, "GONE_TIMEOUT_S", 0.2)
    alone = started(num_cpus=1)

    def end(row: object) -> None:
        for one in alone.head_node.all_processes["gcs_server"]:
            one.process.kill()
            one.process.wait()

    try:
        with pytest.raises(RunError, match=r"the Ray cluster .* is gone"):
            run(parts_of(SMALL, {"run.rounds": 1000}, address=alone.address, actors=1), watch=end)
        assert not ray.is_initialized()
    finally:
        alone.shutdown()


def fedsim_run(folder: Path, *overrides: str, **environment: str) -> subprocess.Popen[str]:
    """Start ``fedsim run`` in a folder."""
    (folder / "small.toml").write_text(SMALL)
    options = [part for one in ("engine.executor=ray", *overrides) for part in ("--set", one)]
    return subprocess.Popen(  # noqa: S603
        python("-m", "fedsim", "run", "small.toml", "--out", "out", *options),
        cwd=folder,
        env={**variables(), **environment},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def wait_for_a_round(process: subprocess.Popen[str]) -> str:
    """Wait until a run tells of a round, or ends; return what it has written."""
    assert process.stderr is not None
    said = ""
    while "round" not in said and (line := process.stderr.readline()):
        said += line
    return said


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Wait for the end of a process; return its status and what else it has written."""
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout, process.stderr:
        return process.wait(), process.stdout.read(), process.stderr.read()


def processes_that_stay(word: str) -> list[str]:
    """Return the command lines of processes with a word in their environment that do not end within 30 s."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if word.encode() in (entry / "environ").read_bytes():
                process = os.pidfd_open(int(entry.name))
                if not select.select([process], [], [], 30)[0]:
                    found.append((entry / "cmdline").read_text())
                os.close(process)
    return found


def test_ctrl_c_ends_the_run_and_its_cluster_and_ray_says_nothing(tmp_path: Path) -> None:
    mark = f"OF_TEST={tmp_path}"
    params = 'engine.params={address = "local", actors = 1}'
    process = fedsim_run(tmp_path, params, "run.rounds=100000", OF_TEST=str(tmp_path))
    before = wait_for_a_round(process)
    process.send_signal(signal.SIGINT)
    status, out, said = ended(process)
    assert status == 130, said
    assert "fedsim: interrupted: the run can be resumed in " in said.splitlines()[-1]
    assert "ray" not in (before + out + said).lower()
    assert processes_that_stay(mark) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "small.toml"]


def test_a_process_whose_node_goes_says_so(tmp_path: Path) -> None:
    alone = started(num_cpus=1)
    try:
        process = fedsim_run(tmp_path, "run.rounds=100000", RAY_ADDRESS=alone.address)
        wait_for_a_round(process)
        for one in alone.head_node.all_processes["gcs_server"] + alone.head_node.all_processes["raylet"]:
            one.process.kill()
        status, _, said = ended(process)
        assert status == 1
        assert "fedsim: the run failed: " in said
        assert "is gone" in said
        assert "Traceback" not in said
    finally:
        alone.shutdown()


def test_a_cluster_that_is_not_there_is_the_users_mistake(tmp_path: Path) -> None:
    process = fedsim_run(tmp_path, RAY_ADDRESS="127.0.0.1:1")
    status, _, said = ended(process)
    assert status == 2
    assert "fedsim: the Ray cluster of RAY_ADDRESS or of this machine cannot be joined" in said
    assert "ray start --head" in said
    assert "Traceback" not in said
