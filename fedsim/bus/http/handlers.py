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

from fedsim.bus.http.access import Access, ClientRanges, bearer_token, names_loopback
from fedsim.bus.http.accounts import Accounts
from fedsim.bus.http.messages import (
    FROM_CLIENT,
    MOST_HEAD,
    MOST_TEXT,
    PROTOCOL,
    ProtocolError,
    Reader,
    dispatch_entry,
    entry,
    read_join,
    read_large,
    sendable,
)
from fedsim.bus.http.sessions import Dispatch, Key, Refused, Session, Sessions, Upload
from fedsim.bus.http.transfers import Outgoing, content_range, range_start
from fedsim.bus.inbox import Inbox
from fedsim.clock import now_ns
from fedsim.network.overhead import DIGEST_BYTES

if TYPE_CHECKING:
    from fedsim.bus.http.server import HttpServer

SESSION, RUN, RESUMED, HELD = "Fedsim-Session", "Fedsim-Run", "Fedsim-Resumed", "Fedsim-Held"
"""Headers: of every request, the session; of answers, which run it is, whether it had the session before, and
how many bytes of a large reply it holds."""
_ALIVE = entry("a")
_MOST_JOIN = 160 * 1024
_NUMBER = re.compile(r"[0-9]{1,16}")
_PLACE = re.compile(r"/dispatch/([0-9]{1,10})/([0-9]{1,10})|/query/([0-9]{1,16})")


