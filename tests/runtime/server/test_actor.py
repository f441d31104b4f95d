"""Asking and merging: who, in which order, with what; what cannot be merged."""

from collections.abc import Sequence
from math import inf
from typing import Any

import numpy as np
import pytest

from fedsim.algorithms.base import Exchange, When
from fedsim.clock import now_s, wait
from fedsim.config import Config
from fedsim.errors import InvariantError, UserError
from fedsim.fleet import Fleet
from fedsim.fleet.load import ExponentialLoad
from fedsim.params import Array
from fedsim.rng import Key
from fedsim.runtime.policies.pacing.asynchronous import Buffered
from fedsim.runtime.policies.pacing.base import Pacing, Rounds
from fedsim.runtime.policies.pacing.synchronous import PLUGIN as SYNCHRONOUS
from fedsim.runtime.policies.selectors.base import Candidates, Selector
from fedsim.runtime.server.open_dispatches import DISPATCH


class Choice(Selector[Config]):
    """Chooses the same clients always, whether it may or not."""

    def __init__(self, *chosen: int) -> None:
        super().__init__(Config())
        self.chosen = chosen

    def select(self, candidates: Candidates, count: int, key: Key) -> Array:
        return np.array(self.chosen, np.int64)


class Spy(Selector[Config]):
    """Takes everybody, and remembers what it was given."""

    def __init__(self) -> None:
        super().__init__(Config())
        self.given: list[tuple[list[int], list[int], int]] = []

    def select(self, candidates: Candidates, count: int, key: Key) -> Array:
        self.given.append((candidates.clients.tolist(), candidates.sizes.tolist(), count))
        return candidates.clients[:count]


class Script(Pacing[Config]):
    def __init__(self, program: Any) -> None:
        super().__init__(Config())
        self.program = program

    async def run(self, rounds: Rounds) -> None:
        await self.program(rounds)


# Replies


def test_replies_are_sorted_by_client_and_not_by_arrival(world: Any) -> None:
    algorithm = world.Scripted(work_s=lambda client, exchange: 5.0 - client.client)
    world.play(algorithm, rounds=2)
    assert [who for _, who, _ in algorithm.noted("merge")] == [(0, 1, 2), (0, 1, 2)]
    assert [(r.client, r.dispatch, r.version, r.staleness, r.discount) for r in algorithm.replies[3:]] == [
        (0, 1, 1, 0, 1.0),
        (1, 1, 1, 0, 1.0),
        (2, 1, 1, 0, 1.0),
    ]


# Who is asked


def test_clients_without_samples_are_never_asked(world: Any) -> None:
    everybody = Exchange("greet", when="opening", who="all")
    algorithm = world.Scripted([everybody, Exchange("talk", reply=world.Word)])
    result, _ = world.play(algorithm, sizes=(3, 0, 2, 0), rounds=3)
    assert {who for _, who, _ in algorithm.noted("instruct")} == {(0, 2)}
    assert algorithm.noted("instruct", "greet") == [(0, (0, 2), 0.0)]
    assert result.by_client["asked"].tolist() == [4, 0, 4, 0]


def test_a_run_in_which_nobody_can_be_asked_is_refused(world: Any) -> None:
    with pytest.raises(UserError, match="no client has a training sample"):
        world.play(world.Scripted(), sizes=(0, 0))


def test_the_selector_sees_candidates_their_samples_and_the_cohorts_size(world: Any) -> None:
    spy = Spy()
    world.play(world.Scripted(), sizes=(3, 0, 2, 7), selector=spy, clients_per_round=2)
    assert spy.given == [([0, 2, 3], [3, 2, 7], 2)]


def test_all_candidates_are_wanted_where_no_number_is_given(world: Any) -> None:
    spy = Spy()
    world.play(world.Scripted(), sizes=(3, 0, 2, 7), selector=spy)
    assert spy.given == [([0, 2, 3], [3, 2, 7], 3)]


def test_over_selection_asks_for_more_than_are_wanted_rounded_up(world: Any) -> None:
    spy = Spy()
    pacing = SYNCHRONOUS(SYNCHRONOUS.Config(over_selection=1.1))
    world.play(world.Scripted(), sizes=(3, 1, 2, 7), selector=spy, clients_per_round=2, pacing=pacing)
    assert [count for _, _, count in spy.given] == [3]


def test_more_may_be_wanted_than_there_are(world: Any) -> None:
    algorithm = world.Scripted()
    world.play(algorithm, clients_per_round=50)
    assert algorithm.noted("instruct") == [(1, (0, 1, 2), 0.0)]


