"""Tasks, errors that reach the loop, and what it refuses."""

import asyncio
import gc
import logging
from collections.abc import Callable

import pytest

from fedsim import clock
from fedsim.clock import VirtualTimeLoop
from fedsim.errors import RunError, VirtualTimeError


def fail(words: str) -> None:
    raise LookupError(words)


def test_unnamed_tasks_are_numbered_from_one_in_every_run() -> None:
    async def names() -> list[str]:
        tasks = [asyncio.create_task(asyncio.sleep(0)), asyncio.create_task(asyncio.sleep(0), name="mine")]
        current = asyncio.current_task()
        assert current is not None
        await asyncio.gather(*tasks)
        return [task.get_name() for task in (current, *tasks)]

    assert clock.run(names()) == clock.run(names()) == ["Task-1", "Task-2", "mine"]


def test_a_callback_that_raises_ends_the_run_with_its_exception(loop: VirtualTimeLoop) -> None:
    loop.call_later(1.0, fail, "of a callback")
    with pytest.raises(LookupError, match="of a callback"):
        loop.run_until_complete(asyncio.sleep(5.0))
    assert loop.time() == 1.0


@pytest.mark.parametrize("exception", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_in_a_callback_or_task_comes_straight_out(
    loop: VirtualTimeLoop, exception: type[BaseException]
) -> None:
    def interrupt() -> None:
        raise exception

    async def main() -> None:
        interrupt()

    loop.call_later(1.0, interrupt)
    with pytest.raises(exception):
        loop.run_until_complete(asyncio.sleep(5.0))
    assert loop.time() == 1.0
    with pytest.raises(exception):
        loop.run_until_complete(main())
    assert loop.run_until_complete(asyncio.sleep(5.0, "goes on")) == "goes on"


def test_an_interrupted_task_that_nobody_awaits_is_not_told_of_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def interrupted() -> None:
        raise KeyboardInterrupt

    async def main() -> None:
        asyncio.create_task(interrupted())  # noqa: RUF006 - the loop holds it until it runs
        await asyncio.Event().wait()

    with pytest.raises(KeyboardInterrupt):
        clock.run(main())
    gc.collect()
    assert caplog.text == ""


def test_an_error_nobody_retrieved_is_logged_and_fails_the_run(caplog: pytest.LogCaptureFixture) -> None:
    async def failing() -> None:
        fail("lost")

    async def main() -> str:
        task = asyncio.create_task(failing())
        await asyncio.sleep(1.0)
        assert task.done()
        return "result"

    with pytest.raises(RunError, match=r"1 error.*LookupError\('lost'\)") as caught:
        clock.run(main())
    assert isinstance(caught.value.__cause__, LookupError)
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "never retrieved" in caplog.text


def test_a_failed_run_raises_its_own_error_not_the_lost_one(collect: Callable[[], int]) -> None:
    async def failing() -> None:
        fail("lost")

    async def main() -> None:
        task = asyncio.create_task(failing())
        await asyncio.sleep(1.0)
        assert task.done()
        raise ValueError("main")

    with pytest.raises(ValueError, match="main"):
        clock.run(main())
    collect()


async def test_futures_and_tasks_carry_on_in_debug_mode() -> None:
    loop = asyncio.get_running_loop()
    loop.set_debug(True)
    try:
        assert sum(await asyncio.gather(asyncio.sleep(1.0, 1), asyncio.sleep(2.0, 2))) == 3
    finally:
        loop.set_debug(False)


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda loop: loop.run_in_executor(None, int), "engine"),
        (lambda loop: loop.add_reader(0, int), "bus"),
        (lambda loop: loop.create_server(int, port=0), "bus"),
        (lambda loop: loop.sock_recv(None, 1), "bus"),
        (lambda loop: loop.getaddrinfo("localhost", 1), "bus"),
        (lambda loop: loop.connect_read_pipe(int, None), "real asyncio loop"),
        (lambda loop: loop.subprocess_exec(int, "true"), "outside the run"),
        (lambda loop: loop.add_signal_handler(2, int), "signal.signal"),
    ],
)
def test_refusals_name_themselves_and_say_what_to_use(
    loop: VirtualTimeLoop, call: Callable[[VirtualTimeLoop], object], hint: str
) -> None:
    name = call.__code__.co_names[0]
    with pytest.raises(VirtualTimeError, match=rf"^{name}\(\) cannot work on the virtual-time loop.*{hint}"):
        call(loop)


def test_nothing_of_asyncios_interface_is_left_unimplemented() -> None:
    bare = {
        name
        for name, member in vars(asyncio.AbstractEventLoop).items()
        if callable(member) and getattr(VirtualTimeLoop, name, None) is member
    }
    assert bare <= {"_timer_handle_cancelled"}


async def test_to_thread_and_streams_are_refused() -> None:
    with pytest.raises(VirtualTimeError, match="run_in_executor"):
        await asyncio.to_thread(int)
    with pytest.raises(VirtualTimeError, match="create_connection"):
        await asyncio.open_connection("localhost", 1)
