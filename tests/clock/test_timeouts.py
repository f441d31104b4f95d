from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from fedsim import clock
from fedsim.clock import EventClass, Timeout, Timeouts, VirtualTimeLoop, call_after, now_ns, sleep_for
from fedsim.clock.loop import of_thread


@given(st.lists(st.tuples(st.integers(0, 3), st.none() | st.integers(0, 12)), max_size=20))
def test_each_expires_where_a_timer_of_its_own_would(starts: list[tuple[int, int | None]]) -> None:
    """Starts wait so many ns after the one before; some are cancelled so many ns after they began."""

    def events(own_timers: bool) -> list[tuple[int, str]]:
        seen: list[tuple[int, str]] = []

        def note(what: str) -> None:
            seen.append((now_ns(), what))

        async def main() -> None:
            timeouts = Timeouts(5e-9, note)
            for number, (after_ns, cancelled_after_ns) in enumerate(starts):
                await sleep_for(after_ns * 1e-9)
                if own_timers:
                    cancel = call_after(5e-9, note, f"{number}", event_class=EventClass.DEADLINE).cancel
                else:
                    timeout = timeouts.start(f"{number}")

                    def cancel(timeout: Timeout[str] = timeout) -> None:
                        timeout.cancel()

                # A deadline of the same instant, between this timeout and the next one.
                call_after(5e-9, note, f"deadline {number}", event_class=EventClass.DEADLINE)
                if cancelled_after_ns is not None:
                    call_after(cancelled_after_ns * 1e-9, cancel)
            await sleep_for(100e-9)

        clock.run(main())
        return seen

    assert events(own_timers=False) == events(own_timers=True)


def test_a_crowd_has_one_timer() -> None:
    async def main() -> tuple[int, int]:
        loop = of_thread.loop
        assert isinstance(loop, VirtualTimeLoop)
        timeouts = Timeouts(1.0, print)
        started = [timeouts.start(number) for number in range(1000)]
        scheduled = len(loop._heap)
        for timeout in started:
            timeout.cancel()
            timeout.cancel()  # harmless
        await sleep_for(2)
        return scheduled, len(timeouts._queue)

    assert clock.run(main()) == (1, 0)


async def test_on_a_real_loop_too() -> None:
    expired: asyncio.Queue[str] = asyncio.Queue()
    timeouts = Timeouts(0.001, expired.put_nowait)
    timeouts.start("cancelled").cancel()
    timeouts.start("one")
    timeouts.start("two")
    assert [await expired.get(), await expired.get()] == ["one", "two"]
