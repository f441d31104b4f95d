"""Entries, of which the outbox and requests with replies consist, and large frames with their SHA-256.

An entry is the lengths of its head (2 bytes) and body (4 bytes), the CRC-32 of both (4 bytes), the head, and
the body. The head is a msgpack array: a letter, and exactly the values of that letter; anything else is a
:class:`ProtocolError`. A *spent* pair has the seconds for which a client's process held a dispatch and for
which its jobs ran. Notes for the server's log are checked in :mod:`fedsim.bus.reply_report`; bad ones are no
breach.

====== ============ ====================================================================================
letter from         values; body
====== ============ ====================================================================================
d      server       number in the outbox, client, dispatch, round, exchange, turn, merged, length of the
                    frame or nil; a small frame
q      server       number of the question, client; the observer's question
a      server       no values: a sign of life
e      server       whether the run has come to its end, the reason; the last entry
r      client       client, dispatch, spent, notes or nil; the frame, if there is one
u      client       client, dispatch, why the frame of the dispatch cannot be used
s      client       number of the question, whether it could be answered; the answer, or why there is none
====== ============ ====================================================================================

A large reply or answer is a request of its own: body, head, length of the head (2 bytes), and the SHA-256 of
all.
"""

from __future__ import annotations

import asyncio
import json
import re
import struct
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from hmac import compare_digest
from typing import Any, NamedTuple
from zlib import crc32

import msgpack
import numpy as np

from fedsim.bus.base import Header
from fedsim.bus.http.access import ClientRanges
from fedsim.errors import DecodeError, FedsimError, UserError
from fedsim.network.overhead import DIGEST_BYTES
from fedsim.quoting import printable, quoted, shortened
from fedsim.wire import Envelope, Frame, Kinds, Limits, Message, Packed, decode, pack

PROTOCOL = 5
"""Version of this protocol."""
MAX_HEAD_BYTES = 16_384
MAX_TEXT = 1024
MAX_SPENT_S = 1e9
LENGTHS = struct.Struct(">HII")
"""Before each entry: the lengths of head and body, and the CRC-32 of both."""
_SECRET = re.compile(r"[0-9a-f]{32}")
_HEAD_LENGTH = struct.Struct(">H")
_SMALL: dict[str, Any] = {
    "max_str_len": 8192,
    "max_array_len": 10,
    **dict.fromkeys(("max_map_len", "max_bin_len", "max_ext_len"), 0),
}


class ProtocolError(FedsimError):
    """A peer breaks the rules: it is counted by ``cause``, and its connection closed."""

    cause = "protocol"
    status = 400


class Entry(NamedTuple):
    """One entry, as above."""

    letter: str
    values: tuple[Any, ...]
    body: bytes | memoryview

    @property
    def key(self) -> tuple[int, ...]:
        """Client and dispatch of an entry that goes up, or the number of its question."""
        return self.values[: 1 if self.letter == "s" else 2]


Check = Callable[[Any], bool]


def _integer(low: int, high: int) -> Check:
    return lambda value: type(value) is int and low <= value <= high


def _is_line(value: Any) -> bool:
    return type(value) is str and len(value) <= MAX_TEXT and value.isprintable()


def _is_spent(value: Any) -> bool:
    return type(value) is tuple and len(value) == 2 and all(map(_is_time, value))


def _is_time(value: Any) -> bool:
    return type(value) is float and 0 <= value <= MAX_SPENT_S


def _is_flag(value: Any) -> bool:
    return type(value) is bool


_NUMBER = _integer(0, 2**53)
_INDEX, _INDEX_OR_NONE = (_integer(low, 2**31 - 1) for low in (0, -1))
_CHECKS: dict[str, tuple[Check, ...]] = {
    "d": (
        *(_NUMBER, _INDEX, _INDEX, _INDEX_OR_NONE),
        lambda value: type(value) is str and len(value) <= 256,
        *(_INDEX, _INDEX_OR_NONE),
        lambda value: value is None or _NUMBER(value),
    ),
    "q": (_NUMBER, _INDEX),
    "a": (),
    "e": (_is_flag, _is_line),
    "r": (_INDEX, _INDEX, _is_spent, lambda value: True),
    "u": (_INDEX, _INDEX, _is_line),
    "s": (_NUMBER, _is_flag),
}
_WITH_BODY = frozenset("dqrs")
FROM_SERVER = frozenset("dqae")
FROM_CLIENT = frozenset("rus")
_pack = msgpack.Packer(use_single_float=True).pack


