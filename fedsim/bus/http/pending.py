"""Open work of a client process: dispatches to hand over and to reply to, replies to bring to the server."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from weakref import WeakValueDictionary

from fedsim.bus.base import Delivery, Header
from fedsim.bus.http.limits import HttpLimits
from fedsim.bus.http.messages import Reply, read_frame
from fedsim.bus.http.state_folder import StateFolder
from fedsim.bus.inbox import Inbox
from fedsim.errors import DecodeError
from fedsim.wire import Kinds

Key = tuple[int, ...]
"""Client and dispatch."""


@dataclass(slots=True, eq=False)
class Arrival:
    """A dispatch that was announced and not handed over.

    Attributes:
        number: Its number in the outbox; 0 if it was announced in an earlier session.
        frame: Its frame; None for a header alone, and while it is fetched.
        is_coming: Whether its frame is being fetched.
        held_bytes: Bytes of a frame that was fetched.
    """

    header: Header
    number: int
    frame: bytes | memoryview | None = None
    is_coming: bool = False
    held_bytes: int = 0


class Deliveries:
    """Hands dispatches over in order, once each, and not before ``kinds`` are known.

    While ``inbox_bytes`` of fetched frames have no reply, no further frame is fetched. ``last`` is the number
    announced last: after a break the server goes on after it.
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
        """The number up to which all dispatches have arrived."""
        # A new session may number what is here in another order.
        return max(0, min((self.last, *(each.number - 1 for each in self._arrivals.values()))))

    def begin_anew(self) -> None:
        """Expect all dispatches again, in a session that is new to the server."""
        self.last = 0
        for arrival in self._arrivals.values():
            arrival.number = 0

    def announced(self, arrival: Arrival) -> bool:
        """Take a dispatch; return whether its frame is to be fetched."""
        header = arrival.header
        key = header.client, header.dispatch
        self.last = arrival.number
        if (known := self._arrivals.get(key)) is not None:
            known.number = arrival.number
        elif key not in self._in_hand and header.dispatch > self._replied.get(header.client, -1):
            self._arrivals[key] = arrival
            if arrival.is_coming:
                return True
            self.fetched(arrival, arrival.frame)
        return False

    async def room(self) -> None:
        """Wait until another frame may be fetched."""
        while self._held_bytes >= self._limits.inbox_bytes:
            self._room.clear()
            await self._room.wait()

    def fetched(self, arrival: Arrival, frame: bytes | memoryview | None) -> None:
        """Take the frame of a dispatch; None for a header alone, or if the server has it no more."""
        if arrival.is_coming and frame is not None:
            # Small ones do not count: they may wait for this one, which must not wait for them.
            arrival.held_bytes = len(frame)
            self._held_bytes += len(frame)
        elif arrival.is_coming:
            del self._arrivals[arrival.header.client, arrival.header.dispatch]
        arrival.frame, arrival.is_coming = frame, False
        self.hand_over()

    def hand_over(self) -> None:
        """Hand over the dispatches that are next in order and complete."""
        kinds = self.kinds
        while kinds is not None and self._arrivals:
            key, arrival = next(iter(self._arrivals.items()))
            header, frame = arrival.header, arrival.frame
            if arrival.is_coming:
                return
            del self._arrivals[key]
            self._in_hand[key] = arrival.held_bytes, asyncio.get_running_loop().time()
            try:
                message = None if frame is None else read_frame(header, frame, kinds, self._limits.frame)
            except DecodeError as error:
                self._unusable(header, str(error))
            else:
                self._inbox.put(Delivery(header, message), 0 if frame is None else len(frame))

    def held_s(self, key: Key) -> float:
        """Return how long ago a dispatch was handed over; 0 before that, and after its reply."""
        now_s = asyncio.get_running_loop().time()
        return now_s - self._in_hand.get(key, (0, now_s))[1]

    def replied(self, key: Key) -> None:
        """Forget a dispatch whose reply is on its way, or in the state folder."""
        client, number = key
        self._replied[client] = max(number, self._replied.get(client, -1))
        self._held_bytes -= self._in_hand.pop(key, (0, 0.0))[0]
        self._room.set()


class Replies:
    """Brings replies to the server; those of a client one after the other, in order.

    ``given`` is called once a reply is safe, ``wake`` when there are small ones to send.
    """

    def __init__(
        self,
        limits: HttpLimits,
        state: StateFolder | None,
        given: Callable[[Key], None],
        upload: Callable[[Reply], Awaitable[None]],
        wake: Callable[[], None],
    ) -> None:
        self._limits = limits
        self._state = state
        self._given = given
        self._upload = upload
        self._wake = wake
        self._small: deque[Reply] = deque()
        self._writing = asyncio.Lock()
        self._is_broken = False
        self._turns = WeakValueDictionary[Key, asyncio.Lock]()  # only locks in use

    async def bring(self, reply: Reply) -> None:
        """Bring a reply to the server, once it is durable; return when the server has taken it."""
        state = self._state if reply.fault is None and len(reply.key) == 2 else None
        if state is not None and not reply.is_durable:
            async with self._writing:
                if self._is_broken:  # a later reply must not be durable without the one before it
                    return
                try:
                    await state.keep(reply)
                except BaseException:
                    self._is_broken = True
                    raise
        if len(reply.key) == 2:
            self._given(reply.key)
        async with self._turns.setdefault(reply.line, asyncio.Lock()):
            if reply.frame is not None and len(reply.frame) > self._limits.small_frame_bytes:
                await self._upload(reply)
            else:
                reply.taken = asyncio.get_running_loop().create_future()
                self._small.append(reply)
                self._wake()
                await reply.taken
            if state is not None:
                state.forget(reply.key)

    def batch(self) -> tuple[list[Reply], bytes]:
        """Return small replies that travel together, and their entries; once sent, call :meth:`taken`."""
        now_s, batch, body = asyncio.get_running_loop().time(), list[Reply](), bytearray()
        while self._small:
            entry = self._small[0].entry(now_s)
            if body and len(body) + len(entry) > self._limits.batch_bytes:
                break
            batch.append(self._small.popleft())
            body += entry
        return batch, bytes(body)

    def taken(self, batch: Sequence[Reply]) -> None:
        """Let the next replies follow those that the server has taken."""
        for reply in batch:
            settle(reply.taken)


def settle(future: asyncio.Future[None] | None) -> None:
    """Complete a future, if there is one that is not done."""
    if future is not None and not future.done():
        future.set_result(None)
