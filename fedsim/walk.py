"""Walking nested values: their parts in order, and digests.

A value is a leaf, a record (a dataclass or settings), a mapping, a tuple or a list. The checks for values
that are not finite, the saved states and the search for models all use :func:`parts`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import struct
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import cache, partial
from typing import Any, TypeVar

import numpy as np

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


def digest(value: Any, named: Callable[[Any], str]) -> str:
    """Return 32 hexadecimal characters, equal for equal values on every host and in every process.

    Types, the order of mappings, and dtype, shape and every byte of arrays count.

    Args:
        value: What is digested.
        named: Returns a text for a class, a function, or any other leaf that is neither a plain value, a
            member of an enumeration nor an array of numbers or texts; it may raise instead.

    Raises:
        Exception: What ``named`` raises.
    """
    state = hashlib.blake2b(digest_size=16)
    for piece in _pieces(value, named):
        # With its length before it, no piece runs into the next one.
        state.update(b"%d:" % len(piece))
        state.update(piece)
    return state.hexdigest()


def _pieces(value: Any, named: Callable[[Any], str]) -> Iterator[bytes | memoryview]:
    """Yield the bytes to digest; those of each kind of value start with a letter of its own."""
    match value:
        case None | bool():
            yield repr(value).encode()
        case Enum():
            yield from (b"e", named(type(value)).encode(), value.name.encode())
        case np.ndarray() | np.generic() if value.dtype.kind in "biufcSU":
            array = little_endian(np.asarray(value))
            yield f"a{array.dtype.str}{array.shape}".encode()
            yield octets(array)
        case int():
            yield b"i%d" % value
        case float():
            yield b"f" + struct.pack("<d", value)
        case str():
            yield b"s" + value.encode()
        case bytes():
            yield b"b" + value
        case Mapping():
            yield b"m%d" % len(value)
            for key, part in value.items():
                yield from _pieces(key, named)
                yield from _pieces(part, named)
        case tuple() | list():
            yield b"%c%d" % (b"t" if isinstance(value, tuple) else b"l", len(value))
            for part in value:
                yield from _pieces(part, named)
        case partial():
            yield b"p"
            yield from _pieces((value.func, value.args, value.keywords), named)
        case _ if (names := field_names(type(value))) is not None:
            yield b"r%d" % len(names)
            yield named(type(value)).encode()
            for name in names:
                yield name.encode()
                yield from _pieces(getattr(value, name), named)
        case _:
            yield b"c" + named(value).encode()