def join_request(clients: ClientRanges) -> bytes:
    """Return the body of a request to join."""
    return json.dumps({"protocol": PROTOCOL, "clients": str(clients)}).encode()


def read_join(body: bytes, secret: str) -> tuple[int, ClientRanges]:
    """Return the protocol and the clients of a request to join; no clients of another protocol."""
    try:
        request: Any = json.loads(body)
        protocol, text = request["protocol"], request["clients"]
        if type(protocol) is not int or type(text) is not str or not _SECRET.fullmatch(secret):
            raise ValueError("a session's secret, a protocol and clients are needed")
        return protocol, ClientRanges.parse(text) if protocol == PROTOCOL else ClientRanges(())
    except (ValueError, TypeError, KeyError, RecursionError, UserError) as error:
        raise ProtocolError(f"join: {shortened(error)}") from None


def entry(letter: str, *values: Any, body: bytes = b"") -> bytes:
    """Return an entry as it travels."""
    head = _pack((letter, *values))
    return b"".join((LENGTHS.pack(len(head), len(body), crc32(body, crc32(head))), head, body))


def read_large(whole: memoryview) -> Entry:
    """Return a large entry of a client process; its body is not copied."""
    end = len(whole) - _HEAD_LENGTH.size
    (length,) = _HEAD_LENGTH.unpack(whole[end:]) if end >= 0 else (0,)
    if not 0 < length <= min(end, MAX_HEAD_BYTES):
        raise ProtocolError("a large reply without its head")
    return _read(whole[end - length : end], FROM_CLIENT, whole[: end - length])


def dispatch_entry(number: int, header: Header, frame: Frame | None, *, is_small: bool) -> bytes:
    """Return the entry of a dispatch, with its frame if that is small."""
    return entry(
        *("d", number, header.receiver, header.dispatch, header.round, header.exchange, header.turn),
        *(header.merged, None if frame is None else len(frame)),
        body=frame.join() if frame is not None and is_small else b"",
    )


def header_of(values: tuple[Any, ...]) -> Header:
    """Return the header of a dispatch, given the values of its entry."""
    _, client, dispatch, round_, exchange, turn, merged, _ = values
    return Header(-1, client, round_, exchange, dispatch, turn, merged)


@dataclass(slots=True, eq=False)
class Reply:
    """A reply, a fault of a dispatch's frame, or an answer to a question.

    Attributes:
        key: Client and dispatch, or the number of the observer's question.
        frame: The reply's frame, or the answer; None for a header alone.
        spent_s: Seconds for which the dispatch was held until ``at_s``, and for which its jobs ran.
        fault: Why the frame of the dispatch cannot be used, or why there is no answer.
        state: The client's state that becomes durable with the reply.
        is_durable: Whether the state folder has it.
        taken: Done when the server has taken a small one.
    """

    key: tuple[int, ...]
    frame: Frame | None = None
    spent_s: tuple[float, float] = (0.0, 0.0)
    notes: str | None = None
    fault: str | None = None
    state: bytes | None = None
    is_durable: bool = False
    at_s: float = 0.0
    taken: asyncio.Future[None] | None = None

    @property
    def line(self) -> tuple[int, int]:
        """Replies of one line, such as those of a client, are sent one after the other."""
        return len(self.key), self.key[0]

    @property
    def path(self) -> str:
        """The path of a large one."""
        return f"/query/{self.key[0]}" if len(self.key) == 1 else f"/dispatch/{self.key[0]}/{self.key[1]}"

    def entry(self, now_s: float) -> bytes:
        """Return a small one as it leaves now; time in which it waited counts as held."""
        held_s, worked_s = self.spent_s
        return entry(
            *self._head((held_s + now_s - self.at_s, worked_s)),
            body=b"" if self.frame is None else self.frame.join(),
        )

    def parts(self) -> tuple[bytes | memoryview, ...]:
        """Return a large one without its SHA-256."""
        head = bytes(_pack(self._head(self.spent_s)))
        return (*(() if self.frame is None else self.frame.parts), head, _HEAD_LENGTH.pack(len(head)))

    def _head(self, spent_s: tuple[float, float]) -> tuple[Any, ...]:
        if len(self.key) == 1:
            return "s", *self.key, self.fault is None
        return ("r", *self.key, spent_s, self.notes) if self.fault is None else ("u", *self.key, self.fault)


