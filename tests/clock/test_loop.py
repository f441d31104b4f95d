"""The loop: order, time, joins, and running."""

import asyncio
import threading
import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim import clock
from fedsim.clock import EventClass, VirtualTimeLoop, now_s, running_loop
from fedsim.clock.loop import watched
from fedsim.errors import DeadlockError, LivelockError, VirtualTimeError

SECOND = 1_000_000_000


def run_all(loop: VirtualTimeLoop) -> None:
    """Run until nothing is left."""
    with pytest.raises(DeadlockError):
        loop.run_forever()


# ---- order


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(EventClass)), max_size=40))
def test_events_run_by_instant_then_class_then_submission(schedule: list[tuple[int, EventClass]]) -> None:
    loop, ran = VirtualTimeLoop(), list[tuple[int, EventClass, int]]()
    for number, (when_ns, event_class) in enumerate(schedule):
        loop.call_at_ns(when_ns, ran.append, (when_ns, event_class, number), event_class=event_class)
    run_all(loop)
    assert ran == sorted((when, kind, number) for number, (when, kind) in enumerate(schedule))
    assert loop.events_run == len(schedule)
    loop.close()


@given(st.sets(st.integers(0, 299), max_size=70), st.integers(1, 7))
def test_mass_cancellation_never_changes_the_order(kept: set[int], distinct: int) -> None:
    loop, ran = VirtualTimeLoop(), list[int]()
    timers = [loop.call_at_ns(number % distinct, ran.append, number) for number in range(300)]
    for number, timer in enumerate(timers):
        if number not in kept:
            timer.cancel()
    assert len(loop._heap) <= max(2 * len(kept), len(kept) + 64)
    run_all(loop)
    assert ran == sorted(kept, key=lambda number: (number % distinct, number))
    loop.close()


def test_what_a_timer_was_given_is_free_once_it_has_run(loop: VirtualTimeLoop) -> None:
    class Large:
        pass

    def end(large: Large) -> None:
        loop.call_soon(lambda: is_there.append(given() is not None))

    is_there, large = list[bool](), Large()
    given = weakref.ref(large)
    loop.call_later(1.0, end, large)
    del large
    run_all(loop)
    assert is_there == [False]


def test_consequences_run_before_the_next_scheduled_event(loop: VirtualTimeLoop) -> None:
    ran: list[str] = []

    def first() -> None:
        ran.append("first")
        loop.call_soon(child)

    def child() -> None:
        ran.append("its child")
        loop.call_soon(ran.append, "its grandchild")

    loop.call_at_ns(5, first)
    loop.call_at_ns(5, ran.append, "second")
    run_all(loop)
    assert ran == ["first", "its child", "its grandchild", "second"]


def test_an_earlier_class_scheduled_for_this_very_instant_still_comes_first(loop: VirtualTimeLoop) -> None:
    ran: list[str] = []

    def join() -> None:
        ran.append("join")
        loop.call_at_ns(loop.now_ns, ran.append, "ordinary")

    loop.call_at_ns(5, ran.append, "deadline", event_class=EventClass.DEADLINE)
    loop.call_at_ns(5, join, event_class=EventClass.JOIN)
    run_all(loop)
    assert ran == ["join", "ordinary", "deadline"]


def test_it_is_quiet_until_the_first_event_that_is_not_cancelled(loop: VirtualTimeLoop) -> None:
    assert loop.is_quiet_until(10)
    early, _ = loop.call_at_ns(3, int), loop.call_at_ns(5, int)
    assert [loop.is_quiet_until(when_ns) for when_ns in (2, 3, 4)] == [True, False, False]
    early.cancel()
    assert [loop.is_quiet_until(when_ns) for when_ns in (4, 5)] == [True, False]
    soon = loop.call_soon(int)
    assert not loop.is_quiet_until(0)
    assert loop.is_quiet_until(0, num_runnable=1)
    soon.cancel()
    assert loop.is_quiet_until(0)
    run_all(loop)
    assert loop.now_ns == 5


def test_events_of_a_class_can_be_left_out_of_what_disturbs(loop: VirtualTimeLoop) -> None:
    loop.call_at_ns(3, int, event_class=EventClass.JOIN)
    loop.call_at_ns(5, int)
    asked = [loop.is_quiet_until(when_ns, apart_from=EventClass.JOIN) for when_ns in (3, 4, 5)]
    assert asked == [True, True, False]


def test_what_comes_before_the_next_event_is_told_of_it(loop: VirtualTimeLoop) -> None:
    told: list[object] = []
    loop.before = lambda at_ns, event_class: told.append((loop.now_ns, at_ns, event_class))
    loop.call_at_ns(3, told.append, "join", event_class=EventClass.JOIN)
    loop.call_at_ns(3, told.append, "ordinary")
    loop.call_at_ns(5, told.append, "later")
    run_all(loop)
    assert told == [
        (0, 3, EventClass.ORDINARY),
        "ordinary",
        "join",
        (3, 5, EventClass.ORDINARY),
        "later",
    ]


