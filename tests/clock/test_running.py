"""run(): clean ends, Ctrl-C, and the collector's settings."""

import asyncio
import gc
import logging
import signal
import threading
from collections.abc import Callable

import pytest

from fedsim import clock
from fedsim.clock import EventClass, VirtualTimeLoop
from fedsim.errors import DeadlockError, RunError


def current_loop() -> VirtualTimeLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    return loop


def test_run_returns_the_result_and_every_run_starts_at_zero() -> None:
    async def main() -> float:
        before = clock.now_ns()
        await clock.sleep_for(3600.0)
        return clock.now_s() - before

    assert clock.run(main()) == clock.run(main()) == 3600.0


def test_what_is_left_is_cancelled_in_order_and_closed() -> None:
    log: list[str] = []
    loops: list[VirtualTimeLoop] = []

    async def stay(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await clock.sleep_for(1.0)
            log.append(f"{name} at {clock.now_s()}")

    async def main() -> None:
        loops.append(current_loop())
        tasks = [asyncio.create_task(stay(f"stay {number}")) for number in range(12)]
        loops[0].call_later(0.5, log.append, "scheduled")
        await clock.sleep_for(1.0)
        log.append(f"main leaves {len(tasks)}")

    clock.run(main())
    assert log == [
        "scheduled",
        "main leaves 12",
        *(f"stay {number} at 2.0" for number in range(12)),
    ]
    assert loops[0].is_closed()


def test_the_error_comes_out_and_the_rest_is_cleaned_up() -> None:
    cleaned: list[bool] = []

    async def stay() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(True)

    async def main() -> None:
        task = asyncio.create_task(stay())
        await clock.sleep_for(1.0)
        assert not task.done()
        raise LookupError("main")

    with pytest.raises(LookupError, match="main"):
        clock.run(main())
    assert cleaned == [True]


def test_an_error_while_cleaning_up_fails_a_good_run(caplog: pytest.LogCaptureFixture) -> None:
    async def stay() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise LookupError("clean-up")

    async def main() -> None:
        task = asyncio.create_task(stay())
        await clock.sleep_for(1.0)
        assert not task.done()

    with pytest.raises(RunError, match="clean-up"):
        clock.run(main())
    assert "failed while it was cancelled" in caplog.text


async def _fail_beside_a_task_that_never_ends() -> None:
    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.Event().wait()

    task = asyncio.create_task(stubborn())
    await clock.sleep_for(1.0)
    assert not task.done()
    raise LookupError("main")


def test_a_failing_clean_up_does_not_hide_the_error(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(LookupError, match="main") as caught:
        clock.run(_fail_beside_a_task_that_never_ends())
    assert "cleaning up after a failed run failed too" in caplog.text
    assert not isinstance(caught.value, DeadlockError)


def test_a_task_that_never_ends_is_not_told_of_again_when_it_is_deleted(
    caplog: pytest.LogCaptureFixture, collect: Callable[[], int]
) -> None:
    logging.disable()  # a record keeps the traceback, which keeps the task
    try:
        with pytest.raises(LookupError, match="main"):
            clock.run(_fail_beside_a_task_that_never_ends())
    finally:
        logging.disable(logging.NOTSET)
    collect()
    assert caplog.records == []


def test_run_refuses_what_it_cannot_run() -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match="while a loop is running"):
            clock.run(asyncio.sleep(1.0))

    clock.run(main())
    with pytest.raises(TypeError, match="not a coroutine"):
        clock.run(main)  # type: ignore[arg-type]


def test_control_c_comes_straight_out_while_a_join_blocks() -> None:
    cleaned: list[float] = []
    never = threading.Event()

    def join() -> None:
        # The signal is pending when the wait begins, just as if a key had been pressed during it.
        signal.raise_signal(signal.SIGINT)
        never.wait(60.0)

    async def main() -> None:
        current_loop().call_at_ns(2_000_000_000, join, event_class=EventClass.JOIN)
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(clock.now_s())

    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(KeyboardInterrupt):
        clock.run(main())
    assert cleaned == [2.0]


@pytest.mark.parametrize("fails", [False, True])
def test_the_collector_is_quiet_during_a_run_and_restored_after(fails: bool) -> None:
    before = gc.get_threshold(), gc.get_freeze_count()
    during: list[tuple[int, int]] = []

    async def main() -> None:
        during.append((gc.get_threshold()[0], gc.get_freeze_count()))
        if fails:
            raise LookupError

    if fails:
        with pytest.raises(LookupError):
            clock.run(main())
    else:
        clock.run(main())
    assert (gc.get_threshold(), gc.get_freeze_count()) == before
    threshold, frozen = during[0]
    assert threshold > before[0][0]
    assert frozen > 0


def test_someone_elses_freeze_is_left_alone() -> None:
    gc.freeze()
    try:
        clock.run(asyncio.sleep(1.0))
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()


def test_runs_in_two_threads_restore_the_collector_once_both_are_over() -> None:
    before = gc.get_threshold()
    inside, leave = threading.Event(), threading.Event()

    async def outlast() -> None:
        inside.set()
        leave.wait(60.0)

    thread = threading.Thread(target=lambda: clock.run(outlast()))
    thread.start()
    inside.wait(60.0)
    clock.run(asyncio.sleep(1.0))
    still_quiet = gc.get_threshold()
    leave.set()
    thread.join()
    assert still_quiet != before
    assert gc.get_threshold() == before
