"""Finding values that would poison a merge, and what comes after it (specification 3.5, E9).

What an array may hold says :func:`fedsim.params.out_of_range`; other floats are neither NaN nor infinite.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from math import isfinite
from typing import Any

import numpy as np

from fedsim.params import NON_FINITE, OVERFLOWING, PendingTree, RowTree, out_of_range
from fedsim.walk import is_leaf, parts
from fedsim.wire import Message

LEAVES_RANGE = "leaves the finite range"
"""What is said of a merge whose result cannot be computed with."""


def non_finite(message: Message) -> str | None:
    """Return which field of a message holds what cannot be computed with, and what that is, or None."""
    for name in message.PLAN.inexact:
        value = getattr(message, name)
        cls: type = type(value)
        if (found := _finder(cls)(value, None)) is not None:
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


def is_of_non_finite(reason: str) -> bool:
    """Whether a reply was rejected for this reason because it, or what its merge made, is not finite."""
    return any(words in reason for words in (NON_FINITE, OVERFLOWING, LEAVES_RANGE))


_NOTHING: Mapping[Any, Any] = {}

_Fault = tuple[str, str]
"""The way from a value to the first fault in it, empty for itself, and the fault."""


def _find(value: Any, before: Any) -> _Fault | None:
    cls: type = type(value)
    return None if value is before else _finder(cls)(value, before)


@cache  # every part of every reply is looked at, and a look-up is faster than testing for each kind of type
def _finder(cls: type) -> Callable[[Any, Any], _Fault | None]:
    if issubclass(cls, np.ndarray):
        return _in_array
    if issubclass(cls, float | np.floating):
        return _in_number
    if cls is PendingTree:
        return _in_pending
    if cls is RowTree:
        return _in_row
    return _in_nothing if is_leaf(cls) else _in_parts


def _in_array(value: Any, before: Any) -> _Fault | None:
    return None if (fault := out_of_range(value)) is None else ("", fault)


def _in_pending(value: Any, before: Any) -> _Fault | None:
    return _find(value.computed(), before)


def _in_row(value: Any, before: Any) -> _Fault | None:
    return None if value.is_in_range or out_of_range(value.row) is None else _in_parts(value, before)


def _in_number(value: Any, before: Any) -> _Fault | None:
    return None if isfinite(value) else ("", NON_FINITE)


def _in_nothing(value: Any, before: Any) -> None:
    return None


def _in_parts(value: Any, before: Any) -> _Fault | None:
    if not value and type(value) is dict:  # as the buffers of most nets
        return None
    former = _NOTHING if before is None else parts(before)
    for name, part in parts(value).items():
        known, cls = former.get(name), part.__class__
        if part is not known and (found := _finder(cls)(part, known)) is not None:
            step = f"[{name!r}]" if isinstance(value, Mapping | tuple | list) else f".{name}"
            return step + found[0], found[1]
    return None
