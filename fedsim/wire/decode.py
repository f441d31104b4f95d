"""Bytes to message, trusting nobody.

Only the envelope, at most 256 KiB, ever meets a general msgpack parser, by way of :mod:`fedsim.wire.unpack`:
what it claims must be there. What follows it has one permitted form, so it is read by position: arrays become
read-only views of the bytes received. So nothing is allocated on a sender's word alone, and decoding takes at
most 16 times the frame and 1 MB of memory. Whatever is wrong is one ``DecodeError`` that says
where and what. Non-finite numbers are not wrong here: the merge refuses them (specification 3.4, E9).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from fedsim.errors import DecodeError
from fedsim.params import Array
from fedsim.quoting import shortened
from fedsim.wire.declare import VERSION, Kinds, Message, Plan
from fedsim.wire.dtypes import BOOL, DTYPES
from fedsim.wire.fields import Received, show
from fedsim.wire.frame import ALIGNMENT, Frame
from fedsim.wire.limits import DEFAULT, Limits
from fedsim.wire.unpack import unpack


class Envelope(NamedTuple):
    """What a frame says about itself.

    Attributes:
        kind: Kind of the message.
        sender: ``SERVER`` or the client that sent it; only the bus knows whether that is true.
        receiver: ``SERVER`` or the client that it is for.
        round: Round or server version; -1 outside any.
        exchange: Name of the exchange that it belongs to.
    """

    kind: str
    sender: int
    receiver: int
    round: int
    exchange: str


_Described = tuple[np.dtype[Any], tuple[int, ...], int]
"""Dtype, shape and length in bytes of one array."""

_KEYS = frozenset({"fedsim", "kind", "sender", "receiver", "round", "exchange", "fields", "arrays"})
_BIN_WIDTHS = {0xC4: 1, 0xC5: 2, 0xC6: 4}
_HIGHEST = 2**31 - 1


def decode(
    frame: Frame | bytes | bytearray | memoryview, kinds: Kinds, limits: Limits = DEFAULT
) -> tuple[Envelope, Message]:
    """Return the envelope and the message of a frame.

    Arrays are read-only views of the frame's bytes: whoever passes a ``bytearray`` must not change it later.

    Args:
        frame: A frame as :meth:`Packed.frame` made it, or the bytes of one.
        kinds: The kinds that may arrive here.
        limits: The most that a frame may ask for.

    Raises:
        DecodeError: Anything but one whole valid frame of a known kind.
    """
    if len(frame) > limits.frame_bytes:
        raise DecodeError(f"frame: {len(frame)} bytes, the limit is {limits.frame_bytes}")
    if isinstance(frame, Frame):
        parts = frame.parts
        parsed, position = _envelope(parts[0], len(frame), limits)
        envelope, plan = _route(parsed, kinds, limits)
        arrays = _arrays_of_parts(parts, position, _described(parsed["arrays"], limits))
    else:
        whole = memoryview(frame).cast("B").toreadonly()
        parsed, position = _envelope(whole, len(whole), limits)
        envelope, plan = _route(parsed, kinds, limits)
        arrays = _arrays_of_bytes(whole, position, _described(parsed["arrays"], limits))
    return envelope, _message(parsed["fields"], plan, Received(arrays, limits))


def _envelope(head: bytes | memoryview, frame_bytes: int, limits: Limits) -> tuple[dict[Any, Any], int]:
    """Return the envelope as parsed and the position of what follows it."""
    parsed, position = unpack(
        head,
        where="envelope",
        whole_bytes=frame_bytes,
        most_bytes=limits.envelope_bytes,
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
        seen: dict[Any, None] = {}
        for key, _ in pairs:
            if key in seen:
                raise DecodeError(f"envelope: the key {show(key)} occurs twice in one map")
            seen[key] = None
    return made


def _route(parsed: dict[Any, Any], kinds: Kinds, limits: Limits) -> tuple[Envelope, Plan]:
    version, kind, exchange = parsed["fedsim"], parsed["kind"], parsed["exchange"]
    if type(version) is not int or version != VERSION:
        raise DecodeError(f"envelope.fedsim: version {show(version)}, this is version {VERSION}")
    plan = kinds.plan(kind) if type(kind) is str else None
    if plan is None:
        raise DecodeError(f"envelope.kind: {show(kind)} is none of the kinds {', '.join(kinds) or '(none)'}")
    sender, receiver, round_ = parsed["sender"], parsed["receiver"], parsed["round"]
    for place, number in (("sender", sender), ("receiver", receiver), ("round", round_)):
        if type(number) is not int or not -1 <= number <= _HIGHEST:
            raise DecodeError(f"envelope.{place}: {show(number)} is not an integer from -1 to {_HIGHEST}")
    if type(exchange) is not str or len(exchange) > limits.name_characters:
        raise DecodeError(
            f"envelope.exchange: {show(exchange)} has not at most {limits.name_characters} characters"
        )
    return Envelope(kind, sender, receiver, round_, exchange), plan


def _described(wire: Any, limits: Limits) -> list[_Described]:
    """Check the list of arrays: nothing is allocated before every shape agrees with its bytes."""
    if type(wire) is not tuple or len(wire) > limits.arrays:
        raise DecodeError(f"envelope.arrays: {show(wire)} is not a list of at most {limits.arrays}")
    described = []
    for number, entry in enumerate(wire):
        if type(entry) is not tuple or len(entry) != 3:
            raise DecodeError(f"arrays[{number}]: {show(entry)} is not [dtype, shape, length]")
        name, shape, num_bytes = entry
        dtype = DTYPES.get(name) if type(name) is str else None
        if dtype is None:
            raise DecodeError(f"arrays[{number}]: the dtype {show(name)} is none of {', '.join(DTYPES)}")
        if type(shape) is not tuple or len(shape) > limits.dimensions:
            raise DecodeError(
                f"arrays[{number}]: the shape, {show(shape)}, is no list of at most {limits.dimensions}"
            )
        for size in shape:
            if type(size) is not int or not 0 <= size <= limits.frame_bytes:
                raise DecodeError(f"arrays[{number}]: {show(size)} is no size of a dimension")
        if type(num_bytes) is not int or num_bytes != prod(shape) * dtype.itemsize:
            raise DecodeError(
                f"arrays[{number}]: {show(num_bytes)} bytes for {name} of shape {shortened(list(shape))}"
            )
        # Beside a zero the other sizes are free, but NumPy counts them without it.
        if num_bytes == 0 and prod(size or 1 for size in shape) > limits.frame_bytes:
            raise DecodeError(
                f"arrays[{number}]: the shape {shortened(list(shape))} of an empty array is absurd"
            )
        described.append((dtype, shape, num_bytes))
    return described


def _arrays_of_bytes(whole: memoryview, position: int, described: list[_Described]) -> list[Array]:
    arrays = []
    for number, (dtype, shape, num_bytes) in enumerate(described):
        start = _bin_start(whole, position, 0, num_bytes, number)
        position = start + num_bytes
        if position > len(whole):
            raise DecodeError(
                f"arrays[{number}]: {num_bytes} bytes from byte {start}, the frame ends at {len(whole)}"
            )
        arrays.append(_view(whole, start, dtype, shape, number))
    if position != len(whole):
        raise DecodeError(f"frame: {len(whole) - position} bytes are left over at byte {position}")
    return arrays


def _arrays_of_parts(
    parts: tuple[bytes | memoryview, ...], position: int, described: list[_Described]
) -> list[Array]:
    """Do as :func:`_arrays_of_bytes` where every array lies in a part of its own."""
    arrays = []
    if len(parts) != (2 * len(described) or 1):
        raise DecodeError(f"frame: {len(parts)} parts for {len(described)} arrays")
    base = 0  # where in the frame the present part begins
    for number, (dtype, shape, num_bytes) in enumerate(described):
        gap, data = parts[2 * number], parts[2 * number + 1]
        start = _bin_start(gap, position, base, num_bytes, number)
        if start != len(gap) or len(data) != num_bytes:
            raise DecodeError(f"arrays[{number}]: {len(data)} bytes in its part instead of {num_bytes}")
        arrays.append(_view(data, 0, dtype, shape, number))
        base += len(gap) + num_bytes
        position = 0
    if not described and position != len(parts[0]):
        raise DecodeError(f"frame: {len(parts[0]) - position} bytes are left over at byte {position}")
    return arrays


def _bin_start(gap: bytes | memoryview, position: int, base: int, num_bytes: int, number: int) -> int:
    """Skip padding and the header of a ``bin``, and return where in ``gap`` its bytes start."""
    padding_end = min(position + ALIGNMENT - 1, len(gap))
    while position < padding_end and gap[position] == 0xC0:
        position += 1
    width = _BIN_WIDTHS.get(gap[position]) if position < len(gap) else 0
    if width is None:
        raise DecodeError(f"arrays[{number}]: byte {base + position} is neither nil (less than 16) nor bin")
    start = position + 1 + width
    if start > len(gap):
        raise DecodeError(
            f"arrays[{number}]: the frame ends at byte {base + len(gap)}, before the array starts"
        )
    length = int.from_bytes(gap[position + 1 : start], "big")
    if length != num_bytes:
        raise DecodeError(f"arrays[{number}]: a bin of {length} bytes, the envelope says {num_bytes}")
    if (base + start) % ALIGNMENT:
        raise DecodeError(f"arrays[{number}]: starts at byte {base + start}, not a multiple of {ALIGNMENT}")
    return start


def _view(
    data: bytes | memoryview, start: int, dtype: np.dtype[Any], shape: tuple[int, ...], number: int
) -> Array:
    array: Array = np.ndarray(shape, dtype, data, start)
    if dtype is BOOL and array.view(np.uint8).max(initial=0) > 1:
        raise DecodeError(f"arrays[{number}]: a bool is neither 0 nor 1")
    return array


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


def _difference(found: dict[Any, Any], wanted: frozenset[str]) -> str:
    missing = sorted(wanted - found.keys())
    extra = [show(key) for key in found if key not in wanted]
    said = [f"{name!r} is missing" for name in missing[:1]] + [f"{name} is unknown" for name in extra[:1]]
    return " and ".join(said)
