"""Runs the hooks of clients in virtual time, without a task for each."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from fedsim.bus import Delivery
from fedsim.clock import running_loop
from fedsim.engine.engine import RunningRequest
from fedsim.runtime.clients.hook_steps import Turn

if TYPE_CHECKING:
    from fedsim.runtime.clients.host import ClientHost


class VirtualDriver:
    """Serves the deliveries that wait for one client, one after the other.

    Args:
        host: The clients.
        client: The client.
        waiting: Its deliveries. Each is taken out when its reply has left.
    """

    __slots__ = ("_client", "_host", "_is_over", "_running", "_turn", "_waiting")

    def __init__(self, host: ClientHost, client: int, waiting: list[Delivery]) -> None:
        self._host = host
        self._client = client
        self._waiting = waiting
        self._turn: Turn | None = None
        self._running: RunningRequest | None = None
        self._is_over = False
        host.tasks.add(self)
        running_loop().call_soon(self._begin)

    def cancel(self) -> None:
        """Give the work up; the hook is told where the task of a cancelled coroutine would be."""
        if not self._is_over:
            self._finish()
            running_loop().call_soon(self._stop)

    def _begin(self) -> None:
        if self._is_over:
            return
        try:
            self._turn = self._host.turn(self._waiting[0])
        except Exception as error:
            self._fail(error)
        else:
            self._go_on(None, None)

    def _go_on(self, results: list[Any] | None, error: Exception | None) -> None:
        """Let the hook go on, and start the jobs that it asks for, or send its reply."""
        self._running, turn, host = None, self._turn, self._host
        if turn is None or self._is_over:
            return
        try:
            request = turn.go_on(results, error)
            if request is not None:
                self._running = host.contexts.engine.start(request, self._go_on, turn.results)
                return
            departure = host.reply(turn)
        except asyncio.CancelledError:
            self._finish()
            return
        except Exception as raised:
            self._fail(raised)
            return
        self._turn = None
        if departure.has_left:
            self._replied(self._begin)
        else:
            departure.then(lambda: self._replied(self._begin_soon))

    def _replied(self, begin: Any) -> None:
        if self._is_over:
            return
        del self._waiting[0]
        if self._waiting:
            begin()
        else:
            self._finish()

    def _begin_soon(self) -> None:
        running_loop().call_soon(self._begin)

    def _stop(self) -> None:
        """Stop the jobs, and tell the hook."""
        running, turn = self._running, self._turn
        self._running = self._turn = None
        try:
            if running is not None:
                running.stop()
            if turn is not None:
                turn.cancel()
        except Exception as error:
            self._host.tasks.fail(error)

    def _finish(self) -> None:
        self._is_over = True
        self._host.tasks.remove(self)
        self._host.served(self._client, self._waiting)

    def _fail(self, error: Exception) -> None:
        self._finish()
        self._host.tasks.fail(error)
