"""Runs of Weights & Biases in a local folder, read back from its file."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedsim.trackers.base import Point, TrackedRun
from fedsim.trackers.wandb import PLUGIN as WANDB
from tests.trackers.conftest import told

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

BLOCK = 32768
WHOLE, LAST = 1, 4


def records(file: Path) -> Iterator[bytes]:
    """Yield the records of a log of LevelDB's form, behind the seven bytes by which it is known."""
    content, at, parts = file.read_bytes(), 7, b""
    while at + 7 <= len(content):
        if BLOCK - at % BLOCK < 7:
            at += BLOCK - at % BLOCK
        _, length, kind = struct.unpack("<IHB", content[at : at + 7])
        parts += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (WHOLE, LAST):
            yield parts
            parts = b""


@pytest.fixture
def proto() -> Any:
    pytest.importorskip("wandb")
    return pytest.importorskip("wandb.proto.wandb_internal_pb2")


def read(folder: Path, proto: Any) -> dict[str, list[Any]]:
    """Return the records of the one run in a folder by their kind."""
    pytest.importorskip("wandb").teardown()  # its own process writes the file, and may be behind
    (file,) = folder.glob("wandb/offline-run-*/*.wandb")
    found: dict[str, list[Any]] = {}
    for content in records(file):
        record = proto.Record.FromString(content)
        kind = record.WhichOneof("record_type")
        found.setdefault(kind, []).append(getattr(record, kind))
    return found


def test_a_row_for_each_round_with_each_axis(proto: Any, tracked: TrackedRun, points: list[Point]) -> None:
    told(WANDB(WANDB.Config()), tracked, points)
    found = read(tracked.parent, proto)
    (run,) = found["run"]
    assert (run.display_name, run.run_group, run.project) == ("fedavg-seed0", "fleet", "fedsim")
    config = {one.key: json.loads(one.value_json) for one in run.config.update}
    assert config["run"] == {"name": "tiny", "rounds": 2}
    rows = [
        {(item.key or "/".join(item.nested_key)): json.loads(item.value_json) for item in row.item}
        for row in found["history"]
    ]
    for row, point in zip(rows, points, strict=True):
        mine = {name: value for name, value in row.items() if not name.startswith("_")}
        assert mine == {"round": point.round, **point.axes, **point.figures}
    axes = {one.name or one.glob_name: one.step_metric for one in found["metric"]}
    assert axes == {"round": "", "simulated_s": "", "total_bytes": "", "*": "round"}
    assert found["exit"][0].exit_code == 0


def test_a_run_that_failed(proto: Any, tracked: TrackedRun, points: list[Point]) -> None:
    told(WANDB(WANDB.Config()), tracked, points, failed=True)
    assert read(tracked.parent, proto)["exit"][0].exit_code == 1
