"""One WebSocket at the server: hello, then whatever the process says, until either side ends it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Protocol

from aiohttp import WebSocketError, WSCloseCode, WSMsgType, web

from fedsim.bus.http.access import ClientRanges
from fedsim.bus.http.blobs import name_of
from fedsim.bus.http.frames import checksum
from fedsim.bus.http.limits import HttpLimits
from fedsim.bus.http.link import Link
from fedsim.bus.http.peer import Answered, Ask, Peer, Upload
from fedsim.bus.http.registry import Busy, Refusal
from fedsim.bus.http.session import (
    DELIVERIES,
    FROM_CLIENT,
    Control,
    SessionError,
    TokenBucket,
    encode,
    header_of,
    header_values,
    parse,
)

_CLOSING_S = 1.0
"""So long the other side may take to answer a WebSocket's close."""

_HELLO = frozenset({"hello"})
_AFTER_HELLO = FROM_CLIENT - _HELLO


class Server(Protocol):
    """What a conversation needs of the server."""

    def admitted(self, hello: Control, granted: ClientRanges, token: str | None) -> tuple[Peer, bool]:
        """Return the session of a process, and whether it existed before."""

    def joined(self, peer: Peer, hello: Control, resumed: bool) -> None:
        """A session has a connection: welcome it and replay what it has not had."""

    def answered(self, peer: Peer, answer: Answered) -> bool:
        """Take an answer; say whether somebody had asked for it."""

    def arrived(self, peer: Peer, number: int) -> None:
        """All deliveries up to a number have arrived at the process."""

    def unusable(self, peer: Peer, number: int, why: str) -> bool:
        """A delivery cannot be used by the process; say whether it was one."""

    def parted(self, peer: Peer) -> None:
        """The session has no connection now."""

    def readied(self, peer: Peer) -> None:
        """The process understands messages from now on."""

    def told(self, peer: Peer, said: Control) -> bool:
        """Take a piece of an answer to a probe; say whether there was such a probe."""

    def began(self, ask: Ask) -> None:
        """A delivery is being put on the link."""

    def misbehaved(self, error: SessionError) -> None:
        """The peer broke the rules; its connection is closed."""

    def failed(self, error: Exception) -> None:
        """Something here went wrong that is nobody's fault outside."""

    async def room(self) -> None:
        """Wait until more may be read."""

    @property
    def has_room(self) -> bool:
        """Whether more may be read now."""


