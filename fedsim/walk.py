"""Values made of parts: the one rule of what they are made of and in which order, and digests on top of it.

A value is a leaf, or it is a record (a dataclass or settings), a mapping, a tuple or a list. Checks for
numbers that are not finite, saved states and the search for models all ask :func:`parts`.
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


def digest(value: Any, named: Callable[[Any], str]) -> str:
    """Return 32 hexadecimal characters, equal for equal values on every host and in every process.

    Types, the order of mappings, and dtype, shape and every byte of arrays count.

    Args:
        value: What is digested.
        named: Says what stands for a class, a function, and any other leaf that is neither a plain value, a
            member of an enumeration nor an array of numbers or texts; it may refuse one.

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
    """Yield what a value is made of; every kind begins with a letter of its own."""
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
