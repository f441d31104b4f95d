"""A cache of operations on the meta device, by the shapes of their arguments.

On the meta device torch computes the form of an operation's result in Python, which takes a tenth of a
millisecond. One training step of a recurrent net has ten thousand operations, nearly all of them alike, so
results that depend only on shapes are computed once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

MOST = 100_000
"""Most operations that are remembered; beyond that, all are forgotten."""

_PLAIN = (int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)
_Form = tuple[torch.Size, tuple[int, ...], torch.dtype]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one operation, and the bytes that it moves."""

    forms: tuple[_Form | None, ...]
    is_single: bool
    in_place: bool
    moved_bytes: int

    def results(self, args: tuple[Any, ...]) -> Any:
        """Return new tensors of those forms, or the first argument."""
        if self.in_place:
            return args[0]
        # From a list, which is faster than a generator: this runs for every operation of a step.
        made = tuple([None if form is None else _empty(*form) for form in self.forms])
        return made[0] if self.is_single else made


class Memory(dict[Hashable, Outcome]):
    """Outcomes of operations, by operation and the forms of its arguments."""

    def add(self, key: Hashable, args: tuple[Any, ...], result: Any, moved_bytes: int) -> None:
        """Remember an operation, if its results are tensors without values."""
        results = result if isinstance(result, tuple) else (result,)
        if not all(one is None or (isinstance(one, Tensor) and one.is_meta) for one in results):
            return
        if len(self) >= MOST:
            self.clear()
        forms = tuple([None if one is None else (one.size(), one.stride(), one.dtype) for one in results])
        in_place = bool(args) and result is args[0]
        self[key] = Outcome(forms, isinstance(result, Tensor), in_place, moved_bytes)


def key_of(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Hashable | None:
    """Return a key of everything that an operation's outcome depends on; None if that is more than shapes.

    It is more for operations that return a view of an argument, write into an argument other than the first,
    take a generator, or have a tensor with values among their arguments.
    """
    if not _is_plain(func):
        return None
    parts: list[Hashable] = [func, torch.get_default_dtype()]
    if _add(parts, args) and _add(parts, kwargs.items()):
        return tuple(parts)
    return None


@cache
def _is_plain(func: Any) -> bool:
    """Return whether an operation gives new tensors, or writes into its first argument and returns it."""
    arguments, returns = func._schema.arguments, func._schema.returns
    if not returns:
        return False
    if all(part.alias_info is None for part in (*arguments, *returns)):
        return True
    first, *others = arguments
    return (
        first.alias_info is not None
        and first.alias_info.is_write
        and all(argument.alias_info is None for argument in others)
        and len(returns) == 1
        and returns[0].alias_info is not None
        and isinstance(returns[0].type, torch.TensorType)
        and torch.Tag.inplace_view not in func.tags  # changes its form
    )


def _add(parts: list[Hashable], values: Iterable[Any]) -> bool:
    """Add what distinguishes these values to ``parts``; return whether that is everything."""
    for value in values:
        if isinstance(value, Tensor):
            if not value.is_meta:
                return False
            parts += (value.size(), value.stride(), value.dtype)
        elif isinstance(value, (list, tuple)):
            parts.append(len(value))
            if not _add(parts, value):
                return False
        elif isinstance(value, _PLAIN):
            # 1, 1.0 and True are equal, but give results of different types
            parts.append((type(value), value))
        else:
            return False
    return True


def _empty(size: torch.Size, strides: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return torch.empty_strided(size, strides, dtype=dtype, device="meta")
