"""Child processes of Python, and client processes that this process starts and ends.

``python -m`` puts the working folder before the standard library, and so does an empty entry of PYTHONPATH:
then a file of the user's that is called ``statistics.py`` is imported instead of Python's.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self, TypeVar

import fedsim
from fedsim.clock import wait
from fedsim.errors import RunError, UserError

HOME = str(Path(fedsim.__file__).parents[1])
"""The folder in which Python finds fedsim."""


def python(*arguments: str) -> tuple[str, ...]:
    """Return a command that runs Python, without the working folder on its path."""
    return (sys.executable, "-P", *arguments)


def variables() -> dict[str, str]:
    """Return the variables of this process, with fedsim on Python's path."""
    paths = [HOME, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


SHUTDOWN_TIMEOUT_S = 10.0
"""Time for a process to end by itself."""

KEPT_OUTPUT_BYTES = 4096
"""Last bytes of a process's output that are kept for an error."""

T = TypeVar("T")


class ChildProcesses:
    """Processes that run ``fedsim`` commands, as an asynchronous context that ends them.

    The standard input of each is a pipe that closes when this process ends; ``fedsim join --while-fed`` then
    ends, too. Secrets belong in ``environment``, which other users cannot see.
    """

    def __init__(self, commands: Sequence[Sequence[str]], environment: Mapping[str, str]) -> None:
        self._commands = commands
        self._environment = {**variables(), **environment}
        self._processes: list[Process] = []
        self._outputs: list[asyncio.Task[str]] = []

    async def __aenter__(self) -> Self:
        try:
            for command in self._commands:
                # A session of its own: Ctrl-C is for this process, which ends the others.
                process = await asyncio.create_subprocess_exec(
                    *python("-m", "fedsim", *command),
                    stdin=PIPE,
                    stdout=PIPE,
                    stderr=asyncio.subprocess.STDOUT,
                    env=self._environment,
                    start_new_session=True,
                )
                self._processes.append(process)
                self._outputs.append(asyncio.create_task(_last_output(process)))
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
            await asyncio.gather(*(process.wait() for process in self._processes), *self._outputs)

    async def during(self, work: Coroutine[Any, Any, T]) -> T:
        """Do work; an error if a process ends before it."""
        task = asyncio.ensure_future(work)
        ends = [asyncio.ensure_future(process.wait()) for process in self._processes]
        try:
            either: list[asyncio.Future[Any]] = [task, *ends]
            await wait(either, wanted=1)
            if not task.done():
                raise await self._early(next(place for place, end in enumerate(ends) if end.done()))
            return task.result()
        finally:
            for future in (task, *ends):
                future.cancel()
            await asyncio.gather(task, *ends, return_exceptions=True)

    async def ended(self) -> None:
        """Wait until all have ended, for a limited time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(SHUTDOWN_TIMEOUT_S):
                for process in self._processes:
                    await process.wait()

    async def _early(self, number: int) -> RunError | UserError:
        status = self._processes[number].returncode
        output = (await self._outputs[number]).strip()
        if status == 2:
            return UserError(output.removeprefix("fedsim: "))
        command = " ".join(self._commands[number])
        return RunError(f"'fedsim {command}' ended with status {status} in the middle of the run: {output}")


async def _last_output(process: Process) -> str:
    output = b""
    assert process.stdout is not None  # noqa: S101
    while piece := await process.stdout.read(KEPT_OUTPUT_BYTES):
        output = (output + piece)[-KEPT_OUTPUT_BYTES:]
    return output.decode(errors="replace")
