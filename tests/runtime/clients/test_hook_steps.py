"""Hooks go on from one request to the next; what they may not await is refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fedsim.bus import Header
from fedsim.engine.requests import JobRequest
from fedsim.errors import RunError
from fedsim.runtime.clients.hook_steps import HookSteps, Turn, drive


def request(number: int) -> JobRequest:
    return JobRequest(number, 0, [], str)


def turn_of(hook: Any) -> Turn:
    return Turn(Header(-1, 4, 1, "talk", 0, 0), None, None, hook, hook)


def logged(lines: list[Any]) -> Any:
    return lambda event, **values: lines.append((event, values))


async def test_a_hook_goes_on_with_results_and_errors() -> None:
    async def hook() -> Any:
        first = await request(1)
        try:
            await request(2)
        except LookupError as error:
            return [*first, str(error)]

    async def perform(asked: JobRequest) -> list[Any]:
        if asked.client == 2:
            raise LookupError("lost")
        return [asked.client]

    assert await drive(HookSteps(hook, hook), perform) == [1, "lost"]


@pytest.mark.parametrize(
    ("awaited", "told"),
    [
        (lambda: asyncio.sleep(0), "awaited nothing"),
        (lambda: asyncio.sleep(1), "awaited a Future"),
        (lambda: asyncio.gather(asyncio.sleep(1)), "awaited a _GatheringFuture"),
    ],
)
async def test_a_hook_awaits_calls_of_its_context_alone(awaited: Any, told: str) -> None:
    async def local() -> None:
        await awaited()

    steps = HookSteps(local, local)
    with pytest.raises(RunError, match=rf"test_hook_steps.*local {told}.*client\.predict_each"):
        steps.go_on()


def test_a_cancelled_hook_is_told_and_cannot_wait_again() -> None:
    told: list[str] = []

    async def hook() -> None:
        try:
            await request(1)
        except asyncio.CancelledError:
            told.append("cancelled")
            await request(2)
            told.append("went on")

    steps = HookSteps(hook, hook)
    steps.go_on()
    steps.cancel()
    assert told == ["cancelled"]
    with pytest.raises(RuntimeError):
        steps.go_on()


def test_what_has_ended_beforehand_or_not_begun_can_be_given_up() -> None:
    async def hook(turn: Turn) -> Any:
        await request(1)
        return None, "reply"

    turn = turn_of(hook)
    turn_of(hook).cancel()
    turn.go_on_ahead()
    turn.done.append([1])
    assert turn.go_on_ahead() is None
    turn.go_on()
    turn.cancel()


def test_what_went_on_beforehand_is_repeated_step_by_step() -> None:
    lines: list[Any] = []
    began: list[bool] = []

    async def hook(turn: Turn) -> Any:
        began.append(True)
        turn.note(logged(lines), "first")
        results = await request(1)
        turn.note(logged(lines), "second", of=results)
        results = await request(2)
        turn.note(logged(lines), "third")
        return None, results

    turn = turn_of(hook)
    assert turn.go_on_ahead() is not None
    turn.done.append(["a"])
    assert turn.go_on_ahead() is not None
    assert lines == []
    first = turn.go_on()
    assert first is not None
    assert (first.client, turn.results, lines) == (1, ["a"], [("first", {"client": 4})])
    second = turn.go_on(["of the loop, which is the same"])
    assert second is not None
    assert (second.client, turn.results) == (2, None)  # whose jobs have not been done beforehand
    assert lines[-1] == ("second", {"client": 4, "of": ["a"]})
    assert turn.go_on(["b"]) is None
    assert turn.reply == ["b"]
    assert lines[-1] == ("third", {"client": 4})
    assert began == [True]


def test_an_error_is_raised_again_when_its_time_has_come() -> None:
    async def hook(turn: Turn) -> Any:
        await request(1)
        raise LookupError("its own")

    turn = turn_of(hook)
    turn.go_on_ahead()
    turn.done.append([1])
    with pytest.raises(LookupError):
        turn.go_on_ahead()
    assert turn.go_on() is not None
    with pytest.raises(LookupError, match="its own"):
        turn.go_on([1])
