"""What a hook of the server does in virtual time, so that a run can be repeated without the hook."""

from __future__ import annotations

import asyncio
from typing import Any, TypeAlias

from fedsim.clock import now_ns
from fedsim.engine.engine import Engine, job_values
from fedsim.engine.requests import JobRequest

Steps: TypeAlias = list[Any]
"""What is done, in order: a list of jobs, each with its name, operations and duration in s; a list of a name
and further steps for background work that begins; a name for background work that is collected."""


class HookWork:
    """Notes the work of one hook; made at the instant at which the hook begins.

    Attributes:
        steps: What the hook does.
        fault: Why it could not be repeated; None if it can be.
    """

    def __init__(self) -> None:
        self.steps: Steps = []
        self.fault: str | None = None
        # By task, what it does and the end of its last step. There is one task, but for background work.
        self._of_task: dict[Any, Steps] = {asyncio.current_task(): self.steps}
        self._ended_ns: dict[Any, int] = {asyncio.current_task(): now_ns()}

    async def run(self, engine: Engine, request: JobRequest) -> list[Any]:
        """Do the jobs of a request, and note them."""
        task = self._note([list(job_values(timed)) for timed in request.jobs])
        try:
            return await engine.run(request)
        except Exception as error:
            self.fault = f"a job of the server failed: {error}"
            raise
        finally:
            self._ended_ns[task] = now_ns()

    def begin(self, name: str, task: asyncio.Task[Any]) -> None:
        """Note that background work begins."""
        self._of_task[task] = steps = list[Any]()
        self._ended_ns[task] = now_ns()
        self._note([name, steps])

    async def collect(self, name: str, work: asyncio.Task[Any]) -> Any:
        """Wait for background work, and note that it is collected."""
        task = self._note(name)
        try:
            return await work
        finally:
            self._ended_ns[task] = now_ns()

    def end(self) -> None:
        """Note that the hook has ended."""
        self._check(asyncio.current_task())

    def _note(self, step: Any) -> Any:
        """Add a step of the task at hand; return the task."""
        task = asyncio.current_task()
        self._check(task)
        self._of_task.get(task, self.steps).append(step)
        return task

    def _check(self, task: Any) -> None:
        """Check that between two steps no time has passed, and that no other task has come in."""
        if self._ended_ns.get(task) != now_ns():
            self.fault = self.fault or "a hook of the server awaits something else than calls of its context"


async def repeat(steps: Steps, engine: Engine, background: Any, request: Any) -> None:
    """Let the time pass that a hook has taken.

    Args:
        steps: What it did.
        engine: Where jobs start and end.
        background: Begins and collects background work, as :class:`fedsim.algorithms.contexts.ServerContext`.
        request: Makes a request of the jobs of a step.
    """
    for step in steps:
        if isinstance(step, str):
            await background.collect(step)
        elif isinstance(step[0], str):
            name, inner = step
            background.background(name, repeat(inner, engine, background, request))
        else:
            await engine.run(request(step), [None] * len(step))