def test_cancelled_handles_never_run(loop: VirtualTimeLoop) -> None:
    soon, later = loop.call_soon(pytest.fail), loop.call_later(1.0, pytest.fail)
    assert not soon.cancelled()
    assert not later.cancelled()
    for handle in (soon, later, soon, later):
        handle.cancel()
    assert soon.cancelled()
    assert later.cancelled()
    run_all(loop)
    assert loop.now_ns == 0
    assert loop.events_run == 0


def test_cancelling_a_timer_that_ran_is_harmless(loop: VirtualTimeLoop) -> None:
    timers = [loop.call_later(1.0, int) for _ in range(200)]
    run_all(loop)
    for timer in timers:
        timer.cancel()
    assert loop._cancelled_timers == 0


def test_cancelled_timers_are_forgotten_when_their_turn_comes(loop: VirtualTimeLoop) -> None:
    for timer in [loop.call_later(1.0, int) for _ in range(50)]:
        timer.cancel()
    assert loop._cancelled_timers == 50  # too few to be worth a compaction
    run_all(loop)
    assert loop._cancelled_timers == 0


# ---- time


def test_time_is_integer_nanoseconds_from_zero(loop: VirtualTimeLoop) -> None:
    seen: list[tuple[int, float]] = []
    loop.call_soon(lambda: seen.append((loop.now_ns, loop.time())))
    loop.call_later(0.1, lambda: seen.append((loop.now_ns, loop.time())))
    timer = loop.call_later(2e-9, lambda: seen.append((loop.now_ns, loop.time())))
    assert timer.when() == 2e-9
    run_all(loop)
    assert seen == [(0, 0.0), (2, 2e-9), (100_000_000, 0.1)]


@pytest.mark.parametrize("start_s", [1.0e6, 1.68e7, 1.0e9, 1.0e12])
async def test_small_steps_work_at_large_times(start_s: float) -> None:
    await asyncio.sleep(start_s)
    start_ns = clock.now_ns()
    for _ in range(10):
        await asyncio.sleep(1e-6)
    assert clock.now_ns() - start_ns == 10_000
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1.0):
            await asyncio.sleep(10.0)
    assert clock.now_s() == pytest.approx(start_s + 1.0 + 1e-5, abs=1e-3)


def test_the_past_is_now_and_nonsense_is_refused(loop: VirtualTimeLoop) -> None:
    at: list[int] = []
    loop.call_at_ns(7, lambda: loop.call_later(-1.0, lambda: at.append(loop.now_ns)))
    loop.call_at_ns(9, lambda: loop.call_at(0.0, lambda: at.append(loop.now_ns)))
    run_all(loop)
    assert at == [7, 9]
    for nonsense in (float("nan"), float("inf"), -float("inf")):
        with pytest.raises(ValueError, match="finite"):
            loop.call_later(nonsense, int)
        with pytest.raises(ValueError, match="finite"):
            loop.call_at(nonsense, int)


# ---- joins: how an engine waits for real work


async def test_a_blocking_join_runs_between_ordinary_events_and_deadlines() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    log: list[str] = []
    finished = threading.Event()
    result: asyncio.Future[str] = loop.create_future()

    def join() -> None:
        log.append("blocks")
        worker = threading.Thread(target=finished.set)
        worker.start()
        finished.wait()
        worker.join()
        result.set_result("trained")

    async def client() -> None:
        assert await clock.wait([result], timeout=2.0)
        log.append(result.result())

    loop.call_at_ns(2 * SECOND, log.append, "other deadline", event_class=EventClass.DEADLINE)
    loop.call_at_ns(2 * SECOND, join, event_class=EventClass.JOIN)
    loop.call_at_ns(2 * SECOND, log.append, "second join", event_class=EventClass.JOIN)
    task = asyncio.create_task(client())
    await asyncio.sleep(0)
    loop.call_at_ns(2 * SECOND, log.append, "ordinary")
    await asyncio.sleep(3.0)
    await task
    assert log == ["ordinary", "blocks", "trained", "second join", "other deadline"]


def test_a_worker_thread_may_not_schedule(loop: VirtualTimeLoop) -> None:
    refused: list[str] = []

    def in_worker(schedule: Callable[[], object]) -> None:
        try:
            schedule()
        except VirtualTimeError as error:
            refused.append(str(error))

    future = loop.create_future()
    future.add_done_callback(print)
    for schedule in (
        lambda: loop.call_soon(int),
        lambda: loop.call_soon_threadsafe(int),
        lambda: loop.call_later(1.0, int),
        lambda: loop.call_at_ns(1, int),
        lambda: future.set_result(1),
    ):
        worker = threading.Thread(target=in_worker, args=(schedule,))
        worker.start()
        worker.join()
    assert len(refused) == 5
    assert all("engine" in message for message in refused)


