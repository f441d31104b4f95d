import asyncio
from collections.abc import Callable

import pytest

from fedsim import clock
from fedsim.clock import now_s, sleep_for
from fedsim.runtime.tasks import Tasks


def test_all_tasks_end_with_the_main_work_in_the_order_in_which_they_began() -> None:
    ended: list[tuple[str, float]] = []

    async def beside(name: str) -> None:
        try:
            await sleep_for(100)
        finally:
            ended.append((name, now_s()))

    async def main() -> None:
        await sleep_for(2)

    async def program() -> None:
        tasks = Tasks()
        for name in "cab":
            tasks.start(beside(name), name)
        await tasks.until(main())

    clock.run(program())
    assert ended == [("c", 2.0), ("a", 2.0), ("b", 2.0)]


def test_a_task_that_ends_is_forgotten_and_its_name_is_its_own() -> None:
    async def program() -> list[str]:
        tasks = Tasks()
        started = tasks.start(sleep_for(1), "one")
        await tasks.until(sleep_for(2))
        names = [task.get_name() for task in tasks._tasks if isinstance(task, asyncio.Task)]
        return [started.get_name(), *names]

    assert clock.run(program()) == ["one"]


def test_the_first_task_to_fail_ends_the_run(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(after_s: float) -> None:
        await sleep_for(after_s)
        raise LookupError(f"after {after_s} s")

    async def program() -> None:
        tasks = Tasks()
        tasks.start(fail(3.0), "later")
        tasks.start(fail(1.0), "first")
        try:
            await tasks.until(sleep_for(100))
        finally:
            assert now_s() == 1.0

    with pytest.raises(LookupError, match=r"after 1.0 s"):
        clock.run(program())
    assert caplog.records == []


def test_what_the_main_work_raises_comes_out(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        raise LookupError("main")

    async def program() -> None:
        tasks = Tasks()
        tasks.start(sleep_for(100), "beside")
        await tasks.until(main())

    with pytest.raises(LookupError, match="main"):
        clock.run(program())
    assert caplog.records == []


def test_a_failure_while_a_task_is_ended_is_not_lost() -> None:
    async def stubborn() -> None:
        try:
            await sleep_for(100)
        except asyncio.CancelledError:
            raise LookupError("on the way out") from None

    async def program() -> None:
        tasks = Tasks()
        tasks.start(stubborn(), "stubborn")
        await tasks.until(sleep_for(1))

    with pytest.raises(LookupError, match="on the way out"):
        clock.run(program())


def test_the_first_failure_is_the_one_that_is_told(
    caplog: pytest.LogCaptureFixture, collect: Callable[[], int]
) -> None:
    async def fail() -> None:
        await sleep_for(1)
        raise LookupError("first")

    async def main() -> None:
        try:
            await sleep_for(100)
        except asyncio.CancelledError:
            raise ValueError("on the way out") from None

    async def program() -> None:
        tasks = Tasks()
        tasks.start(fail(), "fail")
        await tasks.until(main())

    with pytest.raises(LookupError, match="first"):
        clock.run(program())
    collect()  # a task whose exception nobody has seen complains when it is deleted
    assert caplog.records == []


def test_a_task_may_start_others() -> None:
    begun = []

    async def child() -> None:
        begun.append(now_s())
        await sleep_for(100)

    async def program() -> None:
        tasks = Tasks()

        async def parent() -> None:
            await sleep_for(1)
            tasks.start(child(), "child")

        tasks.start(parent(), "parent")
        await tasks.until(sleep_for(2))

    clock.run(program())
    assert begun == [1.0]


class Callbacks:
    """Work without a task that notes its end."""

    def __init__(self, ended: list[str], name: str) -> None:
        self.note = lambda: ended.append(name)

    def cancel(self) -> None:
        clock.running_loop().call_soon(self.note)


def test_work_without_a_task_ends_among_the_tasks_in_the_order_in_which_it_began() -> None:
    ended: list[str] = []

    async def beside(name: str) -> None:
        try:
            await sleep_for(100)
        finally:
            ended.append(name)

    async def program() -> None:
        tasks = Tasks()
        tasks.start(beside("first"), "first")
        over = Callbacks(ended, "over")
        tasks.add(over)
        tasks.add(Callbacks(ended, "second"))
        tasks.start(beside("third"), "third")
        tasks.remove(over)
        await tasks.until(sleep_for(1))
        assert ended == ["first", "second", "third"]

    clock.run(program())


def test_work_without_a_task_that_fails_ends_the_run() -> None:
    async def program() -> None:
        tasks = Tasks()
        clock.running_loop().call_soon(tasks.fail, LookupError("first"))
        clock.running_loop().call_soon(tasks.fail, LookupError("second"))
        await tasks.until(sleep_for(100))

    with pytest.raises(LookupError, match="first"):
        clock.run(program())


def test_what_a_guarded_function_raises_ends_the_run() -> None:
    taken = list[int]()

    def take(number: int) -> None:
        taken.append(number)
        if number:
            raise ValueError("no use")

    async def program() -> None:
        tasks = Tasks()
        guarded = tasks.guarded(take)
        for number in (0, 1, 2):
            guarded(number)
        await tasks.until(sleep_for(1))

    with pytest.raises(ValueError, match="no use"):
        clock.run(program())
    assert taken == [0, 1, 2]
