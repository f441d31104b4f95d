import asyncio
import subprocess
import sys
import threading

import pytest

from fedsim.api.interruptible_thread import call, call_async


def blocked(began: threading.Event, ended: list[str]) -> None:
    """Go on until interrupted, in short steps, as a run does."""
    try:
        began.set()
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


SCRIPT = """
import asyncio, os, signal, threading, time
from fedsim.api.interruptible_thread import call
began, ended = threading.Event(), []
def blocked():
    try:
        began.set()
        while True:
            threading.Event().wait(0.001)
    except KeyboardInterrupt:
        ended.append("interrupted")
        raise
def press():
    began.wait(60)
    os.kill(os.getpid(), signal.SIGINT)
async def main():
    threading.Thread(target=press).start()
    try:
        call(blocked)
    except KeyboardInterrupt:
        ended.append("told")
    print(ended)
{run}
"""


@pytest.mark.parametrize(
    "run",
    ["asyncio.run(main())", "loop = asyncio.new_event_loop(); loop.run_until_complete(main()); loop.close()"],
)
def test_control_c_interrupts_the_function_and_then_the_caller(run: str) -> None:
    # A new process whose signals are not ignored, as those of a background job are.
    code = (
        f"import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n{SCRIPT.format(run=run)}"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
    assert done.stdout == "['interrupted', 'told']\n", done.stderr
