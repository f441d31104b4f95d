"""A loop with a clock of fedsim's own; here the host's time is a number, which skips to the next timer."""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.clock import (
    EventClass,
    Timeouts,
    call_after,
    end_of_instant,
    now_ns,
    now_s,
    running_loop,
    sleep_for,
    sleep_until,
    wait,
)
from fedsim.clock.loop import of_thread
from fedsim.clock.paced_loop import PacedLoop

T = TypeVar("T")
S = 1_000_000_000
TURN_S = 1e-7
"""What a turn of the loop takes."""


class SkippingPacedLoop(PacedLoop):
    """Its host takes next to no time, and waits for none."""

    def __init__(self, speed_up: float = 1.0) -> None:
        self.host_s = 1000.0
        super().__init__(speed_up)
        selector: Any = self._selector  # type: ignore[attr-defined]
        self._real_select = selector.select
        selector.select = self._select

    def time(self) -> float:
        return self.host_s

    def _select(self, timeout: float | None) -> Any:
        self.host_s += (timeout or 0) + TURN_S
        return self._real_select(0 if timeout is not None else None)


def paced(main: Callable[[SkippingPacedLoop], Coroutine[Any, Any, T]], speed_up: float = 1.0) -> T:
    with asyncio.Runner(loop_factory=lambda: SkippingPacedLoop(speed_up)) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, SkippingPacedLoop)

        async def whole() -> T:
            loop.start_clock()
            return await main(loop)

        return runner.run(whole())


def close_to(at_ns: int) -> Any:
    """Return what is equal to an instant but for some turns of the loop."""
    return pytest.approx(at_ns, abs=100_000)


# The clock


@pytest.mark.parametrize("speed_up", [0.1, 1.0, 20.0, 1e4])
def test_so_many_emulated_seconds_pass_in_a_real_one(speed_up: float) -> None:
    async def main(loop: SkippingPacedLoop) -> None:
        began_s = loop.host_s
        await asyncio.sleep(0.5)  # asyncio's own timers count real time
        assert loop.host_s - began_s == pytest.approx(0.5)
        assert loop.now_ns == pytest.approx(0.5e9 * speed_up, rel=1e-6)
        await sleep_for(3.0)  # fedsim's count emulated time
        assert loop.host_s - began_s == pytest.approx(0.5 + 3.0 / speed_up)
        assert now_s() == pytest.approx(0.5 * speed_up + 3.0, rel=1e-6)
        assert now_ns() == loop.now_ns

    paced(main, speed_up)


def test_the_clock_starts_at_0_when_it_is_told_to() -> None:
    async def main(loop: SkippingPacedLoop) -> None:
        await asyncio.sleep(7)
        loop.start_clock()
        assert now_ns() == 0
        await sleep_until(2)
        assert now_ns() == close_to(2 * S)

    paced(main)


def test_what_is_set_before_the_clock_starts_counts_from_its_start() -> None:
    async def main(loop: SkippingPacedLoop) -> None:
        heard: list[int] = []
        loop.call_at_ns(3 * S, lambda: heard.append(now_ns()))
        await asyncio.sleep(2)
        loop.start_clock()
        await asyncio.sleep(2.9)
        assert not heard
        await asyncio.sleep(0.2)
        assert heard == [close_to(3 * S)]

    paced(main)


def test_the_loop_is_that_of_fedsims_clock_while_it_runs() -> None:
    async def main(loop: SkippingPacedLoop) -> None:
        assert running_loop() is of_thread.loop is loop  # type: ignore[comparison-overlap]

    paced(main)
    assert of_thread.loop is None


