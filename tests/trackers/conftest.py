"""A run of three rounds by hand, of which the first is what came before the others."""

from pathlib import Path

import pytest

from fedsim.trackers.base import Point, TrackedRun, Tracker

TOML = '[run]\nname = "tiny"\nrounds = 2\n\n[[fleet]]\ncount = 3\ndevice = "low"\n'


@pytest.fixture
def tracked(tmp_path: Path) -> TrackedRun:
    return TrackedRun("fedavg-seed0", tmp_path / "fleet", TOML)


@pytest.fixture
def points() -> list[Point]:
    return [
        Point(0, 0.5, 100, {"dispatches/asked": 3.0}),
        Point(1, 2.25, 5_000_000_000, {"dispatches/asked": 2.0, "accuracy/mean": 0.25}),
        Point(2, 7200.0, 5_000_000_100, {"dispatches/asked": 2.0, "accuracy/mean": 0.75}),
    ]


def told(tracker: Tracker, run: TrackedRun, points: list[Point], *, failed: bool = False) -> None:  # type: ignore[type-arg]
    follower = tracker.open(run)
    for point in points:
        follower.note(point)
    follower.close(None if failed else {"rounds": 2, "accuracy": {"best": 0.75}})
