"""Telling trackers of a run: round by round while it goes on, or from its folder when it has ended.

Either way a tracker is told the same figures, under the same names.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from pyarrow import parquet

from fedsim.errors import FedsimError, OutputError
from fedsim.plugins import name_of
from fedsim.quoting import MAX_SHOWN, shortened, with_type
from fedsim.report import number_format
from fedsim.report.atomic_folder import MARK
from fedsim.report.cost_breakdown import Summary
from fedsim.report.run_columns import SENT, TRAFFIC
from fedsim.report.summary import read_summary
from fedsim.report.tables import MEASURED, rounds_so_far
from fedsim.runtime.records.dispatch_rows import OUTCOMES
from fedsim.runtime.records.result import RoundRow
from fedsim.trackers.base import Follower, Point, TrackedRun, Tracker

FIGURES = {
    **{column: column.replace("_", "/", 1) for column in (*MEASURED, *TRAFFIC)},
    **{column: f"dispatches/{column}" for column in OUTCOMES},
}
"""Columns of ``rounds``, and what trackers call them: of a group, such as ``accuracy/mean``."""

COLUMNS = ("round", "ended_at_s", *FIGURES)

Tell: TypeAlias = Callable[[str], None]
"""Says something to the user, in a line."""

warn: Tell = logging.getLogger(__name__).warning
"""Says it in Python's log, which goes to standard error unless a program sends it elsewhere."""


class Following:
    """Tells trackers of one run as it goes on. What they raise is told once for each, and counted."""

    def __init__(self, trackers: Sequence[Tracker[Any]], run: TrackedRun, tell: Tell) -> None:
        self.failures = dict.fromkeys(map(name_of, trackers), 0)
        self.summary: Summary | None = None
        self._run = run
        self._tell = tell
        self._total_bytes = 0
        self._followers: list[tuple[str, Follower]] = []
        for tracker in trackers:
            with self._heard(name_of(tracker)):
                self._followers.append((name_of(tracker), tracker.open(run)))

    def note(self, row: RoundRow) -> None:
        """Tell of a round that has ended."""
        cells = {name: values[0] for name, values in rounds_so_far([row]).items()}
        confusions = row.accuracy.confusions if row.accuracy is not None else {}
        macro_f1 = {name: confusion.macro_f1 for name, confusion in confusions.items()}
        point = _point(cells, self._total_bytes, macro_f1)
        self._total_bytes = point.total_bytes
        for name, follower in self._followers:
            with self._heard(name):
                follower.note(point)

    def close(self) -> None:
        """Tell that the run is over, and how often trackers have failed."""
        for name, follower in self._followers:
            with self._heard(name):
                follower.close(self.summary)
        for name, times in self.failures.items():
            if times > 1:
                count = number_format.several(times, "time")
                self._tell(f"{self._run.name}: tracker {name} failed {count}; the results are whole")

    @contextmanager
    def _heard(self, name: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self.failures[name] += 1
            if self.failures[name] == 1:
                self._tell(f"{self._run.name}: tracker {name} failed, and the run goes on: {_said(error)}")


def run_folders(folder: Path) -> list[Path]:
    """Return a run's folder, or the folders of the runs in that of a comparison or a study."""
    folders = (
        [folder] if (folder / MARK).is_file() else sorted(file.parent for file in folder.glob(f"*/{MARK}"))
    )
    if not folders:
        raise OutputError(
            f"{folder} holds no results: name the folder of a run, in which is {MARK}, or of a comparison or "
            "a study, in which are such folders"
        )
    return folders


def track(folder: Path, tracker: Tracker[Any]) -> TrackedRun:
    """Tell a tracker of a run that has ended, and return what it was told that the run is."""
    folder = folder.resolve()
    try:
        rows = parquet.read_table(folder / "rounds.parquet", columns=list(COLUMNS)).to_pylist()
        by_class = folder / "classes.parquet"
        classes = parquet.read_table(by_class).to_pylist() if by_class.exists() else []
        run = TrackedRun(folder.name, folder.parent, (folder / "scenario.toml").read_text("utf-8"))
        summary = read_summary(folder)
    except (OSError, ValueError) as error:
        raise OutputError(f"{folder} cannot be read: {_said(error)}") from error
    try:
        _write(tracker.open(run), points(rows, classes), summary)
    except FedsimError:
        raise
    except Exception as error:
        raise OutputError(f"tracker {name_of(tracker)} cannot write {folder.name}: {_said(error)}") from error
    return run


def points(rows: Iterable[Mapping[str, Any]], classes: Iterable[Mapping[str, Any]] = ()) -> Iterator[Point]:
    """Yield what rounds have come to, given the rows of ``rounds``, and of ``classes`` if there are any."""
    f1: dict[int, dict[str, list[float]]] = {}
    for cells in classes:
        f1.setdefault(cells["round"], {}).setdefault(cells["test_set"], []).append(cells["f1"])
    total_bytes = 0
    for row in rows:
        macro_f1 = {name: float(np.mean(some)) for name, some in f1.get(row["round"], {}).items()}
        point = _point(row, total_bytes, macro_f1)
        total_bytes = point.total_bytes
        yield point


def _write(follower: Follower, rounds: Iterable[Point], summary: Summary) -> None:
    written = None
    try:
        for point in rounds:
            follower.note(point)
        written = summary
    finally:
        follower.close(written)


def _point(cells: Mapping[str, Any], bytes_before: int, macro_f1: Mapping[str, float | None]) -> Point:
    """Return what a round has come to; what was not measured is left out."""
    figures = {
        name: float(value)
        for column, name in FIGURES.items()
        if (value := cells[column]) is not None and not math.isnan(value)
    }
    figures |= {f"macro_f1/{name}": value for name, value in macro_f1.items() if value is not None}
    total_bytes = bytes_before + sum(int(cells[column]) for column in SENT)
    return Point(int(cells["round"]), float(cells["ended_at_s"]), total_bytes, figures)


def _said(error: Exception) -> str:
    return shortened(error, MAX_SHOWN) if isinstance(error, FedsimError) else with_type(error)
