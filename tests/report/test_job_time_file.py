"""Real times of a run with ``profile``: they are noted beside its results, which stay the same."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fedsim.engine.executors.threads import PLUGIN as THREADS
from fedsim.errors import OutputError
from fedsim.report.job_time_file import REAL_TIME, read_job_times
from fedsim.report.record_run import record
from fedsim.runtime.parts import Parts
from fedsim.scenario import Plan
from tests.conftest import there


@pytest.mark.parametrize("workers", [1, 2])
def test_jobs_are_timed_and_results_stay_the_same(
    workers: int, make_parts: Callable[..., Parts], tmp_path: Path
) -> None:
    hashes, folders = set(), []
    for profile in (True, False):
        executor = THREADS(THREADS.Config(workers=workers, batching="off"))
        plan = Plan("tiny", "fedavg", "", replace(make_parts(), executor=executor))
        done = record(plan, tmp_path / str(profile), profile=profile)
        hashes.add((done.summary["trace_hash"], done.summary["model_hash"]))
        folders.append(done.folder)
    assert len(hashes) == 1
    assert read_job_times(folders[1]) is None
    timed = there(read_job_times(folders[0]))
    jobs, rounds = timed
    done_jobs = Counter[str]()
    for job in jobs:
        done_jobs[job.kind] += job.number
        assert 0 <= job.began_ns <= job.ended_ns
    assert done_jobs["fit"] == 8
    assert [number for number, _ in rounds] == [1, 2]
    assert 0 < rounds[0][1] < rounds[1][1]


def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    for content in (b"", b"\x81\xa4jobs", b"\x80", b"\x93\x01\x02\x03"):
        (tmp_path / REAL_TIME).write_bytes(content)
        with pytest.raises(OutputError, match=r"real_time\.msgpack cannot be read"):
            read_job_times(tmp_path)
