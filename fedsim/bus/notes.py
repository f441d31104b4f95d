"""What a client process reports with an answer, outside its frame: time of jobs, and notes for the log.

A note is put into plain words when it is made, so that later changes of its values do not show. Whoever sends
a note may lie, so its length and its values are bounded.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fedsim.numerals import scalar
from fedsim.quoting import quoted

MOST_PER_ANSWER = 16
"""Notes beside one answer; a last one says how many were left out."""
_MOST_EVENT = 200
_MOST_VALUE = 300
_MOST_VALUES = 16
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_OWN = frozenset(
    ("args", "at_s", "client", "event", "exc_info", "level", "method_name", "self", "stack_info", "told_by")
)
"""Names of values that the log itself uses."""
_LEVELS = ("info", "warning")


class Note(NamedTuple):
    """Something that a client's hook has noted.

    Attributes:
        level: ``info`` or ``warning``.
        event: What.
        values: By name, for the log.
    """

    level: str
    event: str
    values: Mapping[str, Any]


class Report(NamedTuple):
    """What is to be said of the work behind an answer.

    Attributes:
        compute_ns: How long a job of it was under way.
        notes: What was noted meanwhile, as :func:`in_words` gives it.
        left_out: How many notes more there were.
    """

    compute_ns: int = 0
    notes: Sequence[Note] = ()
    left_out: int = 0


def in_words(note: Note) -> Note:
    """Return a note as it may travel, which holds on to nothing that it was given."""
    level, event, values = note
    first = list(values.items())[:_MOST_VALUES]
    return Note(level, _short(event, _MOST_EVENT), {_named(name): _plain(value) for name, value in first})


def checked(said: Any) -> Note:
    """Return the note that a level, an event and values make, as they came over the wire.

    Raises:
        ValueError: They make none that :func:`in_words` could have given.
    """
    if type(said) is not list or len(said) != 3:
        raise ValueError(f"{quoted(said)} is no note")
    level, event, values = said
    if level not in _LEVELS or not _is_text(event, _MOST_EVENT):
        raise ValueError(f"{quoted(level)} {quoted(event)} is no level and event")
    if type(values) is not dict or len(values) > _MOST_VALUES:
        raise ValueError(f"{quoted(values)} are no values of a note")
    for name, value in values.items():
        if not _NAME.fullmatch(name) or name in _OWN:
            raise ValueError(f"{quoted(name)} names no value of a note")
        if not _is_plain(value):
            raise ValueError(f"{name} is {quoted(value)}, which is no value of a note")
    return Note(level, event, values)


def _is_plain(value: Any) -> bool:
    if type(value) is int:
        return -(2**63) <= value < 2**63
    if type(value) is float:
        return math.isfinite(value)
    return value is None or type(value) is bool or _is_text(value, _MOST_VALUE)


def _is_text(value: Any, most: int) -> bool:
    return type(value) is str and len(value) <= most and value.isprintable()


def _named(name: str) -> str:
    """Return a name as it may travel."""
    lower = re.sub("[^a-z0-9_]", "_", name.lower())
    lower = (lower if lower[:1].isalpha() else f"v{lower}")[:38]
    return f"{lower}_" if lower in _OWN else lower


def _plain(value: Any) -> Any:
    """Return a value as it may travel: a plain scalar, or text."""
    value = scalar(value)
    return value if _is_plain(value) else _short(str(value), _MOST_VALUE)


def _short(text: str, most: int) -> str:
    """Return a text that any log can hold on one line: no line's end, control character or half of a pair."""
    text = text[:most]
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else " " if one.isspace() else "?" for one in text)
