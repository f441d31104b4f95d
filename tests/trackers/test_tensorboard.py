"""Event files, read back by TensorBoard itself."""

from pathlib import Path
from typing import Any

import pytest

from fedsim.trackers.base import Point, TrackedRun, TrackerConfig
from fedsim.trackers.tensorboard import PLUGIN as TENSORBOARD
from tests.trackers.conftest import TOML, told

pytestmark = pytest.mark.filterwarnings("ignore")  # of TensorBoard's own imports


@pytest.fixture
def read() -> Any:
    module = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")

    def events(folder: Path) -> Any:
        found = module.EventAccumulator(str(folder))
        found.Reload()
        return found

    return events


def test_figures_by_round_and_by_bytes_at_simulated_times(
    read: Any, tracked: TrackedRun, points: list[Point]
) -> None:
    told(TENSORBOARD(TrackerConfig()), tracked, points)
    folder = tracked.parent / "tensorboard"
    for axis, steps in (("by_round", [0, 1, 2]), ("by_bytes", [100, 5_000_000_000, 5_000_000_100])):
        events = read(folder / axis / "fedavg-seed0")
        assert set(events.Tags()["scalars"]) == {"dispatches/asked", "accuracy/mean"}
        asked, accuracy = events.Scalars("dispatches/asked"), events.Scalars("accuracy/mean")
        assert [(one.step, one.wall_time) for one in asked] == list(
            zip(steps, [0.5, 2.25, 7200.0], strict=True)
        )
        assert [one.value for one in asked] == [3, 2, 2]
        assert [(one.step, one.value) for one in accuracy] == list(zip(steps[1:], [0.25, 0.75], strict=True))
    (scenario,) = read(folder / "by_round" / "fedavg-seed0").Tensors("scenario")
    shown = scenario.tensor_proto.string_val[0].decode()
    assert [line.removeprefix("    ") for line in shown.splitlines()] == TOML.splitlines()


def test_the_same_run_again_replaces_its_events(read: Any, tracked: TrackedRun, points: list[Point]) -> None:
    for some in (points, points[:2]):
        told(TENSORBOARD(TrackerConfig()), tracked, some)
    folder = tracked.parent / "tensorboard" / "by_round" / "fedavg-seed0"
    assert [one.step for one in read(folder).Scalars("dispatches/asked")] == [0, 1]
    assert len(list(folder.iterdir())) == 1


def test_rounds_can_be_seen_before_the_run_has_ended(
    read: Any, tracked: TrackedRun, points: list[Point]
) -> None:
    follower = TENSORBOARD(TrackerConfig()).open(tracked)
    follower.note(points[0])
    folder = tracked.parent / "tensorboard" / "by_round" / "fedavg-seed0"
    assert [one.step for one in read(folder).Scalars("dispatches/asked")] == [0]
    follower.close(None)
