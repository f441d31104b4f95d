"""What the server answers to each request; whatever goes wrong ends that connection and nothing else.

Everybody may look at ``GET /health``, and who shows a token may join: programs, that is. A web page can make
its reader's browser send requests to any address, also to servers that only this machine can reach; so what
has an ``Origin`` is refused, and where neither a token nor an address beyond this machine protects a server,
what does not call it by a loopback name or address too.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING

from aiohttp import web

from fedsim.bus.http.access import Access, ClientRanges, names_loopback
from fedsim.bus.http.accounts import Accounts, Reply
from fedsim.bus.http.limits import HttpLimits
from fedsim.bus.http.messages import (
    FROM_CLIENT,
    MOST_HEAD,
    MOST_TEXT,
    PROTOCOL,
    ProtocolError,
    Reader,
    dispatch_entry,
    entry,
    without_tail,
)
from fedsim.bus.http.sessions import Busy, Dispatch, HeldBytes, Refusal, Session, Sessions, Upload
from fedsim.bus.http.transfers import Incoming, content_range, range_start
from fedsim.bus.inbox import Inbox
from fedsim.clock import now_ns
from fedsim.errors import UserError
from fedsim.network.overhead import DIGEST_BYTES
from fedsim.quoting import shortened

if TYPE_CHECKING:
    from fedsim.bus.http.server import HttpServer

SESSION, RUN, RESUMED, HELD = "Fedsim-Session", "Fedsim-Run", "Fedsim-Resumed", "Fedsim-Held"
"""Headers: of every request, the session; of answers, which run it is, whether it had the session before, and
how many bytes of a large reply it holds."""
_ALIVE = entry("a")
_MOST_JOIN = 160 * 1024
_SECRET = re.compile(r"[0-9a-f]{32}")
_DISPATCH = re.compile(r"/dispatch/([0-9]{1,10})/([0-9]{1,10})")
_NUMBER = re.compile(r"[0-9]{1,16}")
_QUERY = re.compile(r"/query/([0-9]{1,16})")


class Turned(Exception):  # noqa: N818
    """A request is turned away, with a status, and counted."""

    def __init__(self, cause: str, status: int, why: str = "") -> None:
        super().__init__(why)
        self.cause, self.status = cause, status


class Handlers:
    """Answers every request.

    Attributes:
        is_local: Whether only this machine can reach the server.
    """

    def __init__(
        self,
        server: HttpServer,
        access: Access,
        limits: HttpLimits,
        sessions: Sessions,
        accounts: Accounts,
        inbox: Inbox,
    ) -> None:
        self.is_local = False
        self._server = server
        self._access = access
        self._limits = limits
        self._sessions = sessions
        self._accounts = accounts
        self._inbox = inbox
        self._held = HeldBytes(limits, sessions, accounts.reject)

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request, whatever it is; nothing is raised but cancellation."""
        try:
            return await self._route(request)
        except Turned as turned:
            self._accounts.reject(turned.cause, str(turned) or f"status {turned.status}")
            response = web.Response(status=turned.status)
            response.force_close()
            return response
        except ProtocolError as error:
            self._accounts.reject("protocol", str(error))
            response = web.Response(status=400, text=str(error))
            response.force_close()
            return response
        except TimeoutError:
            self._accounts.reject("slow")
        except (OSError, web.RequestPayloadError):
            pass  # the connection broke
        except Exception as error:
            # Of a connection that broke before a request's body was read, aiohttp makes a RuntimeError.
            if request.transport is not None or not isinstance(error, RuntimeError):
                self._accounts.reject("fault", f"{type(error).__name__}: {error}")
        _abort(request)
        return web.Response(status=400)

    async def _route(self, request: web.BaseRequest) -> web.StreamResponse:
        path, method = request.rel_url.path, request.method
        if "Origin" in request.headers:
            raise Turned("origin", 403)
        if self.is_local and self._access.is_open and not names_loopback(request.headers.get("Host", "")):
            raise Turned("host", 421)
        if (method, path) == ("GET", "/health"):
            response = web.Response(text=json.dumps(self._server.status()), content_type="application/json")
            response.force_close()
            return response
        token = _bearer(request.headers.get("Authorization"))
        granted = self._access.grant(token)
        if granted is None:
            raise Turned("access", 401)
        if self._server.is_closing:
            raise Turned("closing", 503)
        token = None if self._access.is_open else token
        secret = request.headers.get(SESSION, "")
        if (method, path) == ("POST", "/join"):
            return await self._join(request, secret, granted, token)
        session = self._sessions.find(secret, token)
        if session is None:
            raise Turned("session", 403)
        self._server.known(request)
        self._heard(session)
        if (method, path) == ("GET", "/outbox"):
            return await self._outbox(request, session)
        if session.num_requests > 4 * self._limits.transfers_at_once:
            raise Turned("requests", 429)
        session.num_requests += 1
        try:
            async with asyncio.timeout(self._limits.request_timeout_s):
                return await self._handle(request, session, method, path)
        finally:
            session.num_requests -= 1

    async def _handle(
        self, request: web.BaseRequest, session: Session, method: str, path: str
    ) -> web.StreamResponse:
        if (method, path) == ("POST", "/replies"):
            return await self._replies(request, session)
        if (method, path) == ("POST", "/leave"):
            self._idle(session)
            why = await self._body(request, session, 4 * MOST_TEXT)
            self._server.left(session, why.decode("utf-8", "replace")[:MOST_TEXT])
            return web.Response(status=204)
        if method == "PUT" and (match := _QUERY.fullmatch(path)):
            return await self._query(request, session, int(match[1]))
        match = _DISPATCH.fullmatch(path)
        if match is None or method not in ("GET", "HEAD", "PUT"):
            raise Turned("path", 404)
        dispatch = self._server.dispatch_of(session, int(match[1]), int(match[2]))
        if dispatch is None:
            self._idle(session)
            return web.Response(status=410)  # its reply is taken, or it is another process's
        if method == "PUT":
            return await self._put(request, session, dispatch)
        if method == "GET":
            return await self._get(request, session, dispatch)
        self._idle(session)
        upload = dispatch.upload
        return web.Response(headers={HELD: str(upload.incoming.held if upload else 0)})

    async def _join(
        self, request: web.BaseRequest, secret: str, granted: ClientRanges, token: str | None
    ) -> web.Response:
        headers = {RUN: self._server.run}
        async with asyncio.timeout(self._limits.handshake_timeout_s):
            body = await self._body(request, None, _MOST_JOIN)
        try:
            said = json.loads(body)
            protocol, text = said["protocol"], said["clients"]
            clients = ClientRanges.parse(text) if type(text) is str and protocol == PROTOCOL else None
        except (ValueError, TypeError, KeyError, RecursionError, UserError) as error:
            raise ProtocolError(f"join: {shortened(error)}") from None
        if (
            not _SECRET.fullmatch(secret)
            or type(protocol) is not int
            or (clients is None and protocol == PROTOCOL)
        ):
            raise ProtocolError("join: a session's secret, a protocol and clients are needed")
        try:
            if clients is None:
                raise Refusal(
                    f"the process speaks protocol {protocol}, this server {PROTOCOL}: "
                    "install the same version of fedsim at both sides"
                )
            session, resumed = self._sessions.admit(secret, clients, granted, token)
        except (Refusal, Busy) as refusal:
            why, status = str(refusal), 409 if isinstance(refusal, Refusal) else 503
            self._accounts.reject("refused" if status == 409 else "busy", why, event="process refused")
            return web.Response(status=status, headers=headers, text=why)
        self._server.known(request)
        self._heard(session)
        if resumed:
            self._idle(session)
        self._server.joined(session, resumed)
        headers[RESUMED] = str(int(resumed))
        return web.Response(body=self._server.greeting, headers=headers)

    # Down

    async def _outbox(self, request: web.BaseRequest, session: Session) -> web.StreamResponse:
        after, is_ready = self._position(request, session, "after")
        self._idle(session)

        def abort() -> None:
            _abort(request)

        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        session.begin(abort, after)
        self._server.opened(session, is_ready)
        try:
            while session.abort is abort:
                await self._write(response, session)
        finally:
            if session.abort is abort:
                session.abort, session.gone_s = None, asyncio.get_running_loop().time()
                session.queue.clear()
                self._server.parted(session)
        return response

    async def _write(self, response: web.StreamResponse, session: Session) -> None:
        """Write what there is, at most a piece, or a sign of life when there was nothing for long."""
        limits, num_bytes = self._limits, 0
        dispatches, entries = list[Dispatch](), list[bytes]()
        while session.queue and num_bytes + limits.small_frame_bytes <= limits.batch_bytes:
            one = session.queue.popleft()
            if isinstance(one, Dispatch):
                if session.open.get(one.number) is not one:
                    continue  # settled meanwhile
                frame = one.frame
                is_small = frame is None or len(frame) <= limits.small_frame_bytes
                entries.append(dispatch_entry(one.number, one.header, frame, is_small=is_small))
                dispatches.append(one)
            else:
                entries.append(one)
            num_bytes += len(entries[-1])
        for one in dispatches:
            self._accounts.began(one, len(entries))
            session.unconfirmed.append(one)
        if not entries:
            session.wake.clear()
            try:
                async with asyncio.timeout(limits.heartbeat_s):
                    await session.wake.wait()
                return
            except TimeoutError:
                entries.append(_ALIVE)
        async with asyncio.timeout(limits.stall_timeout_s):
            await response.write(b"".join(entries))
        for one in dispatches:
            if one.frame is None or len(one.frame) <= limits.small_frame_bytes:
                one.released()

    async def _get(
        self, request: web.BaseRequest, session: Session, dispatch: Dispatch
    ) -> web.StreamResponse:
        start, frame = range_start(request.headers.get("Range")), dispatch.frame
        if frame is None:
            self._idle(session)
            return web.Response(status=410)
        outgoing = dispatch.outgoing(frame)
        if start is None or start >= outgoing.total:
            self._idle(session)
            return web.Response(status=416)
        response = web.StreamResponse(status=206 if start else 200)
        response.content_length = outgoing.total - start
        await response.prepare(request)
        async for piece in outgoing.pieces(start, self._limits.chunk_bytes):
            async with asyncio.timeout(self._limits.stall_timeout_s):
                await response.write(piece)
            self._heard(session)
        await response.write_eof()
        dispatch.released()
        return response

    # Up

    async def _replies(self, request: web.BaseRequest, session: Session) -> web.Response:
        had, is_ready = self._position(request, session, "had")
        body = await self._body(request, session, self._limits.batch_bytes)
        reader = Reader(FROM_CLIENT, self._limits.small_frame_bytes)
        entries = reader.feed(body)
        if reader.num_left:
            raise ProtocolError(f"{reader.num_left} bytes after the last reply")
        self._server.told(session, had, is_ready)
        is_idle = not entries
        for letter, (client, number, *values), frame in entries:
            await self._room(session)
            self._check_alive(session)
            dispatch = self._server.dispatch_of(session, client, number)
            if dispatch is None:
                is_idle = True
            elif letter == "u":
                self._server.unusable(dispatch, values[0])
            else:
                crc, spent_s, notes = values
                reply = Reply(None if crc is None else frame, crc, spent_s, notes, len(entries))
                self._server.take(dispatch, reply)
        if is_idle:  # counted once: a process that repeats many replies after a break must get through
            self._idle(session)
        return web.Response(status=204)

    async def _put(self, request: web.BaseRequest, session: Session, dispatch: Dispatch) -> web.Response:
        span = content_range(request.headers.get("Content-Range"))
        if span is None or request.content_length != span[1] - span[0]:
            raise Turned("range", 400)
        start, end, total = span
        if not DIGEST_BYTES < total <= self._limits.frame.frame_bytes + MOST_HEAD:
            raise Turned("size", 413)
        upload = dispatch.upload
        if upload is None or (upload.incoming.total != total and not upload.is_busy):
            upload = dispatch.upload = Upload(Incoming(total))
        if upload.is_busy or upload.incoming.total != total or upload.incoming.held != start:
            self._idle(session)
            return web.Response(status=409, headers={HELD: str(upload.incoming.held)})
        upload.is_busy = True
        try:
            await self._upload(request, session, upload, end)
            if upload.incoming.is_complete:
                await self._taken(session, dispatch, upload)
        finally:
            upload.is_busy = False
        return web.Response(status=204)

    async def _upload(self, request: web.BaseRequest, session: Session, upload: Upload, end: int) -> None:
        """Take the bytes of a request."""
        incoming = upload.incoming
        while incoming.held < end:
            await self._room(session)
            self._check_held(session)
            data = await self._more(request, session)
            if not data:
                raise ProtocolError("a request ends before its body")
            if upload.first_ns < 0:
                upload.first_ns = now_ns()
            incoming.add(data)
            self._held.add(len(data))

    async def _taken(self, session: Session, dispatch: Dispatch, upload: Upload) -> None:
        """Take a large reply that is whole."""
        upload.whole_ns = now_ns()
        whole = await upload.incoming.verified()
        self._check_alive(session)
        if whole is None:
            dispatch.upload = None
            raise Turned("checksum", 422)
        (client, number, _, spent_s, notes), frame = without_tail(whole)
        header = dispatch.header
        if (client, number) != (header.client, header.dispatch):
            dispatch.upload = None
            raise ProtocolError(f"the reply {client}-{number} came as {header.client}-{header.dispatch}")
        self._server.take(dispatch, Reply(frame, None, spent_s, notes))

    async def _query(self, request: web.BaseRequest, session: Session, number: int) -> web.Response:
        length = request.content_length
        if not self._server.asks(session, number):
            self._idle(session)
            return web.Response(status=410)
        if length is None or length > self._limits.answer_bytes:
            raise Turned("size", 413)
        pieces = bytearray()
        try:
            while len(pieces) < length:
                self._check_held(session)
                data = await self._more(request, session)
                if not data:
                    raise ProtocolError("a request ends before its body")
                pieces += data
                session.answer_bytes += len(data)
                self._held.add(len(data))
            self._server.answered(number, bytes(pieces), failed=request.rel_url.query.get("failed") == "1")
        finally:
            session.answer_bytes -= len(pieces)
        return web.Response(status=204)

    # What all need

    def _position(self, request: web.BaseRequest, session: Session, name: str) -> tuple[int, bool]:
        """Return up to which number a process has its outbox, and whether it understands messages."""
        query = request.rel_url.query
        number, is_ready = query.get(name, ""), query.get("ready")
        if not _NUMBER.fullmatch(number) or int(number) > session.last or is_ready not in ("0", "1"):
            raise ProtocolError(f"{name}={number:.20}, ready={is_ready}: the last number is {session.last}")
        return int(number), is_ready == "1"

    async def _body(self, request: web.BaseRequest, session: Session | None, most: int) -> bytes:
        """Return a whole body of known length."""
        length = request.content_length
        if length is None or length > most:
            raise Turned("size", 413)
        pieces = bytearray()
        while len(pieces) < length:
            data = await self._more(request, session)
            if not data:
                raise ProtocolError("a request ends before its body")
            pieces += data
        return bytes(pieces)

    async def _more(self, request: web.BaseRequest, session: Session | None) -> bytes:
        async with asyncio.timeout(self._limits.stall_timeout_s):
            data = await request.content.readany()
        if session is not None:
            self._heard(session)
        return data

    async def _room(self, session: Session) -> None:
        """Wait until somebody has received what is here; who waits for long comes back later."""
        if self._inbox.has_room:
            return
        session.num_waiting += 1
        try:
            async with asyncio.timeout(self._limits.stall_timeout_s / 2):
                while not self._inbox.has_room:  # who waits wakes with all others, and one may fill it again
                    await self._inbox.room()
        except TimeoutError:
            raise Turned("full", 503) from None
        finally:
            session.num_waiting -= 1
            self._heard(session)

    def _check_alive(self, session: Session) -> None:
        """Check that a session was not forgotten while a request waited; its replies are not taken then."""
        if self._sessions.find(session.secret, session.token) is not session:
            raise Turned("session", 403)

    def _check_held(self, session: Session) -> None:
        """Check that more may be held of large replies and answers."""
        if not self._held.has_room(session):
            raise Turned("full", 503)

    def _heard(self, session: Session) -> None:
        session.heard_s = asyncio.get_running_loop().time()

    def _idle(self, session: Session) -> None:
        """Count what has brought nothing that was asked for."""
        if not session.may_idle(asyncio.get_running_loop().time()):
            raise Turned("rate", 429, f"more than {self._limits.idle_rate:g} idle requests per second")


def _bearer(header: str | None) -> str | None:
    scheme, _, token = (header or "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def _abort(request: web.BaseRequest) -> None:
    if request.transport is not None:
        request.transport.abort()
