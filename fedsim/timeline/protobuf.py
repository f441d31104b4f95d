"""Protocol buffers, as far as a writer of traces needs them: fields as bytes, each with its tag."""

from __future__ import annotations

from functools import cache
from struct import Struct

_VARINT, _FIXED64, _LENGTH = 0, 1, 2  # wire types
_DOUBLE, _UNSIGNED = Struct("<d"), Struct("<Q")


# Two groups of seven bits at once: with more to follow, and as the last ones.
_MORE = [bytes((value & 0x7F | 0x80, value >> 7 | 0x80)) for value in range(1 << 14)]
_LAST = [bytes((value,) if value < 0x80 else (value & 0x7F | 0x80, value >> 7)) for value in range(1 << 14)]


def varint(value: int) -> bytes:
    """Return a whole number in groups of seven bits, the lowest first; a negative one as its 64 bits."""
    if value < 0:
        value &= 0xFFFF_FFFF_FFFF_FFFF
    found = b""
    while value >= 1 << 14:
        found += _MORE[value & 0x3FFF]
        value >>= 14
    return found + _LAST[value]


@cache
def tag(field: int, wire_type: int) -> bytes:
    """Return what comes before a value of a field."""
    return varint(field << 3 | wire_type)


def number(field: int, value: int) -> bytes:
    """Return a field that holds a whole number, a truth value, or a member of an enumeration."""
    return tag(field, _VARINT) + varint(value)


def fixed64(field: int, value: int) -> bytes:
    """Return a field that holds a number in eight bytes."""
    return tag(field, _FIXED64) + _UNSIGNED.pack(value)


def double(field: int, value: float) -> bytes:
    """Return a field that holds a floating-point number."""
    return tag(field, _FIXED64) + _DOUBLE.pack(value)


def message(field: int, *parts: bytes) -> bytes:
    """Return a field that holds a message, made of the fields given."""
    content = b"".join(parts)
    return tag(field, _LENGTH) + varint(len(content)) + content


def text(field: int, value: str) -> bytes:
    """Return a field that holds a text."""
    return message(field, value.encode())
