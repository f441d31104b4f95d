"""Deadlock and livelock: what the reports say."""

import asyncio
from itertools import count

import pytest

from fedsim import clock
from fedsim.clock import loop
from fedsim.errors import DeadlockError, LivelockError


async def wait_on(event: asyncio.Event) -> None:
    await event.wait()


def test_deadlock_names_time_tasks_stacks_and_objects() -> None:
    async def main() -> None:
        queue: asyncio.Queue[int] = asyncio.Queue()
        waiter = asyncio.create_task(wait_on(asyncio.Event()), name="client 7")
        server = asyncio.create_task(queue.get(), name="server")
        await asyncio.sleep(2.5)
        await waiter
        await server

    messages = []
    for _ in range(2):
        with pytest.raises(DeadlockError) as caught:
            clock.run(main())
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    report = messages[0]
    assert "2.5 s" in report
    assert "3 waiting task(s)" in report
    assert "client 7 waits on <asyncio.locks.Event object [unset, waiters:1]>" in report
    assert "server waits on <Queue" in report
    assert "Task-1 waits on task 'client 7'" in report
    line = wait_on.__code__.co_firstlineno + 1
    assert f"{__file__}:{line} wait_on: await event.wait()" in report
    assert report.index("Task-1 waits") < report.index("client 7 waits")


def test_deadlock_of_many_tasks_is_shortened() -> None:
    async def main() -> None:
        await asyncio.gather(*(asyncio.Event().wait() for _ in range(150)))

    with pytest.raises(DeadlockError, match=r"151 waiting(.|\n)*and 51 more$"):
        clock.run(main())


def test_livelock_names_those_who_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "LIVELOCK_LIMIT", 500)
    monkeypatch.setattr(loop, "_WATCHED_EVENTS", 500)

    async def spin() -> None:
        for _ in count():
            await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.sleep(1.5)
        await asyncio.create_task(spin(), name="spinner")

    with pytest.raises(LivelockError) as caught:
        clock.run(main())
    assert "1.5 s" in str(caught.value)
    assert "more than 500 events" in str(caught.value)
    assert "task 'spinner' (test_livelock_names_those_who_spin.<locals>.spin)" in str(caught.value)
