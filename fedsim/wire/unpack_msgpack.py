"""Parsing msgpack from a peer.

A msgpack parser allocates a tuple when it reads its header, which may claim more items than follow, at each
of hundreds of levels. So an object is first skipped without allocating anything: this fails where a claimed
item is missing, and afterwards each item is known to take at least a byte. Small objects take more memory
than bytes, at most 96 times as much, so ``max_bytes`` bounds the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import msgpack

from fedsim.errors import DecodeError
from fedsim.quoting import MAX_SHOWN, shortened

_FIRST_FEED = 2048
"""Bytes that nearly every object fits in; more is looked at only where it is longer."""


def unpack(
    data: bytes | memoryview,
    *,
    where: str,
    max_bytes: int,
    pairs_hook: Callable[[Sequence[tuple[Any, Any]]], Any] | None = None,
    str_bytes: int,
    array_items: int,
    map_items: int,
) -> tuple[Any, int]:
    """Return the object at the start of ``data``, arrays as tuples, and its length in bytes."""
    length = _length(data, where, max_bytes)
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
        raise DecodeError(f"{where}: {shortened(error, MAX_SHOWN) or 'not msgpack'}") from None
    return made, length


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
        raise DecodeError(f"{where}: {shortened(error, MAX_SHOWN) or 'not msgpack'}") from None
    return int(unpacker.tell())


def _no_ext(code: int, data: bytes) -> NoReturn:
    raise ValueError(f"an extension of type {code}, fedsim sends none")
