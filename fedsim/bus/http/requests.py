"""A client process's requests, and telling a person what trying again would not mend."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from fedsim.bus.http.access import ClientRanges
from fedsim.bus.http.limits import HttpLimits
from fedsim.bus.http.messages import PROTOCOL, ProtocolError
from fedsim.errors import UserError
from fedsim.quoting import MOST_SAID, shortened

LOST = (aiohttp.ClientError, OSError, ProtocolError)
"""Errors after which trying again may help."""
_MOST_GREETING = 64 << 20
_PLAIN = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST")
"""What OpenSSL says, depending on its version, of an answer that is no TLS."""


class SessionGone(Exception):  # noqa: N818
    """The server does not know the session (any more)."""


def jitter() -> float:
    """Return a number from 0 to 1; real time is no part of a result, so nobody needs to repeat it."""
    return int.from_bytes(os.urandom(4), "big") / 2**32


def open_http(token: str | None, context: ssl.SSLContext | None, limits: HttpLimits) -> aiohttp.ClientSession:
    """Return what a client process sends its requests with; whoever asks for it closes it."""
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


def check_status(response: aiohttp.ClientResponse, *allowed: int) -> None:
    """Check an answer.

    Raises:
        SessionGone: The server does not know the session.
        ConnectionAbortedError: Another status than those allowed; trying again may help.
    """
    if response.status == 403:
        raise SessionGone
    if response.status not in allowed:
        raise ConnectionAbortedError(f"status {response.status}")


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

    async def pause(self) -> None:
        """Wait."""
        bound = min(
            self._limits.backoff_cap_s, 2.0 * self._limits.backoff_first_s * 2 ** min(self._failures, 32)
        )
        self._failures += 1
        await asyncio.sleep(bound * self._jitter())


class Requests:
    """The requests of one session of a client process, each repeated until it is answered.

    Args:
        url: The server's address.
        secret: The session's.
        token: The secret that grants the clients.
        tls: How to check the server's certificate.
        limits: Times.
        jitter: Returns numbers from 0 to 1.
        gone: Told that the server does not know the session.

    Attributes:
        joined: Set while the server is thought to know the session.
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
        self.url = url
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

    def send(self, method: str, path: str, *, headers: Any = None, **options: Any) -> Any:
        """Send a request; return aiohttp's context of the answer."""
        assert self._http is not None  # noqa: S101
        headers = {**self._headers, **(headers or {})}
        url = f"{self.url}{path}"
        # No redirect: another server would be told the session's secret.
        return self._http.request(method, url, headers=headers, allow_redirects=False, **options)

    async def persist(
        self, attempt: Callable[[], Awaitable[None]], moved: Callable[[], int] = lambda: 0
    ) -> None:
        """Repeat a request until it is answered; pauses are short again once bytes have moved."""
        backoff = Backoff(self._limits, self._jitter)
        while True:
            await self.joined.wait()
            before = moved()
            try:
                # aiohttp's own limit begins once a body is written, which a dead connection may prevent.
                async with asyncio.timeout(self._limits.request_timeout_s):
                    return await attempt()
            except SessionGone:
                self.joined.clear()  # until the process has joined again, which it does at once
                self._gone()
            except LOST:
                if moved() > before:
                    backoff.succeeded()
            await backoff.pause()

    async def join(self, clients: ClientRanges, *, is_first: bool) -> tuple[str, bool, bytes]:
        """Join; return the run, whether the server knew the session, and its greeting.

        Args:
            clients: The clients to host.
            is_first: Whether nothing was ever heard of the server, so that the address itself may be wrong.

        Raises:
            UserError: Trying again is of no use.
            aiohttp.ClientError, OSError, ProtocolError: It may help.
        """
        data = json.dumps({"protocol": PROTOCOL, "clients": str(clients)}).encode()
        try:
            async with (
                asyncio.timeout(self._limits.handshake_timeout_s),
                self.send("POST", "/join", data=data) as response,
            ):
                if (response.content_length or 0) > _MOST_GREETING:
                    raise ProtocolError(f"a greeting of {response.content_length} bytes")
                said, headers = await response.read(), response.headers
        except aiohttp.ClientError as error:
            await _explained(error, self.url, self._limits, is_first=is_first)
            raise
        run = headers.get("Fedsim-Run")
        _check_joined(
            *(response.status, said.decode("utf-8", "replace"), self.url),
            has_token=self._token is not None,
            is_fedsim=run is not None,
            is_first=is_first,
        )
        return run or "", headers.get("Fedsim-Resumed") == "1", said