def test_the_loop_may_run_in_another_thread_than_it_was_made_in(loop: VirtualTimeLoop) -> None:
    results: list[float] = []

    def in_thread() -> None:
        loop.run_until_complete(asyncio.sleep(1.0))
        results.append(loop.time())

    thread = threading.Thread(target=in_thread)
    thread.start()
    thread.join()
    assert results == [1.0]


# ---- what cannot go on


def test_the_loop_is_usable_after_a_deadlock(loop: VirtualTimeLoop) -> None:
    future = loop.create_future()
    with pytest.raises(DeadlockError):
        loop.run_until_complete(future)
    loop.call_later(1.0, future.set_result, 3)
    assert loop.run_until_complete(future) == 3


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[VirtualTimeLoop]:
    """Yield a loop that allows a hundred events at one instant."""
    monkeypatch.setattr("fedsim.clock.loop.LIVELOCK_LIMIT", 100)
    monkeypatch.setattr("fedsim.clock.loop._WATCHED_EVENTS", 100)
    loop = VirtualTimeLoop()
    yield loop
    loop.close()


def test_livelock_counts_scheduled_events_of_one_instant_too(impatient: VirtualTimeLoop) -> None:

    def again() -> None:
        impatient.call_later(0.0, again)

    again()
    with pytest.raises(LivelockError, match="again"):
        impatient.run_forever()
    assert impatient.events_run == 101


@pytest.mark.parametrize(("events", "raises"), [(100, False), (101, True)])
def test_the_livelock_limit_is_exact_and_starts_anew_with_time(
    impatient: VirtualTimeLoop, events: int, raises: bool
) -> None:
    for instant in (0, 1, 2):
        for _ in range(100 if instant < 2 else events):
            impatient.call_at_ns(instant, int)
    with pytest.raises(LivelockError if raises else DeadlockError):
        impatient.run_forever()
    assert impatient.events_run == 200 + events


# ---- running


def test_stop_lets_what_was_queued_before_it_run(loop: VirtualTimeLoop) -> None:
    ran: list[str] = []
    loop.call_soon(ran.append, "before")
    loop.stop()
    loop.call_soon(ran.append, "after")
    loop.run_forever()
    assert ran == ["before"]
    loop.stop()
    loop.stop()
    loop.run_forever()
    assert ran == ["before", "after"]
    loop.call_soon(loop.stop)
    with pytest.raises(RuntimeError, match="stopped before"):
        loop.run_until_complete(loop.create_future())


def test_state_is_told_and_misuse_refused(loop: VirtualTimeLoop) -> None:
    assert (loop.is_running(), loop.is_closed()) == (False, False)

    async def main() -> None:
        assert loop.is_running()
        assert asyncio.get_running_loop() is loop
        with pytest.raises(RuntimeError, match="already running"):
            loop.run_forever()
        with pytest.raises(RuntimeError, match="another loop"):
            VirtualTimeLoop().run_forever()
        with pytest.raises(RuntimeError, match="running"):
            loop.close()

    loop.run_until_complete(main())
    loop.close()
    loop.close()
    assert loop.is_closed()
    for misuse in (
        lambda: loop.call_soon(int),
        lambda: loop.call_later(1.0, int),
        loop.run_forever,
        loop.stop,
    ):
        with pytest.raises(RuntimeError, match="closed"):
            misuse()
    coroutine = asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="closed"):
        loop.create_task(coroutine)
    coroutine.close()


@pytest.mark.parametrize("debug", [False, True])
def test_asyncio_runner_works_in_debug_mode_too(debug: bool) -> None:
    async def main() -> float:
        assert asyncio.get_running_loop().get_debug() is debug
        left = asyncio.create_task(asyncio.Event().wait())  # the runner cancels it
        await asyncio.sleep(4.0)
        assert not left.done()
        return clock.now_s()

    with asyncio.Runner(loop_factory=VirtualTimeLoop, debug=debug) as runner:
        assert runner.run(main()) == 4.0
        assert runner.run(main()) == 8.0


def test_context_variables_follow_callbacks(loop: VirtualTimeLoop) -> None:
    name: ContextVar[str] = ContextVar("name", default="none")
    seen: list[str] = []
    token = name.set("outer")
    loop.call_soon(lambda: seen.append(name.get()))
    loop.call_later(1.0, lambda: seen.append(name.get()))
    name.reset(token)
    loop.call_soon(lambda: seen.append(name.get()))
    run_all(loop)
    assert seen == ["outer", "none", "outer"]


def test_a_watched_loop_notes_whether_it_is_used() -> None:
    async def main() -> None:
        loop = running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        with watched(loop) as unused:
            pass
        with watched(loop) as used:
            assert now_s() == loop.now_ns / 1e9
        assert (unused.is_used, used.is_used) == (False, True)
        assert running_loop() is loop
        with pytest.raises(KeyError), watched(loop):
            raise KeyError
        assert running_loop() is loop

    clock.run(main())
