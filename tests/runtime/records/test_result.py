"""What is left when a run ends: rows that sum to the whole, and whether its models are finite."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedsim.algorithms.base import Exchange, Predictor
from fedsim.bus import Ledger
from fedsim.clock import Trace
from fedsim.engine.jobs import ClientSamples, Score
from fedsim.params import Model
from fedsim.runtime.policies.pacing.synchronous import PLUGIN as SYNCHRONOUS
from fedsim.runtime.records.dispatch_table import DispatchTable
from fedsim.runtime.records.result import RunResult
from fedsim.runtime.run import run

# Rows


def _slow(client: Any, exchange: str) -> float:
    return 10.0 if (client.client, exchange) == (0, "talk") else 1.0


def _ended_early(world: Any, algorithm: Any, **told: Any) -> RunResult:
    """Run one round that ends at 6 s, and carries what is late over."""
    pacing = SYNCHRONOUS(SYNCHRONOUS.Config.model_validate({"deadline": "6 s", "late": "carry"}))
    return run(world.make_parts(algorithm, pacing=pacing, client_timeout_s=60.0), **told)


def test_what_the_end_of_the_run_drops_has_a_row_of_its_own(world: Any) -> None:
    # Client 0 answers at 12 s, and the only round ends at its deadline.
    result = _ended_early(world, world.Scripted(work_s=_slow))
    assert [(row.round, row.began_at_s, row.ended_at_s) for row in result.rounds] == [(1, 0, 6), (2, 6, 6)]
    assert [(row.asked, row.merged, row.dropped) for row in result.rounds] == [(3, 2, 0), (0, 0, 1)]
    assert [row.drops for row in result.rounds] == [{}, {"the run ended": 1}]
    assert result.rounds[1].accuracy is None


def test_it_is_the_row_of_the_closing_where_there_is_one(world: Any) -> None:
    algorithm = world.Scripted(
        [Exchange("talk", reply=world.Word), Exchange("part", when="closing", who="all", reply=world.Word)],
        work_s=lambda client, exchange: 10.0 if (client.client, exchange) == (0, "talk") else 1.0,
    )
    result = _ended_early(world, algorithm)
    assert [(row.round, row.asked, row.merged, row.drops) for row in result.rounds] == [
        (1, 3, 2, {}),
        (2, 3, 3, {"the run ended": 1}),
    ]


def test_everybody_is_told_of_all_rows(world: Any) -> None:
    notes: list[Any] = []
    told: list[Any] = []

    class Notes:
        def info(self, event: str, **values: Any) -> None:
            if event == "round":
                notes.append((values["round"], values["dropped"]))

        warning = info

    trace = Trace(keep=True)
    result = _ended_early(world, world.Scripted(work_s=_slow), trace=trace, log=Notes(), watch=told.append)
    assert told == list(result.rounds)
    assert [record[2:] for record in trace.kept if record[1] == "round_end"] == [(1, 3, 2), (2, 0, 0)]
    assert notes == [(1, 0), (2, 1)]


# What is not finite


def _models(world: Any, **values: float) -> Any:
    """Return an algorithm in which clients have models of these values; where they are measured, by name."""
    made = {name: Model("linear", {"w": np.array([1.0, value])}) for name, value in values.items()}
    return world.Scripted(
        models_of=lambda observer, server, client: {name: Predictor(model) for name, model in made.items()}
    )


def test_a_model_that_is_not_finite_is_named(world: Any) -> None:
    result, _ = world.play(_models(world, personal=1.0, teacher=math.inf))
    assert result.non_finite == (
        "at the end the teacher model of client 0 is not finite: Model.params['w'] holds NaN or an infinity; "
        "no evaluation tells since which round"
    )
    assert world.play(_models(world, personal=1.0))[0].non_finite is None


def _losses(*of_rounds: tuple[float, float, float]) -> Any:
    """Return a score of evaluations: the losses of three clients in each round."""
    told = iter([loss for of_round in of_rounds for loss in of_round])
    return lambda samples: Score(1, 2, 2 * next(told) if isinstance(samples, ClientSamples) else 2.0)


def test_the_first_sign_is_the_first_loss_that_is_no_number(world: Any) -> None:
    nan = math.nan
    oracle = world.Oracle(_losses((1.0, 1.0, 1.0), (1.0, 1.0, nan), (1.0, nan, 1.0)))
    assert world.play(world.Scripted(), executor=oracle, rounds=3)[0].non_finite == (
        "at the end the loss of client 1 is nan; the first sign of it, in round 2: "
        "the loss of client 2 is nan"
    )


def test_a_run_that_recovers_is_finite(world: Any) -> None:
    oracle = world.Oracle(_losses((math.inf, 1.0, 1.0), (1.0, 1.0, 1.0)))
    result, _ = world.play(world.Scripted(), executor=oracle, rounds=2)
    assert result.non_finite is None
    assert result.rounds[0].accuracy.non_finite == "the loss of client 0 is inf"


def test_a_refused_merge_is_a_sign_too(world: Any) -> None:
    async def merge(exchange: str, server: Any, state: Any, replies: Any) -> Any:
        return (math.inf,) if server.round == 2 else state

    algorithm = _models(world, personal=math.nan)
    algorithm.hooks["merge"] = merge
    result, _ = world.play(algorithm, rounds=3)
    assert (
        "first sign of it, in round 2: the merge of exchange 'talk' leaves the finite range"
        in result.non_finite
    )


def test_a_reply_that_alone_is_rejected_is_none(world: Any) -> None:
    algorithm = _models(world, personal=math.nan)
    algorithm.answer = lambda client, exchange: world.word(math.nan)
    result, _ = world.play(algorithm)
    assert result.rejections == {"values holds NaN or an infinity": 3}
    assert result.non_finite.endswith("no evaluation tells since which round")


def test_the_loss_on_the_global_test_set_counts(world: Any) -> None:
    def score(samples: Any) -> Score:
        return Score(1, 2, 1.0 if hasattr(samples, "client") else math.inf)

    result, _ = world.play(world.Scripted(), executor=world.Oracle(score))
    assert result.non_finite.startswith("at the end the loss on the global test set is inf;")


def test_clients_without_samples_have_no_loss(world: Any) -> None:
    oracle = world.Oracle(lambda samples: Score(0, 0, 0.0))
    result, _ = world.play(world.Scripted(), executor=oracle)
    assert np.isnan(result.final.losses).all()
    assert result.non_finite is None


# What is no success though it came to its end


@pytest.mark.parametrize(
    ("asked", "merged", "rejected", "dropped", "said"),
    [
        (3, 1, {"rubbish": 2}, {}, None),
        (0, 0, {}, {}, None),
        (
            *(3, 0, {"rubbish": 2}, {"timeout": 1}),
            "no reply was ever merged: all that came were rejected (2: rubbish)",
        ),
        (
            *(3, 0, {}, {"timeout": 1, "left": 2}),
            "no reply was ever merged: none came in time (2: left, 1: timeout)",
        ),
    ],
)
def test_a_run_that_has_merged_nothing_has_failed(
    asked: int, merged: int, rejected: dict[str, int], dropped: dict[str, int], said: str | None
) -> None:
    by_client = {"asked": np.array([0, asked]), "merged": np.array([0, merged])}
    table, drops, rejections = DispatchTable(Trace()), Counter(dropped), Counter(rejected)
    result = RunResult(1.0, (), by_client, Ledger(), table, drops, rejections, "", "")
    assert result.failure == said
    assert replace(result, non_finite="a loss is nan").failure == "a loss is nan"
