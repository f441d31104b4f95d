"""Answers at the client process, until the server has acknowledged them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fedsim.bus.base import Header
from fedsim.bus.http.blobs import name_of
from fedsim.bus.http.frames import checksum
from fedsim.bus.http.limits import HttpLimits
from fedsim.bus.http.link import Link
from fedsim.bus.http.session import Outbox, encode, header_values
from fedsim.bus.http.store import StateFolder
from fedsim.bus.http.transfer import Transfers
from fedsim.wire import Frame

Key = tuple[int, int]
"""Client and dispatch."""


@dataclass(slots=True, eq=False)
class Answer:
    """One answer.

    Attributes:
        header: Its header.
        frame: Its frame; None for a header alone.
        left: Done when the frame has left, or never will.
        number: Its number in the session; 0 while it waits.
        is_new: Whether nothing of it was ever sent.
        state: The state of its client that becomes durable with it, if any does.
        is_up: Whether its notice may go out: it needs no blob, or the blob is at the server.
        beside: What is said beside it (:mod:`fedsim.bus.http.enclosed`).
    """

    header: Header
    frame: Frame | None
    left: asyncio.Future[None]
    number: int = 0
    state: bytes | None = None
    is_up: bool = False
    is_new: bool = True
    beside: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        """Client and dispatch."""
        return self.header.client, self.header.dispatch

    def released(self) -> None:
        """Note that the frame has left."""
        if not self.left.done():
            self.left.set_result(None)


class Answers:
    """Keeps answers until they are acknowledged; those that travel as blobs go up several at a time.

    Args:
        limits: Bounds of the outbox.
        state: Where answers outlive the process.
        durable: Is told of an answer that is safe: its delivery need not be kept any more.
    """

    def __init__(self, limits: HttpLimits, state: StateFolder | None, durable: Callable[[Key], None]) -> None:
        self._limits = limits
        self._state = state
        self._durable = durable
        self._outbox: Outbox[Answer] = Outbox(limits.outbox_bytes, limits.outbox_count)
        self._waiting: deque[Answer] = deque()
        self._known: dict[Key, None] = {}
        self._line: deque[Answer] = deque()  # numbered, and not posted on the present link
        self._to_keep: deque[Answer] = deque()
        self._to_forget: list[Header] = []
        self._keep = asyncio.Event()
        self._slots = asyncio.Semaphore(limits.in_flight_uploads)
        self._link: Link | None = None
        self._upload: Callable[[Answer], None] = _no_upload

    def __contains__(self, key: Key) -> bool:
        return key in self._known

    @property
    def base(self) -> int:
        """The number up to which all are acknowledged."""
        return self._outbox.base

    def load(self) -> None:
        """Take up the answers that an earlier process has left in the state folder."""
        if self._state is not None:
            for header, frame, beside in self._state.replies():
                left = asyncio.get_running_loop().create_future()
                answer = Answer(header, frame, left, is_new=False, beside=beside)
                self._known[answer.key] = None
                self._waiting.append(answer)

    def add(self, answer: Answer) -> None:
        """Send an answer as soon as it is durable and there is room and a connection."""
        self._known[answer.key] = None
        if self._state is None:
            self._durable(answer.key)
            self._waiting.append(answer)
            self._fill()
        else:
            answer.state = self._state.pending(answer.header.client)
            self._to_keep.append(answer)
            self._keep.set()

    def acknowledged(self, number: int) -> None:
        """Forget the answers up to a number.

        Raises:
            SessionError: A number that was never given.
        """
        settled = self._outbox.acknowledge(number)
        for _, answer in settled:
            answer.released()
            self._known.pop(answer.key, None)
            if self._state is not None:
                self._to_forget.append(answer.header)
        if settled:
            self._keep.set()
            self._fill()

    def begin(self, link: Link, last: int, upload: Callable[[Answer], None]) -> None:
        """Begin with a connection: send what the server has not had.

        Args:
            link: The connection.
            last: The number of the last answer that the server has had.
            upload: Starts to send an answer as a blob; :meth:`send_blob` does it.
        """
        # A process that has lost its memory goes on with the server's count.
        self._outbox.skip_to(last)
        self.acknowledged(last)
        self._link, self._upload = link, upload
        self._line.clear()
        for _, answer in self._outbox:
            self._enter(answer)
        self._fill()

    def end(self) -> None:
        """Note that the connection has ended."""
        self._link = None

    async def send_blob(self, answer: Answer, transfers: Transfers) -> None:
        """Send an answer as a blob; then its notice may go.

        Raises:
            SessionGone: The server does not know the session.
        """
        if answer.frame is not None:
            async with self._slots:
                is_new, answer.is_new = answer.is_new, False
                await transfers.send(answer.number, name_of(answer.header), answer.frame, is_new=is_new)
        answer.is_up = True
        self._advance()

    def message(self, number: int, acknowledged: int) -> tuple[bytes, Answer] | None:
        """Return an answer as it travels; None if it is acknowledged already."""
        answer = self._outbox.get(number)
        if answer is None:
            return None
        head = {"n": number, "h": header_values(answer.header), "a": acknowledged, **answer.beside}
        frame = answer.frame
        if frame is None:
            return encode("none", **head), answer
        if len(frame) > self._limits.small_frame_bytes:
            return encode("blob", b=len(frame), **head), answer
        return b"".join((encode("send", c=checksum(frame), **head), *frame.parts)), answer

    async def keep(self) -> None:
        """Make answers durable, and forget them in the state folder, for ever."""
        state = self._state
        while state is not None:
            self._keep.clear()
            if not self._to_keep and not self._to_forget:
                await self._keep.wait()
                continue
            batch, self._to_keep = list(self._to_keep), deque()
            gone, self._to_forget = self._to_forget, []
            kept = [(answer.header, answer.frame, answer.state, answer.beside) for answer in batch]
            await asyncio.to_thread(state.turn, kept, gone)
            for answer in batch:
                answer.state = None
                self._durable(answer.key)
                self._waiting.append(answer)
            self._fill()

    def release(self) -> None:
        """Let nobody wait any more: nothing leaves from here on."""
        for answer in [*self._to_keep, *self._waiting, *(answer for _, answer in self._outbox)]:
            answer.released()

    def _fill(self) -> None:
        """Number the answers that wait, as far as there is room; none before the first connection."""
        if self._link is None:
            return
        while self._waiting:
            answer = self._waiting[0]
            num_bytes = 256 + (0 if answer.frame is None else len(answer.frame))
            if not self._outbox.fits(num_bytes):
                break
            self._waiting.popleft()
            answer.number = self._outbox.add(answer, num_bytes)
            self._enter(answer)
        self._advance()

    def _enter(self, answer: Answer) -> None:
        """Put a numbered answer in line for the present connection."""
        self._line.append(answer)
        if answer.frame is None or len(answer.frame) <= self._limits.small_frame_bytes:
            answer.is_up = True
        else:
            # After a break the server may have let a blob go; asking costs one request.
            answer.is_up = False
            self._upload(answer)

    def _advance(self) -> None:
        """Post what is next in line and ready."""
        while self._link is not None and self._line and self._line[0].is_up:
            self._link.post(self._line.popleft().number)


def _no_upload(answer: Answer) -> None:
    raise AssertionError("there is no connection")
