"""Two frames of 100 and 50 bytes that overlap for a second."""

from __future__ import annotations

from fedsim.timeline.run_events import SentFrame
from fedsim.timeline.traffic_counters import bytes_in_flight, mean_rates

S = 10**9


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
