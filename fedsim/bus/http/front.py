"""Where requests to the server go: health for everybody, a WebSocket or blobs for who shows a token.

Everybody means programs. A web page can make its reader's browser send requests to any address, also to
servers that only this machine can reach; so what has an ``Origin``, as the WebSockets of pages and their
uploads do, is refused, and where neither a token nor an address beyond this machine protects a server, what
does not call it by a loopback name or address too.
"""

from __future__ import annotations

import asyncio
import json
import ssl as tls
from collections.abc import Callable
from typing import Any, Protocol

from aiohttp import web

from fedsim.bus.http.access import Access, is_loopback, names_loopback
from fedsim.bus.http.accounts import Accounts
from fedsim.bus.http.blobs import SESSION
from fedsim.bus.http.conversation import Conversation, Server
from fedsim.bus.http.door import Door
from fedsim.bus.http.limits import HttpLimits
from fedsim.bus.http.registry import Registry
from fedsim.bus.http.routes import Routes
from fedsim.bus.http.session import SessionError
from fedsim.bus.http.vestibule import Vestibule

_BLOB = "/blob/"
_MOST_DIGITS = 16


class House(Server, Protocol):
    """What the front needs of the server."""

    is_closing: bool

    def status(self) -> dict[str, Any]:
        """Return what ``GET /health`` tells."""


class Front:
    """Answers every request; whatever goes wrong ends that connection and nothing else.

    Attributes:
        door: Where connections come in.
    """

    def __init__(
        self, server: House, access: Access, limits: HttpLimits, registry: Registry, accounts: Accounts
    ) -> None:
        self.door = Door(self._answer, limits, accounts.reject)
        self._server = server
        self._access = access
        self._limits = limits
        self._registry = registry
        self._accounts = accounts
        self._routes = Routes(limits, registry, accounts)
        self._vestibule: Vestibule | None = None
        self._listener: asyncio.Server | None = None
        self._is_local = False

    async def listen(self, host: str, port: int, context: tls.SSLContext | None) -> int:
        """Let connections in, encrypted if so told; return the port.

        Raises:
            OSError: The address cannot be listened at.
        """
        way_in: Callable[[], asyncio.BaseProtocol] = self.door
        if context is not None:
            way_in = self._vestibule = Vestibule(self.door, context, self._limits.handshake_timeout_s)
        self._is_local = is_loopback(host)
        self._listener = await asyncio.get_running_loop().create_server(way_in, host, port, backlog=512)
        return int(self._listener.sockets[0].getsockname()[1])

    def lock(self) -> None:
        """Let no further connection in."""
        if self._listener is not None:
            self._listener.close()

    async def close(self, grace_s: float) -> None:
        """Close all connections; requests that are being answered have so long."""
        self.lock()
        if self._vestibule is not None:
            await self._vestibule.close()
        self.door.pre_shutdown()
        await self.door.shutdown(grace_s)
        if self._listener is not None:
            await self._listener.wait_closed()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request, whatever it is; nothing is raised but cancellation."""
        try:
            return await self._route(request)
        except SessionError as error:
            self._server.misbehaved(error)
        except TimeoutError:
            self._accounts.reject("slow")
        except (OSError, web.RequestPayloadError):
            pass  # the connection broke
        except Exception as error:
            # Of a connection that broke before a request's body was read, aiohttp makes a RuntimeError.
            if request.transport is not None or not isinstance(error, RuntimeError):
                self._server.failed(error)
        if request.transport is not None:
            request.transport.abort()
        return web.Response(status=400)

    async def _route(self, request: web.BaseRequest) -> web.StreamResponse:
        if "Origin" in request.headers:
            return self._turned_away("origin", 403)
        if self._is_local and self._access.is_open and not names_loopback(request.headers.get("Host", "")):
            return self._turned_away("host", 421)
        path = request.rel_url.path
        if path == "/health" and request.method == "GET":
            response = web.Response(text=json.dumps(self._server.status()), content_type="application/json")
            response.force_close()
            return response
        token = _bearer(request.headers.get("Authorization"))
        granted = self._access.grant(token)
        if granted is None:
            return self._turned_away("access", 401)
        if self._server.is_closing:
            return self._turned_away("closing", 503)
        token = None if self._access.is_open else token
        if path == "/bus" and request.method == "GET":
            if not web.WebSocketResponse().can_prepare(request):
                return self._turned_away("session", 400)
            self.door.known(request)
            return await Conversation(self._server, self._limits).hold(request, granted, token)
        number = path.removeprefix(_BLOB)
        if number == path or not number.isascii() or not number.isdigit() or len(number) > _MOST_DIGITS:
            return self._turned_away("session", 404)
        peer = self._registry.find(request.headers.get(SESSION), token)
        if peer is None:
            return self._turned_away("session", 403)
        self.door.known(request)
        return await self._routes.answer(request, peer, int(number))

    def _turned_away(self, cause: str, status: int) -> web.Response:
        self._accounts.reject(cause, f"status {status}")
        response = web.Response(status=status)
        response.force_close()
        return response


def _bearer(header: str | None) -> str | None:
    scheme, _, token = (header or "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None
