"""Finding values that would poison a merge, and what comes after it (specification 3.5, E9).

What an array may hold says :func:`fedsim.params.out_of_range`; other floats are neither NaN nor infinite.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

import numpy as np

from fedsim.params import NON_FINITE, out_of_range
from fedsim.walk import parts
from fedsim.wire import Message


def non_finite(message: Message) -> str | None:
    """Return which field of a message holds what cannot be computed with, and what that is, or None."""
    for name, _, _ in message.PLAN.fields:
        if (found := _find(getattr(message, name), None)) is not None:
            return f"{name} holds {found[1]}"
    return None


def spoiled(after: Any, before: Any = None) -> str | None:
    """Return where a value holds what cannot be computed with, and what that is, or None.

    Arrays and floats are found in records, mappings, tuples and lists. The place is told as in
    ``State.model.params['w'] holds NaN or an infinity``.

    Args:
        after: The value.
        before: What stood there before; objects that stand where they stood then are not looked at again.
    """
    found = _find(after, before)
    return None if found is None else f"{type(after).__name__}{found[0]} holds {found[1]}"


def _find(value: Any, before: Any) -> tuple[str, str] | None:
    """Return the way from a value to the first fault in it, empty for itself, and the fault."""
    if value is before:
        return None
    if isinstance(value, np.ndarray):
        fault = out_of_range(value)
        return None if fault is None else ("", fault)
    if isinstance(value, float | np.floating):
        return None if isfinite(value) else ("", NON_FINITE)
    inner = parts(value)
    former = parts(before) if inner else inner
    for name, part in inner.items():
        if (found := _find(part, former.get(name))) is not None:
            step = f"[{name!r}]" if isinstance(value, Mapping | tuple | list) else f".{name}"
            return step + found[0], found[1]
    return None
