"""Connections before their TLS handshake: bounded, and counted as strangers, like all others.

asyncio tells a server of an encrypted connection only once its handshake is done. Whoever never ends it would
be counted by nobody, so the handshake is made here, after the door has let the connection in.
"""

from __future__ import annotations

import asyncio
import ssl

from fedsim.bus.http.door import Door


class Vestibule:
    """Makes a protocol for each new connection, as :meth:`asyncio.loop.create_server` wants it.

    Args:
        door: Counts connections, and answers on those that are encrypted.
        context: How to encrypt.
        patience_s: A handshake may take so long.
    """

    def __init__(self, door: Door, context: ssl.SSLContext, patience_s: float) -> None:
        self._door = door
        self._context = context
        self._patience_s = patience_s
        self._shaking: dict[asyncio.Task[None], None] = {}

    def __call__(self) -> asyncio.Protocol:
        """Return a protocol for one connection."""
        return _Guest(self)

    def arrived(self, guest: _Guest, transport: asyncio.Transport) -> None:
        """Let a connection in and begin its handshake, if the door has room."""
        transport.pause_reading()  # what comes is for TLS to read
        if self._door.enter(guest, transport):
            task = asyncio.get_running_loop().create_task(self._shake_hands(guest, transport))
            self._shaking[task] = None
            task.add_done_callback(self._shaking.pop)

    async def close(self) -> None:
        """End all handshakes."""
        shaking = list(self._shaking)
        for task in shaking:
            task.cancel()
        await asyncio.gather(*shaking, return_exceptions=True)

    async def _shake_hands(self, guest: _Guest, transport: asyncio.Transport) -> None:
        loop, encrypted = asyncio.get_running_loop(), None
        try:
            if transport.is_closing():
                return
            encrypted = await loop.start_tls(
                transport, guest, self._context, server_side=True, ssl_handshake_timeout=self._patience_s
            )
        except (
            OSError,
            RuntimeError,
        ):  # of a connection lost in the middle of it, some versions make the latter
            transport.abort()
        finally:
            self._door.leave(guest)
        if encrypted is not None and not transport.is_closing():
            guest.goes_on(self._door(), encrypted)


class _Guest(asyncio.Protocol):
    """One connection; passes on what comes before aiohttp has taken over."""

    def __init__(self, vestibule: Vestibule) -> None:
        self._vestibule = vestibule
        self._early = bytearray()
        self._next: asyncio.Protocol | None = None
        self._has_begun = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if not self._has_begun:  # of the TCP connection, not of what is encrypted on it
            self._has_begun = True
            assert isinstance(transport, asyncio.Transport)  # noqa: S101
            self._vestibule.arrived(self, transport)

    def data_received(self, data: bytes) -> None:
        self._early += data

    def connection_lost(self, exc: Exception | None) -> None:
        if self._next is not None:
            self._next.connection_lost(exc)

    def goes_on(self, following: asyncio.Protocol, transport: asyncio.Transport) -> None:
        """Let another protocol take over."""
        self._next = following
        transport.set_protocol(following)
        following.connection_made(transport)
        if self._early:
            following.data_received(bytes(self._early))
            self._early.clear()