def test_cohorts_differ_by_round_and_by_seed_alone(world: Any) -> None:
    def cohorts(seed: int) -> list[tuple[int, ...]]:
        algorithm = world.Scripted()
        world.play(algorithm, sizes=[1] * 30, clients_per_round=5, rounds=3, seed=seed)
        return [who for _, who, _ in algorithm.noted("instruct")]

    first = cohorts(0)
    assert first == cohorts(0)
    assert first != cohorts(1)
    assert len(set(first)) == 3
    assert all(cohort == tuple(sorted(set(cohort))) and len(cohort) == 5 for cohort in first)


@pytest.mark.parametrize("chosen", [(0, 0), (1,), (0, 5)])
def test_a_selector_that_breaks_the_rules_is_a_bug(chosen: Sequence[int], world: Any) -> None:
    with pytest.raises(InvariantError, match="each of the candidates at most once"):
        world.play(world.Scripted(), sizes=(1, 0, 1), selector=Choice(*chosen))


def test_a_client_that_owes_an_answer_is_no_candidate(world: Any) -> None:
    seen = []

    async def program(rounds: Rounds) -> None:
        (talk,) = rounds.exchanges
        rounds.begin_round()
        seen.append(await rounds.select(3))
        first = await rounds.dispatch(talk, [0, 2], [])
        seen.append(await rounds.select(3))
        second = await rounds.dispatch(talk, [1], [])
        seen.append(await rounds.select(3))
        await wait([dispatch.reply for dispatch in (*first, *second)])
        # Having answered is not enough: the answer has not been taken up yet.
        seen.append(await rounds.select(3))
        assert await rounds.merge(talk, second) == [1]
        seen.append(await rounds.select(3))
        assert await rounds.merge(talk, first[::-1]) == [0, 2]
        seen.append(await rounds.select(3))
        await rounds.end_round()

    algorithm = world.Scripted()
    world.play(algorithm, pacing=Script(program))
    assert seen == [[0, 1, 2], [1], [], [], [1], [0, 1, 2]]
    # Sorted whatever the order of the dispatches; those merged second are one merge old.
    assert [(reply.client, reply.version, reply.staleness) for reply in algorithm.replies] == [
        (1, 0, 0),
        (0, 0, 1),
        (2, 0, 1),
    ]


def test_a_round_that_closes_early_drops_who_has_not_answered(world: Any) -> None:
    async def program(rounds: Rounds) -> None:
        (talk,) = rounds.exchanges
        for _ in range(2):
            rounds.begin_round()
            dispatches = await rounds.dispatch(talk, await rounds.select(3), [])
            await wait([dispatches[0].reply])
            await rounds.merge(talk, dispatches)
            await rounds.end_round()

    algorithm = world.Scripted(work_s=lambda client, exchange: 1.0 + client.client)
    result, _ = world.play(algorithm, sizes=(1, 1), pacing=Script(program), rounds=2)
    # Client 0 answers at 3 and 6; client 1 at 4, which is late, and begins its second work only then.
    assert algorithm.noted("merge") == [(1, (0,), 3.0), (2, (0,), 6.0)]
    assert result.drops == {"too late": 2}
    assert [row.late for row in result.rounds] == [0, 1]


def test_a_ticket_is_merged_once(world: Any) -> None:
    async def program(rounds: Rounds) -> None:
        (talk,) = rounds.exchanges
        rounds.begin_round()
        dispatches = await rounds.dispatch(talk, [0], [])
        await wait([dispatch.reply for dispatch in dispatches])
        await rounds.merge(talk, dispatches)
        await rounds.merge(talk, dispatches)

    with pytest.raises(InvariantError, match="dispatch 0 of client 0 was merged before"):
        world.play(world.Scripted(), pacing=Script(program))


def test_what_does_not_add_up_fails_the_run(world: Any) -> None:
    async def program(rounds: Any) -> None:
        rounds.begin_round()
        rounds.trace.record(DISPATCH, 0, 0, 1, "talk", 0)
        await rounds.end_round()

    with pytest.raises(InvariantError, match="of client 0, was neither merged, dropped nor rejected"):
        world.play(world.Scripted(), pacing=Script(program), verify=False)


# Exchanges


def test_opening_and_closing_concern_everyone_and_have_rows_of_their_own(world: Any) -> None:
    algorithm = world.Scripted(
        [
            Exchange("part", when="closing", who="all", reply=world.Word),
            Exchange("talk", reply=world.Word),
            Exchange("greet", when="opening", who="all"),
            Exchange("bow", when="opening", who="answered"),
        ],
        say=lambda server, client: None,
        answer=lambda client, exchange: None if exchange in ("greet", "bow") else world.word(),
    )
    result, _ = world.play(algorithm, clients_per_round=1, rounds=2)
    everyone = (0, 1, 2)
    assert algorithm.noted("instruct", "greet") == [(0, everyone, 0.0)]
    assert algorithm.noted("instruct", "bow") == [(0, everyone, 3.0)]
    assert [(number, len(who), at_s) for number, who, at_s in algorithm.noted("instruct")] == [
        (1, 1, 6.0),
        (2, 1, 10.0),
    ]
    assert algorithm.noted("instruct", "part") == [(3, everyone, 14.0)]
    assert [(row.round, row.began_at_s, row.ended_at_s, row.asked) for row in result.rounds] == [
        (0, 0.0, 6.0, 6),
        (1, 6.0, 10.0, 1),
        (2, 10.0, 14.0, 1),
        (3, 14.0, 18.0, 3),
    ]
    assert [row.traffic.frames_up for row in result.rounds] == [0, 1, 1, 3]


