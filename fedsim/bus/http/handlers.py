"""Answers the requests of client processes; a fault of a request ends its connection and nothing else.

``GET /health`` is open to all, joining needs a token. A web page can make its reader's browser send requests
to any address, even to servers that only this machine can reach. So requests with an ``Origin`` are refused,
and a local server without tokens refuses requests that do not call it by a loopback name or address.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING

from aiohttp import web

from fedsim.bus.http.access import Access, ClientRanges, bearer_token, names_loopback
from fedsim.bus.http.messages import (
    FROM_CLIENT,
    MAX_HEAD_BYTES,
    MAX_TEXT,
    PROTOCOL,
    Incoming,
    ProtocolError,
    Reader,
    dispatch_entry,
    entry,
    pieces,
    read_join,
    read_large,
    sendable,
    transfer_bytes,
)
from fedsim.bus.http.sessions import Dispatch, Key, Refused, Session, Sessions
from fedsim.bus.http.transfer_records import TransferRecords
from fedsim.bus.inbox import Inbox
from fedsim.clock import now_ns
from fedsim.network.overhead import DIGEST_BYTES

if TYPE_CHECKING:
    from fedsim.bus.http.server import HttpServer

SESSION, RUN, RESUMED = "Fedsim-Session", "Fedsim-Run", "Fedsim-Resumed"
"""Headers: the session of a request; of an answer, the run and whether the server knew the session."""
_ALIVE = entry("a")
_MAX_JOIN_BYTES = 160 * 1024
_NUMBER = re.compile(r"[0-9]{1,16}")
_PLACE = re.compile(r"/dispatch/([0-9]{1,10})/([0-9]{1,10})|/query/([0-9]{1,16})")


class Handlers:
    """Answers every request; ``is_local`` says that only this machine can reach the server."""

    def __init__(
        self, server: HttpServer, access: Access, sessions: Sessions, records: TransferRecords, inbox: Inbox
    ) -> None:
        self.is_local = False
        self._server = server
        self._access = access
        self._limits = server.limits
        self._sessions = sessions
        self._records = records
        self._inbox = inbox

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request; nothing is raised but cancellation."""
        try:
            return await self._route(request)
        except ProtocolError as error:
            event = "process refused" if error.cause in ("refused", "busy") else "peer rejected"
            self._records.reject(error.cause, str(error), event=event)
            response = web.Response(status=error.status, text=str(error), headers={RUN: self._server.run})
            response.force_close()
            return response
        except TimeoutError:
            self._records.reject("slow")
        except (OSError, web.RequestPayloadError):
            pass  # the connection broke
        except Exception as error:
            # Of a connection that broke before a request's body was read, aiohttp makes a RuntimeError.
            if request.transport is not None or not isinstance(error, RuntimeError):
                self._records.reject("fault", f"{type(error).__name__}: {error}")
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
        if method == "PUT" and place:
            return await self._put(request, session, place)
        if method == "GET" and len(place) == 2:
            return await self._get(request, session, place)
        async with asyncio.timeout(self._limits.request_timeout_s):
            if (method, path) == ("POST", "/replies"):
                return await self._replies(request, session)
            if (method, path) == ("POST", "/leave"):
                return await self._leave(request, session)
        raise Refused(cause="path", status=404)

    async def _leave(self, request: web.BaseRequest, session: Session) -> web.Response:
        session.idle()
        why = await self._body(request, session, 4 * MAX_TEXT)
        self._server.left(session, sendable(why.decode("utf-8", "replace")))
        return web.Response(status=204)

    async def _join(
        self, request: web.BaseRequest, secret: str, granted: ClientRanges, token: str | None
    ) -> web.Response:
        async with asyncio.timeout(self._limits.handshake_timeout_s):
            body = await self._body(request, None, _MAX_JOIN_BYTES)
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
        """Write one piece of the queue, or a sign of life after a while without anything."""
        limits, num_bytes = self._limits, 0
        dispatches, entries = list[Dispatch](), list[bytes]()
        while session.queue and num_bytes + limits.small_frame_bytes <= limits.batch_bytes:
            item = session.queue.popleft()
            if isinstance(item, bytes):
                entries.append(item)
            elif item.session is session and item.key in self._sessions.dispatches:  # not settled meanwhile
                entries.append(dispatch_entry(item.number, item.header, item.frame, is_small=item.is_small))
                dispatches.append(item)
            else:
                continue
            num_bytes += len(entries[-1])
        for dispatch in dispatches:
            self._records.sent(dispatch, len(entries))
            session.unconfirmed.append(dispatch)
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
        for dispatch in dispatches:
            if dispatch.is_small:
                dispatch.released()

    async def _get(self, request: web.BaseRequest, session: Session, place: Key) -> web.StreamResponse:
        dispatch = self._server.asked(session, place)
        if not isinstance(dispatch, Dispatch) or dispatch.frame is None:
            return web.Response(status=410)
        parts, response = dispatch.frame.parts, web.StreamResponse()
        response.content_length = transfer_bytes(parts)
        async with asyncio.timeout(self._limits.transfer_timeout_s(response.content_length)):
            await response.prepare(request)
            async for piece in pieces(parts, self._limits.chunk_bytes):
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
        for reply in entries:
            await self._room(session)
            self._check_alive(session)
            is_idle |= not self._server.take(session, reply, len(entries))
        self._server.confirmed(session, had, is_ready)  # after a fault of a frame, which has also arrived
        if is_idle:  # counted once: a process that repeats many replies after a break must get through
            session.idle()
        return web.Response(status=204)

    async def _put(self, request: web.BaseRequest, session: Session, place: Key) -> web.Response:
        """Take a large reply or answer, once there is room for it."""
        if self._server.asked(session, place) is None:
            return web.Response(status=410)  # it has been taken, or is another process's
        limits, total = self._limits, request.content_length
        if total is None or not DIGEST_BYTES < total <= limits.frame.frame_bytes + MAX_HEAD_BYTES:
            raise Refused(cause="size", status=413)
        await self._room(session)
        with self._sessions.room(session, total):
            async with asyncio.timeout(limits.transfer_timeout_s(total)):
                if request.headers.get("Expect") == "100-continue":
                    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                first_ns, incoming = now_ns(), Incoming(total)
                while not incoming.is_complete:
                    incoming.add(await self._more(request, session))
                whole = await incoming.verified()
            self._check_alive(session)
            if whole is None:
                raise Refused(cause="checksum", status=422)
            reply = read_large(whole)
            if place != reply.key:
                raise ProtocolError(f"{reply.letter}: {reply.key} came to {place}")
            is_taken = self._server.take(session, reply, first_ns=first_ns)
        return web.Response(status=204 if is_taken else 410)

    # Shared

    async def _body(self, request: web.BaseRequest, session: Session | None, max_bytes: int) -> bytes:
        """Return a whole body."""
        length = request.content_length
        if length is None or length > max_bytes:
            raise Refused(f"a request of {length} bytes, the limit is {max_bytes}", "size", 413)
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
        """Wait for room in the inbox; after a while the process has to try again."""
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
        """Refuse the replies of a session that was forgotten while a request waited."""
        if self._sessions.find(session.secret, session.token) is not session:
            raise Refused(cause="session", status=403)


def _position(request: web.BaseRequest, session: Session, name: str) -> tuple[int, bool]:
    """Return the number up to which a process has dispatches, and whether it understands messages."""
    query = request.rel_url.query
    number, is_ready = query.get(name, ""), query.get("ready")
    if not _NUMBER.fullmatch(number) or int(number) > session.last or is_ready not in ("0", "1"):
        raise ProtocolError(f"{name}={number:.20}, ready={is_ready}: the last number is {session.last}")
    return int(number), is_ready == "1"


def _abort(request: web.BaseRequest) -> None:
    if request.transport is not None:
        request.transport.abort()
