"""Opening a WebSocket to the server, and telling a person what trying again would not mend."""

from __future__ import annotations

import asyncio
import ssl
from urllib.parse import urlsplit

import aiohttp

from fedsim.bus.http.control import Control, SessionError, parse
from fedsim.bus.http.limits import HttpLimits
from fedsim.errors import UserError
from fedsim.quoting import MOST_SAID, shortened

_MOST_MESSAGE = 64 << 20
"""Longest WebSocket message from the server: its greeting is one."""
_PLAIN = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST")
"""What OpenSSL says, depending on its version, of an answer that is no TLS."""


async def open_socket(
    http: aiohttp.ClientSession, url: str, limits: HttpLimits, *, is_first: bool
) -> aiohttp.ClientWebSocketResponse:
    """Open a WebSocket.

    Args:
        http: What to send requests with.
        url: The server's address.
        limits: Times.
        is_first: Whether nothing was ever heard of the server, so that the address itself may be wrong.

    Raises:
        UserError: The server asks for a token or does not know this one, or goes by another name, or the two
            sides do not agree about encryption.
        aiohttp.ClientError, OSError, TimeoutError: Trying again may help.
    """
    timeout = aiohttp.ClientWSTimeout(ws_close=min(1.0, limits.stall_timeout_s))
    try:
        async with asyncio.timeout(limits.handshake_timeout_s):
            return await http.ws_connect(
                f"{url}/bus", max_msg_size=_MOST_MESSAGE, compress=0, timeout=timeout
            )
    except aiohttp.WSServerHandshakeError as error:
        if error.status == 401:
            problem = "does not know this token" if "Authorization" in http.headers else "asks for a token"
            raise UserError(
                f"the server at {url} {problem}: ask for one made with `fedsim token new`, and give it with "
                "--token or FEDSIM_TOKEN"
            ) from None
        if error.status == 421:
            raise UserError(
                f"the server at {url} asks for no token, and so answers only who calls it by a loopback name "
                "or address: write 127.0.0.1 or localhost in place of the name, or start it with --tokens"
            ) from None
        if is_first and error.status < 500:
            raise UserError(
                f"what answers at {url} is no fedsim server (status {error.status}): check the address and "
                "the port"
            ) from None
        raise
    except aiohttp.ClientConnectorCertificateError as error:
        raise UserError(
            f"the server at {url} does not show a certificate that this process trusts "
            f"({shortened(error.certificate_error, MOST_SAID)}): give the authority's with --ca, and the "
            "server's address as its certificate names it"
        ) from None
    except aiohttp.ClientConnectorSSLError as error:  # a handshake that is cut off may succeed yet
        if any(sign in str(error) for sign in _PLAIN):
            raise UserError(
                f"the server at {url} does not encrypt: write http:// in place of https://, or start it with "
                "--tls-cert and --tls-key"
            ) from None
        raise
    except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
        if is_first and await _encrypts(url, limits.handshake_timeout_s):
            raise UserError(f"the server at {url} encrypts: write https:// in place of http://") from None
        raise


async def welcome(socket: aiohttp.ClientWebSocketResponse, url: str, limits: HttpLimits) -> Control | None:
    """Return what the server says first; None where the connection has ended.

    Raises:
        UserError: The two sides do not understand each other.
    """
    try:
        async with asyncio.timeout(limits.handshake_timeout_s):
            said = await heard(socket, frozenset({"welcome", "refused", "bye"}))
    except SessionError as error:
        why = str(error)
    else:
        if said is not None or socket.close_code != aiohttp.WSCloseCode.POLICY_VIOLATION:
            return said
        why = "it does not understand this process"
    raise UserError(
        f"what answers at {url} does not speak this fedsim's protocol ({shortened(why, MOST_SAID)}): check "
        "the address, and install the same version of fedsim on both sides"
    )


async def heard(socket: aiohttp.ClientWebSocketResponse, words: frozenset[str]) -> Control | None:
    """Return what the server says next; None once the connection has ended.

    Raises:
        SessionError: It is none of these words, or no message at all.
    """
    message = await socket.receive()
    if message.type is aiohttp.WSMsgType.BINARY:
        return parse(message.data, words)
    if message.type is aiohttp.WSMsgType.TEXT:
        raise SessionError("a text message: all are binary")
    return None


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
