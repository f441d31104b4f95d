"""Connects a client process to its server, and tells mistakes of the user from faults that may pass."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from urllib.parse import urlsplit

import aiohttp

from fedsim.bus.http.channel import MAX_MESSAGE_BYTES
from fedsim.bus.http.limits import HttpLimits
from fedsim.bus.http.messages import PROTOCOL
from fedsim.bus.http.server import VERSION_HEADER
from fedsim.errors import UserError
from fedsim.quoting import MAX_SHOWN, shortened

_PLAIN = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST")
"""Reasons that OpenSSL gives, depending on its version, for an answer without TLS."""


async def connected(
    http: aiohttp.ClientSession,
    url: str,
    token: str | None,
    tls: ssl.SSLContext | None,
    limits: HttpLimits,
    *,
    is_first: bool,
) -> aiohttp.ClientWebSocketResponse:
    """Return a new connection to a server.

    Raises a UserError where a repetition is of no use. Before the first answer the address may be wrong.
    """
    headers = {VERSION_HEADER: str(PROTOCOL)}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    try:
        async with asyncio.timeout(limits.handshake_timeout_s):
            return await http.ws_connect(
                f"{url}/session",
                headers=headers,
                ssl=tls or True,
                max_msg_size=MAX_MESSAGE_BYTES,
                timeout=aiohttp.ClientWSTimeout(ws_close=1.0),
            )
    except aiohttp.WSServerHandshakeError as error:
        why = _refusal(error, url, token, is_first=is_first)
        if not why:
            raise ConnectionAbortedError(f"status {error.status}") from None
    except aiohttp.ClientError as error:
        if not (why := await _mistake(error, url, limits.handshake_timeout_s, is_first=is_first)):
            raise
    raise UserError(why)


def _refusal(error: aiohttp.WSServerHandshakeError, url: str, token: str | None, *, is_first: bool) -> str:
    """Return an error text for an answer that is no connection; empty where a repetition may help."""
    there, status = f"the server at {url}", error.status
    protocol = None if error.headers is None else error.headers.get(VERSION_HEADER)
    if status == 401:
        problem = "asks for a token" if token is None else "does not know this token (any more)"
        return f"{there} {problem}: ask for one made with `fedsim token new`, and join with it"
    if status == 421:
        return (
            f"{there} asks for no token, and so answers only who calls it by a loopback name or address: "
            "write 127.0.0.1 or localhost in place of the name, or give the server a file of tokens"
        )
    if protocol is not None and protocol != str(PROTOCOL):
        return (
            f"{there} speaks protocol {shortened(protocol)}, this process {PROTOCOL}: install the same "
            "version of fedsim at both sides"
        )
    if is_first and protocol is None and status < 500:
        return (
            f"what answers at {url} is no fedsim server of this version (status {status}): check the address "
            "and the port, and install the same version of fedsim at both sides"
        )
    return ""


async def _mistake(error: aiohttp.ClientError, url: str, timeout_s: float, *, is_first: bool) -> str:
    """Return an error text for a failed request; empty where a repetition may help."""
    there = f"the server at {url}"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return (
            f"{there} does not show a certificate that this process trusts "
            f"({shortened(error.certificate_error, MAX_SHOWN)}): give the certificate of its authority "
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
        and await _encrypts(url, timeout_s)
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
