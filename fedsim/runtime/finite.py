"""Refusing values that would poison a merge (specification 3.5, E9)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from math import isfinite
from typing import Any

import numpy as np

from fedsim.wire import Message


def non_finite(message: Message) -> str | None:
    """Return the name of the first field that holds NaN or an infinity, or None."""
    for field in dataclasses.fields(message):  # type: ignore[arg-type]
        value = getattr(message, field.name)
        if not _finite(value):
            return field.name
    return None


def _finite(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        # NaN and infinities survive a sum, so a finite one says it all; one that is not may have overflowed.
        if value.dtype.kind != "f" or isfinite(value.sum(dtype=np.float64)):
            return True
        return bool(np.isfinite(value).all())
    if isinstance(value, Mapping):
        return all(_finite(item) for item in value.values())
    return not isinstance(value, float) or isfinite(value)
