"""The server's endpoint: listens, and serves the connections of client processes.

Nothing that a peer does ends the server: a breach of the rules is counted in ``rejected`` by its cause, and
the connection is closed. A process holds at most one incomplete reply in the server's memory. Dispatches are
held until their replies come, the arrays of a broadcast once for all receivers. A reply is taken once, from
the process that hosts its client, so ledger and trace cannot be flooded.

``GET /health`` is open to all, joining needs a token. A web page can make its reader's browser send requests
to any address, even to servers that only this machine can reach. So requests with an ``Origin`` are refused,
and a local server without tokens refuses requests that do not call it by a loopback name or address.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import ssl as tls
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from types import MappingProxyType
from typing import Any

from aiohttp import web

from fedsim.bus.base import Delivery, Header, Log
from fedsim.bus.http.access import Access, ClientRanges, bearer_token, is_loopback, names_loopback
from fedsim.bus.http.channel import MAX_MESSAGE_BYTES, Channel
from fedsim.bus.http.faulty_frames import ExposedFrame, FaultyFrames
from fedsim.bus.http.limits import HttpLimits
from fedsim.bus.http.messages import (
    FROM_CLIENT,
    PROTOCOL,
    Entry,
    Key,
    Names,
    Parts,
    ProtocolError,
    decode_frame,
    entry,
    framed,
    keys_entry,
    nobody_emulates,
    read_keys,
    sendable,
)
from fedsim.bus.http.sessions import Dispatch, Question, Session
from fedsim.bus.http.state_versions import Marks
from fedsim.bus.http.transfer_records import TransferRecords
from fedsim.bus.ledger import Ledger, Outcome
from fedsim.clock import Trace
from fedsim.errors import DecodeError, RunError, UserError
from fedsim.network import NO_OVERHEAD, OverheadConfig
from fedsim.network.fault_settings import RetryConfig
from fedsim.network.faults import RunFault
from fedsim.quoting import MAX_SHOWN, shortened
from fedsim.wire import SERVER, Kinds, Message, Packed, pack

VERSION_HEADER = "Fedsim-Protocol"
"""Header of every request and answer: the version of the protocol."""
MAX_JOIN_BYTES = 16 << 20
"""Longest list of the clients that a process hosts, and of the dispatches that it has."""
_SECRET = re.compile(r"[0-9a-f]{32}")


class Refused(Exception):  # noqa: N818
    """A request is refused with a status, and counted by a cause."""

    def __init__(self, cause: str, status: int) -> None:
        super().__init__(f"status {status}")
        self.cause, self.status = cause, status


class HttpServer:
    """The server's endpoint on the HTTP bus; a :class:`fedsim.bus.Endpoint`.

    ``greeting`` is sent to every process that joins; ``health`` adds to the answer of ``GET /health``;
    ``names`` are those of the run and of the server; ``firsts`` has, where the server was started again, the
    next dispatch of each client that had one; ``rejected`` counts the faults of peers by cause; ``heard`` is
    told what processes say of an emulation, and raises a :class:`ProtocolError` if it makes no sense.
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
        names: Names | None = None,
        firsts: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        self.limits = limits or HttpLimits()
        self.greeting = greeting
        self.names = names or Names()
        self._firsts: Marks = {client: (first,) for client, first in firsts.items()}
        self._marks = dict(self._firsts)
        self.is_closing = False
        self._kinds = kinds
        self._access = access
        self._num_clients = num_clients
        self._log = log
        self._health = health
        self._records = TransferRecords(ledger, trace, overhead, log)
        self.rejected = self._records.rejected
        self._faulty = FaultyFrames((), None, self._records)
        self._hand_over: Callable[[Delivery], object] = lambda delivery: None
        self.heard: Callable[[Entry], object] = nobody_emulates
        self._sessions: dict[str, Session] = {}
        self._hosts: dict[int, Session] = {}  # by client
        self._dispatches: dict[Key, Dispatch] = {}  # the open ones, in the order of sending
        self._newest: dict[int, int] = {}
        self._questions: dict[int, Question] = {}
        self._numbers = count(1)
        self._change = asyncio.Event()
        self._end: Parts = ()
        self._is_over = self._is_local = False
        self._http = web.Server(
            self._answer,
            access_log=None,
            logger=_counted(self._records.reject),
            lingering_time=0.0,
            auto_decompress=False,  # no body is compressed, and a few bytes could stand for many
        )
        self._listener: asyncio.Server | None = None
        self._lapsing: asyncio.TimerHandle | None = None

    # For the runtime

    async def start(self, host: str, port: int, ssl: tls.SSLContext | None = None) -> int:
        """Listen; return the port, which the system chooses for 0."""
        self._is_local = is_loopback(host)
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self._http, host, port, ssl=ssl, backlog=512)
        self._lapse()
        return int(self._listener.sockets[0].getsockname()[1])

    async def close(
        self, grace_s: float = 5.0, *, why: str = "the server was stopped", for_good: bool = True
    ) -> None:
        """Tell all processes the end, and why; wait ``grace_s`` for them to leave or come back; close.

        If it is not ``for_good``, tell them nothing: they try to connect until the server is started again.
        """
        loop = asyncio.get_running_loop()
        grace_s = grace_s if for_good else 0.0
        end_s = loop.time() + grace_s
        if not self._is_over:
            if self._listener is not None:
                self._listener.close()
            if for_good:
                self._tell_all(entry("e", False, sendable(why)))
        with suppress(TimeoutError):
            async with asyncio.timeout_at(end_s):
                while any(
                    self._may_hear(session, end_s - 2 * grace_s) for session in self._sessions.values()
                ):
                    await self._change.wait()
        self.is_closing = True
        self._faulty.close()
        self._changed()
        if self._lapsing is not None:
            self._lapsing.cancel()
        if self._listener is not None:
            self._listener.close()
            for session in self._sessions.values():
                session.abort()
            self._http.pre_shutdown()
            await self._http.shutdown(max(0.05, end_s - loop.time()))
            await self._listener.wait_closed()
        for dispatch in list(self._dispatches.values()):
            self._lost(dispatch, "the server has closed")
        for question in self._questions.values():
            if not question.answer.done():
                question.answer.set_exception(ConnectionError("the server has closed"))

    def send(self, header: Header, message: Message | Packed | None) -> None:
        """Send a dispatch to the process that hosts its client, now or once there is one."""
        client, number = header.receiver, header.dispatch
        newest = self._newest.get(client, -1)
        if header.sender != SERVER or not 0 <= client < self._num_clients or number <= newest:
            raise ValueError(
                f"{header}: the server sends each dispatch of a client from 0 to {self._num_clients - 1} "
                f"once, in the order of their numbers, of which the last was {newest}"
            )
        packed, frame = framed(header, message, self.limits.frame)
        at_s, num_bytes = asyncio.get_running_loop().time(), 0 if frame is None else len(frame)
        dispatch = Dispatch(header, packed, frame, at_s, num_bytes)
        self._newest[client] = number
        if self.is_closing:
            self._lost(dispatch, "the server has closed")
            return
        if packed is None:
            self._open(dispatch)
        else:
            self._faulty.meet(ExposedFrame(header, packed, num_bytes, partial(self._open, dispatch)))

    def _open(self, dispatch: Dispatch, num_copies: int = 0) -> None:
        """Hand a dispatch to the session of its client, now or once there is one."""
        dispatch.num_copies, (client, number) = num_copies, dispatch.key
        if number < self._newest[client]:  # a process counts on the order of numbers
            self._records.sent(dispatch)
            self._lost(dispatch, "a later dispatch was sent before")
            return
        self._dispatches[dispatch.key] = dispatch
        if (session := self._hosts.get(client)) is not None:
            session.waiting.append(dispatch)
            session.offer(self.limits.window_bytes)

    def meet_faults(self, faults: Sequence[RunFault], retry: RetryConfig | None) -> None:
        """Let faults strike frames from now on."""
        self._faulty = FaultyFrames(faults, retry, self._records)

    def feed(self, take: Callable[[Delivery], object]) -> None:
        """Give all replies to a function from now on, in order of arrival."""
        self._hand_over = take

    def tell(self, what: str, client: int, dispatch: int, *numbers: int, body: Parts | None = None) -> None:
        """Send the process of a client something of an emulation; whether it is there shows elsewhere."""
        if (session := self._hosts.get(client)) is not None:
            session.say(entry("m", what, client, dispatch, *numbers, body=body))

    async def wait_for_loss(self, clients: Collection[int]) -> int:
        """Wait until the process of one of these clients is not connected; return the client."""
        while not (away := [client for client in clients if not self.is_connected(client)]):
            await self._change.wait()
        return away[0]

    def is_connected(self, client: int) -> bool:
        """Whether a process that hosts this client is connected and understands messages."""
        session = self._hosts.get(client)
        return session is not None and session.channel is not None and session.is_ready

    async def wait_for_clients(self, clients: Collection[int]) -> None:
        """Wait until processes that host all these clients are connected at once."""
        while not all(self.is_connected(client) for client in clients):
            if self.is_closing:
                raise ConnectionError("the server has closed")
            await self._change.wait()

    async def probe(self, client: int, question: bytes, timeout_s: float) -> bytes:
        """Ask the process of a client for the observer, outside the ledger; a RunError if it cannot answer.

        A question that is lost with a connection is repeated on the next.
        """
        number, answer = next(self._numbers), asyncio.get_running_loop().create_future()
        asked = self._questions[number] = Question(number, client, question, answer)
        if self.is_connected(client):
            self._hosts[client].say(asked.entry())
        try:
            async with asyncio.timeout(timeout_s):
                return await asked.answer
        finally:
            del self._questions[number]

    def mark(self, marks: Marks) -> None:
        """Tell processes to which states a server may go back."""
        self._marks |= marks
        for session in self._sessions.values():
            session.say(_marks_entry(session, marks))

    def seal(self) -> None:
        """Record nothing more in ledger and trace: later frames belong to no run."""
        self._faulty.close()
        self._records.seal()

    def finish(self) -> None:
        """Tell all processes, and those that come back later, that the run is over; :meth:`seal`."""
        self._is_over = True
        self.seal()
        self._tell_all(entry("e", True, "the run is over"))

    def status(self) -> dict[str, Any]:
        """Return the answer to ``GET /health``."""
        here = [session for session in self._sessions.values() if session.channel is not None]
        return {
            "status": "closing" if self.is_closing else "over" if self._is_over else "ok",
            "sessions": len(self._sessions),
            "connected": len(here),
            "clients_attended": sum(len(session.clients) for session in here if session.is_ready),
            **self._health(),
        }

    # Requests

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request; nothing is raised but cancellation."""
        status = 400
        try:
            return await self._route(request)
        except Refused as refused:
            self._records.reject(refused.cause, str(refused))
            status = refused.status
        except web.HTTPException as error:  # no handshake of a WebSocket
            self._records.reject("http", type(error).__name__)
        except OSError:
            pass  # the connection broke
        except Exception as error:
            self._records.reject("fault", f"{type(error).__name__}: {error}")
        response = web.Response(status=status, headers={VERSION_HEADER: str(PROTOCOL)})
        response.force_close()
        return response

    async def _route(self, request: web.BaseRequest) -> web.StreamResponse:
        if "Origin" in request.headers:
            raise Refused("origin", 403)
        if self._is_local and self._access.is_open and not names_loopback(request.headers.get("Host", "")):
            raise Refused("host", 421)
        if request.method == "GET" and request.rel_url.path == "/health":
            response = web.Response(text=json.dumps(self.status()), content_type="application/json")
            response.force_close()
            return response
        if request.headers.get(VERSION_HEADER) != str(PROTOCOL):
            raise Refused("protocol", 400)
        token = bearer_token(request.headers.get("Authorization"))
        if (granted := self._access.grant(token)) is None:
            raise Refused("access", 401)
        if request.method != "GET" or request.rel_url.path != "/session":
            raise Refused("path", 404)
        if self.is_closing:
            raise Refused("closing", 503)
        socket = web.WebSocketResponse(compress=False, max_msg_size=MAX_MESSAGE_BYTES, timeout=1.0)
        await socket.prepare(request)
        channel = Channel(socket, FROM_CLIENT, self.limits, MAX_JOIN_BYTES, self._encoded)
        transport = request.transport
        assert transport is not None  # noqa: S101
        try:
            async with asyncio.timeout(self.limits.handshake_timeout_s):
                joins, has = await channel.read(), read_keys(await channel.read())
            session = self._admitted(joins, granted, None if self._access.is_open else token)
            marks: Marks = self._marks
            if (server := joins.values[1]) != self.names.server:
                has.clear()  # it is of a server before this one
                is_known = server in self.names.before
                marks = self._firsts if is_known else {}
                if not is_known and any(
                    client in self._firsts or client in self._newest for client in session.clients
                ):
                    self._log.warning("states lost", clients=shortened(session.clients))
            channel.max_body_bytes = self.limits.frame.frame_bytes
            await self._attend(session, channel, transport.abort, has, marks)
        except UserError as error:
            self._records.reject("refused", str(error), event="process refused")
            await socket.send_bytes(b"".join(entry("x", sendable(error))))
        except TimeoutError:
            self._records.reject("slow")
        except ProtocolError as error:
            self._records.reject("protocol", str(error))
        except OSError:
            pass  # the connection broke
        await socket.close()
        return socket

    def _admitted(self, joins: Entry, granted: ClientRanges, token: str | None) -> Session:
        """Return the session of a process that joins; a UserError refuses it."""
        if joins.letter != "j" or not _SECRET.fullmatch(joins.values[0]):
            raise ProtocolError("join: a session's secret is needed")
        assert joins.body is not None  # noqa: S101
        secret, server = joins.values
        clients = ClientRanges.parse(str(joins.body, "utf-8", "replace"))
        if clients.highest >= self._num_clients:
            raise UserError(
                f"client {clients.highest} does not exist: this run has {self._num_clients} clients, from 0"
            )
        if not granted.covers(clients):
            raise UserError(
                f"the token grants the clients {shortened(granted)}, not all of {shortened(clients)}"
            )
        session = self._sessions.get(secret)
        is_known = session is not None
        if session is None:
            self._retire_hosts_of(clients)
            session = self._sessions[secret] = Session(secret, clients, token)
            self._hosts.update(dict.fromkeys(clients, session))
        elif session.token != token or session.clients != clients:
            raise UserError("this session belongs to another process: join anew")
        self._log.info("process joined", clients=shortened(clients), resumed=is_known or bool(server))
        return session

    def _retire_hosts_of(self, clients: ClientRanges) -> None:
        """Forget the sessions that host any of these clients; a UserError if one is connected."""
        others = dict.fromkeys(self._hosts[client] for client in clients if client in self._hosts)
        for other in others:
            if other.channel is not None:
                raise UserError(
                    f"the clients {shortened(other.clients)} are hosted by another process, which is "
                    "connected: end that one, or give this one other clients. If that one has died without "
                    f"a word, the server notices after {self.limits.silence_s:g} s of silence: start this "
                    "one again then"
                )
        for other in others:
            del self._sessions[other.secret]
            for client in other.clients:
                del self._hosts[client]
            why = "it was away, and another process has taken its clients over"
            self._log.info("process retired", clients=shortened(other.clients), why=why)

    async def _attend(
        self,
        session: Session,
        channel: Channel,
        abort: Callable[[], None],
        has: set[Key],
        marks: Marks,
    ) -> None:
        """Read what a process sends until its connection ends."""
        for key in has:
            self._confirm(session, key)
        dispatches = [each for (client, _), each in self._dispatches.items() if client in session.clients]
        session.begin(channel, abort, dispatches, has)
        session.say(entry("h", self.names.run, self.names.server, body=(self.greeting,)))
        session.say(_marks_entry(session, marks))
        session.say(keys_entry(each.key for each in dispatches))
        session.offer(self.limits.window_bytes)
        session.say(self._end)
        writing = asyncio.get_running_loop().create_task(self._write(channel, abort))
        why = "its connection broke"
        try:
            while session.channel is channel and not session.has_left:
                self._take(session, await channel.read())
        except TimeoutError:
            why = f"it was silent for {self.limits.silence_s:.0f} s"
            self._records.reject("silent")
            abort()
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
            if session.channel is channel:
                session.channel, session.gone_s = None, asyncio.get_running_loop().time()
                self._changed()
                if not session.has_left and not self._end:
                    self._log.info("process gone", clients=shortened(session.clients), why=why)

    async def _write(self, channel: Channel, abort: Callable[[], None]) -> None:
        try:
            await channel.write()
        except Exception as error:
            self._records.reject("fault", f"{type(error).__name__}: {error}")
        abort()

    def _encoded(self, item: Dispatch | Parts) -> Parts:
        if not isinstance(item, Dispatch):
            return item
        if self._dispatches.get(item.key) is not item:
            return ()  # it was settled meanwhile
        self._records.sent(item)
        return item.entry()

    # Entries of processes

    def _take(self, session: Session, found: Entry) -> None:
        letter, values, body, _ = found
        match letter:
            case "k":
                session.is_ready = True
                for question in self._questions.values():
                    if question.client in session.clients:
                        session.say(question.entry())
                self._changed()
            case "c":
                self._confirm(session, values[:2])
            case "r" | "u":
                dispatch = self._asked(session, values[:2])
                if dispatch is not None:
                    self._take_reply(dispatch, found)
                session.say(entry("t", *values[:2]))
            case "s":
                number, is_answer = values
                asked = self._questions.get(number)
                if asked is not None and asked.client in session.clients and not asked.answer.done():
                    self._take_answer(asked, is_answer, bytes(body or b""))
            case "m":
                if values[1] not in session.clients:
                    raise ProtocolError(f"client {values[1]} is hosted elsewhere")
                self.heard(found)
            case "l":
                session.has_left = True
                why = shortened(values[0], MAX_SHOWN)
                self._log.info("process left", clients=shortened(session.clients), why=why)
            case "j" | "o":
                raise ProtocolError(f"{letter}: it has joined already")

    def _confirm(self, session: Session, key: Key) -> None:
        """Record that the frame of a dispatch has arrived."""
        dispatch = self._dispatches.get(key)
        if dispatch is not None and key[0] in session.clients and dispatch.began_ns >= 0:
            self._records.ended(dispatch, Outcome.DELIVERED)

    def _asked(self, session: Session, key: Key) -> Dispatch | None:
        """Return the dispatch of a key; None, and counted, if this session is not to reply to any."""
        client, number = key
        dispatch = self._dispatches.get(key)
        if client not in session.clients:
            cause = "client"
        elif dispatch is not None and dispatch.began_ns >= 0:
            return dispatch
        elif dispatch is None and number <= self._newest.get(client, -1):
            cause = "repeated"  # normal after a break: a process cannot know what has arrived
        else:
            cause = "unasked"
        self._records.reject(cause, f"{client}-{number}")
        return None

    def _take_reply(self, dispatch: Dispatch, reply: Entry) -> None:
        if reply.letter == "u":
            why = reply.values[2]
            self._records.reject("unusable", why)
            self._records.ended(dispatch, Outcome.UNDECODABLE, shortened(why, MAX_SHOWN))
            self._lost(dispatch, why)
            return
        self._records.ended(dispatch, Outcome.DELIVERED)
        _, _, spent, notes = reply.values
        self._records.reported(dispatch, spent, notes, reply.first_ns)
        self._forget(dispatch)
        header = dispatch.header.reply()
        if reply.body is None:
            self._hand_over(Delivery(header, None))
            return
        num_bytes = len(reply.body)
        try:
            message = decode_frame(header, reply.body, self._kinds, self.limits.frame)
        except DecodeError as error:
            self._records.reject("decode", str(error))
            self._records.received(header, None, num_bytes, shortened(error, MAX_SHOWN))
            return

        def arrive(num_copies: int) -> None:
            self._records.received(header, packed, num_bytes, num_copies=num_copies)
            self._hand_over(Delivery(header, message))

        packed = pack(message)
        self._faulty.meet(ExposedFrame(header, packed, num_bytes, arrive))

    def _take_answer(self, asked: Question, is_answer: bool, body: bytes) -> None:
        if is_answer:
            asked.answer.set_result(body)
        else:
            why = shortened(sendable(body.decode("utf-8", "replace")), MAX_SHOWN)
            asked.answer.set_exception(RunError(f"the process of client {asked.client} cannot answer: {why}"))

    # Internals

    def _tell_all(self, end: Parts) -> None:
        self._end = end
        for session in self._sessions.values():
            session.say(end)
        self._changed()

    def _may_hear(self, session: Session, since_s: float) -> bool:
        """Whether a process is connected, or may come back to hear of the end."""
        if session.channel is not None:
            return True
        return self._is_over and not session.has_left and session.gone_s >= since_s

    def _lapse(self) -> None:
        """Drop dispatches that no process has hosted for long, now and for ever."""
        loop, ttl_s = asyncio.get_running_loop(), self.limits.dispatch_ttl_s
        for dispatch in list(self._dispatches.values()):
            session, since_s = self._hosts.get(dispatch.header.client), dispatch.at_s
            if session is not None:
                since_s = loop.time() if session.channel is not None else max(since_s, session.gone_s)
            if since_s < loop.time() - ttl_s:
                self._lost(dispatch, "nobody hosts the client")
        self._lapsing = loop.call_later(ttl_s / 4, self._lapse)

    def _lost(self, dispatch: Dispatch, cause: str) -> None:
        self._records.ended(dispatch, Outcome.LOST, cause)
        self._forget(dispatch)

    def _forget(self, dispatch: Dispatch) -> None:
        self._dispatches.pop(dispatch.key, None)
        if (session := self._hosts.get(dispatch.header.client)) is not None:
            session.settled(dispatch, self.limits.window_bytes)
        dispatch.frame, dispatch.packed, dispatch.num_bytes = None, None, 0

    def _changed(self) -> None:
        """Wake those that wait for clients or for processes to leave."""
        self._change.set()
        self._change = asyncio.Event()


def _marks_entry(session: Session, marks: Marks) -> Parts:
    own = ((client, mark) for client, its in marks.items() if client in session.clients for mark in its)
    return keys_entry(own, "b")


class _Counting(logging.Handler):
    """Counts the log lines of aiohttp and shows none: they may quote a peer or a secret."""

    def __init__(self, reject: Callable[..., None]) -> None:
        super().__init__()
        self._reject = reject

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING or record.exc_info:
            self._reject("http", type(record.exc_info[1]).__name__ if record.exc_info else "")


def _counted(reject: Callable[..., None]) -> logging.Logger:
    """Return a logger of the server's own, outside the tree of loggers."""
    logger = logging.Logger("fedsim.bus.http")
    logger.addHandler(_Counting(reject))
    return logger
