"""What a client process does beside reading from a connection; it ends with the connection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from fedsim.bus.http.link import Link


class Beside:
    """Tasks of one connection.

    Args:
        lost: Errors that mean no more than that the connection is lost.
        fail: Is told of any other.
    """

    def __init__(self, lost: tuple[type[Exception], ...], fail: Callable[[Exception], None]) -> None:
        self._lost = lost
        self._fail = fail
        self._tasks: dict[asyncio.Task[None], None] = {}

    def start(self, link: Link, work: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Do something; if it fails the connection ends."""

        async def do() -> None:
            try:
                await work(*args)
            except self._lost:
                link.abort()
            except Exception as error:
                self._fail(error)
                link.abort()

        task = asyncio.get_running_loop().create_task(do())
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def stop(self) -> None:
        """Cancel everything, and wait for its end."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
