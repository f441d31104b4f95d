"""Losses that clients tell: how they are measured, how they travel, and which algorithms have none."""

from collections.abc import Sequence
from math import inf, log
from typing import Any

import numpy as np
import pytest

from fedsim.algorithms.base import Algorithm, Exchange
from fedsim.config import Config
from fedsim.errors import RunError
from fedsim.params import Array, Model, Tree
from fedsim.rng import Key
from fedsim.runtime import told_losses
from fedsim.runtime.policies.pacing.asynchronous import Buffered
from fedsim.runtime.policies.selectors.base import Candidates, Fact, LossMeasure, Selector
from fedsim.runtime.run import kinds_of
from fedsim.runtime.told_losses import ToldLoss, sample_losses, telling_kind, told
from fedsim.wire import Kinds, Message, ModelUpdate, decode, message, pack


class Asking(Selector[Config]):
    """Asks clients 0 and 1 (or whom it is told to) and takes all who have answered."""

    def __init__(
        self, *, asks: bool = True, within_s: float | None = None, whom: Sequence[int] = (0, 1)
    ) -> None:
        super().__init__(Config())
        self._asks, self._within_s, self._whom = asks, within_s, np.array(whom)
        self.seen: list[tuple[list[int], list[float]]] = []

    @property
    def wants(self) -> tuple[Fact, ...]:
        return ("losses",)

    @property
    def measure(self) -> LossMeasure:
        return LossMeasure()

    @property
    def asks(self) -> bool:
        return self._asks

    @property
    def answer_within_s(self) -> float | None:
        return self._within_s

    def asked(self, candidates: Candidates, count: int, key: Key) -> Array:
        return self._whom

    def select(self, candidates: Candidates, count: int, key: Key) -> Array:
        self.seen.append((candidates.clients.tolist(), candidates.known("losses").tolist()))
        return candidates.clients


class InTurns(Asking):
    """Asks all, and takes these, one at each selection."""

    def __init__(self, *turns: int) -> None:
        super().__init__()
        self._turns = list(turns)

    def asked(self, candidates: Candidates, count: int, key: Key) -> Array:
        return candidates.clients

    def select(self, candidates: Candidates, count: int, key: Key) -> Array:
        super().select(candidates, count, key)
        return np.array([self._turns.pop(0)]) if len(candidates.clients) else candidates.clients


def with_models(scripted: Any) -> Any:
    """Let an algorithm's clients go on with the start model, and be sent a word when they are asked."""

    async def own_model(client: Any, state: Any, message: Any) -> Model:
        model: Model = client.initial_model()
        return model

    async def send_last(server: Any, state: Any, cohort: Sequence[int]) -> Any:
        return state, {client: scripted.say(server, client) for client in cohort}

    made = type("Scripted", (type(scripted),), {"own_model": staticmethod(own_model)})
    scripted.__class__, scripted.send_last = made, send_last
    return scripted


def test_losses_of_samples() -> None:
    outputs = np.array([[0.0, 0.0], [0.0, log(3)], [1000.0, 0.0]])
    assert sample_losses(outputs, np.array([0, 1, 1])) == pytest.approx([log(2), log(4 / 3), 1000.0])
    targets = np.array([1.0, 3.0], np.float32)
    assert sample_losses(np.array([[0.5], [1.0]]), targets).tolist() == [0.25, 4.0]


def test_what_is_told_is_a_loss_or_unknown() -> None:
    assert told(ToldLoss(0.5)) == 0.5
    assert told(None) is None
    for nonsense in (None, -1.0, 1e31):
        assert np.isnan(told(ToldLoss(nonsense)))  # type: ignore[arg-type]


@message("remark")
class Remark(Message):
    """A message without arrays, whose frame is not padded."""

    number: int


def test_a_reply_that_tells_a_loss_is_the_reply_with_a_number_more() -> None:
    kind = telling_kind(Remark)
    assert kind is telling_kind(Remark)
    telling = kind(number=7, told_loss=0.25)  # type: ignore[call-arg]
    assert isinstance(telling, Remark)
    route = {"sender": 1, "receiver": -1, "round": 1, "exchange": "train"}
    frames = [pack(one).frame(**route) for one in (Remark(7), telling)]  # type: ignore[arg-type]
    # The name takes ten bytes, the number nine, and the kind is longer by "+loss".
    assert len(frames[1]) - len(frames[0]) == 10 + 9 + 5
    _, again = decode(frames[1].join(), Kinds((kind,)))
    assert told(again) == 0.25


