"""What a client process has not done yet: dispatches to hand over and reply to, replies to be taken."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from zlib import crc32

from fedsim.bus.base import Delivery, Header
from fedsim.bus.http.limits import HttpLimits
from fedsim.bus.http.messages import MOST_SPENT_S, entry, read_frame, sendable, with_tail
from fedsim.bus.http.state_folder import Kept, StateFolder
from fedsim.bus.http.transfers import Incoming, Outgoing
from fedsim.bus.inbox import Inbox
from fedsim.bus.reply_report import Report, written
from fedsim.errors import DecodeError
from fedsim.wire import Frame, Kinds

Key = tuple[int, int]
"""Client and dispatch."""


@dataclass(slots=True, eq=False)
class Arrival:
    """A dispatch that has been announced and not handed over.

    Attributes:
        header: Its header.
        number: Its number in the outbox; 0 if it was announced in a session that is gone.
        frame: Its frame; None for a header alone, and until it has come.
        crc: What the CRC-32 of the frame is to be, if it came with others.
        incoming: Its frame on the way, if that is to be fetched.
    """

    header: Header
    number: int
    frame: bytes | memoryview | None = None
    crc: int | None = None
    incoming: Incoming | None = None


class Deliveries:
    """Hands dispatches over in order, once each.

    Args:
        limits: While ``inbox_bytes`` of large frames are not replied to no further one is fetched.
        inbox: Where they are handed over.
        unusable: Is told of a dispatch whose frame cannot be used, and why.

    Attributes:
        kinds: The kinds of message that may travel; nothing is handed over before they are known.
        last: The number announced last: after a break the server goes on after it.
    """

    def __init__(self, limits: HttpLimits, inbox: Inbox, unusable: Callable[[Header, str], None]) -> None:
        self.kinds: Kinds | None = None
        self.last = 0
        self._limits = limits
        self._inbox = inbox
        self._unusable = unusable
        self._arrivals: dict[Key, Arrival] = {}
        self._in_hand: dict[Key, tuple[int, float]] = {}  # bytes of the frame, and since when
        self._replied: dict[int, int] = {}  # by client, the newest dispatch whose reply is given
        self._held_bytes = 0
        self._room = asyncio.Event()

    @property
    def had(self) -> int:
        """The number up to which all dispatches have come."""
        first = next(iter(self._arrivals.values()), None)
        return self.last if first is None else min(self.last, max(0, first.number - 1))

    def begin_anew(self) -> None:
        """Expect all dispatches again, from a session that is new to the server."""
        self.last = 0
        for arrival in self._arrivals.values():
            arrival.number = 0

    def announced(self, arrival: Arrival) -> bool:
        """Take a dispatch; say whether its frame is to be fetched."""
        header = arrival.header
        key = header.client, header.dispatch
        self.last = arrival.number
        if (known := self._arrivals.get(key)) is not None:
            known.number = arrival.number
        elif key not in self._in_hand and header.dispatch > self._replied.get(header.client, -1):
            self._arrivals[key] = arrival
            self.hand_over()
            return arrival.incoming is not None
        return False

    async def room(self) -> None:
        """Wait until another frame may be fetched."""
        while self._held_bytes >= self._limits.inbox_bytes:
            self._room.clear()
            await self._room.wait()

    def fetched(self, arrival: Arrival, frame: memoryview | None) -> None:
        """Take a frame that has been fetched; None where the server has it no more."""
        arrival.frame, arrival.incoming = frame, None
        if frame is None:
            del self._arrivals[arrival.header.client, arrival.header.dispatch]
        else:
            self._held_bytes += len(frame)
        self.hand_over()

    def hand_over(self) -> None:
        """Hand over what is here and next in order."""
        kinds = self.kinds
        while kinds is not None and self._arrivals:
            key, arrival = next(iter(self._arrivals.items()))
            if arrival.incoming is not None:
                return
            del self._arrivals[key]
            is_held = arrival.frame is not None and arrival.crc is None
            num_bytes = 0 if arrival.frame is None else len(arrival.frame)
            self._in_hand[key] = num_bytes if is_held else 0, asyncio.get_running_loop().time()
            try:
                message = None
                if arrival.frame is not None:
                    limits = self._limits.frame
                    message = read_frame(arrival.header, arrival.frame, kinds, limits, arrival.crc)
            except DecodeError as error:
                self._unusable(arrival.header, str(error))
            else:
                self._inbox.put(Delivery(arrival.header, message), num_bytes)

    def held_s(self, key: Key) -> float:
        """Return how long ago a dispatch was handed over; 0 for one that was not, or is replied to."""
        now_s = asyncio.get_running_loop().time()
        return now_s - self._in_hand.get(key, (0, now_s))[1]

    def replied(self, key: Key) -> None:
        """Let go of a dispatch: its reply is on its way, or in the state folder."""
        client, number = key
        self._replied[client] = max(number, self._replied.get(client, -1))
        self._held_bytes -= self._in_hand.pop(key, (0, 0.0))[0]
        self._room.set()


@dataclass(slots=True, eq=False)
class Reply:
    """One reply, or why the frame of a dispatch could not be used.

    Attributes:
        header: Its header.
        frame: Its frame; None for a header alone.
        spent_s: For how long the dispatch was held when the reply was given, and jobs ran.
        notes: Notes for the server's log.
        fault: Why the frame could not be used.
        at_s: When it was given.
        left: Done when the frame has left, or never will.
        state: The state of its client that becomes durable with it, if any does.
        is_new: Whether nothing of it was ever sent.
    """

    header: Header
    frame: Frame | None = None
    spent_s: tuple[float, float] = (0.0, 0.0)
    notes: str | None = None
    fault: str | None = None
    at_s: float = field(default_factory=lambda: asyncio.get_running_loop().time())
    left: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    state: bytes | None = None
    is_new: bool = True

    @staticmethod
    def of(header: Header, frame: Frame | None, held_s: float, report: Report) -> Reply:
        """Return a reply with what is reported beside it."""
        spent_s = (min(max(0.0, seconds), MOST_SPENT_S) for seconds in (held_s, report.compute_ns / 1e9))
        held, worked = spent_s
        return Reply(header, frame, (held, worked), written(report.notes, report.left_out))

    def entry(self) -> bytes:
        """Return a small reply as it leaves now; what it has waited for counts as held."""
        header = self.header
        key = header.client, header.dispatch
        if self.fault is not None:
            return entry("u", *key, sendable(self.fault))
        waited_s = asyncio.get_running_loop().time() - self.at_s
        spent_s = min(self.spent_s[0] + waited_s, MOST_SPENT_S), self.spent_s[1]
        body = b"" if self.frame is None else self.frame.join()
        crc = None if self.frame is None else crc32(body)
        return entry("r", *key, crc, spent_s, self.notes, body=body)

    def outgoing(self) -> Outgoing:
        """Return a large reply as it travels, always the same."""
        assert self.frame is not None  # noqa: S101
        values = (self.header.client, self.header.dispatch, None, self.spent_s, self.notes)
        return Outgoing((*self.frame.parts, with_tail(values)))

    def released(self) -> None:
        """Note that the frame has left."""
        if not self.left.done():
            self.left.set_result(None)


class Replies:
    """Keeps replies until they are taken; of each client the first is under way.

    Args:
        limits: What travels alone.
        state: Where replies outlive the process.
        given: Is told of a reply that is safe: its dispatch need not be kept any more.
        upload: Sends a large reply.
        wake: Is told that there are small ones to send.
    """

    def __init__(
        self,
        limits: HttpLimits,
        state: StateFolder | None,
        given: Callable[[Key], None],
        upload: Callable[[Reply], None],
        wake: Callable[[], None],
    ) -> None:
        self._limits = limits
        self._state = state
        self._given = given
        self._upload = upload
        self._wake = wake
        self._lines: dict[int, deque[Reply]] = {}
        self._small: deque[Reply] = deque()
        self._to_keep: deque[Reply] = deque()
        self._to_forget: list[Header] = []
        self._keep = asyncio.Event()

    def __len__(self) -> int:
        return len(self._to_keep) + sum(map(len, self._lines.values()))

    def load(self) -> None:
        """Take up the replies that an earlier process has left in the state folder."""
        if self._state is not None:
            for header, frame, spent_s, notes in self._state.replies():
                self._enter(Reply(header, frame, spent_s, notes, is_new=False))

    def add(self, reply: Reply) -> None:
        """Send a reply as soon as it is durable."""
        if self._state is None or reply.fault is not None:
            self._enter(reply)
        else:
            reply.state = self._state.pending(reply.header.client)
            self._to_keep.append(reply)
            self._keep.set()

    def batch(self) -> list[Reply]:
        """Return small replies that travel together."""
        found, num_bytes = list[Reply](), 0
        while self._small and num_bytes <= self._limits.batch_bytes:
            reply = self._small[0]
            num_bytes += self._limits.batch_bytes // 16 if reply.notes else 512
            num_bytes += 0 if reply.frame is None else len(reply.frame)
            if not found or num_bytes <= self._limits.batch_bytes:
                found.append(self._small.popleft())
        return found

    def taken(self, reply: Reply) -> None:
        """Forget a reply that the server has taken."""
        reply.released()
        client = reply.header.client
        line = self._lines[client]
        line.popleft()
        if line:
            self._launch(line[0])
        else:
            del self._lines[client]
        if self._state is not None and reply.fault is None:
            self._to_forget.append(reply.header)
            self._keep.set()

    async def keep(self) -> None:
        """Make replies durable, and forget them in the state folder, for ever."""
        state = self._state
        while state is not None:
            self._keep.clear()
            if not self._to_keep and not self._to_forget:
                await self._keep.wait()
                continue
            replies, gone = list(self._to_keep), self._to_forget
            self._to_forget = []
            kept: list[Kept] = [(one.header, one.frame, one.state, one.spent_s, one.notes) for one in replies]
            await asyncio.to_thread(state.turn, kept, gone)
            for reply in replies:
                self._to_keep.popleft()
                reply.state = None
                self._enter(reply)

    def release(self) -> None:
        """Let nobody wait any more: nothing leaves from here on."""
        for reply in self._all():
            reply.released()

    def _all(self) -> Iterator[Reply]:
        yield from self._to_keep
        for line in self._lines.values():
            yield from line

    def _enter(self, reply: Reply) -> None:
        client = reply.header.client
        self._given((client, reply.header.dispatch))
        line = self._lines.setdefault(client, deque())
        line.append(reply)
        if len(line) == 1:
            self._launch(reply)

    def _launch(self, reply: Reply) -> None:
        if reply.frame is not None and len(reply.frame) > self._limits.small_frame_bytes:
            self._upload(reply)
        else:
            self._small.append(reply)
            self._wake()
