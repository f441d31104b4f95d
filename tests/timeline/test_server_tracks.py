import numpy as np

from fedsim.timeline.perfetto_trace import PerfettoTrace
from fedsim.timeline.run_events import Merge, RunEvents, SentFrame
from fedsim.timeline.server_tracks import add_server, bytes_in_flight, mean_rates
from tests.timeline.read_back import ReadBack, read_back

S = 10**9


def drawn(events: RunEvents, end_s: int = 10) -> ReadBack:
    trace = PerfettoTrace()
    rounds = {"round": np.array([1]), "began_at_s": np.array([0.0]), "ended_at_s": np.array([9.5])}
    add_server(
        trace, trace.process("time"), events, rounds, end_s * S, trace.notes({"seed": 3, "none": None})
    )
    return read_back(bytes(trace.content))


def test_work_of_the_server_lies_side_by_side() -> None:
    events = RunEvents()
    hear = events.listeners()
    for at_s, kind, *values in [
        (1, "job_start", -1, -1, "predict", 7.0, 4.0),
        (2, "job_start", -1, -1, "predict", 8.0, 3.0),
        (3, "job_start", 5, 0, "fit", 1.0, 9.0),  # a client's
        (5, "job_end", -1, -1, "predict", "done"),
        (5, "job_end", -1, -1, "predict", "done"),
        (6, "job_start", -1, -1, "fit", 9.0, 99.0),
    ]:
        hear[str(kind)](int(at_s) * S, *values)
    work = [one for one in drawn(events).slices if one.name != "round 1"]
    assert [(one.name, one.began_ns, one.ended_ns, one.notes) for one in work] == [
        ("predict", S, 5 * S, {"flops": 7.0}),
        ("predict", 2 * S, 5 * S, {"flops": 8.0}),
        ("fit", 6 * S, 10 * S, {"flops": 9.0}),  # until the run ended
    ]
    assert work[0].track == work[2].track != work[1].track


def test_merges_and_what_was_measured() -> None:
    events = RunEvents()
    events.merges = [Merge(2 * S, 1, "train", 1, 4), Merge(4 * S, 2, "train", 2, 3)]
    events.stopped = 5 * S, "bytes"
    hear = events.listeners()
    hear["evaluation"](2 * S, 1, 4, 0.25, None)
    hear["evaluation"](4 * S, 2, 4, 0.5, 0.75)
    found = drawn(events)
    assert found.values["model version"] == [(0, 0), (2 * S, 1), (4 * S, 2)]
    assert found.values["accuracy, mean over clients"] == [(2 * S, 0.25), (4 * S, 0.5)]
    assert found.values["accuracy, global model"] == [(4 * S, 0.75)]
    assert [(one.name, one.began_ns, one.notes) for one in found.instants] == [
        ("about this run", 0, {"seed": 3}),
        ("merge: train", 2 * S, {"round": 1, "version": 1, "replies": 4}),
        ("merge: train", 4 * S, {"round": 2, "version": 2, "replies": 3}),
        ("stopped: bytes", 5 * S, {}),
    ]


def frame(num_bytes: int, sent_s: int, ended_s: int | None, outcome: str = "delivered") -> SentFrame:
    ended_ns = None if ended_s is None else ended_s * S
    return SentFrame(0, 0, True, "word", num_bytes, sent_s * S, ended_ns, outcome)


def test_bytes_in_flight() -> None:
    frames = [frame(100, 0, 2), frame(50, 1, 3), frame(7, 3, 3), frame(8, 3, None, "in_flight")]
    assert bytes_in_flight(frames, 4 * S) == [(0, 100), (S, 150), (2 * S, 50), (3 * S, 8), (4 * S, 0)]


def test_mean_rates() -> None:
    frames = [frame(100, 0, 2), frame(50, 1, 3), frame(7, 3, 3), frame(9, 0, 9, "lost"), frame(8, 3, None)]
    assert mean_rates(frames, 4 * S) == [(0, 50), (S, 75), (2 * S, 25), (3 * S, 0)]


def test_without_frames() -> None:
    assert bytes_in_flight([], 0) == mean_rates([], 0) == []