def test_the_kinds_of_a_run_are_those_that_its_selector_needs(world: Any) -> None:
    usual = kinds_of(world.make_parts(Updating())).keys()
    assert kinds_of(world.make_parts(Updating(), selector=Asking())).keys() - usual == {"loss"}
    assert kinds_of(world.make_parts(Updating(), selector=Asking(asks=False))).keys() - usual == {
        "update+loss"
    }


PASS_S = 2 * 2 * 2 * 2.0
"""A forward pass of two samples, with two inputs and two outputs: products and sums, at 1 FLOP/s."""


class Updating(Algorithm[Config, None, None]):
    """Its clients send updates, and remember nothing."""

    def __init__(self) -> None:
        super().__init__(Config())

    @property
    def exchanges(self) -> Any:
        return (Exchange("train", local=self.own_model, reply=ModelUpdate),)  # type: ignore[arg-type]

    def start(self, server: Any) -> None:
        return None

    async def models_of(self, observer: Any, server_state: None, client_state: None) -> Any:
        return {}


class Remembering(Updating):
    """Its clients remember arrays, and no model."""

    def join(self, client: Any) -> Tree:  # type: ignore[override]
        return {}


def test_a_question_is_a_dispatch_with_bytes_and_work_of_its_own(world: Any) -> None:
    asking, algorithm = Asking(), with_models(world.Scripted())
    result, trace = world.play(algorithm, selector=asking, rounds=2, client_timeout_s=100.0)
    # The frame takes 1 s each way; between them is the forward pass of two samples, at 1 FLOP/s.
    assert [(who, at_s) for _, who, at_s in algorithm.noted("instruct")] == [
        ((0, 1), 2 + PASS_S),
        ((0, 1), 2 * (2 + PASS_S) + 5),
    ]
    kinds = result.ledger.columns()["kind"].tolist()
    assert (kinds.count("loss"), kinds.count("word")) == (4, 4 + 4 + 4)
    assert [(row.asked, row.merged) for row in result.rounds] == [(4, 4)] * 2
    merges = [(values[1], values[2]) for _, kind, *values in trace if kind == "merge"]
    assert merges == [("loss", 0), ("talk", 1), ("loss", 1), ("talk", 2)]
    # The null executor predicts both classes alike.
    assert [who for who, _ in asking.seen] == [[0, 1]] * 2
    assert [losses for _, losses in asking.seen] == [pytest.approx([log(2)] * 2)] * 2
    # A client's state has a page for each turn of the algorithm, and none for a question.
    assert [diary.pages for _, _, diary in algorithm.diaries] == [(), (), (1,), (1,)]


def test_who_does_not_answer_in_time_is_left_out_and_its_answer_is_late(world: Any) -> None:
    asking = Asking(within_s=PASS_S + 2)  # what comes exactly then is in time
    algorithm = with_models(world.Scripted())
    result, _ = world.play(algorithm, selector=asking, sizes=(2, 4, 2), client_timeout_s=100.0)
    assert [who for who, _ in asking.seen] == [[0]]
    assert [who for _, who, _ in algorithm.noted("merge")] == [(0,)]
    assert dict(result.drops) == {"too late": 1}
    assert sum(row.late for row in result.rounds) == 0  # the run is over before
    longer, _ = world.play(algorithm, selector=asking, sizes=(2, 4, 2), client_timeout_s=100.0, rounds=3)
    assert sum(row.late for row in longer.rounds) == 2


def test_who_has_left_after_answering_is_no_candidate(world: Any) -> None:
    # Client 1 answers after 18 s and goes at 20 s; client 0, with twice the samples, answers after 34 s.
    asking, algorithm = Asking(), with_models(world.Scripted())
    leaving = world.absent(world.make_parts(algorithm, sizes=(4, 2)).fleet, {1: [(20, inf)]})
    world.play(algorithm, selector=asking, sizes=(4, 2), fleet=leaving, client_timeout_s=100.0)
    assert [who for who, _ in asking.seen] == [[0]]
    assert [(who, at_s) for _, who, at_s in algorithm.noted("instruct")] == [((0,), 2 + 2 * PASS_S)]


def test_a_question_that_nobody_answers_fails_the_round(world: Any) -> None:
    asking, algorithm = Asking(), with_models(world.Scripted())
    wires = world.Wires(lost=[(0, -1, 0), (1, -1, 0)])
    result, _ = world.play(algorithm, selector=asking, rounds=2, client_timeout_s=100.0, network=wires)
    assert [who for who, _ in asking.seen] == [[], [0, 1]]
    assert [(row.asked, row.merged, row.dropped) for row in result.rounds] == [(2, 0, 2), (4, 4, 0)]


