from __future__ import annotations

from fedsim.engine.job_times import TimedJobs
from fedsim.timeline.perfetto_trace import PerfettoTrace
from fedsim.timeline.worker_tracks import add_workers
from tests.timeline.read_back import read_back


def test_threads_are_tracks_of_real_time() -> None:
    content = bytearray()
    jobs = [
        TimedJobs("fedsim-worker-1", "fit", 1, 10, 30),
        TimedJobs("MainThread", "fit", 8, 5, 40),
        TimedJobs("fedsim-worker-1", "evaluate", 1, 30, 35),
    ]
    add_workers(PerfettoTrace(content.extend), jobs, [(1, 38), (2, 50)])
    drawn = read_back(bytes(content))
    assert {name for path in map(drawn.path, drawn.names) for name in path[:1]} == {
        "real time of this computer"
    }
    assert [(drawn.path(one.track)[-1], one.name, one.began_ns, one.ended_ns) for one in drawn.slices] == [
        ("rounds", "round 1", 0, 38),
        ("simulation", "fit", 5, 40),
        ("worker 1", "fit", 10, 30),
        ("worker 1", "evaluate", 30, 35),
        ("rounds", "round 2", 38, 50),
    ]
    assert [one.notes.get("jobs") for one in drawn.slices] == [None, 8, 1, 1, None]
