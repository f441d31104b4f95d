"""What is found out about models once for all runs of a process.

Building a net and counting its operations takes milliseconds, and a comparison has many runs of the same
models. Only what concerns fedsim's own models and steps is shared: what is known of other code would be wrong
as soon as a notebook defines a function anew.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import torch
from torch.utils.flop_counter import flop_registry

T = TypeVar("T")

MAX_ENTRIES = 10_000
"""Most things that are cached; beyond that, all are forgotten."""

_MEMORY: dict[Hashable, Any] = {}


def cached(key: Hashable | None, make: Callable[[], T]) -> T:
    """Return what ``make()`` gives, or what it gave for an equal key."""
    if key is None:
        return make()
    torchs = torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled()
    # Formulas of operations may be registered at any time.
    key = (key, torchs, frozenset(flop_registry.items()))
    made: T | None = _MEMORY.get(key)
    if made is None:
        made = make()
        if len(_MEMORY) >= MAX_ENTRIES:
            _MEMORY.clear()
        _MEMORY[key] = made
    return made


def forget() -> None:
    """Forget everything."""
    _MEMORY.clear()