def test_an_exchange_of_a_round_may_concern_all(world: Any) -> None:
    algorithm = world.Scripted([Exchange("talk", who="all", reply=world.Word)])
    world.play(algorithm, clients_per_round=1)
    assert algorithm.noted("instruct") == [(1, (0, 1, 2), 0.0)]


def test_messages_of_none_cost_nothing_in_either_direction(world: Any) -> None:
    algorithm = world.Scripted(
        [Exchange("talk")], say=lambda server, client: None, answer=lambda client, exchange: None
    )
    result, _ = world.play(algorithm, rounds=2)
    assert len(result.ledger) == 0
    assert algorithm.noted("merge") == [(1, (0, 1, 2), 3.0), (2, (0, 1, 2), 6.0)]
    assert [row.merged for row in result.rounds] == [3, 3]


def test_a_broadcast_is_one_object_and_counts_for_each_client(world: Any) -> None:
    message = world.word()
    algorithm = world.Scripted(say=lambda server, client: message)
    result, _ = world.play(algorithm)
    assert (result.totals.frames_down, result.totals.parameters_down) == (3, 9)


def test_instructions_may_leave_clients_out(world: Any) -> None:
    async def instruct(exchange: str, server: Any, state: Any, cohort: Sequence[int]) -> Any:
        return state, {client: world.word() for client in cohort if client != 1}

    result, _ = world.play(world.Scripted(instruct=instruct))
    assert result.by_client["asked"].tolist() == [1, 0, 1]


def test_instructions_to_strangers_are_a_bug(world: Any) -> None:
    async def instruct(exchange: str, server: Any, state: Any, cohort: Sequence[int]) -> Any:
        return state, world.broadcast([*cohort, 2], world.word())

    with pytest.raises(InvariantError, match=r"instruct_talk instructs the clients \[2\]"):
        world.play(world.Scripted(instruct=instruct), selector=Choice(0, 1))


# Background work


def _with_background(world: Any, *, collected: bool, when: When = "round") -> Any:
    async def work(server: Any) -> str:
        await server.call(world.nothing, flops=6.0)
        return "done"

    async def instruct(exchange: str, server: Any, state: Any, cohort: Sequence[int]) -> Any:
        server.background("polish", work(server))
        return state, world.broadcast(cohort, world.word())

    async def merge(exchange: str, server: Any, state: Any, replies: Sequence[Any]) -> Any:
        if collected:
            algorithm.collected.append(await server.collect("polish"))
        return state

    algorithm = world.Scripted(
        [Exchange("talk", when=when, reply=world.Word)], instruct=instruct, merge=merge
    )
    return algorithm


def test_background_work_overlaps_with_the_clients(world: Any) -> None:
    algorithm = _with_background(world, collected=True)
    result, _ = world.play(algorithm, rounds=2)
    assert algorithm.collected == ["done", "done"]
    # The clients need 5 s, the server 6.
    assert [row.ended_at_s for row in result.rounds] == [6.0, 12.0]


@pytest.mark.parametrize(("when", "number"), [("opening", 0), ("round", 1), ("closing", 2)])
def test_background_work_that_nobody_collects_is_a_bug(when: When, number: int, world: Any) -> None:
    with pytest.raises(InvariantError, match=f"round {number} ended with background work .* polish;"):
        world.play(_with_background(world, collected=False, when=when))


def _carrying(world: Any, **changes: Any) -> tuple[Any, Any]:
    pacing = SYNCHRONOUS(SYNCHRONOUS.Config.model_validate({"deadline": "6 s", "late": "carry"}))
    slow = world.Scripted(work_s=lambda client, exchange: 10.0 if client.client == 0 else 1.0)
    result, _ = world.play(
        changes.pop("algorithm", slow), **{"pacing": pacing, "client_timeout_s": 60.0, **changes}
    )
    return slow, result


