"""Tasks, and errors that reach the loop."""

import asyncio
import gc
import logging
import threading
from collections.abc import AsyncGenerator, Coroutine
from typing import Any

import pytest

from fedsim import clock
from fedsim.clock import VirtualTimeLoop
from fedsim.errors import RunError


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


def test_a_task_factory_is_honoured(loop: VirtualTimeLoop) -> None:
    made: list[asyncio.Task[Any]] = []

    def factory(of: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any) -> Any:
        made.append(asyncio.Task(coroutine, loop=of, **options))
        return made[-1]

    loop.set_task_factory(factory)
    assert loop.get_task_factory() is factory

    async def main() -> float:
        await loop.create_task(asyncio.sleep(1.0), name="named")
        return loop.time()

    assert loop.run_until_complete(main()) == 1.0
    assert [task.get_name() for task in made] == ["Task-1", "named"]
    loop.set_task_factory(None)
    assert loop.run_until_complete(asyncio.sleep(1.0, "plain")) == "plain"
    assert len(made) == 2
    with pytest.raises(TypeError, match="callable"):
        loop.set_task_factory(3)


def test_a_callback_that_raises_ends_the_run_with_its_exception(loop: VirtualTimeLoop) -> None:
    loop.call_later(1.0, fail, "of a callback")
    with pytest.raises(LookupError, match="of a callback"):
        loop.run_until_complete(asyncio.sleep(5.0))
    assert loop.time() == 1.0


def test_with_a_handler_the_run_goes_on(loop: VirtualTimeLoop) -> None:
    seen: list[str] = []
    loop.set_exception_handler(lambda _, context: seen.append(str(context["exception"])))
    assert loop.get_exception_handler() is not None
    loop.call_later(1.0, fail, "first")
    loop.call_later(2.0, fail, "second")
    loop.run_until_complete(asyncio.sleep(5.0))
    assert seen == ["first", "second"]
    assert loop.unseen_errors == []


def test_a_handler_that_raises_is_reported_too(
    loop: VirtualTimeLoop, caplog: pytest.LogCaptureFixture
) -> None:
    loop.set_exception_handler(lambda _, context: fail("handler"))
    loop.call_later(1.0, fail, "callback")
    loop.run_until_complete(asyncio.sleep(5.0))
    assert "error in the exception handler" in caplog.text
    assert [str(error) for error in loop.unseen_errors] == ["handler"]
    with pytest.raises(TypeError, match="callable"):
        loop.set_exception_handler(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("exception", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_in_a_callback_or_task_comes_straight_out(
    loop: VirtualTimeLoop, exception: type[BaseException]
) -> None:
    def interrupt() -> None:
        raise exception

    async def main() -> None:
        interrupt()

    loop.set_exception_handler(lambda _, context: pytest.fail(str(context)))
    loop.call_later(1.0, interrupt)
    with pytest.raises(exception):
        loop.run_until_complete(asyncio.sleep(5.0))
    assert loop.time() == 1.0
    with pytest.raises(exception):
        loop.run_until_complete(main())
    assert loop.run_until_complete(asyncio.sleep(5.0, "goes on")) == "goes on"


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


def test_a_failed_run_raises_its_own_error_not_the_lost_one() -> None:
    async def failing() -> None:
        fail("lost")

    async def main() -> None:
        task = asyncio.create_task(failing())
        await asyncio.sleep(1.0)
        assert task.done()
        raise ValueError("main")

    with pytest.raises(ValueError, match="main"):
        clock.run(main())
    gc.collect()


async def test_futures_and_tasks_carry_on_in_debug_mode() -> None:
    loop = asyncio.get_running_loop()
    loop.set_debug(True)
    try:
        assert sum(await asyncio.gather(asyncio.sleep(1.0, 1), asyncio.sleep(2.0, 2))) == 3
    finally:
        loop.set_debug(False)


async def test_asynchronous_generators_are_closed() -> None:
    closed: list[int] = []

    async def numbers(start: int) -> AsyncGenerator[int, None]:
        try:
            yield start
        finally:
            await asyncio.sleep(1.0)
            closed.append(start)

    async for _ in numbers(1):
        break  # dropped: closed as soon as its turn comes
    await asyncio.sleep(2.0)
    assert closed == [1]
    kept = [numbers(start) for start in (5, 3, 4)]
    for generator in kept:
        await anext(generator)
    await asyncio.get_running_loop().shutdown_asyncgens()
    assert closed == [1, 5, 3, 4]


async def test_a_generator_that_a_worker_thread_drops_is_closed_at_the_end() -> None:
    closed: list[float] = []

    async def numbers() -> AsyncGenerator[int, None]:
        try:
            yield 1
        finally:
            closed.append(clock.now_s())

    kept = [numbers()]
    await anext(kept[0])
    worker = threading.Thread(target=kept.clear)
    worker.start()
    worker.join()
    await asyncio.sleep(2.0)
    assert closed == []  # when the thread drops it is the host's accident, so nothing may happen then
    await asyncio.get_running_loop().shutdown_asyncgens()
    assert closed == [2.0]
