"""Requests of a client process, and errors for faults that repetition does not mend."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar
from urllib.parse import urlsplit

import aiohttp

from fedsim.bus.http.access import ClientRanges
from fedsim.bus.http.limits import HttpLimits
from fedsim.bus.http.messages import Incoming, Parts, ProtocolError, join_request, pieces, transfer_bytes
from fedsim.errors import DecodeError, UserError
from fedsim.network.overhead import DIGEST_BYTES
from fedsim.quoting import MOST_SAID, printable, shortened

T = TypeVar("T")

LOST = (aiohttp.ClientError, OSError, ProtocolError)
"""Errors after which trying again may help."""
_MAX_GREETING_BYTES = 64 << 20
_MAX_SPOILT = 3
"""A frame with a wrong SHA-256 is fetched this often."""
_PLAIN = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST")
"""Reasons that OpenSSL gives, depending on its version, for an answer without TLS."""


class SessionGone(Exception):  # noqa: N818
    """The server does not know the session (any more)."""


def jitter() -> float:
    """Return a random number from 0 to 1; no result depends on it."""
    return int.from_bytes(os.urandom(4), "big") / 2**32


def open_http(token: str | None, context: ssl.SSLContext | None, limits: HttpLimits) -> aiohttp.ClientSession:
    """Return an HTTP session for the requests of a client process."""
    return aiohttp.ClientSession(
        headers={} if token is None else {"Authorization": f"Bearer {token}"},
        connector=aiohttp.TCPConnector(limit=3 * limits.transfers_at_once + 2, ssl=context or True),
        timeout=aiohttp.ClientTimeout(
            total=None, sock_connect=limits.handshake_timeout_s, sock_read=limits.stall_timeout_s
        ),
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        auto_decompress=False,
        read_bufsize=1 << 18,
    )


class Backoff:
    """Pauses between attempts: uniform from 0 to a bound that doubles, up to a cap."""

    def __init__(self, limits: HttpLimits, jitter: Callable[[], float]) -> None:
        self._limits = limits
        self._jitter = jitter
        self._bound_s = 0.0

    async def pause(self, *, anew: bool) -> None:
        """Wait; ``anew`` begins with the first bound."""
        first_s = 2 * self._limits.backoff_first_s
        self._bound_s = min(self._limits.backoff_cap_s, first_s if anew else 2 * self._bound_s or first_s)
        await asyncio.sleep(self._bound_s * self._jitter())


class Requests:
    """The requests of one session of a client process, each repeated until it is answered.

    ``gone`` is called when the server does not know the session; ``joined`` is set while the server should
    know it.
    """

    def __init__(
        self,
        url: str,
        secret: str,
        token: str | None,
        tls: ssl.SSLContext | None,
        limits: HttpLimits,
        jitter: Callable[[], float],
        gone: Callable[[], None],
    ) -> None:
        self.joined = asyncio.Event()
        self._url = url
        self._headers = {"Fedsim-Session": secret}
        self._token = token
        self._tls = tls
        self._limits = limits
        self._jitter = jitter
        self._gone = gone
        self._http: aiohttp.ClientSession | None = None

    def open(self) -> None:
        """Make requests possible, until :meth:`close`."""
        self._http = open_http(self._token, self._tls, self._limits)

    async def close(self) -> None:
        """Close all connections."""
        if self._http is not None:
            await self._http.close()

    @asynccontextmanager
    async def send(
        self, method: str, path: str, *allowed: int, length: int | None = None, **options: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request and yield its answer; an error of :data:`LOST` for other statuses than allowed."""
        assert self._http is not None  # noqa: S101
        headers = self._headers if length is None else {**self._headers, "Content-Length": str(length)}
        # No redirect: another server would learn the session's secret.
        async with self._http.request(
            method, f"{self._url}{path}", headers=headers, allow_redirects=False, **options
        ) as response:
            if allowed and response.status not in allowed:
                if response.status == 403:
                    raise SessionGone
                if response.status == 401:
                    raise UserError(self._refusal(401))
                raise ConnectionAbortedError(f"status {response.status}")
            yield response

    async def persist(self, attempt: Callable[[], Awaitable[T]], num_bytes: int = 0) -> T:
        """Repeat a request, with a body of ``num_bytes``, until it is answered."""
        backoff = Backoff(self._limits, self._jitter)
        while True:
            await self.joined.wait()
            try:
                # aiohttp's own limit begins once a body is written, which a dead connection may prevent.
                async with asyncio.timeout(self._limits.transfer_timeout_s(num_bytes)):
                    return await attempt()
            except SessionGone:
                self.joined.clear()  # until the process has joined again, which it does at once
                self._gone()
            except LOST:
                pass
            await backoff.pause(anew=False)

    async def download(self, path: str, num_bytes: int) -> memoryview | None:
        """Fetch a frame; None if the server has it no more, a DecodeError if its SHA-256 stays wrong."""
        num_spoilt = 0

        async def attempt() -> memoryview | None:
            nonlocal num_spoilt
            incoming = Incoming(num_bytes + DIGEST_BYTES)
            async with self.send("GET", path, 200, 410) as response:
                if response.status == 410:
                    return None
                async for data in response.content.iter_any():
                    incoming.add(data)
            if not incoming.is_complete:
                raise ConnectionAbortedError("a frame that ends early")
            if (frame := await incoming.verified()) is None:
                num_spoilt += 1
                if num_spoilt == _MAX_SPOILT:
                    raise DecodeError(f"{incoming.total} bytes came {num_spoilt} times with another SHA-256")
                raise ConnectionAbortedError("another SHA-256")
            return frame

        return await self.persist(attempt, num_bytes)

    async def upload(self, path: str, parts: Parts) -> None:
        """Send a large reply, once the server has said that it waits for it."""
        num_bytes = transfer_bytes(parts)

        async def attempt() -> None:
            data = pieces(parts, self._limits.chunk_bytes)
            async with self.send("PUT", path, 204, 410, length=num_bytes, data=data, expect100=True):
                pass

        await self.persist(attempt, num_bytes)

    async def join(self, clients: ClientRanges, *, is_first: bool) -> tuple[str, bool, bytes]:
        """Join; return the run, whether the server knew the session, and its greeting.

        Raises a UserError where a repetition is of no use. Before the first answer the address may be wrong.
        """
        try:
            async with (
                asyncio.timeout(self._limits.handshake_timeout_s),
                self.send("POST", "/join", data=join_request(clients)) as response,
            ):
                if (response.content_length or 0) > _MAX_GREETING_BYTES:
                    raise ProtocolError(f"a greeting of {response.content_length} bytes")
                body, run = await response.read(), response.headers.get("Fedsim-Run")
        except aiohttp.ClientError as error:
            if why := await self._mistake(error, is_first=is_first):
                raise UserError(why) from None
            raise
        if response.status == 200 and run is not None:
            return run, response.headers.get("Fedsim-Resumed") == "1", body
        text = printable(body.decode("utf-8", "replace"))
        if why := self._refusal(response.status, text, is_fedsim=run is not None, is_first=is_first):
            raise UserError(why)
        raise ConnectionAbortedError(f"status {response.status}: {shortened(text)}")

    def _refusal(self, status: int, text: str = "", *, is_fedsim: bool = True, is_first: bool = False) -> str:
        """Return an error text for an answer; empty where a repetition may help."""
        there = f"the server at {self._url}"
        if status == 401:
            problem = "asks for a token" if self._token is None else "does not know this token (any more)"
            return f"{there} {problem}: ask for one made with `fedsim token new`, and join with it"
        if status == 421:
            return (
                f"{there} asks for no token, and so answers only who calls it by a loopback name or address: "
                "write 127.0.0.1 or localhost in place of the name, or give the server a file of tokens"
            )
        if status == 409 and is_fedsim:
            return f"the server refuses this process: {text}"
        if status == 413 and is_fedsim:
            return f"{there} cannot take so many ranges of clients ({text}): name fewer, or longer ones"
        if status == 400 and text.startswith("join:"):
            return (
                f"what answers at {self._url} does not speak this fedsim's protocol "
                f"({shortened(text, MOST_SAID)}): check the address, and install the same version of fedsim "
                "on both sides"
            )
        if is_first and not is_fedsim and status < 500:
            return (
                f"what answers at {self._url} is no fedsim server (status {status}): check the address and "
                "the port"
            )
        return ""

    async def _mistake(self, error: aiohttp.ClientError, *, is_first: bool) -> str:
        """Return an error text for a failed request; empty where a repetition may help."""
        there = f"the server at {self._url}"
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            return (
                f"{there} does not show a certificate that this process trusts "
                f"({shortened(error.certificate_error, MOST_SAID)}): give the certificate of its authority "
                "(ca), and the server's address as its certificate names it"
            )
        if isinstance(error, aiohttp.ClientConnectorSSLError):  # a handshake that is cut off may succeed yet
            if any(sign in str(error) for sign in _PLAIN):
                return (
                    f"{there} does not encrypt: write http:// in place of https://, or give the server a "
                    "certificate and its key"
                )
        elif (
            is_first
            and isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError)
            and await _encrypts(self._url, self._limits.handshake_timeout_s)
        ):
            return f"{there} encrypts: write https:// in place of http://"
        return ""


async def _encrypts(url: str, timeout_s: float) -> bool:
    """Whether a server that has closed an unencrypted connection answers an encrypted one."""
    place = urlsplit(url)
    # Nothing is sent, so any server will do.
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(timeout_s):
            _, writer = await asyncio.open_connection(place.hostname, place.port or 80, ssl=context)
        writer.transport.abort()
        return place.scheme == "http"
    return False
