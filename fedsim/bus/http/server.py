"""The server's endpoint: listens, and answers the requests of client processes.

Nothing that a peer does ends the server: a breach of the rules is counted in ``rejected`` by its cause, and
the connection is closed. Memory that peers can make the server use is bounded by

    max_connections x (1 MiB + chunk_bytes + batch_bytes) + upload_bytes + inbox_bytes + one batch

where 1 MiB is the most that aiohttp, asyncio and TLS read ahead on a connection, and ``chunk_bytes`` waits to
be written. Dispatches are held until their replies come, the arrays of a broadcast once for all receivers. A
reply is taken once, from the process that was asked, so ledger, trace and inbox cannot be flooded.
"""

from __future__ import annotations

import asyncio
import secrets
import ssl as tls
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from itertools import count
from typing import Any

from fedsim.bus.base import Delivery, Header, Log
from fedsim.bus.http.access import Access, is_loopback
from fedsim.bus.http.connections import Connections
from fedsim.bus.http.handlers import Handlers
from fedsim.bus.http.limits import HttpLimits
from fedsim.bus.http.messages import Entry, entry, framed, read_frame, sendable
from fedsim.bus.http.sessions import Dispatch, Key, Question, Session, Sessions
from fedsim.bus.http.transfer_records import TransferRecords
from fedsim.bus.inbox import Inbox
from fedsim.bus.ledger import Ledger, Outcome
from fedsim.clock import Trace
from fedsim.errors import DecodeError, RunError
from fedsim.network import NO_OVERHEAD, OverheadConfig
from fedsim.quoting import MOST_SAID, shortened
from fedsim.wire import SERVER, Kinds, Message, Packed

OVER = "the run is over"


