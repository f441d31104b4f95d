"""What protocols add to a message on its way: headers of HTTP or WebSocket, TLS records, TCP/IP segments.

Counted in the direction of the message alone, but over fedsim's own bus with the message that confirms it.
TCP's acknowledgements are left out, and handshakes belong to a connection, not to a message.
"""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from fedsim.config import Config

SEGMENT_BYTES = 1448
"""What a TCP segment carries over Ethernet, with timestamps."""
SEGMENT_HEADER_BYTES = 52
"""IPv4 20, TCP 20, timestamps 12."""
RECORD_BYTES = 16_384
"""What a TLS record carries at most."""
RECORD_HEADER_BYTES = 22
"""Header 5, content type 1, tag 16."""
HTTP_HEADER_BYTES = {"up": 261, "down": 157}
"""Of aiohttp's POST with a bearer token, and of its answer to a GET."""
CHUNK_BYTES = 262_144
"""fedsim's own bus: a longer frame travels in several messages of about this length."""
ENTRY_BYTES = {"up": 45, "down": 36}
"""fedsim's own bus: beside each frame, and in the message that confirms it."""
MASK_BYTES = 4
"""WebSocket: clients mask what they send."""


class OverheadConfig(Config):
    """Settings of protocol overhead."""

    protocol: Literal["websocket", "http", "bus", "none"] = "websocket"
    """How a message travels; ``bus`` as over :mod:`fedsim.bus.http`; ``none`` adds nothing, TCP included."""
    tls: bool = False
    """Whether the connection is encrypted (TLS 1.3)."""

    @model_validator(mode="after")
    def _encrypts_something(self) -> OverheadConfig:
        if self.protocol == "none" and self.tls:
            raise ValueError(
                "tls = true needs a protocol to encrypt: set protocol to websocket, http or bus, or tls to "
                "false"
            )
        return self

    def wire_bytes(self, payload_bytes: int, direction: Literal["up", "down"]) -> int:
        """Return the bytes that a message of so many takes on the link, from a client (up) or to it."""
        num_bytes = self.stream_bytes(payload_bytes, direction)
        return num_bytes if self.protocol == "none" else _segmented_bytes(num_bytes, self.tls)

    def stream_bytes(self, payload_bytes: int, direction: Literal["up", "down"]) -> int:
        """Return the bytes that a message of so many is within its TCP connection, before TLS and TCP."""
        if self.protocol == "none":
            return payload_bytes
        if self.protocol == "http":
            return HTTP_HEADER_BYTES[direction] + payload_bytes
        if self.protocol == "websocket":
            return _websocket_bytes(payload_bytes, direction)
        further = payload_bytes // CHUNK_BYTES
        num_bytes = ENTRY_BYTES[direction] + payload_bytes
        return _websocket_bytes(num_bytes, direction) + further * _websocket_bytes(0, direction)


NO_OVERHEAD = OverheadConfig(protocol="none")
"""Frames travel as they are."""


def _segmented_bytes(stream_bytes: int, tls: bool) -> int:
    if tls:
        stream_bytes += RECORD_HEADER_BYTES * _ceil_divide(stream_bytes, RECORD_BYTES)
    return stream_bytes + SEGMENT_HEADER_BYTES * _ceil_divide(stream_bytes, SEGMENT_BYTES)


def _websocket_bytes(payload_bytes: int, direction: Literal["up", "down"]) -> int:
    # The length fits into the second byte up to 125; 126 and 127 announce 2 or 8 more.
    header_bytes = 2 if payload_bytes <= 125 else 4 if payload_bytes <= 65_535 else 10
    return header_bytes + (MASK_BYTES if direction == "up" else 0) + payload_bytes


def _ceil_divide(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)
