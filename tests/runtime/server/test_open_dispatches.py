"""Who does not answer in time: dropped, counted, and no obstacle to the others."""

import tracemalloc
from types import SimpleNamespace
from typing import Any

import pytest

from fedsim import clock
from fedsim.algorithms.base import Exchange
from fedsim.bus import Delivery, Header
from fedsim.clock import Trace
from fedsim.errors import InvariantError
from fedsim.runtime.clients.interrupted_work import ABANDON
from fedsim.runtime.server.open_dispatches import Arrival, OpenDispatches


def test_a_lost_upload_ends_with_the_lease(world: Any) -> None:
    algorithm = world.Scripted()
    result, trace = world.play(algorithm, network=world.Wires(lost=[(1, -1, 0)]), rounds=2)
    # A second down, three of work, a second up; the first round waits for the lease of 10 s.
    assert algorithm.noted("merge") == [(1, (0, 2), 10.0), (2, (0, 1, 2), 15.0)]
    assert [record for record in trace if record[1] == "drop"] == [(10_000_000_000, "drop", 1, 0, "timeout")]
    first, second = result.rounds
    assert (first.asked, first.merged, first.dropped, first.rejected, first.late) == (3, 2, 1, 0, 0)
    assert (second.asked, second.merged, second.dropped) == (3, 3, 0)
    assert result.drops == {"timeout": 1}
    assert result.by_client["dropped"].tolist() == [0, 1, 0]
    assert result.by_client["merged"].tolist() == [2, 1, 2]
    assert result.simulated_s == 15.0


def test_a_link_that_breaks_before_the_frame_has_left_does_not_hold_the_client(world: Any) -> None:
    algorithm = world.Scripted()
    world.play(algorithm, network=world.Wires(broken=[(1, -1, 0)]), rounds=2)
    assert algorithm.noted("merge") == [(1, (0, 2), 10.0), (2, (0, 1, 2), 15.0)]


@pytest.mark.parametrize(("work_s", "merged", "late"), [(8.0, (0, 1), 0), (8.000000001, (0,), 1)])
def test_a_reply_at_the_instant_of_the_lease_counts(
    work_s: float, merged: tuple[int, ...], late: int, world: Any
) -> None:
    slow = (1, 0)
    algorithm = world.Scripted(
        work_s=lambda client, exchange: work_s if (client.client, client.dispatch) == slow else 2.0
    )
    result, _ = world.play(algorithm, sizes=(1, 1), rounds=2)
    assert algorithm.noted("merge")[0] == (1, merged, 10.0)
    assert result.drops["timeout"] == 2 - len(merged)
    assert [row.late for row in result.rounds] == [0, late]


def test_a_late_reply_is_counted_and_the_next_dispatch_waits_for_it(world: Any) -> None:
    algorithm = world.Scripted(
        answer=lambda client, exchange: world.word(client.dispatch),
        work_s=lambda client, exchange: 20.0 if (client.client, client.dispatch) == (1, 0) else 1.0,
    )
    result, trace = world.play(algorithm, client_timeout_s=15.0, rounds=2)
    # Asked again at 15, while it still works until 21; its late reply arrives at 22, then it begins anew.
    assert [(at_s) for _, who, at_s in algorithm.noted("local") if who == 1] == [1.0, 22.0]
    assert algorithm.noted("merge") == [(1, (0, 2), 15.0), (2, (0, 1, 2), 24.0)]
    assert [record for record in trace if record[1] == "late"] == [(22_000_000_000, "late", 1, 0)]
    assert [row.late for row in result.rounds] == [0, 1]
    assert result.by_client["late"].tolist() == [0, 1, 0]
    merged = [(r.client, r.dispatch, float(r.message.values[0])) for r in algorithm.replies if r.client == 1]
    assert merged == [(1, 1, 1.0)]


def test_nobody_answers_and_the_run_goes_on(world: Any) -> None:
    algorithm = world.Scripted()
    lost = [(client, -1, 0) for client in range(3)]
    result, trace = world.play(algorithm, network=world.Wires(lost=lost), rounds=2)
    assert algorithm.noted("merge") == [(2, (0, 1, 2), 15.0)]
    assert [(row.round, row.merged, row.dropped) for row in result.rounds] == [(1, 0, 3), (2, 3, 0)]
    assert [reply.version for reply in algorithm.replies] == [0, 0, 0]
    assert [record[4] for record in trace if record[1] == "merge"] == [1]
    assert result.rounds[0].traffic.frames_up == 3


def test_a_client_may_vanish_between_two_exchanges_of_a_round(world: Any) -> None:
    talk, echo = Exchange("talk", reply=world.Word), Exchange("echo", who="answered", reply=world.Word)
    algorithm = world.Scripted([talk, echo])
    # Client 0 is lost in the first exchange, client 1 in the second.
    world.play(algorithm, network=world.Wires(lost=[(0, -1, 0), (1, -1, 1)]), rounds=2)
    assert [who for _, who, _ in algorithm.noted("merge")] == [(1, 2), (0, 1, 2)]
    assert [who for _, who, _ in algorithm.noted("instruct", "echo")] == [(1, 2), (0, 1, 2)]
    assert [who for _, who, _ in algorithm.noted("merge", "echo")] == [(2,), (0, 1, 2)]