class HttpServer:
    """The server's endpoint on the HTTP bus; a :class:`fedsim.bus.Endpoint`.

    ``greeting`` is sent to every process that joins; ``health`` adds to the answer of ``GET /health``;
    ``run`` names this run; ``rejected`` counts the faults of peers by cause.
    """

    def __init__(
        self,
        *,
        kinds: Kinds,
        ledger: Ledger,
        trace: Trace,
        overhead: OverheadConfig = NO_OVERHEAD,
        access: Access,
        limits: HttpLimits | None = None,
        greeting: bytes,
        num_clients: int,
        log: Log,
        health: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        self.limits = limits or HttpLimits()
        self.greeting = greeting
        self.run = secrets.token_hex(16)
        self.is_closing = False
        self._kinds = kinds
        self._num_clients = num_clients
        self._log = log
        self._health = health
        self._records = TransferRecords(ledger, trace, overhead, log)
        self.rejected = self._records.rejected
        self._sessions = Sessions(num_clients, self.limits, self._retired)
        self._inbox = Inbox(self.limits.inbox_bytes)
        self._newest: dict[int, int] = {}
        self._questions: dict[int, Question] = {}
        self._numbers = count(1)
        self._change = asyncio.Event()
        self._end: bytes | None = None
        self._is_over = False
        self._handlers = Handlers(self, access, self._sessions, self._records, self._inbox)
        self.connections = Connections(self._handlers.answer, self.limits, self._records.reject)
        self._tending: asyncio.Task[None] | None = None

    # For the runtime

    async def start(self, host: str, port: int, ssl: tls.SSLContext | None = None) -> int:
        """Listen; return the port, which the system chooses for 0."""
        self._handlers.is_local = is_loopback(host)
        port = await self.connections.listen(host, port, ssl)
        self._tending = asyncio.get_running_loop().create_task(self._tend(), name="bus: heartbeats")
        return port

    async def close(self, grace_s: float = 5.0, *, why: str = "the server was stopped") -> None:
        """Tell all processes the end, and why; wait ``grace_s`` for them to leave or come back; close."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + grace_s
        if not self._is_over:
            self.connections.lock()
            self._tell_all(entry("e", False, sendable(why)))
        with suppress(TimeoutError):
            async with asyncio.timeout_at(end_s):
                while any(self._may_hear(session, end_s - 2 * grace_s) for session in self._sessions):
                    await self._change.wait()
        self.is_closing = True
        self._changed()
        if self._tending is not None:
            self._tending.cancel()
            await asyncio.gather(self._tending, return_exceptions=True)
        await self.connections.close(max(0.05, end_s - loop.time()))
        for dispatch in list(self._sessions.dispatches.values()):
            self._lost(dispatch, "the server has closed")
        for asked in self._questions.values():
            if not asked.answer.done():
                asked.answer.set_exception(ConnectionError("the server has closed"))
        self._inbox.fail(ConnectionError("the server has closed"))

    def send(self, header: Header, message: Message | Packed | None) -> Awaitable[None]:
        """Start sending now; awaiting the result waits until the frame has left."""
        client, number = header.receiver, header.dispatch
        newest = self._newest.get(client, -1)
        if header.sender != SERVER or not 0 <= client < self._num_clients or number <= newest:
            raise ValueError(
                f"{header}: the server sends each dispatch of a client from 0 to {self._num_clients - 1} "
                f"once, in the order of their numbers, of which the last was {newest}"
            )
        packed, frame = framed(header, message, self.limits.frame)
        loop = asyncio.get_running_loop()
        is_small = frame is None or len(frame) <= self.limits.small_frame_bytes
        dispatch = Dispatch(header, packed, frame, loop.create_future(), loop.time(), is_small)
        self._newest[client] = number
        if self.is_closing:
            self._lost(dispatch, "the server has closed")
        else:
            self._sessions.put(dispatch)
        return dispatch.left

    async def receive(self) -> Delivery:
        """Wait for the next reply, in order of arrival; a ConnectionError once the server has closed."""
        return await self._inbox.receive()

    def attended(self, client: int) -> bool:
        """Whether a process that hosts this client is connected and understands messages."""
        session = self._sessions.owner(client)
        return session is not None and session.abort is not None and session.is_ready

    async def attendance(self, clients: Collection[int]) -> None:
        """Wait until all these clients are attended at once."""
        while not all(self.attended(client) for client in clients):
            if self.is_closing:
                raise ConnectionError("the server has closed")
            await self._change.wait()

    async def probe(self, client: int, question: bytes, timeout_s: float) -> bytes:
        """Ask the process of a client for the observer, outside the ledger; a RunError if it cannot answer.

        A question that is lost with a connection is repeated on the next.
        """
        if len(question) > (limit := self.limits.small_frame_bytes):
            raise ValueError(f"a question of {len(question)} bytes: at most {limit} fit")
        number, answer = next(self._numbers), asyncio.get_running_loop().create_future()
        asked = Question(client, entry("q", number, client, body=question), answer)
        self._questions[number] = asked
        session = self._sessions.owner(client)
        if session is not None and session.is_ready:
            session.say(asked.entry)
        try:
            async with asyncio.timeout(timeout_s):
                return await asked.answer
        finally:
            del self._questions[number]

    def seal(self) -> None:
        """Record nothing more in ledger and trace: later frames belong to no run."""
        self._records.seal()

    def finish(self) -> None:
        """Tell all processes, and those that come back later, that the run is over; :meth:`seal`."""
        self._is_over = True
        self.seal()
        self._tell_all(entry("e", True, OVER))

    # For handlers

    def status(self) -> dict[str, Any]:
        """Return the answer to ``GET /health``."""
        here = [session for session in self._sessions if session.abort is not None]
        return {
            "status": "closing" if self.is_closing else "over" if self._is_over else "ok",
            "sessions": len(self._sessions),
            "connected": len(here),
            "clients_attended": sum(len(session.clients) for session in here if session.is_ready),
            **self._health(),
        }

    def joined(self, session: Session, resumed: bool) -> None:
        """Note that a process has joined, or come back."""
        session.has_left = False
        self._log.info("process joined", clients=shortened(session.clients), resumed=resumed)

    def opened(self, session: Session, is_ready: bool) -> None:
        """Note that a session has an outbox, and whether its process understands messages."""
        session.is_ready = False
        if self._end is not None:
            session.say(self._end)
        self._readied(session, is_ready)

    def parted(self, session: Session) -> None:
        """Note that a session has no outbox now."""
        self._changed()
        if not session.has_left and self._end is None:
            silent_s = asyncio.get_running_loop().time() - session.heard_s
            is_silent = silent_s > self.limits.silence_s
            why = f"it was silent for {silent_s:.0f} s" if is_silent else "its connection broke"
            self._log.info("process gone", clients=shortened(session.clients), why=why)

    def left(self, session: Session, why: str) -> None:
        """Note that a process has left."""
        if not session.has_left:
            session.has_left = True
            self._log.info("process left", clients=shortened(session.clients), why=shortened(why, MOST_SAID))
        if session.abort is not None:
            session.abort()

    def confirmed(self, session: Session, number: int, is_ready: bool) -> None:
        """Record that all dispatches up to a number have arrived; note whether the process is ready."""
        for dispatch in session.confirmed(number):
            self._records.ended(dispatch, Outcome.DELIVERED)
            dispatch.released()
        self._readied(session, is_ready)

    def asked(self, session: Session, key: Key) -> Dispatch | Question | None:
        """Return the dispatch or question of a key; None, and counted, if this session has none."""
        if len(key) == 1:
            question = self._questions.get(key[0])
            return question if question is not None and question.awaits(session) else None
        client, number = key
        dispatch = self._sessions.dispatches.get(key)
        if dispatch is not None and dispatch.session is session and dispatch.began_ns >= 0:
            return dispatch
        if client not in session.clients:
            cause = "client"
        elif number <= self._newest.get(client, -1) and dispatch is None:
            cause = "repeated"  # normal after a break: a process cannot know what has arrived
        else:
            cause = "unasked"
        self._records.reject(cause, f"{client}-{number}")
        return None

    def take(self, session: Session, reply: Entry, sharing: int = 1, first_ns: int = -1) -> bool:
        """Take a reply or an answer; return whether it was asked for.

        ``sharing`` entries came in its request; ``first_ns`` is when a large one began, negative for a small
        one.
        """
        asked = self.asked(session, reply.key)
        if isinstance(asked, Dispatch):
            self._take_reply(asked, reply, sharing, first_ns)
        elif asked is not None and reply.values[1]:
            asked.answer.set_result(bytes(reply.body))
        elif asked is not None:
            why = shortened(sendable(bytes(reply.body).decode("utf-8", "replace")), MOST_SAID)
            asked.answer.set_exception(RunError(f"the process of client {asked.client} cannot answer: {why}"))
        return asked is not None

    # Internals

    def _take_reply(self, dispatch: Dispatch, reply: Entry, sharing: int, first_ns: int) -> None:
        if reply.letter == "u":
            why = reply.values[2]
            self._records.reject("unusable", why)
            self._records.ended(dispatch, Outcome.UNDECODABLE, shortened(why, MOST_SAID))
            self._lost(dispatch, why)
            return
        self._records.ended(dispatch, Outcome.DELIVERED)
        _, _, spent_s, notes = reply.values
        self._records.reported(dispatch, spent_s, notes, first_ns)
        self._forget(dispatch)
        header, message, num_bytes = dispatch.header.reply(), None, len(reply.body)
        if num_bytes:
            try:
                message = read_frame(header, reply.body, self._kinds, self.limits.frame)
            except DecodeError as error:
                self._records.reject("decode", str(error))
                self._records.received(header, None, num_bytes, sharing, shortened(error, MOST_SAID))
                return
            self._records.received(header, message, num_bytes, sharing)
        self._inbox.put(Delivery(header, message), num_bytes)

    def _readied(self, session: Session, is_ready: bool) -> None:
        """Note whether a process understands messages, and ask it the open questions."""
        if is_ready and not session.is_ready:
            for question in self._questions.values():
                if question.awaits(session):
                    session.say(question.entry)
        if is_ready != session.is_ready:
            session.is_ready = is_ready
            self._changed()

    def _tell_all(self, end: bytes) -> None:
        self._end = end
        for session in self._sessions:
            session.say(end)
        self._changed()

    def _may_hear(self, session: Session, since_s: float) -> bool:
        """Whether a process is connected, or may come back to hear of the end."""
        if session.abort is not None:
            return True
        return self._is_over and not session.has_left and session.gone_s >= since_s

    def _lost(self, dispatch: Dispatch, cause: str) -> None:
        self._records.ended(dispatch, Outcome.LOST, cause)
        self._forget(dispatch)

    def _forget(self, dispatch: Dispatch) -> None:
        self._sessions.dispatches.pop(dispatch.key, None)
        dispatch.frame = dispatch.packed = None
        dispatch.released()

    def _retired(self, session: Session, why: str) -> None:
        self._log.info("process retired", clients=shortened(session.clients), why=why)

    def _changed(self) -> None:
        """Wake those that wait for attendance or for processes to leave."""
        self._change.set()
        self._change = asyncio.Event()

    async def _tend(self) -> None:
        """End silent and forgotten sessions, for ever."""
        limits, loop = self.limits, asyncio.get_running_loop()
        while True:
            await asyncio.sleep(limits.heartbeat_s / 4)
            for session in self._sessions:
                is_silent = loop.time() - session.heard_s > limits.silence_s
                if session.abort is not None and is_silent and not session.num_waiting:
                    self._records.reject("silent")
                    session.abort()
            for dispatch in self._sessions.lapse(loop.time() - limits.session_ttl_s):
                self._lost(dispatch, "nobody hosts the client")
