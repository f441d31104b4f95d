"""Merges that leave the finite range are refused, and the run goes on."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from fedsim.algorithms.base import Exchange, When
from fedsim.engine.executors.base import ExecutorConfig
from fedsim.engine.executors.threads import PLUGIN as THREADS
from fedsim.errors import JobError
from fedsim.runtime.policies.pacing.synchronous import PLUGIN as SYNCHRONOUS


def test_a_merge_that_leaves_the_finite_range_is_refused_and_the_state_stays(world: Any) -> None:
    @dataclass(frozen=True)
    class State:
        total: Mapping[str, Any]

    async def merge(exchange: str, server: Any, state: Any, replies: Sequence[Any]) -> Any:
        return State({"w": sum((reply.message.values for reply in replies), state.total["w"]) ** 2})

    def answer(client: Any, exchange: str) -> Any:
        # Finite each; in the second round the square of their sum is not.
        return world.word(1e19 if client.round == 2 and client.client else 1.0)

    algorithm = world.Scripted(
        start=lambda server: State({"w": np.zeros(3, np.float32)}), merge=merge, answer=answer
    )
    result, trace = world.play(algorithm, rounds=3)
    reason = "the merge of exchange 'talk' leaves the finite range: State.total['w'] holds NaN or an infinity"
    assert [(row.merged, row.rejected) for row in result.rounds] == [(3, 0), (0, 3), (3, 0)]
    assert result.rejections == {reason: 3}
    assert [record[2:] for record in trace if record[1] == "reject"] == [(k, 1, reason) for k in range(3)]
    # The third round goes on from the first: its merge is the second, and mirrors are back where they were.
    assert [record[4] for record in trace if record[1] == "merge"] == [1, 2]
    assert {diary.mirror for _, dispatch, diary in algorithm.diaries if dispatch == 2} == {0}
    # Nothing that was measured, and no model, is not finite.
    assert result.non_finite is None


@pytest.mark.parametrize(
    "error", [OverflowError("too large"), ZeroDivisionError("no"), FloatingPointError("x")]
)
@pytest.mark.parametrize("in_job", [False, True])
def test_arithmetic_that_fails_in_a_merge_refuses_it(error: Exception, in_job: bool, world: Any) -> None:
    def fail() -> None:
        raise error

    async def merge(exchange: str, server: Any, state: Any, replies: Sequence[Any]) -> Any:
        if in_job:
            await server.call(fail, flops=1.0)
        fail()

    result, _ = world.play(world.Scripted(merge=merge), executor=THREADS(ExecutorConfig()))
    said = f"the merge of exchange 'talk' leaves the finite range: {type(error).__name__}: {error}"
    assert result.rejections == {said: 3}


def test_another_error_in_a_merge_is_none_of_its_values(world: Any) -> None:
    async def merge(exchange: str, server: Any, state: Any, replies: Sequence[Any]) -> Any:
        await server.call(int, "x", flops=1.0)

    with pytest.raises(JobError, match="ValueError"):
        world.play(world.Scripted(merge=merge), executor=THREADS(ExecutorConfig()))


@pytest.mark.parametrize(
    ("when", "rows"), [("opening", [(0, 3, 3), (1, 3, 0)]), ("closing", [(1, 3, 0), (2, 3, 3)])]
)
def test_a_refused_merge_before_or_after_the_rounds_ends_nothing(when: When, rows: Any, world: Any) -> None:
    async def merge(exchange: str, server: Any, state: Any, replies: Sequence[Any]) -> Any:
        return (math.nan,) if exchange == "greet" else state

    algorithm = world.Scripted(
        [
            Exchange("greet", when=when, who="all", reply=world.Word),
            Exchange("bow", when=when, who="answered"),
            Exchange("talk", reply=world.Word),
        ],
        merge=merge,
    )
    result, _ = world.play(algorithm)
    assert [(row.round, row.asked, row.rejected) for row in result.rounds] == rows
    reason = "the merge of exchange 'greet' leaves the finite range: tuple[0] holds NaN or an infinity"
    assert result.rejections == {reason: 3}


def test_background_work_of_a_refused_round_is_given_up(world: Any) -> None:
    async def work(server: Any) -> None:
        await server.call(world.nothing, flops=6.0)

    async def instruct(exchange: str, server: Any, state: Any, cohort: Sequence[int]) -> Any:
        server.background("polish", work(server))
        return state, world.broadcast(cohort, world.word())

    tries = []

    async def merge(exchange: str, server: Any, state: Any, replies: Sequence[Any]) -> Any:
        tries.append(server.round)
        if len(tries) == 1:
            return (math.inf,)
        await server.collect("polish")
        return state

    pacing = SYNCHRONOUS(SYNCHRONOUS.Config(on_failure="repeat"))
    result, _ = world.play(world.Scripted(instruct=instruct, merge=merge), pacing=pacing)
    assert tries == [1, 1]
    assert [(row.asked, row.merged, row.rejected) for row in result.rounds] == [(6, 3, 3)]
