"""Deliveries over sockets that were not received yet."""

from __future__ import annotations

import asyncio
from collections import deque

from fedsim.bus.base import Delivery


class Inbox:
    """A queue of deliveries; it has no room while more than ``max_bytes`` of frames wait."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._waiting: deque[tuple[Delivery, int]] = deque()
        self._reader: asyncio.Future[None] | None = None
        self._room = asyncio.Event()
        self._room.set()
        self._failure: BaseException | None = None
        self.num_bytes = 0

    @property
    def has_room(self) -> bool:
        """Whether reading from sockets may continue."""
        return self._room.is_set()

    async def room(self) -> None:
        """Wait until there may be room."""
        await self._room.wait()

    def put(self, delivery: Delivery, num_bytes: int) -> None:
        """Add a delivery, and wake the receiver."""
        self._waiting.append((delivery, num_bytes))
        self.num_bytes += num_bytes
        if self.num_bytes > self._max_bytes:
            self._room.clear()
        self._wake()

    def fail(self, error: BaseException) -> None:
        """Let :meth:`receive` fail once the queue is empty."""
        self._failure = error
        self._wake()

    async def receive(self) -> Delivery:
        """Wait for the next delivery, in order of arrival."""
        while not self._waiting:
            if self._failure is not None:
                raise self._failure
            if self._reader is not None and not self._reader.done():
                raise RuntimeError("another task waits at this endpoint already: a party has one reader")
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        delivery, num_bytes = self._waiting.popleft()
        self.num_bytes -= num_bytes
        if self.num_bytes <= self._max_bytes:
            self._room.set()
        return delivery

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)
