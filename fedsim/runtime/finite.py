"""Refusing values that would poison a merge (specification 3.5, E9)."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

import numpy as np

from fedsim.wire import Message


def non_finite(message: Message) -> str | None:
    """Return the name of the first field that holds NaN or an infinity, or None."""
    for name, _, _ in message.PLAN.fields:
        if not _finite(getattr(message, name)):
            return name
    return None


def _finite(value: Any) -> bool:
    if type(value) is np.ndarray:
        # NaN and infinities survive a sum, so a finite one says it all; one that is not may have overflowed.
        if value.dtype.kind != "f" or isfinite(np.add.reduce(value, axis=None, dtype=np.float64)):
            return True
        return bool(np.isfinite(value).all())
    if isinstance(value, float):
        return isfinite(value)
    if isinstance(value, Mapping):
        for item in value.values():  # not all(...): it is asked for every reply
            if not _finite(item):
                return False
    return True