def test_whoever_owes_late_answers_is_waited_for_when_there_is_nobody_else(world: Any) -> None:
    algorithm = world.Scripted(work_s=lambda client, exchange: 10.0)
    _, result = _carrying(world, algorithm=algorithm, sizes=(1, 1, 1), rounds=4)
    assert algorithm.noted("merge") == [(2, (0, 1, 2), 12.0), (4, (0, 1, 2), 24.0)]
    assert [row.ended_at_s for row in result.rounds] == [6, 12, 18, 24]
    assert [row.asked for row in result.rounds] == [3, 0, 3, 0]
    assert not result.drops


@pytest.mark.parametrize(
    ("back_s", "merges"),
    [
        # Client 0 answers at 12 s, so whoever is away is not waited for longer than that.
        (inf, [(1, (1,), 6.0), (2, (0,), 12.0)]),
        (50, [(1, (1,), 6.0), (2, (0,), 12.0)]),
        (8, [(1, (1,), 6.0), (2, (1,), 11.0), (3, (0, 1), 14.0)]),
    ],
)
def test_an_answer_that_is_owed_and_somebody_who_comes_are_waited_for_alike(
    back_s: float, merges: list[Any], world: Any
) -> None:
    # Client 1 goes at 5 s.
    fleet = world.absent(world.make_parts(world.Scripted(), sizes=(1, 1)).fleet, {1: [(5, back_s)]})
    algorithm, result = _carrying(world, fleet=fleet, sizes=(1, 1), rounds=3 if back_s == 8 else 2)
    assert algorithm.noted("merge") == merges
    assert not result.drops.get("too late")


def test_a_quantile_as_deadline_does_not_creep_down(world: Any) -> None:
    # Ten clients that take 1 to 10 s: at the quantile 0.8 about two of ten are late, round after round.
    algorithm = world.Scripted(work_s=lambda client, exchange: 1.0 + client.client)
    pacing = SYNCHRONOUS(SYNCHRONOUS.Config(deadline_quantile=0.8))
    result, _ = world.play(algorithm, sizes=(1,) * 10, pacing=pacing, rounds=6, client_timeout_s=30.0)
    assert [row.dropped for row in result.rounds] == [0, 2, 2, 2, 2, 2]


@pytest.mark.parametrize("is_asynchronous", [True, False])
def test_the_server_draws_anew_in_each_call_of_a_hook_but_not_where_a_round_is_repeated(
    is_asynchronous: bool, world: Any
) -> None:
    keys: list[tuple[int, Key]] = []

    def say(server: Any, client: int) -> Any:
        keys.append((server.version, server.key))
        return world.word(1.0)

    # The first dispatch of client 0 has no answer: its lease runs out.
    algorithm, wires = world.Scripted(say=say), world.Wires(lost=[(0, -1, 0)])
    algorithm.discounted = "shares"
    repeating = SYNCHRONOUS(SYNCHRONOUS.Config(on_failure="repeat"))
    one_by_one = Buffered(Buffered.Config(concurrency=1))
    pacing = one_by_one if is_asynchronous else repeating
    world.play(algorithm, sizes=(1,), rounds=2, network=wires, client_timeout_s=20.0, pacing=pacing)
    root = Key.root(0).child("server")
    first, third = (root.child("instruct_talk", merges, merges + 1) for merges in (0, 1))
    second = first.child("again", 1) if is_asynchronous else first
    assert keys == [(0, first), (0, second), (1, third)]


def test_the_version_counts_merges_of_rounds_alone(world: Any) -> None:
    seen: list[tuple[int, int]] = []

    def say(server: Any, client: int) -> Any:
        seen.append((server.round, server.version))
        return world.word(1.0)

    whens: tuple[When, ...] = ("opening", "round", "closing")
    exchanges = [Exchange(when, when=when, reply=world.Word) for when in whens]
    world.play(world.Scripted(exchanges, say=say), sizes=(1,), rounds=2)
    assert seen == [(0, 0), (1, 0), (2, 1), (3, 2)]


def test_each_job_of_the_server_takes_as_long_as_its_load_says(world: Any) -> None:
    ends_s: list[float] = []

    async def merge(exchange: str, server: Any, state: Any, replies: Sequence[Any]) -> Any:
        for _ in range(2):
            await server.call(world.nothing, flops=5.0)
            ends_s.append(now_s())
        return state

    algorithm = world.Scripted(merge=merge)
    fleet = world.make_parts(algorithm).fleet
    server = fleet.server._replace(load=ExponentialLoad())
    loaded = Fleet(fleet.groups, server, fleet.server_model, fleet.availability)
    world.play(algorithm, fleet=loaded)
    began_s = 1.0 + 3.0 + 1.0
    key = Key.root(0).child("server", "merge_talk", 0, 1)
    factors = [ExponentialLoad().factor(key.child("load", number, "law")) for number in (1, 2)]
    assert ends_s == pytest.approx(began_s + 5.0 * np.cumsum(factors))