class Handlers:
    """Answers every request.

    Attributes:
        is_local: Whether only this machine can reach the server.
    """

    def __init__(
        self, server: HttpServer, access: Access, sessions: Sessions, accounts: Accounts, inbox: Inbox
    ) -> None:
        self.is_local = False
        self._server = server
        self._access = access
        self._limits = server.limits
        self._sessions = sessions
        self._accounts = accounts
        self._inbox = inbox

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request, whatever it is; nothing is raised but cancellation."""
        try:
            return await self._route(request)
        except ProtocolError as error:
            event = "process refused" if error.cause in ("refused", "busy") else "peer rejected"
            self._accounts.reject(error.cause, str(error), event=event)
            response = web.Response(status=error.status, text=str(error), headers={RUN: self._server.run})
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
            raise Refused(cause="origin", status=403)
        if self.is_local and self._access.is_open and not names_loopback(request.headers.get("Host", "")):
            raise Refused(cause="host", status=421)
        if (method, path) == ("GET", "/health"):
            response = web.Response(text=json.dumps(self._server.status()), content_type="application/json")
            response.force_close()
            return response
        token = bearer_token(request.headers.get("Authorization"))
        granted = self._access.grant(token)
        if granted is None:
            raise Refused(cause="access", status=401)
        if self._server.is_closing:
            raise Refused(cause="closing", status=503)
        token = None if self._access.is_open else token
        secret = request.headers.get(SESSION, "")
        if (method, path) == ("POST", "/join"):
            return await self._join(request, secret, granted, token)
        session = self._sessions.find(secret, token)
        if session is None:
            raise Refused(cause="session", status=403)
        self._server.connections.known(request)
        session.heard()
        if (method, path) == ("GET", "/outbox"):
            return await self._outbox(request, session)
        session.num_requests += 1
        try:
            if session.num_requests > 4 * self._limits.transfers_at_once:
                raise Refused(cause="requests", status=429)
            async with asyncio.timeout(self._limits.request_timeout_s):
                answer = await self._handle(request, session, method, path)
        except ProtocolError:
            session.idle()
            raise
        finally:
            session.num_requests -= 1
        if answer.status >= 400:
            session.idle()
        return answer

    async def _handle(
        self, request: web.BaseRequest, session: Session, method: str, path: str
    ) -> web.StreamResponse:
        match = _PLACE.fullmatch(path)
        place = tuple(int(number) for number in match.groups() if number is not None) if match else ()
        if (method, path) == ("POST", "/replies"):
            return await self._replies(request, session)
        if (method, path) == ("POST", "/leave"):
            return await self._leave(request, session)
        if method == "PUT" and place:
            return await self._put(request, session, place)
        if method == "GET" and len(place) == 2:
            return await self._get(request, session, place)
        raise Refused(cause="path", status=404)

    async def _leave(self, request: web.BaseRequest, session: Session) -> web.Response:
        session.idle()
        why = await self._body(request, session, 4 * MOST_TEXT)
        self._server.left(session, sendable(why.decode("utf-8", "replace")))
        return web.Response(status=204)

    async def _join(
        self, request: web.BaseRequest, secret: str, granted: ClientRanges, token: str | None
    ) -> web.Response:
        async with asyncio.timeout(self._limits.handshake_timeout_s):
            body = await self._body(request, None, _MOST_JOIN)
        protocol, clients = read_join(body, secret)
        if protocol != PROTOCOL:
            raise Refused(
                f"the process speaks protocol {protocol}, this server {PROTOCOL}: "
                "install the same version of fedsim at both sides"
            )
        session, resumed = self._sessions.admit(secret, clients, granted, token)
        self._server.connections.known(request)
        session.heard()
        session.idle()
        self._server.joined(session, resumed)
        headers = {RUN: self._server.run, RESUMED: str(int(resumed))}
        return web.Response(body=self._server.greeting, headers=headers)

    # Down

    async def _outbox(self, request: web.BaseRequest, session: Session) -> web.StreamResponse:
        session.idle()
        after, is_ready = _position(request, session, "after")

        def abort() -> None:
            _abort(request)

        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        session.begin(abort, after, self._sessions.dispatches.values())
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
            if isinstance(one, bytes):
                entries.append(one)
            elif one.session is session and one.key in self._sessions.dispatches:  # not settled meanwhile
                entries.append(dispatch_entry(one.number, one.header, one.frame, is_small=one.is_small))
                dispatches.append(one)
            else:
                continue
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
            if one.is_small:
                one.released()

    async def _get(self, request: web.BaseRequest, session: Session, place: Key) -> web.StreamResponse:
        dispatch = self._server.asked(session, place)
        if not isinstance(dispatch, Dispatch) or dispatch.frame is None:
            return web.Response(status=410)
        dispatch.outgoing = outgoing = dispatch.outgoing or Outgoing(dispatch.frame.parts)
        start = range_start(request.headers.get("Range"))
        if start is None or start >= outgoing.total:
            return web.Response(status=416)
        response = web.StreamResponse(status=206 if start else 200)
        response.content_length = outgoing.total - start
        await response.prepare(request)
        async for piece in outgoing.pieces(start, self._limits.chunk_bytes):
            async with asyncio.timeout(self._limits.stall_timeout_s):
                await response.write(piece)
            session.heard()
        await response.write_eof()
        dispatch.released()
        return response

    # Up

    async def _replies(self, request: web.BaseRequest, session: Session) -> web.Response:
        had, is_ready = _position(request, session, "had")
        body = await self._body(request, session, self._limits.batch_bytes)
        reader = Reader(FROM_CLIENT, self._limits.small_frame_bytes)
        entries = reader.feed(body)
        if reader.num_left:
            raise ProtocolError(f"{reader.num_left} bytes after the last reply")
        is_idle = not entries
        for one in entries:
            await self._room(session)
            self._check_alive(session)
            is_idle |= not self._server.take(session, one, len(entries))
        self._server.told(session, had, is_ready)  # a dispatch whose frame cannot be used has come, too
        if is_idle:  # counted once: a process that repeats many replies after a break must get through
            session.idle()
        return web.Response(status=204)

    async def _put(self, request: web.BaseRequest, session: Session, place: Key) -> web.Response:
        """Take a large reply or answer, or some of it; without any of it, say how much is here."""
        if self._server.asked(session, place) is None:
            session.uploads.pop(place, None)
            return web.Response(status=410)  # it has been taken, or is another process's
        span = content_range(request.headers.get("Content-Range"))
        if span is None or request.content_length != span[1] - span[0]:
            raise Refused(cause="range", status=400)
        start, end, total = span
        if not DIGEST_BYTES < total <= self._limits.frame.frame_bytes + MOST_HEAD:
            raise Refused(cause="size", status=413)
        upload = session.uploads.get(place)
        if upload is None or (upload.total != total and not upload.is_busy):
            upload = session.uploads[place] = Upload(total)
        if upload.is_busy or upload.total != total or upload.held != start:
            return web.Response(status=409, headers={HELD: str(upload.held)})
        upload.is_busy = True
        try:
            while upload.held < end:
                await self._room(session)
                if not self._sessions.make_room(session):
                    raise Refused(cause="full", status=503)
                data = await self._more(request, session)
                self._check_alive(session)
                if self._server.asked(session, place) is None:
                    session.uploads.pop(place, None)
                    return web.Response(status=410)
                if upload.first_ns < 0:
                    upload.first_ns = now_ns()
                upload.add(data)
            if upload.is_complete:
                whole = await upload.verified()
                self._check_alive(session)
                session.uploads.pop(place, None)
                if whole is None:
                    raise Refused(cause="checksum", status=422)
                one = read_large(whole)
                if place != one.key:
                    raise ProtocolError(f"{one.letter}: {one.key} came to {place}")
                self._server.take(session, one, first_ns=upload.first_ns)
        finally:
            upload.is_busy = False
        return web.Response(status=204)

    # What all need

    async def _body(self, request: web.BaseRequest, session: Session | None, most: int) -> bytes:
        """Return a whole body of known length."""
        length = request.content_length
        if length is None or length > most:
            raise Refused(f"a request of {length} bytes, the limit is {most}", "size", 413)
        pieces = bytearray()
        while len(pieces) < length:
            pieces += await self._more(request, session)
        return bytes(pieces)

    async def _more(self, request: web.BaseRequest, session: Session | None) -> bytes:
        """Return the next bytes of a body."""
        async with asyncio.timeout(self._limits.stall_timeout_s):
            data = await request.content.readany()
        if not data:
            raise ProtocolError("a request ends before its body")
        if session is not None:
            session.heard()
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
            raise Refused(cause="full", status=503) from None
        finally:
            session.num_waiting -= 1
            session.heard()

    def _check_alive(self, session: Session) -> None:
        """Check that a session was not forgotten while a request waited; its replies are not taken then."""
        if self._sessions.find(session.secret, session.token) is not session:
            raise Refused(cause="session", status=403)


def _position(request: web.BaseRequest, session: Session, name: str) -> tuple[int, bool]:
    """Return up to which number a process has its outbox, and whether it understands messages."""
    query = request.rel_url.query
    number, is_ready = query.get(name, ""), query.get("ready")
    if not _NUMBER.fullmatch(number) or int(number) > session.last or is_ready not in ("0", "1"):
        raise ProtocolError(f"{name}={number:.20}, ready={is_ready}: the last number is {session.last}")
    return int(number), is_ready == "1"


def _abort(request: web.BaseRequest) -> None:
    if request.transport is not None:
        request.transport.abort()
