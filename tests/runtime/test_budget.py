"""Budgets end a run where they are met. A round takes 5 s: a second down, three of work, a second up."""

from typing import Any

import pytest
from pydantic import ValidationError

from fedsim.algorithms.base import Exchange, Predictor
from fedsim.clock import sleep_for
from fedsim.config import Config
from fedsim.engine.jobs import Score
from fedsim.errors import RunError, UserError
from fedsim.runtime.budget import UntilConfig
from fedsim.runtime.parts import EvaluationConfig
from fedsim.runtime.policies.pacing.asynchronous import Buffered
from fedsim.runtime.policies.pacing.base import Pacing, Rounds
from fedsim.runtime.policies.pacing.synchronous import PLUGIN as SYNCHRONOUS


def until(**budgets: Any) -> UntilConfig:
    return UntilConfig.model_validate(budgets)


def rows(result: Any) -> list[tuple[int, float, int, int]]:
    """Return number, end, and how many dispatches were merged and dropped of each round."""
    return [(row.round, row.ended_at_s, row.merged, row.dropped) for row in result.rounds]


def test_time_ends_a_round_in_its_middle(world: Any) -> None:
    result, trace = world.play(world.Scripted(), rounds=9, until=until(simulated="7 s"))
    assert rows(result) == [(1, 5.0, 3, 0), (2, 7.0, 0, 3)]
    assert (result.simulated_s, result.stopped_by) == (7.0, "simulated")
    assert dict(result.drops) == {"the run ended": 3}
    assert (7_000_000_000, "stop", "simulated") in trace
    assert world.play(world.Scripted(), rounds=9, until=until(simulated="7 s"))[1] == trace


def test_rounds_that_end_by_themselves_are_stopped_by_nothing(world: Any) -> None:
    result, trace = world.play(world.Scripted(), rounds=2, until=until(simulated="10 s"))
    assert (result.simulated_s, result.stopped_by) == (10.0, None)
    assert "stop" not in {kind for _, kind, *_ in trace}
    plain, without = world.play(world.Scripted(), rounds=2)
    assert (trace, result.model_hash) == (without, plain.model_hash)


def test_a_run_without_a_number_of_rounds(world: Any) -> None:
    result, _ = world.play(world.Scripted(), rounds=None, until=until(simulated="21 s"))
    assert [row.round for row in result.rounds] == [1, 2, 3, 4, 5]
    assert result.simulated_s == 21.0


def test_bytes_end_a_run_with_the_frame_that_spends_the_last(world: Any) -> None:
    whole, _ = world.play(world.Scripted(), rounds=1)
    each_way = whole.totals.bytes_down
    assert whole.totals.bytes_up == each_way
    # One and a half rounds: the downloads of the second, and nothing of its work.
    budget = 3 * each_way
    result, _ = world.play(world.Scripted(), rounds=9, until=until(bytes=f"{budget} B"))
    assert (result.totals.bytes_up + result.totals.bytes_down, result.stopped_by) == (budget, "bytes")
    assert rows(result) == [(1, 5.0, 3, 0), (2, 5.0, 0, 3)]


def test_the_first_budget_that_is_met_ends_the_run(world: Any) -> None:
    result, _ = world.play(world.Scripted(), rounds=9, until=until(simulated="7 s", bytes="1 B"))
    assert (result.simulated_s, result.stopped_by) == (0.0, "bytes")


