"""Values in messages: as they were written, and shortened where they are long."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

MAX_QUOTED = 80
"""Characters of a value that a message shows."""

MAX_SHOWN = 400
"""Characters of a path, or of another program's message, that a message shows."""


def shortened(value: object, most: int = MAX_QUOTED) -> str:
    """Return a value's text, cut to ``most`` characters; a cut text ends with "..."."""
    text = str(value)
    return text if len(text) <= most else f"{text[: most - 4]} ..."


def quoted(value: Any, most: int = MAX_QUOTED) -> str:
    """Return the :func:`repr` of a value, likewise shortened; a text is in quotation marks."""
    if isinstance(value, str) and len(value) > most:
        # The text itself is cut, so that both quotation marks stay.
        return f"{value[: most - 4]!r} ..."
    return shortened(repr(value), most)


def printable(value: object) -> str:
    """Return a value's text fit for one line of a terminal or a log, whoever wrote it.

    Line ends become spaces; control characters and lone surrogates become ``?``.
    """
    text = str(value)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else " " if char.isspace() else "?" for char in text)


def with_type(error: Exception) -> str:
    """Return what a message says of an error of somebody else's code: its type, and its text shortened."""
    return f"{type(error).__name__}: {shortened(error, MAX_SHOWN)}"


def nearest(name: object, names: Sequence[str]) -> str:
    """Return ``did you mean 'x'? there are: ...``."""
    near = difflib.get_close_matches(str(name)[:MAX_SHOWN], names, n=1)  # a long name is near to none
    guess = f"did you mean {near[0]!r}? " if near else ""
    return f"{guess}there are: {shortened(', '.join(names), MAX_SHOWN)}"
