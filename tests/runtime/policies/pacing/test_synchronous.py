"""Synchronous pacing against a stand-in for the rounds that notes what it is asked."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from fedsim import clock
from fedsim.algorithms.base import Exchange, Reply
from fedsim.bus import Header
from fedsim.clock import now_s
from fedsim.errors import MergeError, RunError
from fedsim.runtime.policies.pacing.synchronous import PLUGIN
from fedsim.runtime.server.open_dispatches import OpenDispatch

TWO = (Exchange("share"), Exchange("distil", who="answered"))
ONE = (Exchange("train"),)


@dataclass
class Rounds:
    """Client k replies after k + 1 seconds; those of ``silent`` never do, and their lease ends at 20 s."""

    cohort: Sequence[int]
    exchanges: tuple[Exchange, ...] = ONE
    num_rounds: int = 1
    wanted: int | None = None
    silent: Sequence[int] = ()
    known: Sequence[float] = ()
    is_busy: bool = False  # a client with an open dispatch is not selected
    asks_nobody: Sequence[str] = ()  # exchanges without dispatches
    slow: Mapping[str, float] = field(default_factory=dict)  # more seconds, by exchange
    refused: int = 0  # the first merges
    owing: set[int] = field(default_factory=set)
    asked: dict[asyncio.Future[Any], int] = field(default_factory=dict)
    calls: list[tuple[Any, ...]] = field(default_factory=list)

    @property
    def cohort_size(self) -> int:
        return len(self.cohort) if self.wanted is None else self.wanted

    def begin_round(self) -> None:
        self.calls.append(("begin", now_s()))

    @property
    def version(self) -> int:
        return 0

    def release(self, dispatch: OpenDispatch) -> None:
        raise AssertionError("a synchronous round keeps its clients until it merges")

    async def wait_for_candidates(self, until: Sequence[asyncio.Future[Any]] = ()) -> None:
        self.calls.append(("wait", [self.asked[reply] for reply in until]))

    async def select(self, count: int) -> Sequence[int]:
        self.calls.append(("select", count))
        return [client for client in self.cohort if not (self.is_busy and client in self.owing)]

    async def dispatch(
        self, exchange: Exchange, cohort: Sequence[int], answered: Sequence[int]
    ) -> Sequence[OpenDispatch]:
        self.calls.append(("ask", exchange.name, list(cohort), list(answered)))
        loop = asyncio.get_running_loop()
        whom = [] if exchange.name in self.asks_nobody else answered
        dispatches = [
            OpenDispatch(Header(-1, client, 1, exchange.name, 0, 0), 0, now_s(), loop.create_future())
            for client in whom
        ]
        self.owing.update(whom)
        self.asked.update((dispatch.reply, dispatch.client) for dispatch in dispatches)
        for dispatch in dispatches:
            silent = dispatch.client in self.silent
            takes_s = dispatch.client + 1 + self.slow.get(exchange.name, 0)
            loop.call_later(20 if silent else takes_s, _settle, dispatch, not silent)
        return dispatches

    async def merge(self, exchange: Exchange, dispatches: Sequence[Any]) -> Sequence[int]:
        clients = [dispatch.client for dispatch in dispatches]
        self.calls.append(("merge", exchange.name, clients, now_s()))
        self.owing.difference_update(clients)
        if self.refused:
            self.refused -= 1
            raise MergeError(f"the merge of exchange {exchange.name!r} leaves the finite range: w")
        return [t.client for t in dispatches if t.reply.done() and t.reply.result()]

    def discard(self, dispatches: Sequence[Any], cause: str) -> None:
        self.calls.append(("discard", [dispatch.client for dispatch in dispatches], cause, now_s()))
        self.owing.difference_update(dispatch.client for dispatch in dispatches)

    def predicted_s(self, exchange: Exchange, clients: Sequence[int]) -> list[float]:
        return list(self.known)

    async def end_round(self) -> None:
        self.calls.append(("end", now_s()))

    def of(self, *names: str) -> list[tuple[Any, ...]]:
        return [call for call in self.calls if call[0] in names]


def _settle(dispatch: OpenDispatch, replied: bool) -> None:
    if not dispatch.reply.done():
        dispatch.reply.set_result(Reply(dispatch.client, 0, "", 0, 0, 1.0, None) if replied else None)


def play(rounds: Any, **config: Any) -> Any:
    """Run; the stand-in lacks what only other pacings ask for."""
    clock.run(PLUGIN(PLUGIN.Config(**config)).run(rounds))
    return rounds


def test_each_exchange_waits_for_all_and_asks_those_who_answered() -> None:
    rounds = play(Rounds([0, 3, 1], exchanges=TWO, num_rounds=2))
    one_round = [("ask", "share", [0, 3, 1], [0, 3, 1]), ("ask", "distil", [0, 3, 1], [0, 3, 1])]
    assert rounds.of("ask") == one_round * 2
    assert rounds.of("begin", "merge", "end") == [
        ("begin", 0.0),
        ("merge", "share", [0, 3, 1], 4.0),
        ("merge", "distil", [0, 3, 1], 8.0),
        ("end", 8.0),
        ("begin", 8.0),
        ("merge", "share", [0, 3, 1], 12.0),
        ("merge", "distil", [0, 3, 1], 16.0),
        ("end", 16.0),
    ]


def test_who_is_silent_is_waited_for_until_its_lease_runs_out() -> None:
    rounds = play(Rounds([0, 1, 2], exchanges=TWO, silent=[1]))
    assert rounds.of("merge") == [("merge", "share", [0, 1, 2], 20.0), ("merge", "distil", [0, 2], 23.0)]


def test_an_empty_cohort_is_no_reason_to_stop() -> None:
    rounds = play(Rounds([], exchanges=TWO, num_rounds=2))
    assert [call[0] for call in rounds.of("ask", "merge", "discard", "end")] == ["ask", "discard", "end"] * 2
    with pytest.raises(RunError, match="fewer than min_replies = 1"):
        play(Rounds([], exchanges=TWO), on_failure="stop")


def test_an_exchange_in_which_the_algorithm_asks_nobody_is_no_failure() -> None:
    three = (Exchange("share"), Exchange("rest", who="all"), Exchange("distil"))
    rounds = play(Rounds([0, 1], exchanges=three, asks_nobody=["rest"]), on_failure="stop", min_replies=2)
    assert rounds.of("merge", "discard") == [
        ("merge", "share", [0, 1], 2.0),
        ("merge", "rest", [], 2.0),
        ("merge", "distil", [], 2.0),
    ]


def test_over_selection_invites_more_and_closes_with_the_fastest() -> None:
    rounds = play(Rounds([4, 2, 0, 3], exchanges=TWO, wanted=3), over_selection=1.3)
    assert rounds.of("select") == [("select", 4)]
    # The dispatch of client 4 goes to the merge too, which closes it.
    assert rounds.of("merge") == [("merge", "share", [4, 2, 0, 3], 4.0), ("merge", "distil", [2, 0, 3], 8.0)]


def test_replies_of_one_instant_beyond_those_wanted_are_not_waited_for() -> None:
    rounds = play(Rounds([0, 1, 2], wanted=1), over_selection=3.0)
    assert rounds.of("merge") == [("merge", "train", [0, 1, 2], 1.0)]


def test_a_deadline_closes_in_any_case_and_what_comes_at_its_instant_counts() -> None:
    rounds = play(Rounds([0, 1, 2, 9]), deadline="3 s")
    assert rounds.of("merge") == [("merge", "train", [0, 1, 2, 9], 3.0)]
    (merged,) = [call for call in rounds.calls if call[0] == "merge"]
    assert merged[3] == 3.0


def test_a_quantile_of_predicted_times_is_a_deadline_once_times_are_known() -> None:
    unknown = play(Rounds([0, 9]), deadline_quantile=0.5)
    assert unknown.of("merge") == [("merge", "train", [0, 9], 10.0)]
    known = play(Rounds([0, 9], known=[2.0, 4.0]), deadline_quantile=0.5)
    assert known.of("merge") == [("merge", "train", [0, 9], 3.0)]


def test_rounds_may_begin_at_an_interval() -> None:
    rounds = play(Rounds([0, 1], num_rounds=3), interval="5 s")
    assert rounds.of("begin") == [("begin", 0.0), ("begin", 5.0), ("begin", 10.0)]
    longer = play(Rounds([0, 8], num_rounds=3), interval="5 s")
    assert longer.of("begin") == [("begin", 0.0), ("begin", 9.0), ("begin", 18.0)]


def test_late_replies_are_carried_into_the_next_round() -> None:
    rounds = play(Rounds([0, 4], num_rounds=3), deadline="3 s", late="carry")
    assert rounds.of("merge", "discard") == [
        ("merge", "train", [0], 3.0),
        ("merge", "train", [4, 0], 6.0),  # asked at 0, answered at 5
        ("merge", "train", [4, 0], 9.0),
        ("discard", [4], "the run ended", 9.0),
    ]


def test_a_round_that_finds_nobody_to_ask_waits_for_what_is_carried() -> None:
    rounds = play(Rounds([4, 9], num_rounds=4, is_busy=True), deadline="3 s", late="carry")
    assert rounds.of("wait") == [("wait", clients) for clients in ([], [4, 9], [9], [9, 4])]
    assert rounds.of("begin", "ask", "merge", "discard") == [
        ("begin", 0.0),
        ("ask", "train", [4, 9], [4, 9]),
        ("discard", [], "round failed", 3.0),
        ("begin", 3.0),
        ("ask", "train", [], []),
        ("merge", "train", [4], 6.0),  # client 4 came at 5; client 9 does not come before 10
        ("begin", 6.0),
        ("ask", "train", [4], [4]),
        ("discard", [], "round failed", 9.0),
        ("begin", 9.0),
        ("ask", "train", [], []),
        ("merge", "train", [9, 4], 11.0),
    ]


def test_it_waits_no_longer_than_for_the_last_and_has_to_have_enough() -> None:
    few = play(Rounds([3, 4], num_rounds=2, is_busy=True), deadline="3 s", late="carry", min_replies=2)
    assert few.of("merge", "end") == [("end", 3.0), ("merge", "train", [3, 4], 5.0), ("end", 5.0)]
    short = play(Rounds([4, 9], num_rounds=2, is_busy=True), deadline="3 s", late="carry", min_replies=2)
    assert short.of("merge", "discard") == [
        ("discard", [], "round failed", 3.0),
        ("discard", [4], "round failed", 6.0),
        ("discard", [9], "the run ended", 6.0),
    ]


def test_a_quantile_is_that_of_those_who_are_waited_for() -> None:
    rounds = Rounds([4, 6], num_rounds=2, is_busy=True, known=[3.0, 3.0])
    play(rounds, deadline_quantile=1.0, late="carry")
    assert rounds.of("merge", "discard") == [
        ("discard", [], "round failed", 3.0),
        ("merge", "train", [4], 6.0),
        ("discard", [6], "the run ended", 6.0),
    ]


def test_what_is_carried_is_not_dropped_by_a_round_that_closes_before_its_deadline() -> None:
    rounds = Rounds([0, 7], num_rounds=4, is_busy=True)
    play(rounds, deadline="5 s", late="carry")
    assert rounds.of("merge", "discard") == [
        ("merge", "train", [0], 5.0),
        ("merge", "train", [0], 6.0),
        ("merge", "train", [0], 7.0),
        ("merge", "train", [7, 0], 8.0),  # asked at 0, answered at 8
    ]


def test_answers_owed_to_a_later_exchange_are_waited_for_when_nobody_can_be_asked_before() -> None:
    rounds = Rounds([1], exchanges=TWO, num_rounds=3, is_busy=True, slow={"distil": 7})
    play(rounds, deadline="5 s", late="carry")
    assert rounds.of("merge", "discard") == [
        ("merge", "share", [1], 2.0),
        ("discard", [], "round failed", 7.0),
        ("merge", "share", [], 7.0),
        ("merge", "distil", [1], 11.0),  # asked at 2, answered at 11
        ("merge", "share", [1], 13.0),
        ("discard", [], "round failed", 18.0),
        ("discard", [1], "the run ended", 18.0),
    ]


def test_a_round_with_too_few_replies_merges_nothing() -> None:
    rounds = play(Rounds([0, 5, 6], num_rounds=2), deadline="2 s", min_replies=2)
    assert rounds.of("merge") == []
    assert rounds.of("discard") == [
        ("discard", [0, 5, 6], "round failed", 2.0),
        ("discard", [0, 5, 6], "round failed", 4.0),
    ]
    assert len(rounds.of("end")) == 2


def test_a_failed_round_may_be_repeated() -> None:
    rounds: Any = Rounds([0, 5], num_rounds=1)
    rounds.silent = [0, 5]

    async def main() -> None:
        asyncio.get_running_loop().call_later(25, lambda: setattr(rounds, "silent", []))
        await PLUGIN(PLUGIN.Config(on_failure="repeat")).run(rounds)

    clock.run(main())
    assert [call[3] for call in rounds.of("discard")] == [20.0, 40.0]
    assert rounds.of("merge") == [("merge", "train", [0, 5], 46.0)]
    assert len(rounds.of("begin", "end")) == 2


def test_a_refused_merge_fails_its_round() -> None:
    skipped = play(Rounds([0, 1], exchanges=TWO, num_rounds=2, refused=1))
    assert [call[:2] for call in skipped.of("merge", "discard", "end")] == [
        ("merge", "share"),
        ("end", 2.0),  # and nobody is asked to distil
        ("merge", "share"),
        ("merge", "distil"),
        ("end", 6.0),
    ]
    repeated = play(Rounds([0, 1], refused=2), on_failure="repeat")
    assert [call[0] for call in repeated.of("begin", "merge", "end")] == ["begin", *["merge"] * 3, "end"]
    with pytest.raises(RunError, match="a merge was refused: the merge of exchange 'train' leaves"):
        play(Rounds([0, 1], refused=1), on_failure="stop")
    with pytest.raises(RunError, match="a merge was refused 101 times in a row: the merge of"):
        play(Rounds([0, 1], refused=200), on_failure="repeat")


@pytest.mark.parametrize(("on_failure", "times"), [("stop", 1), ("repeat", 101)])
def test_a_run_may_end_because_rounds_fail(on_failure: str, times: int) -> None:
    rounds = Rounds([0], silent=[0])
    with pytest.raises(RunError, match=r"fewer than min_replies = 1 replies"):
        play(rounds, on_failure=on_failure)
    assert len(rounds.of("discard")) == times


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"deadline": "1 s", "deadline_quantile": 0.5}, "give one of them"),
        ({"late": "carry"}, "give a deadline"),
        ({"over_selection": 0.9}, "greater than or equal to 1"),
        ({"min_replies": 0}, "greater than or equal to 1"),
        ({"deadline": 3}, "unit"),
    ],
)
def test_settings_that_make_no_sense_are_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PLUGIN.Config(**config)
