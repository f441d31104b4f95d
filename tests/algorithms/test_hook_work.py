import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from fedsim import clock
from fedsim.algorithms.contexts import Background
from fedsim.algorithms.hook_work import HookWork, repeat
from fedsim.clock import now_ns, sleep_for
from fedsim.engine.cost import Effort
from fedsim.engine.jobs import PastJob
from fedsim.engine.requests import JobRequest, TimedJob
from fedsim.models.flops import Operations


class Engine:
    """Does jobs that take as long as their duration says."""

    def __init__(self) -> None:
        self.done: list[tuple[int, str]] = []

    async def run(self, request: JobRequest, results: Any = None) -> list[Any]:
        await sleep_for(sum(timed.duration_s for timed in request.jobs))
        self.done += [(now_ns(), timed.job.name) for timed in request.jobs]  # type: ignore[union-attr]
        return [None] * len(request.jobs)


class Server:
    """Stands for the context of a hook."""

    def __init__(self, engine: Engine, work: HookWork | None) -> None:
        self.engine, self.work, self._background = engine, work, Background()

    async def job(self, name: str, duration_s: float) -> None:
        request = request_for([[name, 5.0, duration_s]])
        await (self.engine.run(request) if self.work is None else self.work.run(self.engine, request))  # type: ignore[arg-type]

    def background(self, name: str, work: Any) -> None:
        self._background[name] = task = asyncio.get_running_loop().create_task(work)
        if self.work is not None:
            self.work.begin(name, task)

    async def collect(self, name: str) -> Any:
        task = self._background.pop(name)
        return await (task if self.work is None else self.work.collect(name, task))


def request_for(jobs: list[Any]) -> JobRequest:
    timed = [
        TimedJob(PastJob(name), Effort((), Operations(flops), 0.0), duration_s)  # type: ignore[arg-type]
        for name, flops, duration_s in jobs
    ]
    return JobRequest(-1, -1, timed, str)


Hook = Callable[[Server], Awaitable[Any]]


def noted(hook: Hook) -> tuple[HookWork, list[tuple[int, str]]]:
    async def main() -> tuple[HookWork, list[tuple[int, str]]]:
        engine, work = Engine(), HookWork()
        await hook(Server(engine, work))
        work.end()
        return work, engine.done

    return clock.run(main())


async def overlapping(server: Server) -> None:
    async def beside() -> str:
        await server.job("long", 5)
        return "result"

    await server.job("first", 1)
    server.background("beside", beside())
    await server.job("second", 2)
    assert await server.collect("beside") == "result"


def test_the_work_of_a_hook_is_noted_and_takes_the_same_time_again() -> None:
    work, done = noted(overlapping)
    assert work.fault is None
    assert work.steps == [
        [["first", 5.0, 1]],
        ["beside", [[["long", 5.0, 5]]]],
        [["second", 5.0, 2]],
        "beside",
    ]

    async def again() -> list[tuple[int, str]]:
        engine = Engine()
        await repeat(work.steps, engine, Server(engine, None), request_for)  # type: ignore[arg-type]
        assert now_ns() == 6 * 10**9
        return engine.done

    assert clock.run(again()) == done


def test_a_hook_that_sleeps_cannot_be_repeated() -> None:
    async def sleeping(server: Server) -> None:
        await server.job("first", 1)
        await sleep_for(1)

    assert "awaits something else" in str(noted(sleeping)[0].fault)


def test_a_hook_that_does_jobs_side_by_side_cannot_be_repeated() -> None:
    async def parallel(server: Server) -> None:
        await asyncio.gather(server.job("first", 1), server.job("second", 2))

    assert "awaits something else" in str(noted(parallel)[0].fault)
