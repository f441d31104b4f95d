"""Client processes that this process starts and ends on the same machine."""

from __future__ import annotations

import asyncio
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, Self, TypeVar

from fedsim.clock import wait
from fedsim.errors import RunError, UserError
from fedsim.processes.python_again import python, variables

SHUTDOWN_TIMEOUT_S = 10.0
"""How long a process may take to end by itself."""

KEPT_OUTPUT_BYTES = 4096
"""How many of the last bytes that a process printed are kept, for an error to show."""

T = TypeVar("T")


class ChildProcesses:
    """Processes that run ``fedsim`` commands, as an asynchronous context that ends them when it is left.

    The standard input of each is a pipe. It closes when this process ends, in whatever way; ``fedsim join
    --while-fed`` then ends, too.
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
        """Do work, as long as all processes live."""
        task = asyncio.ensure_future(work)
        ends = [asyncio.ensure_future(process.wait()) for process in self._processes]
        try:
            either: list[asyncio.Future[Any]] = [task, *ends]
            await wait(either, wanted=1)
            if not task.done():
                raise await self._early(next(place for place, end in enumerate(ends) if end.done()))
            return task.result()
        finally:
            for one in (task, *ends):
                one.cancel()
            await asyncio.gather(task, *ends, return_exceptions=True)

    async def ended(self) -> None:
        """Wait until all have ended, but not for ever."""
        with suppress(TimeoutError):
            async with asyncio.timeout(SHUTDOWN_TIMEOUT_S):
                for process in self._processes:
                    await process.wait()

    async def _early(self, number: int) -> RunError | UserError:
        status = self._processes[number].returncode
        said = (await self._outputs[number]).strip()
        if status == 2:
            return UserError(said.removeprefix("fedsim: "))
        command = " ".join(self._commands[number])
        return RunError(f"'fedsim {command}' ended with status {status} in the middle of the run: {said}")


async def _last_output(process: Process) -> str:
    said = b""
    assert process.stdout is not None  # noqa: S101
    while piece := await process.stdout.read(KEPT_OUTPUT_BYTES):
        said = (said + piece)[-KEPT_OUTPUT_BYTES:]
    return said.decode(errors="replace")
