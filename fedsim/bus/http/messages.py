"""Entries, of which both directions of a connection consist.

An entry is one or several WebSocket messages: the length of its head (2 bytes), the head, and the body. The
head is a msgpack array: a letter, exactly the values of that letter, and the length of the body or nil.
Anything else is a :class:`ProtocolError`. *Spent* are the seconds for which a client's process held a
dispatch and for which its jobs ran, the number of jobs, and their operations. Notes for the server's log are
checked in :mod:`fedsim.bus.reply_report`.

====== ============ ====================================================================================
letter from         values; body
====== ============ ====================================================================================
j      client       joins: secret of the session, the server that it knows; the clients that it hosts
h      server       welcomes: the run, the server; the greeting
b      server       at first, and at the end of rounds: dispatches before which states are needed
o      both         once, then: the dispatches that the process has, or that have no reply at the server
x      server       refuses the process: why
k      client       the process understands messages
d      server       dispatch: client, dispatch, round, exchange, turn, merged; the frame, if there is one
c      client       the frame of a dispatch has arrived: client, dispatch
r      client       reply: client, dispatch, spent, notes or nil; the frame, if there is one
u      client       the frame of a dispatch cannot be used: client, dispatch, why
t      server       a reply needs not be sent again: client, dispatch
q      server       the observer's question: number, client; the question
s      client       answer: number of the question, whether there is one; the answer, or why there is none
a      both         a sign of life
l      client       the process leaves: why
e      server       the end: whether the run has come to its end, why
m      both         of an emulation: what, client, dispatch, two numbers; what belongs to it, if anything
====== ============ ====================================================================================
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgpack
import numpy as np

from fedsim.bus.base import Header
from fedsim.errors import DecodeError, FedsimError
from fedsim.quoting import printable, quoted, shortened
from fedsim.wire import Envelope, Frame, Kinds, Limits, Message, Packed, decode, pack

PROTOCOL = 8
"""Version of this protocol."""
MAX_TEXT = 1024
MAX_SPENT = 1e9, 1e9, 1e9, 1e30
HEAD_LENGTH = struct.Struct(">H")
"""Before each head: its length."""
_SMALL: dict[str, Any] = {
    "max_str_len": 8192,
    "max_array_len": 10,
    **dict.fromkeys(("max_map_len", "max_bin_len", "max_ext_len"), 0),
}


def _new_name() -> str:
    return secrets.token_hex(16)


@dataclass(frozen=True, slots=True)
class Names:
    """What processes know the server by.

    Attributes:
        run: The run, also of a server that is started again.
        server: The server.
        before: Servers of this run before it whose processes' states belong to the checkpoint from which it
            goes on: the one that wrote it, and those that came after.
    """

    run: str = field(default_factory=_new_name)
    server: str = field(default_factory=_new_name)
    before: Sequence[str] = ()


class ProtocolError(FedsimError):
    """A peer breaks the rules of the protocol."""


class Entry(NamedTuple):
    """An entry; ``first_ns`` is when the first of several messages came, negative for a single one."""

    letter: str
    values: tuple[Any, ...]
    body: memoryview | None = None
    first_ns: int = -1


Key = tuple[int, int]
"""Client and dispatch."""
Spent = tuple[float, float, float, float]
"""What a client's process says of a dispatch: seconds held, seconds of jobs, jobs, operations."""
Parts = Sequence[bytes | memoryview]
"""Bytes that need not be joined."""

Check = Callable[[Any], bool]


def _integer(low: int, high: int) -> Check:
    return lambda value: type(value) is int and low <= value <= high


def _is_text(value: Any) -> bool:
    return type(value) is str and len(value) <= MAX_TEXT and value.isprintable()


def _is_spent(value: Any) -> bool:
    if type(value) is not tuple or len(value) != len(MAX_SPENT):
        return False
    return all(type(one) is float and 0 <= one <= most for one, most in zip(value, MAX_SPENT, strict=True))


def _is_flag(value: Any) -> bool:
    return type(value) is bool


