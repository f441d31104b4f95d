"""Differences of two runs: their first differing event, their settings, and how they were done."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import msgpack

from fedsim.clock.event_trace import RecordKind, as_map, stored_records
from fedsim.report.cost_breakdown import Summary
from fedsim.report.read_results import read_provenance, read_scenario
from fedsim.report.run_trace import opened
from fedsim.report.summary import read_summary

MAX_BEFORE = 5
"""Maximum number of common events that are kept."""

NO_FACTS = ("status", "started_at", "wall_s", "jobs", "cohorts", "tracker_failures")
"""Keys of ``run.json`` that are results."""

Record = Mapping[str, Any]
StoredRecord = tuple[RecordKind, list[Any]]
Records = Iterator[StoredRecord]
Differences = Mapping[str, tuple[Any, Any]]
"""Pairs of values by name; None for a missing one."""


@dataclass(frozen=True, slots=True)
class Parting:
    """The first difference of two traces."""

    num_common: int
    before: Sequence[Record]
    first: Record | None
    second: Record | None


@dataclass(frozen=True, slots=True)
class RunDifference:
    """The differences of two runs."""

    summaries: tuple[Summary, Summary]
    settings: Differences
    facts: Differences
    parting: Parting | None
    is_real_time: bool

    @property
    def is_none(self) -> bool:
        """Whether both have the same events and end with the same models."""
        first, second = self.summaries
        return self.parting is None and first["model_hash"] == second["model_hash"]


def run_difference(first: Path, second: Path) -> RunDifference:
    """Compare two runs, event by event; no trace is held as a whole."""
    with opened(first) as first_trace, opened(second) as second_trace:
        summaries = read_summary(first), read_summary(second)
        same = summaries[0]["trace_hash"] == summaries[1]["trace_hash"]
        parting = None if same else part(stored_records(first_trace), stored_records(second_trace))
    facts = _facts(first), _facts(second)
    return RunDifference(
        summaries,
        _differences(_settings(first), _settings(second)),
        _differences(*facts),
        parting,
        any(own.get("bus") == "http" for own in facts),
    )


def part(first: Records, second: Records) -> Parting | None:
    """Return the first difference of two traces of stored records; None if they are equal."""
    before = deque[StoredRecord](maxlen=MAX_BEFORE)
    for num_common, (left, right) in enumerate(zip_longest(first, second)):
        if left != right and not _hold_the_same(left, right):
            return Parting(num_common, [as_map(*record) for record in before], _as_map(left), _as_map(right))
        before.append(left)
    return None


def _hold_the_same(left: StoredRecord | None, right: StoredRecord | None) -> bool:
    """Whether two unequal records differ only because NaN equals nothing."""
    if left is None or right is None:
        return False
    return left[0] == right[0] and bool(msgpack.packb(left[1]) == msgpack.packb(right[1]))


def _as_map(record: StoredRecord | None) -> Record | None:
    return None if record is None else as_map(*record)


def _settings(folder: Path) -> Mapping[str, Any]:
    scenario = read_scenario(folder)
    scenario.pop("algorithms", None)  # parameters of algorithms that other runs may have
    return dict(flat(scenario))


def flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield values by their paths; lists of tables are entered too, as overrides do."""
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        value = dict(enumerate(value))
    if not isinstance(value, dict):
        yield path, value
        return
    for key, inner in value.items():
        yield from flat(inner, f"{path}.{key}" if path else str(key))


def _facts(folder: Path) -> Mapping[str, Any]:
    """Return how a run was done by dotted names, such as ``libraries.torch``."""
    facts = read_provenance(folder)
    return dict(flat({name: fact for name, fact in facts.items() if name not in NO_FACTS}))


def _differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> Differences:
    return {
        path: (first.get(path), second.get(path))
        for path in {**first, **second}
        if first.get(path) != second.get(path)
    }