def test_turns_count_by_exchange_and_dispatches_over_all(world: Any) -> None:
    exchanges = [Exchange(name, reply=world.Word) for name in ("talk", "echo")]
    _, trace = world.play(world.Scripted(exchanges), rounds=2, sizes=(1, 1))
    told = [(*record[2:4], *record[5:]) for record in trace if record[1] == "dispatch" and record[2] == 1]
    assert told == [(1, 0, "talk", 0), (1, 1, "echo", 0), (1, 2, "talk", 1), (1, 3, "echo", 1)]


class Void:
    def send(self, header: Header, message: Any) -> Any:
        return None

    async def receive(self) -> Any:
        raise NotImplementedError


def _dispatches(num_clients: int) -> OpenDispatches:
    return OpenDispatches(Void(), Trace(), num_clients, timeout_s=10.0)


def _send_and_reply(dispatches: OpenDispatches, client: int) -> None:
    dispatch = dispatches.send(dispatches.header(client, "talk", 1, -1), None, 0)
    dispatches.take(Delivery(dispatch.header.reply(), None))
    dispatches.close(dispatch)


@pytest.mark.parametrize("predicts", [False, True])
def test_of_a_client_whose_dispatch_has_ended_a_few_bytes_stay(predicts: bool) -> None:
    num = 2000

    async def main() -> int:
        dispatches = _dispatches(num)
        if predicts:
            dispatches.predicted_s(Exchange("talk"), [])
        for client in (*range(50), num - 1):  # whatever is made once
            _send_and_reply(dispatches, client)
        await clock.sleep_for(20)
        before = tracemalloc.get_traced_memory()[0]
        for client in range(50, num):
            _send_and_reply(dispatches, client)
        await clock.sleep_for(20)
        return tracemalloc.get_traced_memory()[0] - before

    tracemalloc.start()
    try:
        grown = clock.run(main())
    finally:
        tracemalloc.stop()
    assert grown / num < 20  # and that is what the trace has not hashed yet


def test_times_are_known_from_the_first_prediction_on() -> None:
    talk = Exchange("talk")

    async def main() -> None:
        dispatches = _dispatches(5)
        _send_and_reply(dispatches, 0)
        assert dispatches.predicted_s(talk, [0, 1]) == []
        slow = [dispatches.send(dispatches.header(client, "talk", 1, -1), None, 0) for client in (0, 1, 2)]
        for sent in slow[:2]:
            await clock.sleep_for(2)
            dispatches.take(Delivery(sent.header.reply(), None))
        await clock.sleep_for(2)
        dispatches.close(slow[2])  # was waited for during 6 s
        assert dispatches.predicted_s(talk, [2, 3, 1, 0]) == [6, 4, 4, 2]
        assert dispatches.predicted_s(Exchange("echo"), [0]) == []

    clock.run(main())


def test_a_dispatch_whose_reply_is_known_to_come_is_not_closed_before() -> None:
    async def main() -> None:
        dispatches = OpenDispatches(Void(), Trace(), 1, timeout_s=10.0)
        ends = list[Any]()
        headers = [dispatches.header(0, "talk", 1, -1)]
        cohort = SimpleNamespace(headers=headers, finish_with=ends.append)
        (dispatch,) = dispatches.send_together(cohort, [None], 0)
        with pytest.raises(InvariantError, match=r"0 of client 0 was closed before .* waits_for_all"):
            dispatches.close(dispatch)
        (take,) = ends
        (again,) = dispatches.send_together(cohort, [None], 0)
        ends[-1]([Arrival(0, 3_000_000_000, None)])
        assert again.reply.done()
        assert take is not ends[-1]

    clock.run(main())


def test_a_drop_is_counted_by_what_the_trace_knows_of_its_cause() -> None:
    async def main() -> list[tuple[Any, ...]]:
        trace = Trace(keep=True)
        dispatches = OpenDispatches(Void(), trace, 3, timeout_s=10.0)
        sent = [dispatches.send(dispatches.header(client, "talk", 1, -1), None, 0) for client in (0, 1, 2)]
        await clock.sleep_for(1)
        trace.record(ABANDON, 0, 0, "left")
        trace.record(ABANDON, 1, 0, "dropped out")
        trace.record(ABANDON, 2, 7, "left")  # of no dispatch here
        dispatches.close(sent[1], "too late")
        await clock.sleep_for(20)
        return [record for record in trace.kept if record[1] == "drop"]

    assert clock.run(main()) == [
        (1_000_000_000, "drop", 1, 0, "dropped out"),
        (10_000_000_000, "drop", 0, 0, "left"),
        (10_000_000_000, "drop", 2, 0, "timeout"),
    ]


def test_nobody_is_sent_to_go_on_where_nobody_answered(world: Any) -> None:
    talk, echo = Exchange("talk", reply=world.Word), Exchange("echo", who="answered", reply=world.Word)
    algorithm = world.Scripted([talk, echo])
    lost = [(client, -1, 0) for client in range(3)]
    world.play(algorithm, network=world.Wires(lost=lost))
    assert algorithm.noted("instruct", "echo") == []