def test_no_time_passes_while_the_clock_stands_still() -> None:
    async def main(loop: SkippingPacedLoop) -> None:
        heard: list[int] = []
        call_after(5, lambda: heard.append(now_ns()))
        await asyncio.sleep(4)
        with loop.stopped_clock():
            stands_ns = now_ns()
            await asyncio.sleep(100)
            assert (now_ns(), heard) == (stands_ns, [])
            with loop.stopped_clock():  # from within
                await asyncio.sleep(100)
            assert (now_ns(), heard) == (stands_ns, [])
            call_after(0.5, lambda: heard.append(now_ns()))  # set meanwhile
            await asyncio.sleep(100)
            assert (now_ns(), heard) == (stands_ns, [])
        assert now_ns() == close_to(stands_ns)
        await sleep_for(2)
        assert heard == [close_to(int(4.5 * S)), close_to(5 * S)]
        assert now_ns() == close_to(6 * S)

    paced(main)


def test_the_clock_goes_on_after_an_error() -> None:
    async def main(loop: SkippingPacedLoop) -> None:
        with pytest.raises(ValueError, match="it"), loop.stopped_clock():
            raise ValueError("it")
        await sleep_for(1)
        assert now_ns() == close_to(S)

    paced(main, 10)


def test_a_timer_that_stops_the_clock_keeps_later_ones_of_its_instant_waiting() -> None:
    async def main(loop: SkippingPacedLoop) -> None:
        heard: list[str] = []
        stops = loop.stopped_clock()
        loop.call_at_ns(S, stops.__enter__)
        loop.call_at_ns(S, heard.append, "after")
        await asyncio.sleep(10)
        assert (heard, now_ns()) == ([], close_to(S))
        stops.__exit__(None, None, None)
        await asyncio.sleep(0)
        await asyncio.sleep(0.001)
        assert heard == ["after"]

    paced(main)


# Timers


def test_timers_of_one_instant_run_by_class_and_then_in_the_order_of_submission() -> None:
    async def main(loop: SkippingPacedLoop) -> None:
        heard: list[str] = []
        for name, event_class in (
            ("deadline", EventClass.DEADLINE),
            ("join", EventClass.JOIN),
            ("first", EventClass.ORDINARY),
            ("second", EventClass.ORDINARY),
            ("join again", EventClass.JOIN),
        ):
            loop.call_at_ns(S, heard.append, name, event_class=event_class)
        loop.call_at_ns(S - 1, heard.append, "before")
        await asyncio.sleep(2)
        assert heard == ["before", "first", "second", "join", "join again", "deadline"]

    paced(main)


def test_a_turn_that_was_taken_before_comes_first() -> None:
    async def main(loop: SkippingPacedLoop) -> None:
        heard: list[str] = []
        turn = loop.take_turn()
        loop.call_at_ns(S, heard.append, "later")
        loop.call_at_ns(S, heard.append, "reserved", turn=turn)
        await asyncio.sleep(2)
        assert heard == ["reserved", "later"]

    paced(main)


@given(
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from(EventClass), st.booleans()), max_size=12),
    st.sampled_from([0.5, 1.0, 64.0]),
)
def test_timers_run_once_in_order_and_not_before_their_instant(
    timers: list[tuple[int, EventClass, bool]], speed_up: float
) -> None:
    """Timers as (instant in s, class, whether it is cancelled)."""

    async def main(loop: SkippingPacedLoop) -> list[int]:
        heard: list[int] = []

        def hear(number: int) -> None:
            assert now_ns() >= timers[number][0] * S
            heard.append(number)

        made = [
            loop.call_at_ns(at_s * S, hear, number, event_class=event_class)
            for number, (at_s, event_class, _) in enumerate(timers)
        ]
        for timer, (*_, is_cancelled) in zip(made, timers, strict=True):
            if is_cancelled:
                timer.cancel()
        await asyncio.sleep(6 / speed_up)
        return heard

    staying = [number for number, (*_, is_cancelled) in enumerate(timers) if not is_cancelled]
    assert paced(main, speed_up) == sorted(staying, key=lambda number: (*timers[number][:2], number))


def test_a_cancelled_timer_does_not_run() -> None:
    async def main(loop: SkippingPacedLoop) -> None:
        heard: list[str] = []
        first = call_after(1, heard.append, "first")
        call_after(2, heard.append, "second")
        at_once = loop.call_at_ns(0, heard.append, "at once")
        for timer in (first, at_once):
            timer.cancel()
            timer.cancel()
            assert timer.cancelled()
        assert first.when() == pytest.approx(1.0, abs=1e-6)
        await sleep_for(3)
        assert heard == ["second"]
        first.cancel()

    paced(main)


