"""What the server knows of one client process, and of each delivery to a client."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from fedsim.bus.base import Header
from fedsim.bus.http.access import ClientRanges
from fedsim.bus.http.blobs import Arriving, digest_of
from fedsim.bus.http.limits import HttpLimits
from fedsim.bus.http.link import Link
from fedsim.bus.http.session import Inbox, Outbox
from fedsim.wire import Frame, Packed


@dataclass(slots=True, eq=False)
class Ask:
    """One delivery to a client, until the client has answered it.

    Attributes:
        header: Its header.
        packed: Its message; None for a header alone, and for one that is lost.
        frame: Its frame, likewise.
        left: Done when the frame has left, or never will.
        at_s: When it was sent.
        row: Its row in the ledger; -1 before it was put on a link, and for a header alone.
        began_at_s: When it was last put on a link; negative before.
        had_at_s: When it was first known to have arrived; negative before.
        has_ended: Whether its end is in the ledger.
        peer: The process that it goes to; None while there is none.
        number: Its number in that process's session; 0 while it waits.
    """

    header: Header
    packed: Packed | None
    frame: Frame | None
    left: asyncio.Future[None]
    at_s: float
    row: int = -1
    began_at_s: float = -1.0
    had_at_s: float = -1.0
    has_ended: bool = False
    peer: Peer | None = None
    number: int = 0
    _digest: asyncio.Future[bytes] | None = None

    @property
    def has_begun(self) -> bool:
        """Whether it was put on a link."""
        return self.began_at_s >= 0

    def released(self) -> None:
        """Note that the frame has left."""
        if not self.left.done():
            self.left.set_result(None)

    def digest(self, frame: Frame) -> asyncio.Future[bytes]:
        """Return the frame's digest, made once, in a thread."""
        if self._digest is None:
            loop = asyncio.get_running_loop()
            self._digest = loop.run_in_executor(None, digest_of, frame.parts)
        return self._digest


@dataclass(slots=True, eq=False)
class Upload:
    """A blob on its way up.

    Attributes:
        name: Which answer it is.
        blob: Its bytes.
        is_busy: Whether a request is at it.
        frame: The frame once it is whole and verified.
        first_at_s: When its first bytes came; negative before.
        whole_at_s: When it was whole.
    """

    name: str
    blob: Arriving
    is_busy: bool = False
    frame: memoryview | None = None
    first_at_s: float = -1.0
    whole_at_s: float = -1.0


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer as it has come.

    Attributes:
        header: Its header.
        frame: Its frame; None for a header alone.
        crc: What its checksum is to be, where it did not travel as a blob.
        upload: How it came, where it did.
        spent_s: How long the client's process says that it held what it answers, and that its jobs ran.
        words: Notes for the log, as they came; None where there are none.
    """

    header: Header
    frame: memoryview | None
    crc: int | None = None
    upload: Upload | None = None
    spent_s: tuple[float, float] | None = None
    words: Any = None


@dataclass(slots=True, eq=False)
class Peer:
    """A client process.

    Attributes:
        session: Its name for itself, known to nobody else.
        clients: The clients that it hosts.
        token: What it showed when it came first; every later request shows the same.
        limits: Bounds of its outbox.
        inbox: The answers that have arrived.
        outbox: The deliveries it has not answered.
        waiting: Deliveries that do not fit into the outbox yet.
        unconfirmed: Deliveries sent and not known to have arrived, by number.
        uploads: Blobs on their way up, by number.
        link: Its connection, while it has one.
        is_ready: Whether it understands messages already.
        gone_at: When its connection ended.
        has_left: Whether it has ended that itself, for good as far as it knows.
    """

    session: str
    clients: ClientRanges
    token: str | None
    limits: HttpLimits
    inbox: Inbox
    outbox: Outbox[Ask] = field(init=False)
    waiting: deque[Ask] = field(default_factory=deque)
    unconfirmed: deque[tuple[int, Ask]] = field(default_factory=deque)
    uploads: dict[int, Upload] = field(default_factory=dict)
    link: Link | None = None
    is_ready: bool = False
    gone_at: float = 0.0
    has_left: bool = False

    def __post_init__(self) -> None:
        self.outbox = Outbox(self.limits.outbox_bytes, self.limits.outbox_count)

    @property
    def upload_bytes(self) -> int:
        """Bytes held of its blobs."""
        return sum(upload.blob.held for upload in self.uploads.values())

    def put(self, ask: Ask) -> None:
        """Send a delivery, now or as soon as it fits."""
        ask.peer = self
        ask.number = 0
        self.waiting.append(ask)
        self.fill()

    def fill(self) -> None:
        """Let deliveries that wait take the room there is."""
        while self.waiting:
            ask = self.waiting[0]
            own, shared, shared_bytes = _weight(ask)
            if not self.outbox.fits(own, shared, shared_bytes):
                return
            self.waiting.popleft()
            ask.number = self.outbox.add(ask, own, shared, shared_bytes)
            if self.link is not None:
                self.link.post(ask.number)

    def settle(self, ask: Ask) -> None:
        """Forget a delivery."""
        if ask.number:
            self.outbox.settle(ask.number)
        else:
            self.waiting.remove(ask)
        self.fill()

    def confirmed(self, number: int) -> Iterator[Ask]:
        """Yield the deliveries up to a number that were not known to have arrived."""
        while self.unconfirmed and self.unconfirmed[0][0] <= number:
            yield self.unconfirmed.popleft()[1]

    def asks(self) -> list[Ask]:
        """Return all deliveries that are not answered, in order."""
        return [*(ask for _, ask in self.outbox), *self.waiting]


def _weight(ask: Ask) -> tuple[int, Packed | None, int]:
    """Return the bytes of a delivery's own, what it shares with others, and the bytes of that."""
    if ask.frame is None:
        return 256, None, 0
    own = len(ask.frame.parts[0])
    return 256 + own, ask.packed, len(ask.frame) - own