def improving(world: Any) -> Any:
    """Return an executor with which each evaluation of three clients finds a tenth more."""
    seen: list[Any] = []

    def score(samples: Any) -> Score:
        seen.append(samples)
        return Score((len(seen) + 2) // 3, 10, 1.0)

    return world.Oracle(score)


@pytest.mark.parametrize(("every", "last"), [(1, 4), (3, 9)])
def test_an_accuracy_ends_the_round_in_which_it_is_measured(every: int, last: int, world: Any) -> None:
    def models_of(observer: Any, server_state: Any, client_state: Any) -> Any:
        return {"personal": Predictor(observer.initial_model())}

    evaluation = EvaluationConfig(every=every)
    result, _ = world.play(
        world.Scripted(models_of=models_of),
        rounds=99,
        executor=improving(world),
        evaluation=evaluation,
        until=until(accuracy=0.4 if every == 1 else 0.3),
    )
    assert (len(result.rounds), result.stopped_by) == (last, "accuracy")
    assert result.final.mean == pytest.approx(0.4 if every == 1 else 0.3)
    assert result.drops.total() == 0


def test_what_stands_at_the_end_is_measured_and_the_closing_follows(world: Any) -> None:
    exchanges = [Exchange("talk", reply=world.Word), Exchange("part", when="closing", reply=world.Word)]
    algorithm = world.Scripted(exchanges)
    result, _ = world.play(
        algorithm,
        rounds=9,
        executor=world.Oracle(),
        evaluation=EvaluationConfig(every=5),
        until=until(simulated="7 s"),
    )
    assert [(row.round, row.accuracy is not None) for row in result.rounds] == [
        (1, False),
        (2, True),
        (3, True),
    ]
    assert algorithm.noted("merge", "part") == [(3, (0, 1, 2), pytest.approx(12.0, abs=5))]


def test_between_two_rounds_the_last_one_is_measured_in_a_row_of_its_own(world: Any) -> None:
    pacing = SYNCHRONOUS(SYNCHRONOUS.Config.model_validate({"interval": "20 s"}))
    settings = {"rounds": 9, "executor": world.Oracle(), "pacing": pacing, "until": until(simulated="7 s")}
    result, _ = world.play(world.Scripted(), evaluation=EvaluationConfig(every=5), **settings)
    assert [
        (*row, one.accuracy is not None) for row, one in zip(rows(result), result.rounds, strict=True)
    ] == [(1, 5.0, 3, 0, False), (2, 7.0, 0, 0, True)]
    measured, _ = world.play(world.Scripted(), **settings)
    assert [row.round for row in measured.rounds] == [1]


def test_a_merge_under_way_is_merged_into_nothing(world: Any) -> None:
    async def slow(exchange: str, server: Any, state: Any, replies: Any) -> Any:
        await server.call(world.nothing, flops=4.0)
        raise AssertionError("it was not to come to its end")

    result, _ = world.play(world.Scripted(merge=slow), rounds=9, until=until(simulated="7 s"))
    assert rows(result) == [(1, 7.0, 0, 0)]
    assert dict(result.rejections) == {"the run ended": 3}


def test_rounds_that_fail_while_they_are_stopped_fail_the_run(world: Any) -> None:
    class Untidy(Pacing[Config]):
        async def run(self, rounds: Rounds) -> None:
            rounds.begin_round()
            try:
                await sleep_for(100.0)
            finally:
                raise RunError("it cannot stop now")

    until = UntilConfig.model_validate({"simulated": "2 s"})
    with pytest.raises(RunError, match="it cannot stop now"):
        world.play(world.Scripted(), pacing=Untidy(Config()), until=until)


def test_asynchronous_rounds_end_too(world: Any) -> None:
    class Mean(world.Scripted):  # type: ignore[misc]
        discounted = "shares"

    pacing = Buffered(Buffered.Config(concurrency=2, buffer=1))
    result, _ = world.play(Mean(), rounds=None, pacing=pacing, until=until(simulated="12 s"))
    # Two at work at once: four have replied by then, and two are at work.
    assert rows(result) == [(1, 5.0, 1, 0), (2, 5.0, 1, 0), (3, 10.0, 1, 0), (4, 10.0, 1, 0), (5, 12.0, 0, 2)]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({}, "run.until.accuracy: nothing is learned"),
        ({"evaluation": EvaluationConfig(every=0)}, "run.until.accuracy: evaluation.every = 0"),
    ],
)
def test_an_accuracy_that_is_never_measured(changes: Any, fault: str, world: Any) -> None:
    executor = {"executor": world.Oracle()} if changes else {}
    with pytest.raises(UserError) as caught:
        world.play(world.Scripted(), until=until(accuracy=0.5), **executor, **changes)
    assert fault in str(caught.value)


@pytest.mark.parametrize(
    ("budgets", "why"),
    [
        ({}, "it holds no budget"),
        ({"of": "global", "simulated": "1 s"}, "of says which accuracy"),
        ({"accuracy": 1.2}, "accuracy"),
        ({"bytes": 5}, "has no unit"),
        ({"joules": "0 J"}, "energy above zero"),
        ({"simulated": "0 s"}, "simulated"),
    ],
)
def test_budgets_that_say_nothing(budgets: Any, why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        until(**budgets)


def test_budgets_in_words() -> None:
    assert (
        until(accuracy=0.7, simulated="2 h", bytes="1 GB", joules="3 Wh").text
        == "accuracy 0.7 (personal_mean) or 2 h or 1 GB or 10800 J"
    )
