"""How much a peer may ask for, and how long it is waited for."""

from __future__ import annotations

from dataclasses import dataclass, fields

from fedsim.bus.http.control import MOST_NOTES
from fedsim.network.overhead import SMALL_FRAME_BYTES
from fedsim.wire import Limits

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


_FRAME = Limits(frame_bytes=GIB)


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Limits of one side of the aiohttp bus; both sides keep the same unless told otherwise.

    Attributes:
        frame: Limits of the decoder; ``frame.frame_bytes`` is the longest frame that is taken up or sent.
        small_frame_bytes: Longest frame that travels within a WebSocket message.
        max_ws_message: Longest WebSocket message that the server reads, bytes.
        max_sessions: Most client processes at a time, connected or not.
        max_connections: Most TCP connections at a time, with and without a valid token.
        max_handshakes: Most connections that have not shown a valid token yet; the oldest makes way.
        handshake_timeout_s: A connection shows a token and says hello within this time.
        heartbeat_s: Who has said nothing for so long says that it is alive.
        heartbeat_misses: After so many silent heartbeats the other side counts as gone.
        hold_s: A session that has lost its connection keeps its clients from other processes for this time.
        session_ttl_s: A session without a connection is forgotten, with all it holds, after this time.
        ack_delay_s: An acknowledgement waits this long for a delivery to travel with.
        stall_timeout_s: A transfer that does not move for so long is given up, and resumed later.
        request_timeout_s: A single HTTP request may take so long; a slow upload resumes with another.
        in_flight_uploads: Blobs of one session under way at a time, in each direction.
        upload_bytes: Bytes that the server holds of blobs not yet delivered, over all sessions.
        session_upload_bytes: The same for one session; at least one frame of the longest length fits anyway.
        inbox_bytes: Bytes of frames that wait to be received before reading from sockets stops.
        outbox_bytes: Bytes of unanswered deliveries per session; arrays that several share count once.
        outbox_count: Unanswered deliveries per session.
        control_rate: Control messages that a peer may send, per second, on average.
        control_burst: Control messages that a peer may send at once.
        chunk_bytes: A blob is written in pieces of this length.
        probe_bytes: Longest answer to an observer's probe.
        patience_s: A client process tries to connect for so long before it gives up.
        backoff_first_s: Mean of the first pause between two attempts, doubled at each further one.
        backoff_cap_s: Longest pause between two attempts.
    """

    frame: Limits = _FRAME
    small_frame_bytes: int = SMALL_FRAME_BYTES
    max_ws_message: int = 256 * KIB
    max_sessions: int = 500
    max_connections: int = 2500
    max_handshakes: int = 500
    handshake_timeout_s: float = 10.0
    heartbeat_s: float = 20.0
    heartbeat_misses: int = 2
    hold_s: float = 10.0
    session_ttl_s: float = 3600.0
    ack_delay_s: float = 0.02
    stall_timeout_s: float = 30.0
    request_timeout_s: float = 300.0
    in_flight_uploads: int = 4
    upload_bytes: int = 4 * GIB
    session_upload_bytes: int = GIB
    inbox_bytes: int = GIB
    outbox_bytes: int = 2 * GIB
    outbox_count: int = 65_536
    control_rate: float = 200.0
    control_burst: int = 400
    chunk_bytes: int = MIB
    probe_bytes: int = GIB
    patience_s: float = 600.0
    backoff_first_s: float = 0.25
    backoff_cap_s: float = 20.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, Limits) and value <= 0:
                raise ValueError(f"{field.name} is {value}: a limit is greater than 0")
        # The envelope of a delivery names an exchange of at most 256 characters, four bytes each.
        needed = self.small_frame_bytes + 2 * KIB + MOST_NOTES
        if self.max_ws_message < needed:
            raise ValueError(
                f"max_ws_message is {self.max_ws_message}: a frame of small_frame_bytes "
                f"({self.small_frame_bytes}), its envelope and notes need {needed}"
            )
