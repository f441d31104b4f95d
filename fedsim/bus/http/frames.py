"""Frames as they travel here: made for a header, and read against the header that came beside them."""

from __future__ import annotations

from zlib import crc32

from fedsim.bus.base import Header
from fedsim.errors import DecodeError
from fedsim.wire import Envelope, Frame, Kinds, Limits, Message, Packed, decode, pack


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


def checksum(frame: Frame) -> int:
    """Return the CRC-32 of a frame's bytes."""
    value = 0
    for part in frame.parts:
        value = crc32(part, value)
    return value


def read(header: Header, frame: memoryview, kinds: Kinds, limits: Limits, crc: int | None = None) -> Message:
    """Return the message of a frame.

    Raises:
        DecodeError: It is not what its checksum says, cannot be decoded, or its envelope names another route
            than the header.
    """
    if crc is not None and crc32(frame) != crc:
        raise DecodeError(f"frame: its {len(frame)} bytes do not have the checksum {crc}")
    envelope, message = decode(frame, kinds, limits)
    route = Envelope(envelope.kind, header.sender, header.receiver, header.round, header.exchange)
    if envelope != route:
        raise DecodeError(f"envelope: {envelope} came where {route} belongs")
    return message
