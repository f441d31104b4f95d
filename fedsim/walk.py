"""Walking nested values: their parts, in a fixed order.

A value is a leaf, a record (a dataclass or settings), a mapping, a tuple or a list. The checks for values
that are not finite, the check that hooks change nothing, the saved states and the search for models all use
:func:`parts`.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from types import FunctionType
from typing import Any, TypeVar

from fedsim.config import Config
from fedsim.params import Array

T = TypeVar("T")

_PLAIN = {bool, int, float, str, type(None)}


def field_names(cls: type) -> tuple[str, ...] | None:
    """Return the names of a record's fields, as declared; None for a class of other values."""
    if issubclass(cls, Config):
        return tuple(cls.model_fields)
    return tuple(field.name for field in dataclasses.fields(cls)) if dataclasses.is_dataclass(cls) else None


def parts(value: Any) -> Mapping[Any, Any]:
    """Return the parts of a value by key, position or field name; a leaf has none."""
    cls: type = type(value)
    return _taken_apart(cls)(value)


@cache  # every state and message is walked, and a look-up is faster than testing for each kind of type
def _taken_apart(cls: type) -> Callable[[Any], Mapping[Any, Any]]:
    if issubclass(cls, Mapping):
        return lambda value: value
    if issubclass(cls, tuple | list):
        return lambda value: dict(enumerate(value))
    names = field_names(cls) or ()
    return lambda value: {name: getattr(value, name) for name in names}


def is_leaf(cls: type) -> bool:
    """Say whether the values of a class have no parts."""
    return not issubclass(cls, Mapping | tuple | list) and not field_names(cls)


def instances(value: Any, cls: type[T]) -> Iterator[T]:
    """Yield the instances of a class within a value, in order, and not those within another instance."""
    if isinstance(value, cls):
        yield value
        return
    for part in parts(value).values():
        yield from instances(part, cls)


def is_own(value: Any) -> bool:
    """Say whether a value is made of fedsim's own functions and classes and of plain values alone.

    What they do stays the same as long as the process runs; other code may change, as in a notebook.
    """
    cls = type(value)
    if cls in _PLAIN:
        return True
    if cls is FunctionType or isinstance(value, type):
        module = value.__module__
        at_top = getattr(sys.modules.get(module), value.__qualname__, None)
        return module.startswith("fedsim.") and at_top is value
    is_made = cls is tuple or (field_names(cls) is not None and is_own(cls))
    return is_made and all(map(is_own, parts(value).values()))


def little_endian(array: Array) -> Array:
    """Return an array in C order and little-endian; one that is so already is returned itself."""
    return array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)


def octets(array: Array) -> memoryview:
    """Return a read-only flat view of the bytes of an array in C order; texts and complex are copied."""
    try:
        return array.data.cast("B").toreadonly()
    except (TypeError, ValueError):  # a zero in the shape, or a dtype that memoryview does not know
        return memoryview(array.tobytes())
