"""What the two sides say to each other: a WebSocket message is a msgpack map, then perhaps raw bytes.

The map has a word ``t`` and exactly the fields of that word; anything else is a :class:`SessionError`. The
raw bytes are a frame, the greeting, or a piece of an observer's question or answer. A delivery from a client
to the server may have two fields more (:mod:`fedsim.bus.http.enclosed`): s(pent), the seconds for which the
client's process held what it answers and for which its jobs ran; and w(ords), notes for the server's log,
which are looked at apart: bad ones do not break the rules of the session.

======== ====== ==========================================================================================
word     from   meaning
======== ====== ==========================================================================================
hello    client proto, session, clients, last (delivery had), base (reply acknowledged), ready
welcome  server resumed, last (reply had), run, finished; the greeting follows
refused  server why, in place of a welcome; the connection ends and trying again is of no use
ready    client messages are understood from now on
send     both   n, h(eader), c(hecksum, CRC-32), a(cknowledged); the frame follows
blob     both   n, h, b(ytes), a; the frame travels over HTTP
none     both   n, h, a; a header without a frame
ack      both   n: all deliveries up to it have arrived
bad      client n, why: the frame of this delivery cannot be used
ask      server id, client; the observer's question follows
told     client id, at, of; a piece of the answer, from ``at`` of ``of`` bytes
fault    client id, why: the question could not be answered
alive    both   nothing else was said for a while
finish   server the run is over
bye      both   the connection ends now
======== ====== ==========================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgpack

from fedsim.bus.base import Header
from fedsim.errors import DecodeError, FedsimError
from fedsim.quoting import quoted
from fedsim.wire.unpack import unpack

PROTOCOL = 2
MOST_NUMBER = 2**53
"""Highest number of a delivery, and of anything else that is counted."""
MOST_TEXT = 1024
MOST_SPENT_S = 1e9
MOST_CLIENTS_TEXT = 128 * 1024
MOST_NOTES = 8 * 1024
"""Longest text of notes, in characters, which are single bytes."""
_HIGHEST = 2**31 - 1
_MOST_EXCHANGE = 256
_MOST_HEAD = MOST_CLIENTS_TEXT + 4096

Check = Callable[[Any], bool]


class SessionError(FedsimError):
    """A peer breaks the rules of the session: it is counted, and its connection closed."""


class Control(NamedTuple):
    """One WebSocket message.

    Attributes:
        word: What is said.
        values: Its fields.
        body: The raw bytes after the map.
    """

    word: str
    values: Mapping[str, Any]
    body: memoryview


def _number(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MOST_NUMBER


def _flag(value: Any) -> bool:
    return type(value) is bool


def _text(most: int) -> Check:
    return lambda value: type(value) is str and len(value) <= most


def _hexadecimal(value: Any) -> bool:
    return type(value) is str and len(value) == 32 and not value.strip("0123456789abcdef")


def _header(value: Any) -> bool:
    if type(value) is not tuple or len(value) != 7:
        return False
    sender, receiver, round_, exchange, dispatch, turn, merged = value
    # Spelt out: this is looked at for every delivery.
    return (
        type(sender) is int
        and type(receiver) is int
        and type(round_) is int
        and type(dispatch) is int
        and type(turn) is int
        and type(merged) is int
        and -1 <= sender <= _HIGHEST
        and -1 <= receiver <= _HIGHEST
        and -1 <= round_ <= _HIGHEST
        and 0 <= dispatch <= _HIGHEST
        and 0 <= turn <= _HIGHEST
        and -1 <= merged <= _HIGHEST
        and (sender == -1) != (receiver == -1)
        and type(exchange) is str
        and len(exchange) <= _MOST_EXCHANGE
    )


def _spent(value: Any) -> bool:
    return type(value) is tuple and len(value) == 2 and all(map(_is_time, value))


def _is_time(value: Any) -> bool:
    return type(value) is float and 0 <= value <= MOST_SPENT_S


_DELIVERY: dict[str, Check] = {"n": _number, "h": _header, "a": _number}
_WORDS: dict[str, dict[str, Check]] = {
    "hello": {
        "proto": _number,
        "session": _hexadecimal,
        "clients": _text(MOST_CLIENTS_TEXT),
        "last": _number,
        "base": _number,
        "ready": _flag,
    },
    "welcome": {"resumed": _flag, "last": _number, "run": _hexadecimal, "finished": _flag},
    "refused": {"why": _text(MOST_TEXT)},
    "ready": {},
    "send": {**_DELIVERY, "c": _number},
    "blob": {**_DELIVERY, "b": _number},
    "none": _DELIVERY,
    "ack": {"n": _number},
    "bad": {"n": _number, "why": _text(MOST_TEXT)},
    "ask": {"id": _number, "client": _number},
    "told": {"id": _number, "at": _number, "of": _number},
    "fault": {"id": _number, "why": _text(MOST_TEXT)},
    "alive": {},
    "finish": {},
    "bye": {},
}
_BESIDE_ANSWERS: dict[str, Check] = {"s": _spent, "w": lambda value: True}
_WITH_BODY = frozenset({"welcome", "send", "ask", "told"})
FROM_CLIENT = frozenset(
    {"hello", "ready", "send", "blob", "none", "ack", "bad", "told", "fault", "alive", "bye"}
)
FROM_SERVER = frozenset({"welcome", "send", "blob", "none", "ack", "ask", "alive", "finish", "bye"})
DELIVERIES = frozenset({"send", "blob", "none"})
_pack = msgpack.Packer(use_single_float=True).pack


def encode(word: str, **values: Any) -> bytes:
    """Return the map of a message; raw bytes, if any, are put after it by the sender."""
    return _pack({"t": word, **values})


def parse(data: bytes | memoryview, allowed: frozenset[str]) -> Control:
    """Read one WebSocket message.

    Args:
        data: All its bytes.
        allowed: The words that may come from that side.

    Raises:
        SessionError: Anything but a message of an allowed word with exactly its fields.
    """
    whole = memoryview(data)
    values, position = _map_of(whole)
    word = values.pop("t", None)
    checks = _WORDS.get(word) if type(word) is str and word in allowed else None
    if checks is None:
        raise SessionError(f"{quoted(word)} is no message that may come from there")
    if values.keys() != checks.keys():
        checks = _with_more(word, values, checks)
    for name, check in checks.items():
        if not check(values[name]):
            raise SessionError(f"{word}.{name}: {quoted(values[name])} is not allowed there")
    body = whole[position:]
    if len(body) and word not in _WITH_BODY:
        raise SessionError(f"{word}: {len(body)} bytes follow where none belong")
    return Control(word, values, body)


def _with_more(word: str, values: Mapping[str, Any], checks: dict[str, Check]) -> dict[str, Check]:
    """Return the checks of a message that has other fields than it must have, if an answer may have them."""
    more = {name: check for name, check in _BESIDE_ANSWERS.items() if name in values}
    header = values.get("h")
    is_answer = word in DELIVERIES and type(header) is tuple and header[:1] != (-1,)
    if not is_answer or values.keys() != checks.keys() | more.keys():
        raise SessionError(f"{word}: the fields are {quoted(list(values))}, not {list(checks)}")
    return {**checks, **more}


def header_values(header: Header) -> tuple[Any, ...]:
    """Return a header as it travels."""
    return (
        header.sender,
        header.receiver,
        header.round,
        header.exchange,
        header.dispatch,
        header.turn,
        header.merged,
    )


def header_of(values: tuple[Any, ...]) -> Header:
    """Return the header that has travelled."""
    return Header(*values)


def sendable(text: object) -> str:
    """Return a text that fits into a message."""
    return str(text).encode("utf-8", "replace").decode("utf-8")[:MOST_TEXT]


def _map_of(whole: memoryview) -> tuple[dict[str, Any], int]:
    try:
        parsed, position = unpack(
            whole,
            where="not a message",
            whole_bytes=len(whole),
            most_bytes=_MOST_HEAD,
            pairs_hook=_pairs,
            str_bytes=MOST_CLIENTS_TEXT,
            array_items=7,
            map_items=8,
        )
    except DecodeError as error:
        raise SessionError(str(error)) from None
    if type(parsed) is not dict:
        raise SessionError(f"a message is a map, not {quoted(parsed)}")
    return parsed, position


def _pairs(pairs: Any) -> dict[Any, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key occurs twice")
    return made
