"""Sleeping, and waiting and its ties."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim import clock


async def test_sleeping_for_and_until() -> None:
    await clock.sleep_for(1.25)
    assert clock.now_ns() == 1_250_000_000
    await clock.sleep_until(3.0)
    assert clock.now_s() == 3.0
    await clock.sleep_until(1.0)
    await clock.sleep_for(-1.0)
    assert clock.now_s() == 3.0


async def test_an_instant_ends_after_its_events_and_jobs_but_before_later_deadlines() -> None:
    seen = list[str]()
    clock.call_after(0, seen.append, "deadline before", event_class=clock.EventClass.DEADLINE)
    asyncio.get_running_loop().call_soon(clock.call_after, 0, seen.append, "event")
    clock.call_after(0, seen.append, "job", event_class=clock.EventClass.JOIN)
    await clock.end_of_instant()
    assert seen == ["event", "job", "deadline before"]
    assert clock.now_ns() == 0


@given(st.lists(st.integers(0, 10**12), max_size=20))
def test_sleeps_add_up_to_the_nanosecond(durations_ns: list[int]) -> None:
    async def main() -> int:
        for duration_ns in durations_ns:
            await clock.sleep_for(duration_ns / 1e9)
        return clock.now_ns()

    assert clock.run(main()) == sum(durations_ns)


@pytest.mark.parametrize("nonsense", [float("nan"), float("inf"), float("-inf")])
async def test_nonsense_is_refused(nonsense: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        await clock.sleep_for(nonsense)
    with pytest.raises(ValueError, match="finite"):
        await clock.sleep_until(nonsense)
    with pytest.raises(ValueError, match="finite"):
        await clock.wait([asyncio.get_running_loop().create_future()], timeout=nonsense)


async def test_a_sleep_of_nothing_lets_the_runnable_go_first() -> None:
    log: list[str] = []
    asyncio.get_running_loop().call_soon(log.append, "other")
    await clock.sleep_for(0.0)
    log.append("sleeper")
    assert log == ["other", "sleeper"]


async def test_a_cancelled_sleeper_leaves_nothing_behind() -> None:
    task = asyncio.create_task(clock.sleep_for(10.0))
    await clock.sleep_for(1.0)
    task.cancel()
    await clock.sleep_for(20.0)
    assert task.cancelled()


async def test_cancelling_a_sleeper_at_the_instant_it_ends() -> None:
    loop = asyncio.get_running_loop()
    tasks: list[asyncio.Task[None]] = []
    loop.call_later(1.0, lambda: tasks[0].cancel())  # submitted before the sleep, so it comes first
    tasks.append(asyncio.create_task(clock.sleep_for(1.0)))
    await clock.sleep_for(2.0)
    assert tasks[0].cancelled()


def sleepers(*durations: float) -> list[asyncio.Task[float]]:
    return [asyncio.create_task(asyncio.sleep(duration, duration)) for duration in durations]


async def test_by_default_all_are_waited_for() -> None:
    tasks = sleepers(3.0, 1.0, 2.0, 4.0)
    assert not await clock.wait(tasks, timeout=2.5)
    assert clock.now_s() == 2.5
    assert [task.done() for task in tasks] == [False, True, True, False]
    assert await clock.wait(tasks)
    assert clock.now_s() == 4.0
    assert await clock.wait(tasks, timeout=1.0)
    assert await clock.wait([], timeout=1.0)
    assert clock.now_s() == 4.0


async def test_what_ends_exactly_at_the_timeout_is_done() -> None:
    tasks = sleepers(2.0, 2.0, 3.0, 3.000000001)
    assert not await clock.wait(tasks, timeout=2.0)
    assert [task.done() for task in tasks] == [True, True, False, False]
    assert await clock.wait(tasks[:3], timeout=1.0)
    assert not await clock.wait(tasks, timeout=0.0)
    assert clock.now_s() == 3.0
    await tasks[3]


async def test_a_past_timeout_lets_this_instant_finish() -> None:
    await clock.sleep_for(5.0)
    assert await clock.wait([asyncio.create_task(clock.sleep_for(0.0))], timeout=-1.0)
    tasks = sleepers(1.0)
    assert not await clock.wait(tasks, timeout=-1.0)
    assert clock.now_s() == 5.0
    await tasks[0]


async def test_as_many_as_are_wanted_are_enough() -> None:
    tasks = sleepers(3.0, 1.0, 2.0)
    for wanted, at_s in ((0, 0.0), (1, 1.0), (1, 1.0), (2, 2.0), (9, 3.0)):
        assert await clock.wait(tasks, wanted=wanted)
        assert clock.now_s() == at_s


async def test_only_those_that_count_are_enough() -> None:
    def counts(task: asyncio.Task[float]) -> bool:
        return task.result() >= 2.0

    tasks = sleepers(3.0, 1.0, 2.0)
    assert not await clock.wait(tasks, wanted=1, counts=counts, timeout=1.5)
    assert await clock.wait(tasks, wanted=1, counts=counts)
    assert clock.now_s() == 2.0
    assert await clock.wait(tasks, wanted=3, counts=counts)  # no more can come
    assert clock.now_s() == 3.0


async def test_failed_and_cancelled_ones_are_done() -> None:
    async def fail() -> None:
        raise LookupError

    tasks = [asyncio.create_task(fail()), asyncio.create_task(asyncio.Event().wait())]
    tasks[1].cancel()
    assert await clock.wait(tasks)
    assert isinstance(tasks[0].exception(), LookupError)


async def test_a_cancelled_wait_cancels_nothing_and_lets_go() -> None:
    tasks = sleepers(3.0)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1.0):
            await clock.wait(tasks, timeout=50.0)
    assert await tasks[0] == 3.0
    await clock.sleep_for(100.0)


def test_everything_works_on_a_real_loop_too() -> None:
    async def main() -> None:
        before = clock.now_ns()
        await clock.sleep_for(0.0)
        await clock.sleep_until(clock.now_s() - 1.0)
        assert await clock.wait(sleepers(0.0), timeout=60.0)
        with pytest.raises(ValueError, match="finite"):
            await clock.sleep_for(float("nan"))
        assert clock.now_ns() >= before
        task = asyncio.create_task(asyncio.Event().wait())
        assert not await clock.wait([task], timeout=0.0)
        task.cancel()
        assert await clock.wait([task])

    asyncio.run(main())


def test_a_real_clock_begins_when_it_is_told() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert clock.now_s() == pytest.approx(loop.time(), abs=1.0)
        clock.start_clock()
        assert 0 <= clock.now_s() < 1.0
        assert 0 <= clock.now_ns() < 10**9
        await asyncio.wait_for(clock.sleep_until(clock.now_s() + 0.001), 10.0)
        clock.start_clock(10**12)
        assert 10**12 <= clock.now_ns() < 10**12 + 10**9

    asyncio.run(main())


async def test_virtual_time_begins_by_itself() -> None:
    with pytest.raises(RuntimeError, match="by itself"):
        clock.start_clock()


def test_there_is_no_time_without_a_loop() -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        clock.now_ns()
    with pytest.raises(RuntimeError, match="no running event loop"):
        clock.now_s()
