"""Parsing msgpack from a peer, in memory that is proportional to the bytes received.

A msgpack parser allocates a tuple when it reads its header, which may claim more items than follow, at each
of hundreds of levels. So an object is first skipped without allocating anything: this fails where a claimed
item is missing, and afterwards each item is known to take at least a byte. Small objects still take more
memory than bytes (an empty map is 1 byte, and 64 as a dictionary). Where this could be too much, the memory
of all objects is added up before any is made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import msgpack

from fedsim.errors import DecodeError
from fedsim.quoting import MOST_SAID, shortened

FACTOR = 16
"""Most bytes of memory for each byte received, beside :data:`FREE_BYTES`."""
FREE_BYTES = 10**6

_FIRST_FEED = 2048
"""Bytes that nearly every object fits in; more is looked at only where it is longer."""
_MAX_PER_BYTE = 96
"""No object takes more memory than this for each of its bytes."""

# Of CPython, rounded up: an item's place in a tuple; an empty tuple; an empty dictionary; a key and its value
# there and in the list of pairs that it is made of; a number; a string beside its characters.
_PLACE, _TUPLE, _DICT, _PAIR, _NUMBER, _TEXT = 8, 48, 184, 192, 32, 72


def unpack(
    data: bytes | memoryview,
    *,
    where: str,
    whole_bytes: int,
    max_bytes: int,
    pairs_hook: Callable[[Sequence[tuple[Any, Any]]], Any] | None = None,
    str_bytes: int,
    array_items: int,
    map_items: int,
) -> tuple[Any, int]:
    """Return the object at the start of ``data``, arrays as tuples, and its length in bytes."""
    length = _length(data, where, max_bytes)
    if not fits(data[:length], whole_bytes):
        raise DecodeError(
            f"{where}: read, its {length} bytes would take more memory than {FACTOR} times the {whole_bytes} "
            f"received and {FREE_BYTES}: send fewer, larger values"
        )
    try:
        made = msgpack.unpackb(
            data[:length],
            use_list=False,
            object_pairs_hook=pairs_hook,
            ext_hook=_no_ext,
            max_str_len=str_bytes,
            max_array_len=array_items,
            max_map_len=map_items,
            max_bin_len=0,
            max_ext_len=0,
        )
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise DecodeError(f"{where}: {shortened(error, MOST_SAID) or 'not msgpack'}") from None
    return made, length


def fits(data: bytes | memoryview, whole_bytes: int) -> bool:
    """Return whether whole msgpack may be read as a part of so many bytes: see :func:`unpack`."""
    limit = FACTOR * whole_bytes + FREE_BYTES
    return _MAX_PER_BYTE * len(data) <= limit or memory_bytes(bytes(data), limit) <= limit


def _length(data: bytes | memoryview, where: str, max_bytes: int) -> int:
    """Return the length of the object at the start of the data without making it."""
    first = min(_FIRST_FEED, max_bytes)
    unpacker = msgpack.Unpacker(read_size=first, max_buffer_size=max_bytes)
    try:
        unpacker.feed(data[:first])
        try:
            unpacker.skip()
        except msgpack.OutOfData:
            unpacker.feed(data[first:max_bytes])
            unpacker.skip()
    except msgpack.OutOfData:
        if len(data) > max_bytes:
            raise DecodeError(f"{where}: longer than {max_bytes} bytes") from None
        raise DecodeError(f"{where}: the bytes end within it, after {len(data)}") from None
    except msgpack.StackError:
        raise DecodeError(f"{where}: nested too deeply") from None
    except (ValueError, msgpack.UnpackException) as error:
        raise DecodeError(f"{where}: {shortened(error, MOST_SAID) or 'not msgpack'}") from None
    return int(unpacker.tell())


def _no_ext(code: int, data: bytes) -> NoReturn:
    raise ValueError(f"an extension of type {code}, fedsim sends none")


_Token = tuple[int, int, int, int]
"""Of a first byte: memory, length in bytes, how many of these are a count, and memory for each item."""


def _tokens() -> list[_Token]:
    """Return one for each first byte."""
    tokens: list[_Token] = [(0, 1, 0, 0)] * 256  # small numbers, nil and booleans are there already
    for size in range(16):
        tokens[0x80 + size] = (_DICT + size * _PAIR, 1, 0, 0)
        tokens[0x90 + size] = (_TUPLE, 1, 0, 0)
    for size in range(32):
        tokens[0xA0 + size] = (_TEXT + 4 * size, 1 + size, 0, 0)
    for first, widths in ((0xC4, (1, 2, 4)), (0xD9, (1, 2, 4))):
        for place, width in enumerate(widths):
            tokens[first + place] = (_TEXT, 1 + width, width, 4)
    for place, width in enumerate((1, 2, 4)):
        tokens[0xC7 + place] = (_TEXT, 2 + width, width, 4)
    for first in (0xCC, 0xD0):
        for place in range(4):
            tokens[first + place] = (_NUMBER, 1 + 2**place, 0, 0)
    tokens[0xCA], tokens[0xCB] = (_NUMBER, 5, 0, 0), (_NUMBER, 9, 0, 0)
    for place in range(5):
        tokens[0xD4 + place] = (_TEXT, 2 + 2**place, 0, 0)
    for place, width in enumerate((2, 4)):
        tokens[0xDC + place] = (_TUPLE, 1 + width, width, 0)
        tokens[0xDE + place] = (_DICT, 1 + width, width, _PAIR)
    return tokens


_TOKENS = _tokens()


def memory_bytes(data: bytes, limit: int) -> int:
    """Return about how much memory whole msgpack takes when it is read, or a number above ``limit``."""
    position = memory = 0
    while position < len(data) and memory <= limit:
        kind = data[position]
        fixed, length, width, each = _TOKENS[kind]
        memory += _PLACE + fixed
        if width:
            count = int.from_bytes(data[position + 1 : position + 1 + width], "big")
            memory += each * count
            if kind < 0xDC:  # what is counted are bytes, and no values
                position += count
        position += length
    return memory
