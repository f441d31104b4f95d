"""Reports of client processes with their replies: the time of jobs, and notes for the log.

They are no part of the run: no ledger counts them, and no hook sees them. A note is turned into plain values
when it is made, so later changes of its values do not show. Its sender may lie, so length and values are
bounded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, NamedTuple

from fedsim.numerals import scalar
from fedsim.quoting import printable, quoted

MAX_NOTES = 16
"""Notes with one reply; one more counts those that were left out."""
MAX_NOTES_TEXT = 8 * 1024
"""Length of the text of all notes with a reply, in ASCII characters."""
_MAX_EVENT = 200
_MAX_VALUE = 300
_MAX_VALUES = 16
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_OWN = frozenset(
    ("args", "at_s", "client", "event", "exc_info", "level", "method_name", "self", "stack_info", "told_by")
)
"""Names that the log itself uses, so no value may have them."""
_LEVELS = ("info", "warning")


class Note(NamedTuple):
    """An entry for the log from a client's hook; the level is ``info`` or ``warning``."""

    level: str
    event: str
    values: Mapping[str, Any]


class Report(NamedTuple):
    """Time in which jobs of a dispatch ran, notes (:func:`in_words`), and the number of further ones.

    ``num_jobs`` and ``flops`` are how many jobs they were, and their operations.
    """

    compute_ns: int = 0
    notes: Sequence[Note] = ()
    left_out: int = 0
    num_jobs: int = 0
    flops: float = 0.0


def in_words(note: Note) -> Note:
    """Return a note of plain values, which can be sent."""
    level, event, values = note
    first = list(values.items())[:_MAX_VALUES]
    return Note(level, _short(event, _MAX_EVENT), {_named(name): _plain(value) for name, value in first})


def checked(entry: Any) -> Note:
    """Return the note that a peer has sent as a list of level, event and values."""
    if type(entry) is list and len(entry) == 3 and type(entry[1]) is str and type(entry[2]) is dict:
        note = Note(*entry)
        if note.level in _LEVELS and in_words(note) == note:
            return note
    raise ValueError(f"{quoted(entry)} is no note")


def written(notes: Sequence[Note], left_out: int = 0) -> str | None:
    """Return notes as a text for :func:`read`; too many or too long ones are left out, and counted."""
    lines: list[str] = []
    room = MAX_NOTES_TEXT - 100  # for the last one
    for note in notes[:MAX_NOTES]:
        line = json.dumps(note)
        if len(line) + 2 > room:
            continue  # a shorter one may yet find room
        room -= len(line) + 2
        lines.append(line)
    if left_out := left_out + len(notes) - len(lines):
        lines.append(json.dumps(["warning", "notes left out", {"count": left_out}]))
    return f"[{', '.join(lines)}]" if lines else None


def read(text: Any) -> list[Note]:
    """Return the notes of a text."""
    if type(text) is not str or len(text) > MAX_NOTES_TEXT:
        raise ValueError(f"notes are a text of at most {MAX_NOTES_TEXT} characters")
    try:
        entries = json.loads(text)
    except RecursionError:
        raise ValueError("notes are nested too deeply") from None
    if type(entries) is not list or len(entries) > MAX_NOTES + 1:
        raise ValueError(f"notes are a list of at most {MAX_NOTES} and the count of the rest")
    return [checked(entry) for entry in entries]


def _named(name: str) -> str:
    """Return a name that the log accepts."""
    lower = re.sub("[^a-z0-9_]", "_", name.lower())
    lower = (lower if lower[:1].isalpha() else f"v{lower}")[:38]
    return f"{lower}_" if lower in _OWN else lower


def _plain(value: Any) -> Any:
    """Return a value that the log accepts: a plain scalar, or text."""
    value = scalar(value)
    if value is None or type(value) is bool:
        return value
    is_number = -(2**63) <= value < 2**63 if type(value) is int else type(value) is float and isfinite(value)
    return value if is_number else _short(str(value), _MAX_VALUE)


def _short(text: str, length: int) -> str:
    return printable(text[:length])
