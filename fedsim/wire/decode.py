"""Bytes to message, trusting nobody.

Only the envelope, at most 256 KiB, is parsed as general msgpack, by :mod:`fedsim.wire.unpack_msgpack`, which
refuses lengths beyond the bytes that are there. What follows has a single valid form and is read by
position: arrays become read-only views of the bytes received. So no memory is allocated on a sender's word
alone. Every fault raises ``DecodeError``, which says where and what it is. Numbers that are not finite are
no fault here: the merge refuses them (specification 3.4, E9).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fedsim.errors import DecodeError
from fedsim.params import Array
from fedsim.wire.binary_arrays import arrays_of_bytes, checked_headers
from fedsim.wire.contents import DEFAULT, Limits
from fedsim.wire.declare import VERSION, Kinds, Message, Plan
from fedsim.wire.field_types import Received, show
from fedsim.wire.frame import HIGHEST, Frame
from fedsim.wire.unpack_msgpack import unpack


class Envelope(NamedTuple):
    """The address of a frame.

    Attributes:
        kind: Kind of the message.
        sender: ``SERVER`` or the client that sent it; the bus checks whether that is true.
        receiver: ``SERVER`` or the client that it is for.
        round: Round or server version; -1 outside any.
        exchange: Name of the exchange that it belongs to.
    """

    kind: str
    sender: int
    receiver: int
    round: int
    exchange: str


_KEYS = frozenset({"fedsim", "kind", "sender", "receiver", "round", "exchange", "fields", "arrays"})


def decode(
    frame: Frame | bytes | bytearray | memoryview, kinds: Kinds, limits: Limits = DEFAULT
) -> tuple[Envelope, Message]:
    """Return the envelope and the message of a frame.

    Arrays are read-only views of the frame's bytes: whoever passes a ``bytearray`` must not change it later.
    """
    whole = frame if isinstance(frame, Frame) else memoryview(frame).cast("B").toreadonly()
    if len(whole) > limits.frame_bytes:
        raise DecodeError(f"frame: {len(whole)} bytes, the limit is {limits.frame_bytes}")
    head = whole.head if isinstance(whole, Frame) else whole
    parsed, position = _envelope(head, limits)
    envelope, plan = _route(parsed, kinds, limits)
    announced = checked_headers(parsed["arrays"], limits)
    arrays: list[Array]
    if isinstance(whole, Frame):  # made in this process, so its arrays are where they belong
        bodies = zip(whole.tail[::2], announced, strict=True)
        arrays = [np.ndarray(shape, dtype, part) for part, (dtype, shape, _) in bodies]
    else:
        arrays = arrays_of_bytes(whole, position, announced)
    return envelope, _message(parsed["fields"], plan, Received(arrays, limits))


def _envelope(head: bytes | memoryview, limits: Limits) -> tuple[dict[Any, Any], int]:
    """Return the envelope as parsed and the position of what follows it."""
    parsed, position = unpack(
        head,
        where="envelope",
        max_bytes=limits.envelope_bytes,
        pairs_hook=_map,
        str_bytes=limits.string_bytes,
        array_items=limits.arrays,
        map_items=limits.arrays,
    )
    if type(parsed) is not dict:
        raise DecodeError(f"envelope: {show(parsed)} is not a map")
    if parsed.keys() != _KEYS:
        raise DecodeError(f"envelope: {_difference(parsed, _KEYS)}")
    return parsed, position


def _map(pairs: Sequence[tuple[Any, Any]]) -> dict[Any, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise DecodeError(f"envelope: the key {show(twice)} occurs twice in one map")
    return made


def _route(parsed: dict[Any, Any], kinds: Kinds, limits: Limits) -> tuple[Envelope, Plan]:
    version, kind, exchange = parsed["fedsim"], parsed["kind"], parsed["exchange"]
    if type(version) is not int or version != VERSION:
        raise DecodeError(f"envelope.fedsim: version {show(version)}, this is version {VERSION}")
    plan = kinds.get(kind) if type(kind) is str else None
    if plan is None:
        raise DecodeError(f"envelope.kind: {show(kind)} is none of the kinds {', '.join(kinds) or '(none)'}")
    sender, receiver, round_ = parsed["sender"], parsed["receiver"], parsed["round"]
    for place, number in (("sender", sender), ("receiver", receiver), ("round", round_)):
        if type(number) is not int or not -1 <= number <= HIGHEST:
            raise DecodeError(f"envelope.{place}: {show(number)} is not an integer from -1 to {HIGHEST}")
    if type(exchange) is not str or len(exchange) > limits.name_characters:
        raise DecodeError(
            f"envelope.exchange: {show(exchange)} has not at most {limits.name_characters} characters"
        )
    return Envelope(kind, sender, receiver, round_, exchange), plan


def _message(wire: Any, plan: Plan, received: Received) -> Message:
    if type(wire) is not dict:
        raise DecodeError(f"envelope.fields: {show(wire)} is not a map")
    if wire.keys() != plan.names:
        raise DecodeError(f"fields of {plan.owner.KIND!r}: {_difference(wire, plan.names)}")
    values = {name: kind.decode(wire[name], received, where) for name, where, kind in plan.fields}
    received.finish()
    try:
        return plan.owner(**values)
    except ValueError as error:
        raise DecodeError(f"fields of {plan.owner.KIND!r}: {error}") from None


def _difference(mapping: dict[Any, Any], wanted: frozenset[str]) -> str:
    missing = sorted(wanted - mapping.keys())
    extra = [show(key) for key in mapping if key not in wanted]
    problems = [f"{name!r} is missing" for name in missing[:1]] + [f"{name} is unknown" for name in extra[:1]]
    return " and ".join(problems)
