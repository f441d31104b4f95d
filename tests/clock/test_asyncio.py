"""asyncio's own tools on virtual time, and the same program twice."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from fedsim import clock


async def test_queues_events_groups_and_timeouts_work() -> None:
    queue: asyncio.Queue[int] = asyncio.Queue(maxsize=1)
    ready = asyncio.Event()
    got: list[tuple[float, int]] = []

    async def produce() -> None:
        await ready.wait()
        for number in range(3):
            await asyncio.sleep(1.0)
            await queue.put(number)

    async def consume() -> None:
        for _ in range(3):
            number = await queue.get()
            got.append((clock.now_s(), number))

    async with asyncio.TaskGroup() as group:  # noqa: TID251
        group.create_task(produce())
        group.create_task(consume())
        await asyncio.sleep(2.0)
        ready.set()
    assert got == [(3.0, 0), (4.0, 1), (5.0, 2)]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout_at(6.0):
            await queue.get()
    assert clock.now_s() == 6.0


def test_the_same_program_leaves_the_same_trace() -> None:
    step = clock.RecordKind("step", ("client", "number"))

    def program(trace: clock.Trace) -> Coroutine[Any, Any, None]:
        async def client(number: int) -> None:
            for index in range(5):
                await asyncio.sleep((number * 7919 % 13) / 10)
                trace.record(step, number, index)

        async def main() -> None:
            tasks = [asyncio.create_task(client(number)) for number in range(30)]
            for task in tasks:
                task.add_done_callback(lambda task: trace.record(step, tasks.index(task), -1))
            await clock.wait(tasks)

        return main()

    hashes = []
    for _ in range(5):
        trace = clock.Trace()
        clock.run(program(trace))
        hashes.append(trace.hash())
        assert trace.count == 180
    assert len(set(hashes)) == 1
