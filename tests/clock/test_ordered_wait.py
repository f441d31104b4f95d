"""Waiting for several tasks, in order."""

import asyncio
from asyncio import FIRST_COMPLETED, FIRST_EXCEPTION, Task

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim import clock


async def fail_after(seconds: float) -> None:
    await clock.sleep_for(seconds)
    raise LookupError(f"after {seconds}")


def sleepers(*durations: float) -> list[Task[float]]:
    return [asyncio.create_task(asyncio.sleep(duration, duration)) for duration in durations]


async def test_wait_gives_lists_in_the_order_given() -> None:
    tasks = sleepers(3.0, 1.0, 2.0, 4.0)
    done, pending = await clock.wait(tasks, timeout=2.5)
    assert (done, pending) == ([tasks[1], tasks[2]], [tasks[0], tasks[3]])
    assert clock.now_s() == 2.5
    done, pending = await clock.wait(tasks)
    assert (done, pending) == (tasks, [])
    assert clock.now_s() == 4.0
    assert await clock.wait(tasks, timeout=1.0) == (tasks, [])
    assert clock.now_s() == 4.0


async def test_what_ends_exactly_at_the_timeout_is_done() -> None:
    tasks = sleepers(2.0, 2.0, 3.0)
    done, _ = await clock.wait(tasks, timeout=2.0)
    assert done == tasks[:2]
    done, _ = await clock.wait(tasks, timeout=1.0)
    assert done == tasks


async def test_wait_for_the_first() -> None:
    tasks = sleepers(3.0, 1.0, 2.0)
    done, pending = await clock.wait(tasks, return_when=FIRST_COMPLETED)
    assert (done, pending) == ([tasks[1]], [tasks[0], tasks[2]])
    done, _ = await clock.wait(tasks, return_when=FIRST_COMPLETED)
    assert done == [tasks[1]]
    assert clock.now_s() == 1.0


async def test_wait_for_the_first_exception() -> None:
    tasks: list[Task[float] | Task[None]] = [*sleepers(3.0, 1.0), asyncio.create_task(fail_after(2.0))]
    tasks[1].cancel()
    done, pending = await clock.wait(tasks, return_when=FIRST_EXCEPTION)
    assert (done, pending) == ([tasks[1], tasks[2]], [tasks[0]])
    assert isinstance(tasks[2].exception(), LookupError)
    done, pending = await clock.wait(tasks[:2], return_when=FIRST_EXCEPTION)
    assert (done, pending) == (tasks[:2], [])
    assert clock.now_s() == 3.0


async def test_a_cancelled_wait_cancels_nothing_and_lets_go() -> None:
    tasks = sleepers(3.0)
    with pytest.raises(TimeoutError):
        async with clock.deadline_after(1.0):
            await clock.wait(tasks, timeout=50.0)
    assert await tasks[0] == 3.0
    await clock.sleep_for(100.0)


async def test_a_future_named_twice_counts_once() -> None:
    tasks = sleepers(1.0, 2.0)
    assert await clock.wait([tasks[0], tasks[1], tasks[0]]) == (tasks, [])


async def test_what_has_no_order_or_cannot_be_waited_for_is_refused() -> None:
    tasks = sleepers(1.0)
    with pytest.raises(TypeError, match="no order"):
        await clock.wait(set(tasks))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="no order"):
        clock.as_completed(frozenset(tasks))  # type: ignore[arg-type]
    coroutine = asyncio.sleep(1.0)
    with pytest.raises(TypeError, match="make a task"):
        await clock.wait([coroutine])  # type: ignore[type-var]
    coroutine.close()
    with pytest.raises(ValueError, match="no tasks"):
        await clock.wait([])
    with pytest.raises(ValueError, match="FIRST_COMPLETED"):
        await clock.wait(tasks, return_when="first")
    await tasks[0]


@given(st.lists(st.integers(0, 5), max_size=12))
def test_as_completed_is_by_instant_then_start(durations: list[int]) -> None:
    async def main() -> list[tuple[float, int]]:
        tasks = sleepers(*(duration + 1.0 for duration in durations))
        return [(clock.now_s(), tasks.index(task)) async for task in clock.as_completed(tasks)]

    expected = sorted((duration + 1.0, index) for index, duration in enumerate(durations))
    assert clock.run(main()) == expected


async def test_as_completed_gives_finished_ones_first_and_failed_ones_too() -> None:
    tasks: list[Task[float] | Task[None]] = [*sleepers(4.0, 1.0), asyncio.create_task(fail_after(3.0))]
    await clock.sleep_for(2.0)
    order = [tasks.index(task) async for task in clock.as_completed(tasks)]
    assert order == [1, 2, 0]
    with pytest.raises(LookupError):
        await tasks[2]


async def test_a_consumer_may_stop_early_and_another_start() -> None:
    tasks = sleepers(2.0, 1.0, 3.0)
    async for task in clock.as_completed(tasks):
        assert task is tasks[1]
        break
    assert [task async for task in clock.as_completed(tasks)] == [tasks[1], tasks[0], tasks[2]]


async def test_a_failing_group_cancels_in_the_order_of_creation() -> None:
    cancelled: list[int] = []

    async def wait_for_ever(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(number)

    async def main() -> None:
        async with clock.TaskGroup() as group:
            for number in range(40):
                group.create_task(wait_for_ever(number))
            group.create_task(fail_after(1.0))

    with pytest.raises(ExceptionGroup) as caught:
        await main()
    assert caught.group_contains(LookupError)
    assert cancelled == list(range(40))


async def test_a_group_waits_for_all() -> None:
    async with clock.TaskGroup() as group:
        tasks = [group.create_task(asyncio.sleep(duration, duration)) for duration in (2.0, 1.0)]
    assert [task.result() for task in tasks] == [2.0, 1.0]
    assert clock.now_s() == 2.0