class Reader:
    """Cuts a stream into entries with these letters."""

    def __init__(self, letters: frozenset[str], max_body_bytes: int) -> None:
        self._letters = letters
        self._max_body_bytes = max_body_bytes
        self._data = bytearray()

    @property
    def num_left(self) -> int:
        """Bytes of an incomplete entry."""
        return len(self._data)

    def feed(self, data: bytes) -> list[Entry]:
        """Return the entries that are complete."""
        self._data += data
        entries, at = list[Entry](), 0
        with memoryview(self._data) as view:
            while at + LENGTHS.size <= len(view):
                head, length, crc = LENGTHS.unpack_from(view, at)
                if head > MAX_HEAD_BYTES or length > self._max_body_bytes:
                    raise ProtocolError(f"an entry of {head} and {length} bytes")
                start = at + LENGTHS.size + head
                if start + length > len(view):
                    break
                # Copied once, so that its arrays lie where a frame's arrays lie: at multiples of 16 bytes.
                body = bytes(view[start : start + length])
                head_bytes = bytes(view[at + LENGTHS.size : start])
                if crc32(body, crc32(head_bytes)) != crc:
                    raise ProtocolError(f"{head} and {length} bytes do not have the checksum {crc}")
                entries.append(_read(head_bytes, self._letters, body))
                at = start + length
        del self._data[:at]
        return entries


def _read(head: bytes | memoryview, letters: frozenset[str], body: bytes | memoryview) -> Entry:
    try:  # it is short, so this takes little memory
        parsed = msgpack.unpackb(head, use_list=False, **_SMALL)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise ProtocolError(f"not a head: {shortened(error)}") from None
    letter = parsed[0] if type(parsed) is tuple and parsed else None
    if type(letter) is not str or letter not in letters:
        raise ProtocolError(f"{quoted(parsed)} may not come from there")
    checks, values = _CHECKS[letter], parsed[1:]
    if len(values) != len(checks):
        raise ProtocolError(f"{letter}: {len(values)} values, not {len(checks)}")
    for place, (check, value) in enumerate(zip(checks, values, strict=True)):
        if not check(value):
            raise ProtocolError(f"{letter}[{place}]: {quoted(value)} is not allowed there")
    if body and (letter not in _WITH_BODY or (letter == "d" and len(body) != values[-1])):
        raise ProtocolError(f"{letter}: {len(body)} bytes follow where none or others belong")
    return Entry(letter, values, body)


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


def read_frame(header: Header, frame: bytes | memoryview, kinds: Kinds, limits: Limits) -> Message:
    """Return the message of a frame, whose envelope must name the route of the header."""
    envelope, message = decode(memoryview(frame), kinds, limits)
    route = Envelope(envelope.kind, header.sender, header.receiver, header.round, header.exchange)
    if envelope != route:
        raise DecodeError(f"envelope: {envelope} came where {route} belongs")
    return message


Parts = Sequence[bytes | memoryview]


def transfer_bytes(parts: Parts) -> int:
    """Return how many bytes travel for these parts, with the SHA-256."""
    return sum(map(len, parts)) + DIGEST_BYTES


async def pieces(parts: Parts, max_bytes: int) -> AsyncIterator[bytes | memoryview]:
    """Yield the parts and their SHA-256 in pieces of at most ``max_bytes``, without copying."""
    digest = asyncio.get_running_loop().run_in_executor(None, _sha256, parts)
    for part in parts:
        view = memoryview(part).cast("B")
        for start in range(0, len(view), max_bytes):
            yield view[start : start + max_bytes]
    yield await digest


class Incoming:
    """A large frame that arrives. Its memory is reserved at once, but used only as bytes arrive."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.num_bytes = 0
        self._view = memoryview(np.empty(total, np.uint8).data)

    @property
    def is_complete(self) -> bool:
        """Whether all bytes are here."""
        return self.num_bytes == self.total

    def add(self, data: bytes) -> None:
        """Take the next bytes; more than were announced are a ProtocolError."""
        end = self.num_bytes + len(data)
        if end > self.total:
            raise ProtocolError(f"a transfer of {self.total} bytes goes on after its end")
        self._view[self.num_bytes : end] = data
        self.num_bytes = end

    async def verified(self) -> memoryview | None:
        """Return the bytes before the SHA-256, read-only; None if they do not have it."""
        body, digest = self._view[:-DIGEST_BYTES].toreadonly(), self._view[-DIGEST_BYTES:]
        return body if compare_digest(await asyncio.to_thread(_sha256, [body]), bytes(digest)) else None


def _sha256(parts: Parts) -> bytes:
    """Return the SHA-256; takes about half a millisecond per MB."""
    digest = sha256()
    for part in parts:
        digest.update(part)
    return digest.digest()
