"""Values made of parts: the one rule of what they are made of and in which order.

A value is a leaf, or it is a record (a dataclass or settings), a mapping, a tuple or a list. Checks for
numbers that are not finite and for hooks that change what they were given, saved states and the search for
models all ask :func:`parts`.
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
    """Return the names of the fields of a class of records, as declared; None where it is none."""
    if issubclass(cls, Config):
        return tuple(cls.model_fields)
    return tuple(field.name for field in dataclasses.fields(cls)) if dataclasses.is_dataclass(cls) else None


def parts(value: Any) -> Mapping[Any, Any]:
    """Return what a value is made of, by key, position or name of the field; nothing for a leaf."""
    cls: type = type(value)
    return _taken_apart(cls)(value)


@cache  # a look-up is faster than asking what a type is, and every state and message is walked
def _taken_apart(cls: type) -> Callable[[Any], Mapping[Any, Any]]:
    if issubclass(cls, Mapping):
        return lambda value: value
    if issubclass(cls, tuple | list):
        return lambda value: dict(enumerate(value))
    names = field_names(cls) or ()
    return lambda value: {name: getattr(value, name) for name in names}


def instances(value: Any, cls: type[T]) -> Iterator[T]:
    """Yield all of a class in a value, in order; those within one of them are left out."""
    if isinstance(value, cls):
        yield value
        return
    for part in parts(value).values():
        yield from instances(part, cls)


def little_endian(array: Array) -> Array:
    """Return an array in C order and little-endian; one that is so already is returned itself."""
    return array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)


def octets(array: Array) -> memoryview:
    """Return the bytes of an array in C order as a read-only flat view; only texts and complex are copied."""
    try:
        return array.data.cast("B").toreadonly()
    except (TypeError, ValueError):  # a zero in the shape, or a dtype that memoryview does not know
        return memoryview(array.tobytes())
