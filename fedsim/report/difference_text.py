"""What tells two runs apart, as text."""

from __future__ import annotations

from textwrap import wrap
from typing import Any

from fedsim.report.event_words import event_words, instant
from fedsim.report.number_format import several
from fedsim.report.run_difference import Differences, Parting, Record, RunDifference
from fedsim.report.text_table import TextTable, aligned

FIRST, SECOND = "first", "second"
_MOST_SHOWN = 28
"""Characters of a value; with two of them and a path, a line has room in 80 columns."""


def tables(difference: RunDifference) -> list[TextTable]:
    """Return what differs in settings and around them, as tables."""
    shown = {
        "settings that differ": ("setting", difference.settings),
        "versions and hosts that differ": ("what", difference.facts),
    }
    return [_table(title, name, found) for title, (name, found) in shown.items() if found]


def verdict(difference: RunDifference, width: int = 100) -> list[str]:
    """Return where the runs part, in lines of at most so many characters, if words allow."""
    first, second = difference.summaries
    if difference.parting is not None:
        return _parting_lines(difference.parting, width)
    events = f"  trace_hash  {first['trace_hash']}"
    if difference.is_none:
        said = "the runs are equal: they have the same events, and end with the same models"
        return [*_wrapped(said, width), events, f"  model_hash  {first['model_hash']}"]
    return [
        *_wrapped("the runs have the same events, but end with other models", width),
        events,
        f"  model_hash  {first['model_hash']} ({FIRST})",
        f"  model_hash  {second['model_hash']} ({SECOND})",
    ]


def remarks(difference: RunDifference) -> list[str]:
    """Return what a reader may want to know of it, one sentence each."""
    parting, found = difference.parting, []
    if difference.is_none:
        return []
    if parting is not None and parting.first is not None and parting.first["kind"] == "evaluation":
        found.append("events hold no models: those of the runs have parted before, at the latest in a merge")
    if difference.is_real_time:
        found.append("over sockets times are real, so no two runs have equal events")
    elif not difference.settings and not difference.facts:
        found.append(
            "no setting, version or host tells the runs apart, so they should be equal: either a plugin or "
            "data of your own is not the same or does not repeat itself, or this is a bug in fedsim"
        )
    return found


def _table(title: str, name: str, found: Differences) -> TextTable:
    rows = [(path, *_cells(*values)) for path, values in found.items()]
    return TextTable((name, FIRST, SECOND), rows, text_columns=frozenset(range(3)), title=title)


def _cells(first: Any, second: Any) -> tuple[str, str]:
    """Return two values as text; of long ones the parts where they begin to differ."""
    said = ["not set" if value is None else str(value) for value in (first, second)]
    begin = 0
    if max(map(len, said)) > _MOST_SHOWN:
        equal = (one == other for one, other in zip(*said, strict=False))
        begin = max(0, next((place for place, same in enumerate(equal) if not same), 0) - _MOST_SHOWN // 2)
    return _cut(said[0], begin), _cut(said[1], begin)


def _cut(value: str, begin: int) -> str:
    rest = f"...{value[begin:]}" if begin else value
    return rest if len(rest) <= _MOST_SHOWN else f"{rest[: _MOST_SHOWN - 3]}..."


def _parting_lines(parting: Parting, width: int) -> list[str]:
    events = several(parting.num_common, "event")
    if parting.before:
        lines = [f"the runs are equal for {events}; the last of them:"]
        for record in parting.before:
            lines += _wrapped(f"  {_line(record)}", width)
        lines.append("then they part:")
    else:
        lines = ["the runs part at their first event:"]
    for name, one in ((FIRST, parting.first), (SECOND, parting.second)):
        lines += _wrapped(f"  {name:6}  {_line(one)}", width)
    if parting.first and parting.second and parting.first["kind"] == parting.second["kind"]:
        apart = {
            name: _cells(value, parting.second.get(name))
            for name, value in parting.first.items()
            if value != parting.second.get(name)
        }
        lines.append("which differ in:")
        lines += aligned([(name, f"{one} and {other}") for name, (one, other) in apart.items()])
    return lines


def _line(record: Record | None) -> str:
    return "no more events" if record is None else f"{instant(record['at_ns'])}  {event_words(record)}"


def _wrapped(line: str, width: int) -> list[str]:
    """Return a line in several, if need be, whose words begin where those of the first do."""
    words = line.rfind("  ") + 2 if "  " in line else 0
    return wrap(line, width, subsequent_indent=" " * words, break_long_words=False, drop_whitespace=True) or [
        line
    ]
