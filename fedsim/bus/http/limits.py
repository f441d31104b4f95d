"""Limits of the HTTP bus: bytes, numbers and times that a peer may take."""

from __future__ import annotations

from dataclasses import dataclass, fields

from fedsim.bus.http.messages import MAX_HEAD_BYTES
from fedsim.network.overhead import SMALL_FRAME_BYTES
from fedsim.wire import Limits

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

_FRAME = Limits(frame_bytes=GIB)


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Limits of one side of the HTTP bus; both sides have the same defaults.

    Attributes:
        frame: Limits of the decoder; ``frame.frame_bytes`` is the longest frame that is taken or sent.
        small_frame_bytes: Longest frame that travels together with others, and longest question.
        batch_bytes: Longest request with small replies, and longest piece of the outbox.
        chunk_bytes: A large frame is written in pieces of this length.
        max_sessions: Client processes at a time, connected or not.
        max_connections: TCP connections at a time, with and without a valid token.
        max_handshakes: Connections without a valid token; beyond it the oldest is closed.
        handshake_timeout_s: Time in which a connection shows a valid token.
        heartbeat_s: A side that has sent nothing for this time sends a sign of life.
        hold_s: Time for which a session without a connection keeps its clients from other processes.
        session_ttl_s: A session without a connection is forgotten after this time.
        report_delay_s: Longest delay before a client process confirms a dispatch.
        stall_timeout_s: A transfer that does not move for this time ends, and is repeated.
        request_timeout_s: Longest time of a request; a large frame has more, see :meth:`transfer_timeout_s`.
        transfers_at_once: Large frames of one session under way at a time, in each direction.
        upload_bytes: Bytes of large replies and answers that the server reads at a time.
        session_upload_bytes: The same for one session; one frame of the longest length always fits.
        inbox_bytes: Bytes of frames that wait to be received before reading from sockets stops.
        idle_rate: Mean requests per second that bring nothing, or unasked replies.
        idle_burst: The same at once.
        patience_s: Time for which a client process tries to connect before it gives up.
        backoff_first_s: Mean of the first pause between two attempts, doubled at each further one.
        backoff_cap_s: Longest pause between two attempts.
    """

    frame: Limits = _FRAME
    small_frame_bytes: int = SMALL_FRAME_BYTES
    batch_bytes: int = 256 * KIB
    chunk_bytes: int = MIB
    max_sessions: int = 500
    max_connections: int = 2500
    max_handshakes: int = 500
    handshake_timeout_s: float = 10.0
    heartbeat_s: float = 20.0
    hold_s: float = 10.0
    session_ttl_s: float = 3600.0
    report_delay_s: float = 0.02
    stall_timeout_s: float = 30.0
    request_timeout_s: float = 300.0
    transfers_at_once: int = 4
    upload_bytes: int = 4 * GIB
    session_upload_bytes: int = GIB
    inbox_bytes: int = GIB
    idle_rate: float = 200.0
    idle_burst: int = 400
    patience_s: float = 600.0
    backoff_first_s: float = 0.25
    backoff_cap_s: float = 20.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, Limits) and value <= 0:
                raise ValueError(f"{field.name} is {value}: a limit is greater than 0")
        needed = self.small_frame_bytes + MAX_HEAD_BYTES
        if self.batch_bytes < needed:
            raise ValueError(
                f"batch_bytes is {self.batch_bytes}: a frame of small_frame_bytes ({self.small_frame_bytes}) "
                f"and what travels with it need {needed}"
            )

    @property
    def silence_s(self) -> float:
        """A peer that is silent for this time, two signs of life, counts as gone."""
        return 2 * self.heartbeat_s

    def transfer_timeout_s(self, num_bytes: int) -> float:
        """Return how long a request with a large frame may take, so that a slow link is no fault."""
        return self.request_timeout_s + num_bytes / self.chunk_bytes * self.stall_timeout_s
