"""Plain numbers in text: read the same from every file and option, and made such that any log can hold them.

What is read is ASCII digits, with nothing between them.
Python's own ``float`` and ``int`` take more: full-width and Arabic digits, ``1_000``, ``infinity``. What one
reader takes and another refuses is a trap, so all of them read through this module.
"""

from __future__ import annotations

import re
from math import isfinite
from typing import Any

UNSIGNED = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
"""A finite number of zero or more, without a sign: ``7``, ``0.5``, ``.5``, ``2e-3``."""

NUMBER = rf"[+-]?{UNSIGNED}|[+-]?inf|nan"
"""Any number; ``inf`` and ``nan`` are among them, so that a reader can refuse them by name."""

_NUMBER = re.compile(NUMBER)
_WHOLE = re.compile(r"[+-]?[0-9]+")


def number(text: str) -> float | None:
    """Return the number that a text is, perhaps an infinity or NaN; None where it is none."""
    return float(text) if _NUMBER.fullmatch(text) else None


def whole(text: str) -> int | None:
    """Return the whole number that a text is; None where it is none.

    Of one with more than a thousand digits the first thousand are read: nothing is so large.
    """
    return int(text[:1001]) if _WHOLE.fullmatch(text) else None


def scalar(value: Any) -> Any:
    """Return NumPy's scalars as Python's, NaN and infinities as None, and anything else as it is.

    So every log and every JSON text can hold it.
    """
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        value = value.item()
    return None if isinstance(value, float) and not isfinite(value) else value
