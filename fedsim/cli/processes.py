"""Client processes on this machine, which live no longer than the run."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, Self, TypeVar

from fedsim.clock import wait
from fedsim.errors import RunError, UserError

ENDING_S = 10.0
"""So long a process may take to end by itself."""

MOST_SAID = 4096
"""Of what a process has said so much is remembered."""

T = TypeVar("T")


class Processes:
    """Processes of fedsim itself, as an asynchronous context: what is left at its end is ended.

    Each has a pipe as its standard input that ends with this process, however that ends: see ``fedsim join``.

    Args:
        commands: Their arguments.
        environment: Variables beside this process's own; here secrets are not seen by other users.
    """

    def __init__(self, commands: Sequence[Sequence[str]], environment: Mapping[str, str]) -> None:
        self._commands = commands
        self._environment = {**os.environ, **environment}
        self._processes: list[Process] = []
        self._said: list[asyncio.Task[str]] = []

    async def __aenter__(self) -> Self:
        try:
            for command in self._commands:
                # A session of its own: Ctrl-C is for this process, which ends the others.
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    "fedsim",
                    *command,
                    stdin=PIPE,
                    stdout=PIPE,
                    stderr=asyncio.subprocess.STDOUT,
                    env=self._environment,
                    start_new_session=True,
                )
                self._processes.append(process)
                self._said.append(asyncio.create_task(_last_words(process)))
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self._processes:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        try:
            await self.ended()
        finally:
            for process in self._processes:
                with suppress(ProcessLookupError):
                    process.kill()
            await asyncio.gather(*(process.wait() for process in self._processes), *self._said)

    async def during(self, work: Coroutine[Any, Any, T]) -> T:
        """Do work, as long as all processes live.

        Raises:
            RunError: One has ended; with what it said last.
            UserError: One has ended because of a mistake of the user's.
        """
        task = asyncio.ensure_future(work)
        ends = [asyncio.ensure_future(process.wait()) for process in self._processes]
        try:
            either: list[asyncio.Future[Any]] = [task, *ends]
            await wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                number = next(place for place, end in enumerate(ends) if end.done())
                raise await self._early(number)
            return task.result()
        finally:
            for one in (task, *ends):
                one.cancel()
            await asyncio.gather(task, *ends, return_exceptions=True)

    async def ended(self) -> None:
        """Wait until all have ended, but not for ever."""
        with suppress(TimeoutError):
            async with asyncio.timeout(ENDING_S):
                for process in self._processes:
                    await process.wait()

    async def _early(self, number: int) -> RunError | UserError:
        status = self._processes[number].returncode
        said = (await self._said[number]).strip()
        if status == 2:
            return UserError(said.removeprefix("fedsim: "))
        command = " ".join(self._commands[number])
        return RunError(f"'fedsim {command}' ended with status {status} in the middle of the run: {said}")


async def _last_words(process: Process) -> str:
    said = b""
    assert process.stdout is not None  # noqa: S101
    while piece := await process.stdout.read(MOST_SAID):
        said = (said + piece)[-MOST_SAID:]
    return said.decode(errors="replace")