def test_a_question_settles_nothing_that_was_not_merged(world: Any) -> None:
    # The first reply of client 0 is lost after two answers: its mirror goes back, its pages stay.
    asking, algorithm = Asking(), with_models(world.Scripted())
    wires = world.Wires(lost=[(0, -1, 1)])
    world.play(algorithm, selector=asking, rounds=2, client_timeout_s=100.0, network=wires)
    before = [diary for client, _, diary in algorithm.diaries if client == 0]
    assert before == [world.Diary((), mirror=-1), world.Diary((1,), mirror=-1)]


def buffered(size: int) -> Any:
    return Buffered(Buffered.Config(concurrency=size, buffer=size))


def test_a_question_before_a_merge_leaves_what_the_merge_settles(world: Any) -> None:
    # Client 0 replies, is asked again, and its reply is merged with that of client 1: its mirror counts.
    algorithm = with_models(world.Scripted())
    algorithm.discounted = "shares"
    params = {"selector": InTurns(0, 1, 2, 0, 1), "client_timeout_s": 100.0}
    world.play(algorithm, pacing=buffered(2), rounds=2, **params)
    assert [who for _, who, _ in algorithm.noted("merge")] == [(0, 1), (0, 2)]
    before = [diary for client, _, diary in algorithm.diaries if client == 0]
    assert before == [world.Diary((), mirror=-1), world.Diary((1,), mirror=1)]


def test_an_asynchronous_pacing_asks_again_where_nobody_has_answered(world: Any) -> None:
    algorithm, selector = with_models(world.Scripted()), InTurns(1)
    algorithm.discounted = "shares"
    wires = world.Wires(lost=[(0, -1, 0), (1, -1, 0)])
    params = {"sizes": (2, 2), "client_timeout_s": 100.0, "network": wires}
    result, _ = world.play(algorithm, selector=selector, pacing=buffered(1), **params)
    assert [who for who, _ in selector.seen] == [[], [0, 1]]
    assert [who for _, who, _ in algorithm.noted("merge")] == [(1,)]
    assert result.drops["timeout"] == 2


def test_an_asynchronous_run_in_which_nobody_ever_answers_in_time_ends(world: Any) -> None:
    algorithm, selector = with_models(world.Scripted()), Asking(within_s=1.0)
    algorithm.discounted = "shares"
    with pytest.raises(RunError, match="101 selections in a row led to no dispatch"):
        world.play(algorithm, selector=selector, pacing=buffered(1), client_timeout_s=100.0)
    assert [who for who, _ in selector.seen] == [[]] * 101


def test_clients_tell_it_with_the_first_reply_to_the_cohort(world: Any) -> None:
    asking = Asking(asks=False)
    exchanges = [Exchange("talk", reply=world.Word), Exchange("echo", who="answered", reply=world.Word)]
    algorithm = with_models(world.Scripted(exchanges))
    result, _ = world.play(algorithm, selector=asking, rounds=2, client_timeout_s=100.0)
    kinds = result.ledger.columns()["kind"].tolist()
    assert (kinds.count("word+loss"), kinds.count("word")) == (6, 6 + 6 + 6)
    first, second = asking.seen
    assert np.isnan(first[1]).all()
    assert second[1] == [pytest.approx(log(2))] * 3
    (_, _, first_s), *_ = algorithm.noted("merge")
    assert first_s == 1 + 3 + PASS_S + 1


def test_what_is_told_with_a_reply_is_of_the_state_before_it(world: Any) -> None:
    seen: list[tuple[int, ...]] = []
    algorithm = with_models(world.Scripted())

    async def own_model(client: Any, state: Any, message: Any) -> Model:
        seen.append(state.pages)
        model: Model = client.initial_model()
        return model

    algorithm.own_model = own_model
    world.play(algorithm, selector=Asking(asks=False), sizes=(2,), rounds=2, client_timeout_s=100.0)
    assert seen == [(), (0,)]


def faults(algorithm: Any, *, asks: bool = True) -> list[str]:
    return [fault.problem for fault in told_losses.faults(algorithm, Asking(asks=asks))]


def test_algorithms_without_a_cohort_a_model_or_a_reply_are_refused(world: Any) -> None:
    everybody = with_models(world.Scripted([Exchange("talk", who="all", reply=world.Word)]))
    assert "concerns a cohort" in faults(everybody)[0]
    assert "does not say which model a client goes on with" in faults(Updating())[0]
    assert "does not say which model a client goes on with" in faults(Remembering())[0]
    silent = with_models(world.Scripted([Exchange("talk")]))
    assert "send no frame with which it could come" in faults(silent, asks=False)[0]
    assert not faults(silent)
    assert not faults(with_models(world.Scripted()), asks=False)
