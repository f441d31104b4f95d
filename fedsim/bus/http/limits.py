"""Limits of the HTTP bus: bytes and times that a peer may take."""

from __future__ import annotations

from dataclasses import dataclass

from fedsim.wire import Limits

GIB = 1 << 30

_FRAME = Limits(frame_bytes=GIB)


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Limits of one side of the HTTP bus; both sides have the same defaults.

    Attributes:
        frame: Limits of the decoder; ``frame.frame_bytes`` is the longest frame that is taken or sent.
        handshake_timeout_s: Longest time to connect and to join.
        heartbeat_s: A side that has sent nothing for this time sends a sign of life.
        dispatch_ttl_s: A dispatch whose client has no process for this time is dropped.
        window_bytes: Bytes of frames that a process has and has not replied to; one frame always fits.
        patience_s: Time for which a client process tries to connect before it gives up.
        backoff_first_s: Mean of the first pause between two attempts, doubled at each further one.
        backoff_cap_s: Longest pause between two attempts.
    """

    frame: Limits = _FRAME
    handshake_timeout_s: float = 10.0
    heartbeat_s: float = 20.0
    dispatch_ttl_s: float = 3600.0
    window_bytes: int = GIB
    patience_s: float = 600.0
    backoff_first_s: float = 0.25
    backoff_cap_s: float = 20.0

    @property
    def silence_s(self) -> float:
        """A peer that is silent for this time, two signs of life, counts as gone."""
        return 2 * self.heartbeat_s
