"""Who does which task: with processes that only pretend to work."""

import errno
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fedsim.studies import worker_pool
from fedsim.studies.worker_pool import Process, WorkerPool

WORKER = worker_pool.COMMAND

PRETENDER = """
import json, os, signal, sys
for line in sys.stdin:
    task = json.loads(line)
    if task["does"] == "crash":
        sys.exit(9)
    if task["does"].startswith("SIG"):
        os.kill(os.getpid(), getattr(signal, task["does"]))
    if task["does"] == "busy" and not task["wait"]:
        print(json.dumps({"busy": True}), flush=True)
        continue
    print(json.dumps({"round": 1}), flush=True)
    print(json.dumps({"finite": True, "waited": task["wait"]}), flush=True)
"""


@pytest.fixture(autouse=True)
def _pretend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_pool, "COMMAND", (sys.executable, "-c", PRETENDER))


def ends(*tasks: str, jobs: int = 1) -> list[tuple[int, Any]]:
    with WorkerPool([{"does": task} for task in tasks], jobs) as pool:
        return [(number, message) for number, message in pool.messages() if "round" not in message]


@pytest.mark.slow
def test_a_file_in_the_working_folder_hides_no_module_from_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "statistics.py").write_text("raise SystemExit(9)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(worker_pool, "COMMAND", WORKER)
    task = {
        "folder": str(tmp_path / "run"),
        "scenario": "",
        "path": sys.path,
        "trackers": [],
        "checkpoint": {},
        "wait": False,
    }
    with WorkerPool([task], 1) as pool:
        (_, message), *_ = pool.messages()
    assert "fleet: it is missing" in message["failed"]


def test_tasks_are_done_in_their_order() -> None:
    done = {"finite": True, "waited": False}
    assert ends("work", "work", "work") == [(0, done), (1, done), (2, done)]


def test_rounds_are_told() -> None:
    with WorkerPool([{"does": "work"}], 1) as pool:
        assert next(pool.messages()) == (0, {"round": 1})


def test_a_process_that_dies_takes_only_its_task_with_it() -> None:
    done = {"finite": True, "waited": False}
    died = {"failed": "its process ended with status 9"}
    assert ends("work", "crash", "work") == [(0, done), (1, died), (2, done)]
    killed = {"failed": "its process was ended by SIGKILL, perhaps for want of memory: do fewer runs at once"}
    aborted = {"failed": "its process was ended by SIGABRT"}
    assert ends("SIGKILL", "SIGABRT", "work") == [(0, killed), (1, aborted), (2, done)]


def test_a_process_that_cannot_be_started_takes_only_its_task_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start, refusals = subprocess.Popen, [BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")]

    def refuse_once(*arguments: Any, **options: Any) -> Any:
        if refusals:
            raise refusals.pop()
        return start(*arguments, **options)

    monkeypatch.setattr(subprocess, "Popen", refuse_once)
    (first, failed), second = ends("work", "work")
    assert first == 0
    assert failed["failed"].startswith("its process could not be started: ")
    assert "temporarily unavailable" in failed["failed"]
    assert second == (1, {"finite": True, "waited": False})


def test_what_another_study_does_is_waited_for_last() -> None:
    first, second = ends("busy", "work")
    assert first == (1, {"finite": True, "waited": False})
    assert second == (0, {"finite": True, "waited": True})


def test_several_processes_do_each_task_once() -> None:
    assert sorted(number for number, _ in ends(*["work"] * 7, jobs=3)) == list(range(7))


def test_no_process_is_left_when_the_study_is_interrupted() -> None:
    pool = WorkerPool([{"does": "work"}] * 3, 2)
    with suppress(KeyboardInterrupt), pool:
        next(pool.messages())
        raise KeyboardInterrupt
    processes = [worker._process for worker in pool._workers if isinstance(worker, Process)]
    assert processes
    assert all(process.poll() is not None for process in processes)


def test_jobs_are_as_many_as_cores_runs_and_memory_allow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_pool, "num_usable_cores", lambda: 6)
    monkeypatch.setattr(worker_pool, "MEMINFO", tmp_path / "meminfo")
    (tmp_path / "meminfo").write_text("MemTotal: 9000000 kB\nMemAvailable: 4000000 kB\n")
    assert [worker_pool.default_jobs(runs) for runs in (1, 3, 9)] == [1, 3, 4]


def test_a_system_without_meminfo_counts_the_memory_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_pool, "num_usable_cores", lambda: 6)
    monkeypatch.setattr(worker_pool, "MEMINFO", tmp_path / "not there")
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": 500_000, "SC_PAGE_SIZE": 4096}.__getitem__)
    assert worker_pool.default_jobs(9) == 2
