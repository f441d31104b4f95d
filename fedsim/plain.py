"""Values that every log and every JSON text can hold."""

from __future__ import annotations

from math import isfinite
from typing import Any


def scalar(value: Any) -> Any:
    """Return NumPy's scalars as Python's, NaN and infinities as None, and anything else as it is."""
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        value = value.item()
    return None if isinstance(value, float) and not isfinite(value) else value
