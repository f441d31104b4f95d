"""One WebSocket connection of a session, alike at both sides: what is said on it, and whether it is alive."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol

from fedsim.bus.http.control import encode
from fedsim.bus.http.limits import HttpLimits

_ALIVE = encode("alive")


class Socket(Protocol):
    """What is needed of a WebSocket."""

    async def send_bytes(self, data: bytes) -> None:
        """Send one binary message; wait while too much has not left yet."""


class Link:
    """A connection on which one task writes; control messages go before deliveries.

    Args:
        socket: The WebSocket.
        limits: Its heartbeats and delays.
        had: Returns the number of the last delivery that has arrived, to be acknowledged.
        abort: Breaks the connection at once.

    Attributes:
        had: As given.
        abort: As given.
        is_paused: Whether nothing is read because of this side's own back-pressure.
    """

    def __init__(
        self, socket: Socket, limits: HttpLimits, had: Callable[[], int], abort: Callable[[], None]
    ) -> None:
        self.had = had
        self.abort = abort
        self.is_paused = False
        self._socket = socket
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._control: deque[bytes] = deque()
        self._posted: deque[int] = deque()
        self._wake = asyncio.Event()
        self._acknowledged = 0
        self._ack_timer: asyncio.TimerHandle | None = None
        self._closing = False
        self._heard_at = self._said_at = self._loop.time()

    def say(self, message: bytes) -> None:
        """Put a control message on its way."""
        self._control.append(message)
        self._wake.set()

    def post(self, number: int) -> None:
        """Put a delivery on its way."""
        self._posted.append(number)
        self._wake.set()

    def finish(self, message: bytes) -> None:
        """Say a last message, and end the writer once everything said so far is out."""
        self._acknowledge_now()
        self.say(message)
        self._closing = True
        self._wake.set()

    @property
    def is_finishing(self) -> bool:
        """Whether this side ends the connection."""
        return self._closing

    def heard(self) -> None:
        """Note that the other side has said something."""
        self._heard_at = self._loop.time()

    def acknowledge(self) -> int:
        """Return the number to acknowledge in a delivery that goes out now."""
        self._acknowledged = self.had()
        return self._acknowledged

    def acknowledge_soon(self) -> None:
        """Acknowledge within the delay of the limits, in a message of its own if none goes out before."""
        if self._ack_timer is None:
            self._ack_timer = self._loop.call_later(self._limits.ack_delay_s, self._acknowledge_now)

    def tend(self) -> bool:
        """Say that this side is alive if it has been silent; say whether the other side is."""
        now = self._loop.time()
        if now - self._said_at >= self._limits.heartbeat_s:
            self.say(_ALIVE)
        if self.is_paused:
            self._heard_at = now
        return now - self._heard_at <= self._limits.heartbeat_s * self._limits.heartbeat_misses

    async def write(self, transmit: Callable[[int], Awaitable[None]]) -> None:
        """Write for ever, or until :meth:`finish`.

        Args:
            transmit: Sends the delivery of a number.
        """
        while True:
            while self._control:
                await self._socket.send_bytes(self._control.popleft())
                self._said_at = self._loop.time()
            if self._closing:
                return
            if self._posted:
                await transmit(self._posted.popleft())
                self._said_at = self._loop.time()
                continue
            self._wake.clear()
            await self._wake.wait()

    def close(self) -> None:
        """Stop timers; the connection has ended."""
        if self._ack_timer is not None:
            self._ack_timer.cancel()

    def _acknowledge_now(self) -> None:
        self._ack_timer = None
        if self.had() > self._acknowledged:
            self.say(encode("ack", n=self.acknowledge()))
