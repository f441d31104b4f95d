"""The observer's questions to clients, from the client process's side."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from fedsim.bus.http.limits import HttpLimits
from fedsim.bus.http.link import Link
from fedsim.bus.http.session import encode, sendable

Prober = Callable[[int, bytes], Awaitable[bytes]]
"""Answers the observer's question to a client."""


class Probing:
    """Answers questions, a few at a time, in pieces that fit into messages.

    Attributes:
        handler: Knows the answers; None while nobody does.
    """

    def __init__(self, limits: HttpLimits) -> None:
        self.handler: Prober | None = None
        self._limits = limits
        self._slots = asyncio.Semaphore(limits.in_flight_uploads)

    async def answer(self, link: Link, number: int, client: int, question: bytes) -> None:
        """Answer a question, or say why that cannot be."""
        async with self._slots:
            try:
                if self.handler is None:
                    raise RuntimeError("nobody answers probes here")
                answer = await self.handler(client, question)
            except Exception as error:
                link.say(encode("fault", id=number, why=sendable(f"{type(error).__name__}: {error}")))
                return
            piece = self._limits.small_frame_bytes
            for at in range(0, max(len(answer), 1), piece):
                link.say(encode("told", id=number, at=at, of=len(answer)) + answer[at : at + piece])
