"""Blobs at the server: ``GET``, ``HEAD`` and ``PUT /blob/<number>``, for the session that a header names.

A blob goes up in any number of requests, each beginning where the one before has ended; ``HEAD`` says where.
What is held of blobs is bounded for each session and over all; to make room the oldest that nobody is at
goes first, and its sender begins anew.
"""

from __future__ import annotations

import asyncio

from aiohttp import web

from fedsim.bus.http.accounts import Accounts
from fedsim.bus.http.blobs import ANSWER, HELD, Arriving, content_range, pieces, range_start
from fedsim.bus.http.limits import HttpLimits
from fedsim.bus.http.peer import Peer, Upload
from fedsim.bus.http.registry import Registry
from fedsim.bus.http.session import SessionError
from fedsim.network.overhead import DIGEST_BYTES

_AHEAD = 1 << 17
"""The numbers of blobs go so far beyond the last answer; an outbox holds fewer deliveries."""
_MOST_NAME = 32


class Routes:
    """Answers requests about blobs; what they may hold is counted here."""

    def __init__(self, limits: HttpLimits, registry: Registry, accounts: Accounts) -> None:
        self._limits = limits
        self._registry = registry
        self._accounts = accounts
        self._most_held = 0  # never less than what is held: what is delivered is subtracted when it matters

    async def answer(self, request: web.BaseRequest, peer: Peer, number: int) -> web.StreamResponse:
        """Answer a request of a session about one of its blobs."""
        if request.method == "PUT":
            return await self._put(request, peer, number)
        if request.method == "HEAD":
            upload = peer.uploads.get(number)
            if upload is not None and upload.name != request.headers.get(ANSWER):
                upload = None
            return web.Response(headers={HELD: str(upload.blob.held if upload else 0)})
        if request.method == "GET":
            return await self._get(request, peer, number)
        return web.Response(status=405)

    async def _get(self, request: web.BaseRequest, peer: Peer, number: int) -> web.StreamResponse:
        ask, start = peer.outbox.get(number), range_start(request.headers.get("Range"))
        if ask is None or ask.frame is None:
            return web.Response(status=404)
        frame, digest = ask.frame, ask.digest(ask.frame)
        if start is None or start >= (total := len(frame) + DIGEST_BYTES):
            return web.Response(status=416)
        response = web.StreamResponse(status=206 if start else 200)
        response.content_length = total - start
        async with asyncio.timeout(self._limits.request_timeout_s):
            await response.prepare(request)
            for piece in pieces(frame.parts, start, self._limits.chunk_bytes):
                async with asyncio.timeout(self._limits.stall_timeout_s):
                    await response.write(piece)
            await response.write((await asyncio.shield(digest))[max(0, start - len(frame)) :])
            await response.write_eof()
        ask.released()
        return response

    async def _put(self, request: web.BaseRequest, peer: Peer, number: int) -> web.StreamResponse:
        span = content_range(request.headers.get("Content-Range"))
        if span is None or request.content_length != span[1] - span[0]:
            return self._refused("range", 400)
        start, end, total = span
        if total - DIGEST_BYTES > self._limits.frame.frame_bytes or total <= DIGEST_BYTES:
            return self._refused("size", 413)
        name = request.headers.get(ANSWER, "")[:_MOST_NAME]
        upload = peer.uploads.get(number)
        if upload is not None and upload.name != name and not upload.is_busy:
            del peer.uploads[number]
            upload = None
        if upload is None:
            if not peer.inbox.last < number <= peer.inbox.last + _AHEAD:
                return self._refused("repeated", 410)
            if len(peer.uploads) >= 2 * self._limits.in_flight_uploads:
                return self._later()
            upload = peer.uploads[number] = Upload(name, Arriving(total - DIGEST_BYTES))
        if upload.is_busy or upload.name != name or upload.blob.total != total or upload.blob.held != start:
            held = upload.blob.held
            if upload.blob.total != total and not upload.is_busy:
                del peer.uploads[number]
                held = 0
            return web.Response(status=409, headers={HELD: str(held)})
        upload.is_busy = True
        try:
            if not await self._take(request, peer, upload, end):
                return self._later()
            if upload.blob.is_complete and upload.frame is None:
                upload.whole_at_s = asyncio.get_running_loop().time()
                upload.frame = await upload.blob.verified()
                if upload.frame is None:
                    del peer.uploads[number]
                    return self._refused("checksum", 422)
        finally:
            upload.is_busy = False
            # A session that ended meanwhile has forgotten its blobs already.
        return web.Response(status=204, headers={HELD: str(upload.blob.held)})

    async def _take(self, request: web.BaseRequest, peer: Peer, upload: Upload, end: int) -> bool:
        """Take the bytes of a request; say whether there was room for them."""
        blob, limits = upload.blob, self._limits
        async with asyncio.timeout(limits.request_timeout_s):
            while blob.held < end:
                if not self._has_room(peer):
                    return False
                async with asyncio.timeout(limits.stall_timeout_s):
                    data = await request.content.readany()
                if not data:
                    raise SessionError("a request ends before its body")
                if upload.first_at_s < 0:
                    upload.first_at_s = asyncio.get_running_loop().time()
                blob.add(data)
                self._most_held += len(data)
        return True

    def _has_room(self, peer: Peer) -> bool:
        limits = self._limits
        if peer.upload_bytes >= max(limits.session_upload_bytes, limits.frame.frame_bytes):
            return False
        if self._most_held >= limits.upload_bytes:
            self._most_held = self._make_room()
        return self._most_held < limits.upload_bytes

    def _make_room(self) -> int:
        """Let blobs go that nobody is at until there is room; return the bytes that are held then."""
        num_bytes = sum(peer.upload_bytes for peer in self._registry)
        for peer in self._registry:
            for number, upload in list(peer.uploads.items()):
                if num_bytes < self._limits.upload_bytes:
                    return num_bytes
                if not upload.is_busy:
                    num_bytes -= upload.blob.held
                    del peer.uploads[number]
                    self._accounts.reject("evicted")
        return num_bytes

    def _refused(self, cause: str, status: int) -> web.Response:
        self._accounts.reject(cause)
        response = web.Response(status=status)
        response.force_close()
        return response

    def _later(self) -> web.Response:
        self._accounts.reject("full")
        response = web.Response(status=503, headers={"Retry-After": "1"})
        response.force_close()
        return response