def test_a_past_instant_is_now() -> None:
    async def main(loop: SkippingPacedLoop) -> None:
        heard: list[int] = []
        await sleep_for(2)
        loop.call_at_ns(S, lambda: heard.append(now_ns()))
        await asyncio.sleep(0.001)
        assert heard == [close_to(2 * S)]
        await sleep_until(1)
        await sleep_for(-1)
        assert now_ns() < 2.01 * S

    paced(main)


def test_a_timer_that_is_set_by_another_for_the_same_instant_runs_in_its_class() -> None:
    async def main(loop: SkippingPacedLoop) -> None:
        heard: list[str] = []

        def first() -> None:
            heard.append("first")
            loop.call_at_ns(S, heard.append, "set by it")

        loop.call_at_ns(S, first)
        loop.call_at_ns(S, heard.append, "deadline", event_class=EventClass.DEADLINE)
        await asyncio.sleep(2)
        assert heard == ["first", "set by it", "deadline"]

    paced(main)


def test_an_error_of_a_timer_is_reported_and_the_others_run() -> None:
    async def main(loop: SkippingPacedLoop) -> None:
        told: list[Any] = []
        heard: list[str] = []
        loop.set_exception_handler(lambda _, context: told.append(context["exception"]))
        loop.call_at_ns(S, [].pop)
        loop.call_at_ns(S, heard.append, "after")
        await asyncio.sleep(2)
        assert [type(error) for error in told] == [IndexError]
        assert heard == ["after"]

    paced(main)


# What fedsim.clock has


def test_timeouts_expire_in_emulated_time_and_after_the_work_of_their_instant() -> None:
    async def main(loop: SkippingPacedLoop) -> None:
        heard: list[tuple[str, int]] = []
        timeouts = Timeouts[str](2.0, lambda item: heard.append((item, now_ns())))
        timeouts.start("a")
        await sleep_for(1)
        gone, late_ns = timeouts.start("gone"), now_ns() + 2 * S
        timeouts.start("b")
        gone.cancel()
        loop.call_at_ns(late_ns, lambda: heard.append(("work", now_ns())))
        await sleep_for(5)
        assert [item for item, _ in heard] == ["a", "work", "b"]
        assert [at_ns for _, at_ns in heard] == [close_to(at_s * S) for at_s in (2, 3, 3)]

    paced(main, 50)


def test_waiting_ends_at_its_timeout_in_emulated_time() -> None:
    async def main(loop: SkippingPacedLoop) -> None:
        began_s = loop.host_s
        future: asyncio.Future[None] = loop.create_future()
        assert not await wait([future], timeout=10)
        assert loop.host_s - began_s == pytest.approx(1.0)
        call_after(10, future.set_result, None)
        assert await wait([future], timeout=20)
        await end_of_instant()
        assert now_ns() == close_to(20 * S)

    paced(main, 10)


def test_sockets_are_served_meanwhile() -> None:
    async def main(loop: SkippingPacedLoop) -> None:
        one, other = socket.socketpair()
        with one, other:
            one.setblocking(False)
            other.setblocking(False)
            with loop.stopped_clock():
                await loop.sock_sendall(one, b"hello")
                assert await loop.sock_recv(other, 5) == b"hello"

    paced(main)


def test_real_time_passes_on_a_loop_of_its_own() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, PacedLoop)
        loop.start_clock()
        began_s = loop.time()
        await sleep_for(2.0)  # 2 ms
        took_s = loop.time() - began_s
        assert took_s >= 0.002 * (1 - 1e-6)
        assert now_s() >= 2.0
        assert took_s < 1.0  # not 2 s, however slow the host

    with asyncio.Runner(loop_factory=lambda: PacedLoop(1000.0)) as runner:
        runner.run(main())
