"""What the server knows of client processes, of open dispatches, and of the observer's open questions."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from fedsim.bus.base import Header
from fedsim.bus.http.access import ClientRanges
from fedsim.bus.http.channel import Channel
from fedsim.bus.http.messages import Key, Parts, entry
from fedsim.wire import Frame, Packed


@dataclass(slots=True, eq=False)
class Dispatch:
    """A dispatch until its reply is taken; ``packed`` and ``frame`` are None once it is settled.

    ``row`` is its open row in the ledger, ``began_ns`` when it was last sent, ``had_ns`` when it was
    confirmed (each negative where there is none); ``channel`` is where it was queued last. ``num_copies`` is
    how many further copies of it arrive by a fault.
    """

    header: Header
    packed: Packed | None
    frame: Frame | None
    at_s: float
    num_bytes: int
    row: int = -1
    began_ns: int = -1
    had_ns: int = -1
    channel: Channel | None = None
    num_copies: int = 0

    @property
    def key(self) -> Key:
        """Client and dispatch."""
        return self.header.client, self.header.dispatch

    def entry(self) -> Parts:
        """Return its entry."""
        header = self.header
        return entry(
            *("d", header.receiver, header.dispatch, header.round, header.exchange, header.turn),
            header.merged,
            body=None if self.frame is None else self.frame.parts,
        )


@dataclass(slots=True, eq=False)
class Session:
    """A client process, connected or not.

    Attributes:
        secret: Its name, known to nobody else.
        token: What it has shown.
        gone_s: When its connection ended.
        channel: Its connection; None while there is none.
        abort: Breaks that connection.
        is_ready: Whether it understands messages already.
        has_left: Whether it has said that it leaves.
        waiting: Dispatches that are not queued yet, in order.
        held_bytes: Bytes of the frames that were queued on its connection and are not replied to.
    """

    secret: str = field(repr=False)
    clients: ClientRanges
    token: str | None = field(repr=False)
    gone_s: float = 0.0
    channel: Channel | None = None
    abort: Callable[[], None] = lambda: None
    is_ready: bool = False
    has_left: bool = False
    waiting: deque[Dispatch] = field(default_factory=deque)
    held_bytes: int = 0

    def say(self, parts: Parts) -> None:
        """Send an entry, if there is a connection."""
        if self.channel is not None:
            self.channel.put(parts)

    def begin(
        self, channel: Channel, abort: Callable[[], None], dispatches: Iterable[Dispatch], has: set[Key]
    ) -> None:
        """Take a new connection; dispatches that the process does not have wait to be queued on it."""
        if self.channel is not None:  # it has come back before its old connection was known to be dead
            self.abort()
        self.channel, self.abort, self.is_ready, self.has_left = channel, abort, False, False
        self.waiting.clear()
        self.held_bytes = 0
        for dispatch in dispatches:
            if dispatch.key in has:
                dispatch.channel = channel
                self.held_bytes += dispatch.num_bytes
            else:
                self.waiting.append(dispatch)

    def offer(self, window_bytes: int) -> None:
        """Queue the dispatches that are next, as far as their frames fit into the window."""
        while self.channel is not None and self.waiting:
            dispatch = self.waiting[0]
            if self.held_bytes and self.held_bytes + dispatch.num_bytes > window_bytes:
                return
            self.waiting.popleft()
            dispatch.channel = self.channel
            self.held_bytes += dispatch.num_bytes
            self.channel.put(dispatch)

    def settled(self, dispatch: Dispatch, window_bytes: int) -> None:
        """Make room in the window for what waits behind a dispatch."""
        if dispatch.channel is not None and dispatch.channel is self.channel:
            self.held_bytes -= dispatch.num_bytes
            self.offer(window_bytes)


@dataclass(slots=True, eq=False)
class Question:
    """An observer's question to a client, and its answer."""

    number: int
    client: int
    text: bytes
    answer: asyncio.Future[bytes]

    def entry(self) -> Parts:
        """Return its entry."""
        return entry("q", self.number, self.client, body=(self.text,))