class Conversation:
    """Talks with one process over one WebSocket."""

    def __init__(self, server: Server, limits: HttpLimits) -> None:
        self._server = server
        self._limits = limits
        self._socket = web.WebSocketResponse(
            compress=False, max_msg_size=limits.max_ws_message, timeout=_CLOSING_S, decode_text=False
        )
        loop = asyncio.get_running_loop()
        self._now = loop.time
        self._bucket = TokenBucket(limits.control_rate, limits.control_burst, loop.time())

    async def hold(
        self, request: web.BaseRequest, granted: ClientRanges, token: str | None
    ) -> web.StreamResponse:
        """Hold the whole conversation.

        Raises:
            OSError: The connection broke.
            TimeoutError: It said no hello.
        """
        socket = self._socket
        await socket.prepare(request)
        try:
            async with asyncio.timeout(self._limits.handshake_timeout_s):
                hello = await self._heard(_HELLO)
            if hello is None:
                return socket
            try:
                peer, resumed = self._server.admitted(hello, granted, token)
            except Refusal as refusal:
                await socket.send_bytes(encode("refused", why=str(refusal)))
                await socket.close(code=WSCloseCode.POLICY_VIOLATION)
                return socket
            except Busy:
                await socket.close(code=WSCloseCode.TRY_AGAIN_LATER)
                return socket
            await self._talk(request, peer, hello, resumed)
        except SessionError as error:
            self._server.misbehaved(error)
            await socket.close(code=WSCloseCode.POLICY_VIOLATION)
        finally:
            if not socket.closed:
                _abort(request)
        return socket

    async def _talk(self, request: web.BaseRequest, peer: Peer, hello: Control, resumed: bool) -> None:
        loop = asyncio.get_running_loop()
        if peer.link is not None:  # the process has come back before its old connection was known to be dead
            peer.link.abort()
        link = Link(self._socket, self._limits, lambda: peer.inbox.last, lambda: _abort(request))
        peer.link = link
        writer: asyncio.Task[None] | None = None
        has_left = False
        try:
            self._server.joined(peer, hello, resumed)
            writer = loop.create_task(self._write(peer, link))
            while peer.link is link:
                said = await self._heard(_AFTER_HELLO)
                if said is None or said.word == "bye":
                    has_left = said is not None
                    break
                link.heard()
                # Whoever waits here wakes together with all others, and the first may fill it up again.
                while said.word in DELIVERIES and not self._server.has_room:
                    link.is_paused = True
                    await self._server.room()
                    link.is_paused = False
                if peer.link is link:
                    self._understand(peer, link, said)
        finally:
            link.close()
            if writer is not None:
                if link.is_finishing:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_CLOSING_S):
                            await asyncio.shield(writer)
                            await self._socket.close(code=WSCloseCode.GOING_AWAY)
                writer.cancel()
                await asyncio.gather(writer, return_exceptions=True)
            if peer.link is link:
                peer.link, peer.has_left = None, has_left
                peer.gone_at = loop.time()
                self._server.parted(peer)

    async def _heard(self, words: frozenset[str]) -> Control | None:
        """Return what is said next; None once the connection has ended."""
        message = await self._socket.receive()
        if message.type is WSMsgType.BINARY:
            return parse(message.data, words)
        if message.type is WSMsgType.TEXT:
            raise SessionError("a text message: all are binary")
        if message.type is WSMsgType.ERROR and isinstance(message.data, WebSocketError):
            raise SessionError(f"not a WebSocket message: {message.data}")
        return None

    def _understand(self, peer: Peer, link: Link, said: Control) -> None:
        word, values = said.word, said.values
        wanted = False
        if word in DELIVERIES:
            wanted = self._delivery(peer, link, said)
        elif word == "ack":
            self._server.arrived(peer, values["n"])
        elif word == "bad":
            wanted = self._server.unusable(peer, values["n"], values["why"])
        elif word == "ready" and not peer.is_ready:
            self._server.readied(peer)
        elif word in ("told", "fault"):
            wanted = self._server.told(peer, said)
        if not wanted and not self._bucket.take(self._now()):
            raise SessionError(f"more than {self._limits.control_rate} messages per second")

    def _delivery(self, peer: Peer, link: Link, said: Control) -> bool:
        values, number = said.values, said.values["n"]
        self._server.arrived(peer, values["a"])
        header = header_of(values["h"])
        frame: memoryview | None = None
        upload: Upload | None = None
        if said.word == "blob" and number > peer.inbox.last:
            upload = peer.uploads.get(number)
            if upload is None or upload.frame is None or upload.name not in ("", name_of(header)):
                raise ConnectionAbortedError(f"blob {number} is not here (any more): it has to come again")
            if len(upload.frame) != values["b"]:
                raise SessionError(f"blob {number} has {len(upload.frame)} bytes, {values['b']} announced")
            frame = upload.frame
        elif said.word == "send":
            if len(said.body) > self._limits.small_frame_bytes:
                raise SessionError(f"a frame of {len(said.body)} bytes travels as a blob")
            # Copied once, so that its arrays lie where a frame's arrays lie: at multiples of 16 bytes.
            frame = memoryview(bytes(said.body))
        if not peer.inbox.accept(number):
            link.acknowledge_soon()
            return False
        peer.uploads.pop(number, None)
        link.acknowledge_soon()
        answer = Answered(header, frame, values.get("c"), upload, values.get("s"), values.get("w"))
        return self._server.answered(peer, answer)

    async def _write(self, peer: Peer, link: Link) -> None:
        async def transmit(number: int) -> None:
            ask = peer.outbox.get(number)
            if ask is None:  # answered meanwhile, over an earlier connection
                return
            head = {"n": number, "h": header_values(ask.header), "a": link.acknowledge()}
            frame = ask.frame
            self._server.began(ask)
            peer.unconfirmed.append((number, ask))
            if frame is None:
                await self._socket.send_bytes(encode("none", **head))
                ask.released()
            elif len(frame) > self._limits.small_frame_bytes:
                ask.digest(frame)
                await self._socket.send_bytes(encode("blob", b=len(frame), **head))
            else:
                envelope = encode("send", c=checksum(frame), **head)
                await self._socket.send_bytes(b"".join((envelope, *frame.parts)))
                ask.released()

        try:
            await link.write(transmit)
            # Whoever hears the last word answers it; who has not may come back for it.
            asyncio.get_running_loop().call_later(_CLOSING_S, link.abort)
        except OSError:
            pass  # the reader hears of it too
        except Exception as error:
            self._server.failed(error)
            link.abort()


def _abort(request: web.BaseRequest) -> None:
    if request.transport is not None:
        request.transport.abort()