async def _explained(error: aiohttp.ClientError, url: str, limits: HttpLimits, *, is_first: bool) -> None:
    """Look for what a person has to change after a request has failed.

    Args:
        error: What was raised.
        url: The server's address.
        limits: Times.
        is_first: Whether nothing was ever heard of the server, so that the address itself may be wrong.

    Raises:
        UserError: The two sides do not agree about encryption or names.
    """
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        raise UserError(
            f"the server at {url} does not show a certificate that this process trusts "
            f"({shortened(error.certificate_error, MOST_SAID)}): give the authority's with --ca, and the "
            "server's address as its certificate names it"
        ) from None
    if isinstance(error, aiohttp.ClientConnectorSSLError):  # a handshake that is cut off may succeed yet
        if any(sign in str(error) for sign in _PLAIN):
            raise UserError(
                f"the server at {url} does not encrypt: write http:// in place of https://, or start it with "
                "--tls-cert and --tls-key"
            ) from None
    elif (
        is_first
        and isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError)
        and await _encrypts(url, limits.handshake_timeout_s)
    ):
        raise UserError(f"the server at {url} encrypts: write https:// in place of http://") from None


def _check_joined(
    status: int, said: str, url: str, *, has_token: bool, is_fedsim: bool, is_first: bool
) -> None:
    """Check the answer to a request to join.

    Args:
        status: Its status.
        said: Its text.
        url: The server's address.
        has_token: Whether a token was shown.
        is_fedsim: Whether a fedsim server has answered.
        is_first: Whether nothing was ever heard of the server.

    Raises:
        UserError: Trying again is of no use.
        ConnectionAbortedError: It may help.
    """
    if status == 200 and is_fedsim:
        return
    if status == 401:
        problem = "does not know this token" if has_token else "asks for a token"
        raise UserError(
            f"the server at {url} {problem}: ask for one made with `fedsim token new`, and give it with "
            "--token or FEDSIM_TOKEN"
        )
    if status == 421:
        raise UserError(
            f"the server at {url} asks for no token, and so answers only who calls it by a loopback name "
            "or address: write 127.0.0.1 or localhost in place of the name, or start it with --tokens"
        )
    if status == 409 and is_fedsim:
        raise UserError(f"the server refuses this process: {said}")
    if status == 400 and said.startswith("join:"):
        raise UserError(
            f"what answers at {url} does not speak this fedsim's protocol ({shortened(said, MOST_SAID)}): "
            "check the address, and install the same version of fedsim on both sides"
        )
    if is_first and status < 500:
        raise UserError(
            f"what answers at {url} is no fedsim server (status {status}): check the address and the port"
        )
    raise ConnectionAbortedError(f"status {status}: {shortened(said)}")


async def _encrypts(url: str, patience_s: float) -> bool:
    """Say whether a server that has closed an unencrypted connection answers an encrypted one."""
    place = urlsplit(url)
    if place.scheme != "http":
        return False
    # Whoever it is, it is told nothing.
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        async with asyncio.timeout(patience_s):
            _, writer = await asyncio.open_connection(place.hostname, place.port or 80, ssl=context)
    except (OSError, TimeoutError):
        return False
    writer.transport.abort()
    return True
