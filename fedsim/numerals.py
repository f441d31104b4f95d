"""Reading plain numbers from text, the same way for every file and option; and numbers for logs.

A number is written in ASCII digits. Python's ``float`` and ``int`` accept more: full-width and Arabic digits,
``1_000``, ``infinity``. All readers use this module, so none accepts what another refuses.
"""

from __future__ import annotations

import re
from math import isfinite
from typing import Any

UNSIGNED = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
"""A finite number of zero or more, without a sign: ``7``, ``0.5``, ``.5``, ``2e-3``."""

NUMBER = rf"[+-]?{UNSIGNED}|[+-]?inf|nan"
"""Any number, also ``inf`` and ``nan``, which a reader can then refuse by name."""

_NUMBER = re.compile(NUMBER)
_WHOLE = re.compile(r"[+-]?[0-9]+")


def number(text: str) -> float | None:
    """Return the number that a text spells, perhaps an infinity or NaN; None for any other text."""
    return float(text) if _NUMBER.fullmatch(text) else None


def parse_whole(text: str) -> int | None:
    """Return the whole number that a text spells; None for any other text.

    Only the first thousand digits are read: every range ends below, and more would take quadratic time.
    """
    return int(text[:1001]) if _WHOLE.fullmatch(text) else None


def scalar(value: Any) -> Any:
    """Return a value as JSON can hold it: NumPy's scalars as Python's, NaN and infinities as None.

    Any other value is returned itself.
    """
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        value = value.item()
    return None if isinstance(value, float) and not isfinite(value) else value
