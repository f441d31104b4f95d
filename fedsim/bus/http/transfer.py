"""Blobs at the client process: fetched and sent in pieces, each attempt going on where the last has ended."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Callable, Mapping

import aiohttp

from fedsim.bus.http.blobs import ANSWER, HELD, SESSION, Arriving, digest_of, pieces
from fedsim.bus.http.limits import HttpLimits
from fedsim.network.overhead import DIGEST_BYTES
from fedsim.wire import Frame

_MOST_SPOILT = 3
"""So often a blob may arrive with another digest than its own before it is given up."""


class SessionGone(Exception):  # noqa: N818
    """The server does not know the session (any more)."""


class Spoilt(Exception):  # noqa: N818
    """A blob arrives with another digest than its own, again and again."""


def jitter() -> float:
    """Return a number from 0 to 1; real time is no part of a result, so nobody needs to repeat it."""
    return int.from_bytes(os.urandom(4), "big") / 2**32


def open_http(token: str | None, context: ssl.SSLContext | None, limits: HttpLimits) -> aiohttp.ClientSession:
    """Return what a client process sends its requests with; whoever asks for it closes it."""
    return aiohttp.ClientSession(
        headers={} if token is None else {"Authorization": f"Bearer {token}"},
        connector=aiohttp.TCPConnector(limit=2 * limits.in_flight_uploads + 2, ssl=context or True),
        timeout=aiohttp.ClientTimeout(
            total=None, sock_connect=limits.handshake_timeout_s, sock_read=limits.stall_timeout_s
        ),
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        auto_decompress=False,
        read_bufsize=1 << 18,
    )


class Backoff:
    """Pauses between attempts: uniform from 0 to a bound that doubles, up to a cap.

    Args:
        limits: First bound and cap.
        jitter: Returns numbers from 0 to 1.
    """

    def __init__(self, limits: HttpLimits, jitter: Callable[[], float]) -> None:
        self._limits = limits
        self._jitter = jitter
        self._failures = 0

    def succeeded(self) -> None:
        """Begin with the first bound again."""
        self._failures = 0

    def pause_s(self) -> float:
        """Return how long to wait now."""
        bound = min(
            self._limits.backoff_cap_s, 2.0 * self._limits.backoff_first_s * 2 ** min(self._failures, 32)
        )
        self._failures += 1
        return float(bound * self._jitter())

    async def pause(self) -> None:
        """Wait."""
        await asyncio.sleep(self.pause_s())


class Transfers:
    """Moves blobs of one session.

    Args:
        http: What to send requests with.
        url: Where the server's blobs are.
        session: The session's name.
        limits: Lengths and times.
        jitter: Returns numbers from 0 to 1.
    """

    def __init__(
        self,
        http: aiohttp.ClientSession,
        url: str,
        session: str,
        limits: HttpLimits,
        jitter: Callable[[], float],
    ) -> None:
        self._http = http
        self._url = url
        self._headers = {SESSION: session}
        self._limits = limits
        self._jitter = jitter

    async def fetch(self, number: int, blob: Arriving) -> memoryview | None:
        """Return the frame of a blob, of which some may be here; None where the server has it no more.

        Raises:
            SessionGone: The server does not know the session.
            Spoilt: It does not arrive as it was sent.
        """
        backoff, spoilt = Backoff(self._limits, self._jitter), 0
        while True:
            try:
                held = blob.held
                if not blob.is_complete and not await self._get(number, blob):
                    return None
                frame = await blob.verified()
                if frame is not None:
                    return frame
                spoilt += 1
                if spoilt == _MOST_SPOILT:
                    raise Spoilt(f"{blob.frame_bytes} bytes do not have their SHA-256")
                blob.reset()
            except (aiohttp.ClientError, OSError):
                if blob.held > held:
                    backoff.succeeded()
            await backoff.pause()

    async def send(self, number: int, name: str, frame: Frame, *, is_new: bool) -> None:
        """Send the frame of an answer as a blob, of which some may be there unless it is new.

        Raises:
            SessionGone: The server does not know the session.
        """
        backoff, held = Backoff(self._limits, self._jitter), 0
        total = len(frame) + DIGEST_BYTES
        loop = asyncio.get_running_loop()
        headers = {**self._headers, ANSWER: name}
        digest = loop.run_in_executor(None, digest_of, frame.parts)
        while True:
            try:
                if not is_new:
                    held = await self._held(number, headers)
                is_new = False
                if held == total or await self._put(number, headers, frame, digest, held):
                    return
            except (aiohttp.ClientError, OSError):
                pass
            await backoff.pause()

    async def _get(self, number: int, blob: Arriving) -> bool:
        headers = {**self._headers, "Range": f"bytes={blob.held}-"} if blob.held else self._headers
        async with self._http.get(f"{self._url}/{number}", headers=headers) as response:
            if response.status == 403:
                raise SessionGone
            if response.status == 404:
                return False
            if response.status != (206 if blob.held else 200):
                raise ConnectionAbortedError(f"status {response.status}")
            async for data in response.content.iter_any():
                blob.add(data)
        return True

    async def _held(self, number: int, headers: Mapping[str, str]) -> int:
        async with self._http.head(f"{self._url}/{number}", headers=headers) as response:
            if response.status == 403:
                raise SessionGone
            if response.status != 200:
                raise ConnectionAbortedError(f"status {response.status}")
            return int(response.headers.get(HELD, "0"))

    async def _put(
        self,
        number: int,
        headers: Mapping[str, str],
        frame: Frame,
        digest: asyncio.Future[bytes],
        held: int,
    ) -> bool:
        """Send the rest of a blob; say whether it is whole now."""
        total = len(frame) + DIGEST_BYTES

        async def rest() -> AsyncIterator[memoryview | bytes]:
            for piece in pieces(frame.parts, held, self._limits.chunk_bytes):
                yield piece
            yield (await asyncio.shield(digest))[max(0, held - len(frame)) :]

        headers = {
            **headers,
            "Content-Range": f"bytes {held}-{total - 1}/{total}",
            "Content-Length": str(total - held),
        }
        async with self._http.put(f"{self._url}/{number}", headers=headers, data=rest()) as response:
            if response.status == 403:
                raise SessionGone
            return response.status in (204, 410)
