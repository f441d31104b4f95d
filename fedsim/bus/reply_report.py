"""What a client process reports with a reply, outside its frame: the time of jobs, and notes for the log.

Nothing of it is a part of the run: no ledger counts it, and no hook sees it. It is taken as often as the
reply is, which is once. A note is turned into plain values when it is made, so that later changes of its
values do not show. The sender of a note may lie, so its length and its values are bounded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, NamedTuple

from fedsim.numerals import scalar
from fedsim.quoting import printable, quoted

MOST_PER_REPLY = 16
"""Most notes with one reply; one more says how many were left out."""
MOST_TEXT = 8 * 1024
"""Longest text of all notes with a reply, in characters, which are single bytes."""
_MOST_EVENT = 200
_MOST_VALUE = 300
_MOST_VALUES = 16
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_OWN = frozenset(
    ("args", "at_s", "client", "event", "exc_info", "level", "method_name", "self", "stack_info", "told_by")
)
"""Names that the log itself uses, so no value may have them."""
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
    """What is reported of the work behind a reply.

    Attributes:
        compute_ns: Time during which at least one of its jobs ran.
        notes: What was noted meanwhile, as :func:`in_words` returns it.
        left_out: Number of further notes.
    """

    compute_ns: int = 0
    notes: Sequence[Note] = ()
    left_out: int = 0


def in_words(note: Note) -> Note:
    """Return a note of plain values, which can be sent and holds no reference to the values given."""
    level, event, values = note
    first = list(values.items())[:_MOST_VALUES]
    return Note(level, _short(event, _MOST_EVENT), {_named(name): _plain(value) for name, value in first})


def checked(said: Any) -> Note:
    """Return the note of a level, an event and values as a peer has sent them."""
    if type(said) is list and len(said) == 3 and type(said[1]) is str and type(said[2]) is dict:
        note = Note(*said)
        if note.level in _LEVELS and in_words(note) == note:
            return note
    raise ValueError(f"{quoted(said)} is no note")


def written(notes: Sequence[Note], left_out: int = 0) -> str | None:
    """Return notes as a text that :func:`read` accepts; what is too much is left out, and counted."""
    lines: list[str] = []
    room = MOST_TEXT - 100  # for the last one
    for note in notes[:MOST_PER_REPLY]:
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
    if type(text) is not str or len(text) > MOST_TEXT:
        raise ValueError(f"notes are a text of at most {MOST_TEXT} characters")
    try:
        said = json.loads(text)
    except RecursionError:
        raise ValueError("notes are nested too deeply") from None
    if type(said) is not list or len(said) > MOST_PER_REPLY + 1:
        raise ValueError(f"notes are a list of at most {MOST_PER_REPLY} and the count of the rest")
    return [checked(one) for one in said]


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
    return value if is_number else _short(str(value), _MOST_VALUE)


def _short(text: str, most: int) -> str:
    return printable(text[:most])