_NUMBER, _NUMBER_OR_NS = (_integer(0, high) for high in (2**53, 2**62))
_INDEX, _INDEX_OR_NONE = (_integer(low, 2**31 - 1) for low in (0, -1))
_CHECKS: dict[str, tuple[Check, ...]] = {
    "j": (_is_text, _is_text),
    "h": (_is_text, _is_text),
    "b": (),
    "o": (),
    "x": (_is_text,),
    "k": (),
    "d": (_INDEX, _INDEX, _INDEX_OR_NONE, _is_text, _INDEX, _INDEX_OR_NONE),
    "c": (_INDEX, _INDEX),
    "r": (_INDEX, _INDEX, _is_spent, lambda value: True),
    "u": (_INDEX, _INDEX, _is_text),
    "t": (_INDEX, _INDEX),
    "q": (_NUMBER, _INDEX),
    "s": (_NUMBER, _is_flag),
    "a": (),
    "l": (_is_text,),
    "e": (_is_flag, _is_text),
    "m": (_is_text, _INDEX, _INDEX, _NUMBER_OR_NS, _NUMBER_OR_NS),
}
_WITH_BODY, _MAYBE_WITH_BODY = frozenset("jhboqs"), frozenset("drm")
FROM_SERVER = frozenset("hboxdtqaem")
FROM_CLIENT = frozenset("jokcrusalm")
_pack = msgpack.Packer(use_single_float=True).pack


def entry(letter: str, *values: Any, body: Parts | None = None) -> Parts:
    """Return an entry in parts: its head, and what the body is made of."""
    packed = _pack((letter, *values, None if body is None else sum(map(len, body))))
    return HEAD_LENGTH.pack(len(packed)) + packed, *(body or ())


def read_head(data: bytes, letters: frozenset[str]) -> tuple[Entry, int | None, memoryview]:
    """Return an entry without its body, the length of that, and the first part of it."""
    end = HEAD_LENGTH.size
    end += HEAD_LENGTH.unpack_from(data)[0] if len(data) >= end else 0
    try:
        if not HEAD_LENGTH.size < end <= len(data):
            raise ValueError(f"{len(data)} bytes")
        parsed = msgpack.unpackb(data[HEAD_LENGTH.size : end], use_list=False, **_SMALL)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise ProtocolError(f"not a head: {shortened(error)}") from None
    letter = parsed[0] if type(parsed) is tuple and parsed else None
    if type(letter) is not str or letter not in letters:
        raise ProtocolError(f"{quoted(parsed)} may not come from there")
    checks, values = _CHECKS[letter], parsed[1:-1]
    if len(parsed) != len(checks) + 2:
        raise ProtocolError(f"{letter}: {len(parsed) - 2} values, not {len(checks)}")
    for place, (check, value) in enumerate(zip(checks, values, strict=True)):
        if not check(value):
            raise ProtocolError(f"{letter}[{place}]: {quoted(value)} is not allowed there")
    num_bytes, rest = parsed[-1], memoryview(data)[end:]
    if num_bytes is None:
        is_right = letter not in _WITH_BODY and not rest
    else:
        is_right = letter in _WITH_BODY | _MAYBE_WITH_BODY and _NUMBER(num_bytes)
    if not is_right:
        raise ProtocolError(f"{letter}: a body of {quoted(num_bytes)} bytes")
    return Entry(letter, values), num_bytes, rest


def nobody_emulates(found: Entry) -> None:
    """Refuse what is said of an emulation where there is none."""
    raise ProtocolError(f"{quoted(found.values[0])} is said of an emulation, and there is none")


def keys_entry(keys: Iterable[Key], letter: str = "o") -> Parts:
    """Return an entry that names dispatches."""
    return entry(letter, body=(np.array([*keys], "<i4").tobytes(),))


def read_keys(found: Entry, letter: str = "o") -> set[Key]:
    """Return the dispatches that such an entry names."""
    if found.letter != letter or found.body is None or len(found.body) % 8:
        raise ProtocolError(f"{found.letter}: no list of dispatches")
    numbers = np.frombuffer(found.body, "<i4").reshape(-1, 2).tolist()
    return {(client, dispatch) for client, dispatch in numbers}


def sendable(text: object) -> str:
    """Return a text that fits into an entry."""
    return printable(text)[:MAX_TEXT]


def framed(
    header: Header, message: Message | Packed | None, limits: Limits
) -> tuple[Packed | None, Frame | None]:
    """Return a message packed and as a frame; two times None for a header alone."""
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


def decode_frame(header: Header, frame: bytes | memoryview, kinds: Kinds, limits: Limits) -> Message:
    """Return the message of a frame, whose envelope must name the route of the header."""
    envelope, message = decode(memoryview(frame), kinds, limits)
    route = Envelope(envelope.kind, header.sender, header.receiver, header.round, header.exchange)
    if envelope != route:
        raise DecodeError(f"envelope: {envelope} came where {route} belongs")
    return message
