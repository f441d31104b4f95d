"""Finding values that would poison a merge, and what comes after it (specification 3.5, E9)."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

import numpy as np

from fedsim.params import is_finite
from fedsim.walk import parts
from fedsim.wire import Message


def non_finite(message: Message) -> str | None:
    """Return the name of the first field that holds NaN or an infinity, or None."""
    for name, _, _ in message.PLAN.fields:
        if _where(getattr(message, name), None) is not None:
            return name
    return None


def spoiled(after: Any, before: Any = None) -> str | None:
    """Return where a value holds NaN or an infinity, such as ``State.model.params['w']``, or None.

    Arrays and floats are found in records, mappings, tuples and lists.

    Args:
        after: The value.
        before: What stood there before; objects that stand where they stood then are not looked at again.
    """
    place = _where(after, before)
    return None if place is None else type(after).__name__ + place


def _where(value: Any, before: Any) -> str | None:
    """Return the way from a value to the first number in it that is not finite: empty for itself."""
    if value is before:
        return None
    if isinstance(value, np.ndarray):
        return None if is_finite(value) else ""
    if isinstance(value, float | np.floating):
        return None if isfinite(value) else ""
    inner = parts(value)
    former = parts(before) if inner else inner
    for name, part in inner.items():
        if (place := _where(part, former.get(name))) is not None:
            step = f"[{name!r}]" if isinstance(value, Mapping | tuple | list) else f".{name}"
            return step + place
    return None
