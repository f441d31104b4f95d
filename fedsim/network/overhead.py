"""What protocols add to a message on its way: headers of HTTP or WebSocket, TLS records, TCP/IP segments.

Counted in the direction of the message alone: acknowledgements and HTTP's other half travel the other way,
and handshakes belong to a connection, not to a message.
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
MASK_BYTES = 4
"""WebSocket: clients mask what they send."""


class OverheadConfig(Config):
    """Settings of protocol overhead."""

    protocol: Literal["websocket", "http", "none"] = "websocket"
    """How a message travels; ``none`` adds nothing at all, TCP included."""
    tls: bool = False
    """Whether the connection is encrypted (TLS 1.3)."""

    @model_validator(mode="after")
    def _encrypts_something(self) -> OverheadConfig:
        if self.protocol == "none" and self.tls:
            raise ValueError(
                "tls = true needs a protocol to encrypt: set protocol to websocket or http, or tls to false"
            )
        return self

    def wire_bytes(self, payload_bytes: int, direction: Literal["up", "down"]) -> int:
        """Return the bytes that a message of so many takes on the link, from a client (up) or to it.

        Raises:
            ValueError: A negative number of bytes.
        """
        if payload_bytes < 0:
            raise ValueError(f"{payload_bytes} bytes: a message has 0 or more")
        if self.protocol == "none":
            return payload_bytes
        if self.protocol == "http":
            num_bytes = HTTP_HEADER_BYTES[direction] + payload_bytes
        else:
            mask_bytes = MASK_BYTES if direction == "up" else 0
            num_bytes = _websocket_header_bytes(payload_bytes) + mask_bytes + payload_bytes
        if self.tls:
            num_bytes += RECORD_HEADER_BYTES * _ceil_divide(num_bytes, RECORD_BYTES)
        return num_bytes + SEGMENT_HEADER_BYTES * _ceil_divide(num_bytes, SEGMENT_BYTES)


NO_OVERHEAD = OverheadConfig(protocol="none")
"""Frames travel as they are."""


def _websocket_header_bytes(payload_bytes: int) -> int:
    # The length fits into the second byte up to 125; 126 and 127 announce 2 or 8 more.
    return 2 if payload_bytes <= 125 else 4 if payload_bytes <= 65_535 else 10


def _ceil_divide(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)
