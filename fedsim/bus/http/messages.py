"""What travels in the outbox and in requests with replies: entries, each with a head and perhaps a body.

An entry is the length of its head (2 bytes), that of its body (4 bytes), the head, and the body. The head is
a msgpack array: a letter, and exactly the values of that letter; anything else is a :class:`ProtocolError`. A
*spent* pair has the seconds for which a client's process held a dispatch and for which its jobs ran. Notes
for the server's log are looked at apart (:mod:`fedsim.bus.reply_report`): bad ones do not break these rules.

====== ============ ====================================================================================
letter from         values; body
====== ============ ====================================================================================
d      server       number in the outbox, client, dispatch, round, exchange, turn, merged, length of the
                    frame or nil, CRC-32 of the frame or nil; the frame if there is a CRC-32
q      server       number of the question, client; the observer's question
a      server       nothing: a sign of life
e      server       whether the run has come to its end, and the reason; nothing follows
r      client       client, dispatch, CRC-32 of the frame or nil, spent, notes or nil; the frame
u      client       client, dispatch, why the frame of the dispatch cannot be used
====== ============ ====================================================================================

A large reply is one body: the frame, the head of its ``r``, the length of that (2 bytes), and the SHA-256 of
all (:mod:`fedsim.bus.http.transfers`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple
from zlib import crc32

import msgpack

from fedsim.bus.base import Header
from fedsim.errors import DecodeError, FedsimError
from fedsim.quoting import quoted, shortened
from fedsim.wire import Envelope, Frame, Kinds, Limits, Message, Packed, decode, pack

PROTOCOL = 3
"""Version of all that the two sides say to each other."""
MOST_NUMBER = 2**53
"""Highest number in an outbox, of a question, and of bytes."""
MOST_HEAD = 16_384
MOST_TEXT = 1024
MOST_SPENT_S = 1e9
LENGTHS = struct.Struct(">HI")
"""Before each entry."""
_HEAD_LENGTH = struct.Struct(">H")
_HIGHEST = 2**31 - 1
_MOST_EXCHANGE = 256
_SMALL: dict[str, Any] = {
    "max_str_len": 8192,
    "max_array_len": 10,
    **dict.fromkeys(("max_map_len", "max_bin_len", "max_ext_len"), 0),
}


class ProtocolError(FedsimError):
    """A peer breaks the rules: it is counted, and its connection closed."""


class Entry(NamedTuple):
    """One entry.

    Attributes:
        letter: Which.
        values: Its values.
        body: Its body, a copy.
    """

    letter: str
    values: tuple[Any, ...]
    body: bytes


Check = Callable[[Any], bool]


def _number(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MOST_NUMBER


def _index(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _HIGHEST


def _index_or_none(value: Any) -> bool:
    return type(value) is int and -1 <= value <= _HIGHEST


def _optional(value: Any) -> bool:
    return value is None or _number(value)


def _text(most: int) -> Check:
    return lambda value: type(value) is str and len(value) <= most


def _spent(value: Any) -> bool:
    return type(value) is tuple and len(value) == 2 and all(map(_is_time, value))


def _is_time(value: Any) -> bool:
    return type(value) is float and 0 <= value <= MOST_SPENT_S


_CHECKS: dict[str, tuple[Check, ...]] = {
    "d": (
        *(_number, _index, _index, _index_or_none, _text(_MOST_EXCHANGE), _index, _index_or_none),
        *(_optional, _optional),
    ),
    "q": (_number, _index),
    "a": (),
    "e": (lambda value: type(value) is bool, _text(MOST_TEXT)),
    "r": (_index, _index, _optional, _spent, lambda value: True),
    "u": (_index, _index, _text(MOST_TEXT)),
}
FROM_SERVER = frozenset("dqae")
FROM_CLIENT = frozenset("ru")
_pack = msgpack.Packer(use_single_float=True).pack


def entry(letter: str, *values: Any, body: bytes = b"") -> bytes:
    """Return an entry as it travels."""
    head = _pack((letter, *values))
    return b"".join((LENGTHS.pack(len(head), len(body)), head, body))


def dispatch_entry(number: int, header: Header, frame: Frame | None, *, is_small: bool) -> bytes:
    """Return the entry of a dispatch, with its frame if it is a small one."""
    values = (
        *(number, header.receiver, header.dispatch, header.round, header.exchange, header.turn),
        *(header.merged, None if frame is None else len(frame)),
    )
    if frame is None or not is_small:
        return entry("d", *values, None)
    body = frame.join()
    return entry("d", *values, crc32(body), body=body)


def header_of(values: tuple[Any, ...]) -> Header:
    """Return the header of a dispatch, given the values of its entry."""
    _, client, dispatch, round_, exchange, turn, merged, _, _ = values
    return Header(-1, client, round_, exchange, dispatch, turn, merged)


def with_tail(values: tuple[Any, ...]) -> bytes:
    """Return what follows the frame of a large reply, before its SHA-256."""
    head = bytes(_pack(("r", *values)))
    return head + _HEAD_LENGTH.pack(len(head))


def without_tail(whole: memoryview) -> tuple[tuple[Any, ...], memoryview]:
    """Return the values and the frame of a large reply that has arrived.

    Raises:
        ProtocolError: It is none.
    """
    end = len(whole) - _HEAD_LENGTH.size
    (length,) = _HEAD_LENGTH.unpack(whole[end:]) if end >= 0 else (0,)
    if not 0 < length <= min(end, MOST_HEAD):
        raise ProtocolError("a large reply without what was spent on it")
    letter, values = _parsed(bytes(whole[end - length : end]), FROM_CLIENT)
    if letter != "r":
        raise ProtocolError(f"{letter!r} follows a frame where a reply belongs")
    return values, whole[: end - length]


class Reader:
    """Cuts a stream into entries.

    Args:
        letters: Those that may come.
        most_body: Longest body.
    """

    def __init__(self, letters: frozenset[str], most_body: int) -> None:
        self._letters = letters
        self._most_body = most_body
        self._data = bytearray()

    @property
    def num_left(self) -> int:
        """Bytes of an entry that is not whole."""
        return len(self._data)

    def feed(self, data: bytes) -> list[Entry]:
        """Return the entries that are whole now.

        Raises:
            ProtocolError: Something else than an entry that may come.
        """
        self._data += data
        found, at = list[Entry](), 0
        with memoryview(self._data) as view:
            while at + LENGTHS.size <= len(view):
                head, body = LENGTHS.unpack_from(view, at)
                if head > MOST_HEAD or body > self._most_body:
                    raise ProtocolError(f"an entry of {head} and {body} bytes")
                start = at + LENGTHS.size + head
                if start + body > len(view):
                    break
                letter, values = _parsed(bytes(view[at + LENGTHS.size : start]), self._letters)
                _check_body(letter, values, body)
                # Copied once, so that its arrays lie where a frame's arrays lie: at multiples of 16 bytes.
                found.append(Entry(letter, values, bytes(view[start : start + body])))
                at = start + body
        del self._data[:at]
        return found


def _parsed(head: bytes, letters: frozenset[str]) -> tuple[str, tuple[Any, ...]]:
    try:  # it is short, so this takes little memory
        parsed = msgpack.unpackb(head, use_list=False, **_SMALL)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise ProtocolError(f"not a head: {shortened(error)}") from None
    if type(parsed) is not tuple:
        raise ProtocolError(f"a head is one array, not {quoted(parsed)}")
    letter = parsed[0] if parsed else None
    if type(letter) is not str or letter not in letters:
        raise ProtocolError(f"{quoted(letter)} may not come from there")
    checks = _CHECKS[letter]
    values = parsed[1:]
    if len(values) != len(checks):
        raise ProtocolError(f"{letter}: {len(values)} values, not {len(checks)}")
    for place, (check, value) in enumerate(zip(checks, values, strict=True)):
        if not check(value):
            raise ProtocolError(f"{letter}[{place}]: {quoted(value)} is not allowed there")
    return letter, values


def _check_body(letter: str, values: tuple[Any, ...], num_bytes: int) -> None:
    if letter == "d":
        has_body = values[-1] is not None
        fits = num_bytes == values[-2] if has_body else not num_bytes
    else:
        has_body = letter == "q" or (letter == "r" and values[2] is not None)
        fits = has_body or not num_bytes
    if not fits:
        raise ProtocolError(f"{letter}: {num_bytes} bytes follow where none or others belong")


def sendable(text: object) -> str:
    """Return a text that fits into an entry."""
    return str(text).encode("utf-8", "replace").decode("utf-8")[:MOST_TEXT]


def framed(
    header: Header, message: Message | Packed | None, limits: Limits
) -> tuple[Packed | None, Frame | None]:
    """Return a message packed and as the frame of a header; nothing for a header alone.

    Raises:
        ValueError: The frame is longer than allowed.
    """
    if message is None:
        return None, None
    packed = message if isinstance(message, Packed) else pack(message)
    frame = packed.frame(
        sender=header.sender, receiver=header.receiver, round=header.round, exchange=header.exchange
    )
    if len(frame) > limits.frame_bytes:
        raise ValueError(
            f"a frame of {len(frame)} bytes: the limit is {limits.frame_bytes}; raise HttpLimits.frame"
        )
    return packed, frame


def read_frame(
    header: Header, frame: bytes | memoryview, kinds: Kinds, limits: Limits, crc: int | None = None
) -> Message:
    """Return the message of a frame.

    Raises:
        DecodeError: It is not what its checksum says, cannot be decoded, or its envelope names another route
            than the header.
    """
    view = memoryview(frame)
    if crc is not None and crc32(view) != crc:
        raise DecodeError(f"frame: its {len(view)} bytes do not have the checksum {crc}")
    envelope, message = decode(view, kinds, limits)
    route = Envelope(envelope.kind, header.sender, header.receiver, header.round, header.exchange)
    if envelope != route:
        raise DecodeError(f"envelope: {envelope} came where {route} belongs")
    return message
