from __future__ import annotations

import asyncio
import threading

import pytest

from fedsim.api.threads import call, call_async


def blocked(began: threading.Event, ended: list[str]) -> None:
    """Go on until interrupted, in short steps, as a run does."""
    began.set()
    try:
        while True:
            threading.Event().wait(0.001)
    except KeyboardInterrupt:
        ended.append("interrupted")
        raise


def fail() -> None:
    raise ValueError("no")


def test_without_a_loop_the_function_runs_in_this_thread() -> None:
    assert call(threading.get_ident) == threading.get_ident()


async def test_inside_a_loop_it_runs_in_another() -> None:
    assert call(threading.get_ident) != threading.get_ident()
    assert call(lambda: asyncio.run(asyncio.sleep(0, "done"))) == "done"


async def test_errors_come_out() -> None:
    with pytest.raises(ValueError, match="no"):
        call(fail)
    with pytest.raises(ValueError, match="no"):
        await call_async(fail)


async def test_the_callers_loop_goes_on_meanwhile() -> None:
    began, go_on = threading.Event(), threading.Event()

    def waiting() -> str:
        began.set()
        assert go_on.wait(60)
        return "done"

    task = asyncio.create_task(call_async(waiting))
    await asyncio.to_thread(began.wait, 60)
    go_on.set()
    assert await task == "done"


async def test_cancelling_interrupts_the_function_before_it_ends() -> None:
    began, ended = threading.Event(), list[str]()
    task = asyncio.create_task(call_async(lambda: blocked(began, ended)))
    await asyncio.to_thread(began.wait, 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["interrupted"]


async def test_an_interrupt_of_the_caller_interrupts_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    began, ended = threading.Event(), list[str]()
    join = threading.Thread.join

    def interrupted_join(self: threading.Thread, timeout: float | None = None) -> None:
        monkeypatch.setattr(threading.Thread, "join", join)
        assert began.wait(60)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "join", interrupted_join)
    with pytest.raises(KeyboardInterrupt):
        call(lambda: blocked(began, ended))
    assert ended == ["interrupted"]
