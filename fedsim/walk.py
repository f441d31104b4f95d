"""Walking nested values: their parts, in a fixed order.

A value is a leaf, a record (a dataclass or settings), a mapping, a tuple or a list. The checks for values
that are not finite, the check that hooks change nothing, the saved states and the search for models all use
:func:`parts`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, TypeVar

from fedsim.config import Config
from fedsim.params import Array

T = TypeVar("T")


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


def little_endian(array: Array) -> Array:
    """Return an array in C order and little-endian; one that is so already is returned itself."""
    return array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)


def octets(array: Array) -> memoryview:
    """Return a read-only flat view of the bytes of an array in C order; texts and complex are copied."""
    try:
        return array.data.cast("B").toreadonly()
    except (TypeError, ValueError):  # a zero in the shape, or a dtype that memoryview does not know
        return memoryview(array.tobytes())
