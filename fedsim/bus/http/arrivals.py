"""Deliveries at the client process, from their announcement until they are answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from fedsim.bus.base import Delivery, Header
from fedsim.bus.http.access import ClientRanges
from fedsim.bus.http.blobs import Arriving
from fedsim.bus.http.frames import read
from fedsim.bus.http.limits import HttpLimits
from fedsim.bus.http.mailbox import Mailbox
from fedsim.bus.http.session import Control, Inbox, SessionError, header_of
from fedsim.bus.http.transfer import Spoilt, Transfers
from fedsim.errors import DecodeError
from fedsim.quoting import shortened
from fedsim.wire import SERVER, Kinds

Key = tuple[int, int]
"""Client and dispatch."""


@dataclass(slots=True, eq=False)
class _Arrival:
    """A delivery that was announced and not handed over; without a frame it is a header, or void."""

    header: Header
    frame: memoryview | None = None
    crc: int | None = None
    blob: Arriving | None = None
    is_void: bool = False

    @property
    def is_here(self) -> bool:
        """Whether nothing has to be fetched any more."""
        return self.blob is None


class Arrivals:
    """Hands deliveries over in order, once each; fetches those that travel as blobs.

    Args:
        clients: Whom deliveries are for.
        limits: Lengths; while ``inbox_bytes`` of blobs are unanswered no further one is fetched.
        mailbox: Where they are handed over.
        is_answered: Says whether an answer is under way, so that a repeated delivery can be dropped.
        report: Is told of a delivery that cannot be used: its number, and why.

    Attributes:
        kinds: The kinds of message that may travel; nothing is handed over before they are known.
        handed_over: The number up to which all have been.
    """

    def __init__(
        self,
        clients: ClientRanges,
        limits: HttpLimits,
        mailbox: Mailbox,
        is_answered: Callable[[Key], bool],
        report: Callable[[int, str], None],
    ) -> None:
        self.kinds: Kinds | None = None
        self.handed_over = 0
        self._clients = clients
        self._limits = limits
        self._mailbox = mailbox
        self._is_answered = is_answered
        self._report = report
        self._inbox = Inbox(gaps=True)
        self._arrivals: dict[int, _Arrival] = {}
        self._in_hand: dict[Key, int] = {}
        self._handed_at_s: dict[Key, float] = {}
        self._held_bytes = 0
        self._room = asyncio.Event()
        self._slots = asyncio.Semaphore(limits.in_flight_uploads)

    @property
    def last(self) -> int:
        """The number announced last: after a break the server goes on after it."""
        return self._inbox.last

    def begin_anew(self) -> None:
        """Forget what was announced; the server does not know the session and sends all of it again."""
        self._inbox = Inbox(gaps=True)
        for arrival in self._arrivals.values():
            if not arrival.is_void:  # the first of that dispatch is at work then, and stays in hand
                self.answered((arrival.header.client, arrival.header.dispatch))
        self._arrivals.clear()
        self.handed_over = 0

    def announced(self, said: Control) -> bool:
        """Take a delivery or the notice of one; say whether it has to be fetched.

        Raises:
            SessionError: It is for nobody here, or longer than allowed.
        """
        values, number = said.values, said.values["n"]
        header = header_of(values["h"])
        if header.sender != SERVER or header.receiver not in self._clients:
            raise SessionError(f"{header} came to the host of {shortened(self._clients)}")
        if not self._inbox.accept(number):
            return False
        key = header.client, header.dispatch
        if key in self._in_hand or self._is_answered(key):
            self._arrivals[number] = _Arrival(header, is_void=True)
        elif said.word == "blob":
            if values["b"] > self._limits.frame.frame_bytes:
                raise SessionError(
                    f"a frame of {values['b']} bytes: the limit is {self._limits.frame.frame_bytes}"
                )
            self._in_hand[key] = 0
            self._arrivals[number] = _Arrival(header, blob=Arriving(values["b"]))
            return True
        else:
            self._in_hand[key] = 0
            # Copied once, so that its arrays lie where a frame's arrays lie: at multiples of 16 bytes.
            frame = memoryview(bytes(said.body)) if said.word == "send" else None
            self._arrivals[number] = _Arrival(header, frame, values.get("c"))
        self.hand_over()
        return False

    def unfetched(self) -> list[int]:
        """Return the numbers of blobs that are not here."""
        return [number for number, arrival in self._arrivals.items() if not arrival.is_here]

    async def fetch(self, number: int, transfers: Transfers) -> None:
        """Fetch a blob, from where an earlier attempt has ended.

        Raises:
            SessionGone: The server does not know the session.
        """
        arrival = self._arrivals[number]
        assert arrival.blob is not None  # noqa: S101
        key = arrival.header.client, arrival.header.dispatch
        async with self._slots:
            while self._held_bytes >= self._limits.inbox_bytes:
                self._room.clear()
                await self._room.wait()
            try:
                arrival.frame = await transfers.fetch(number, arrival.blob)
                arrival.is_void = arrival.frame is None
            except Spoilt as error:
                arrival.is_void = True
                self._report(number, str(error))
            arrival.blob = None
            if arrival.frame is None:
                self._in_hand.pop(key, None)
            else:
                self._in_hand[key] = len(arrival.frame)
                self._held_bytes += len(arrival.frame)
        self.hand_over()

    def hand_over(self) -> None:
        """Hand over what is here and next in order."""
        kinds = self.kinds
        while kinds is not None and self._arrivals:
            number = next(iter(self._arrivals))
            arrival = self._arrivals[number]
            if not arrival.is_here:
                return
            del self._arrivals[number]
            self.handed_over = number
            if not arrival.is_void:
                self._read(number, arrival, kinds)
        if not self._arrivals:
            self.handed_over = self.last if kinds is not None else self.handed_over

    def held_ns(self, key: Key) -> int:
        """Return how long ago a delivery was handed over; 0 for one that was not, or is answered."""
        now_s = asyncio.get_running_loop().time()
        return int((now_s - self._handed_at_s.get(key, now_s)) * 1e9)

    def answered(self, key: Key) -> None:
        """Let go of a delivery: its answer is on its way."""
        self._handed_at_s.pop(key, None)
        self._held_bytes -= self._in_hand.pop(key, 0)
        self._room.set()

    def _read(self, number: int, arrival: _Arrival, kinds: Kinds) -> None:
        header, frame = arrival.header, arrival.frame
        self._handed_at_s[header.client, header.dispatch] = asyncio.get_running_loop().time()
        if frame is None:
            self._mailbox.put(Delivery(header, None), 0)
            return
        try:
            message = read(header, frame, kinds, self._limits.frame, arrival.crc)
        except DecodeError as error:
            self.answered((header.client, header.dispatch))
            self._report(number, str(error))
            return
        self._mailbox.put(Delivery(header, message), len(frame))
