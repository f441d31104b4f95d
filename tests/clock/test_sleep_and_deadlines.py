"""Sleeping, and deadlines and their ties."""

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
        clock.deadline_after(nonsense)
    with pytest.raises(ValueError, match="finite"):
        clock.deadline_at(nonsense)


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


async def test_work_that_ends_exactly_at_the_deadline_counts() -> None:
    async with clock.deadline_at(2.0) as deadline:
        await clock.sleep_for(2.0)
    assert not deadline.expired()
    async with clock.deadline_after(2.0) as deadline:
        await clock.sleep_for(1.0)
        await clock.sleep_for(1.0)
    assert not deadline.expired()
    await clock.sleep_for(10.0)


async def test_a_nanosecond_later_does_not() -> None:
    with pytest.raises(TimeoutError, match="deadline"):
        async with clock.deadline_after(2.0) as deadline:
            await clock.sleep_for(2.000000001)
    assert deadline.expired()
    assert clock.now_s() == 2.0


async def test_a_past_deadline_lets_this_instant_finish() -> None:
    await clock.sleep_for(5.0)
    async with clock.deadline_at(1.0):
        await asyncio.sleep(0)
        await clock.sleep_for(0.0)
    with pytest.raises(TimeoutError):
        async with clock.deadline_at(1.0):
            await clock.sleep_for(1.0)
    assert clock.now_s() == 5.0


async def test_only_the_deadline_that_expired_raises() -> None:
    outer, inner = clock.deadline_after(1.0), clock.deadline_after(2.0)
    with pytest.raises(TimeoutError):
        async with outer, inner:
            await clock.sleep_for(5.0)
    assert (outer.expired(), inner.expired()) == (True, False)
    async with clock.deadline_after(9.0) as outer:
        with pytest.raises(TimeoutError):
            async with clock.deadline_after(2.0) as inner:
                await clock.sleep_for(5.0)
        await clock.sleep_for(1.0)
    assert (outer.expired(), inner.expired()) == (False, True)
    current = asyncio.current_task()
    assert current is not None
    assert current.cancelling() == 0


async def test_anothers_cancellation_goes_through_a_deadline() -> None:
    async def work() -> None:
        async with clock.deadline_after(5.0):
            await clock.sleep_for(10.0)

    task = asyncio.create_task(work())
    await clock.sleep_for(1.0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_errors_under_an_expired_deadline_stay_themselves() -> None:
    async def work() -> None:
        try:
            await clock.sleep_for(5.0)
        finally:
            raise LookupError("in the clean-up")

    with pytest.raises(LookupError, match="in the clean-up"):
        async with clock.deadline_after(1.0):
            await work()


async def test_a_deadline_is_used_once() -> None:
    deadline = clock.deadline_after(1.0)
    async with deadline:
        pass
    with pytest.raises(RuntimeError, match="already"):
        async with deadline:
            pass


def test_everything_works_on_a_real_loop_too() -> None:
    async def main() -> None:
        before = clock.now_ns()
        await clock.sleep_for(0.0)
        await clock.sleep_until(clock.now_s() - 1.0)
        async with clock.deadline_after(60.0):
            await clock.sleep_for(0.0)
        with pytest.raises(TimeoutError):
            async with clock.deadline_at(clock.now_s() - 1.0):
                await asyncio.Event().wait()
        with pytest.raises(ValueError, match="finite"):
            await clock.sleep_for(float("nan"))
        assert clock.now_ns() >= before
        task = asyncio.create_task(asyncio.Event().wait())
        assert await clock.wait([task], timeout=0.0) == ([], [task])
        task.cancel()
        assert [done async for done in clock.as_completed([task])] == [task]

    asyncio.run(main())


def test_a_real_clock_begins_when_it_is_told() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert clock.now_s() == pytest.approx(loop.time(), abs=1.0)
        clock.start_clock()
        assert 0 <= clock.now_s() < 1.0
        assert 0 <= clock.now_ns() < 10**9
        with pytest.raises(TimeoutError):
            async with clock.deadline_at(clock.now_s() + 0.001):
                await asyncio.Event().wait()
        await asyncio.wait_for(clock.sleep_until(clock.now_s() + 0.001), 10.0)

    asyncio.run(main())


async def test_virtual_time_begins_by_itself() -> None:
    with pytest.raises(RuntimeError, match="by itself"):
        clock.start_clock()


def test_there_is_no_time_without_a_loop() -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        clock.now_ns()
    with pytest.raises(RuntimeError, match="no running event loop"):
        clock.now_s()
