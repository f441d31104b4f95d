"""Where time goes: a second down, three of work, a second up, and what is left is waiting."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedsim import clock
from fedsim.algorithms.base import Exchange
from fedsim.clock import RecordKind, Trace
from fedsim.errors import InvariantError
from fedsim.runtime.clients.interrupted_work import ABANDON, LEAVE, RETURN
from fedsim.runtime.policies.pacing.synchronous import PLUGIN as SYNCHRONOUS
from fedsim.runtime.records.dispatch_phases import PHASES, PLACES
from fedsim.runtime.records.dispatch_rows import Fate
from fedsim.runtime.records.dispatch_table import DispatchTable
from fedsim.runtime.server.actor import MERGE, REJECT
from fedsim.runtime.server.open_dispatches import DISPATCH, DROP, LATE

JOB_START = RecordKind("job_start", ("client", "dispatch", "job", "flops", "duration_s"))
JOB_END = RecordKind("job_end", ("client", "dispatch", "job", "outcome"))
START = RecordKind("transfer_start", ("client", "dispatch", "up", "message", "bytes", "parameters", "data"))
SPENT = RecordKind("spent", ("client", "dispatch", "download_ns", "compute_ns", "upload_ns"))
END = RecordKind("transfer_end", ("client", "dispatch", "up", "outcome", "cause"))


def rows(dispatches: DispatchTable) -> dict[tuple[int, int], tuple[Any, ...]]:
    """Return (asked, ended, down, compute, up, waiting, outcome, cause) of each (client, dispatch)."""
    names = [f"{name}_s" for name in ("asked_at", "ended_at", "download", "compute", "upload", "waiting")]
    names += ["outcome", "cause"]
    columns = dispatches.columns()
    of = zip(columns["client"].tolist(), columns["dispatch"].tolist(), strict=True)
    values = zip(*(columns[name].tolist() for name in names), strict=True)
    return dict(zip(of, values, strict=True))


def table(*records: tuple[Any, ...], end_s: float = 100.0) -> DispatchTable:
    """Return the table of records, each as (instant in s, kind, values...); its spans agree with it."""
    trace = Trace()
    dispatches, told = DispatchTable(trace), DispatchTable(trace, keep_spans=True)

    async def main() -> None:
        for at_s, kind, *values in records:
            await clock.sleep_until(at_s)
            trace.record(kind, *values)
        await clock.sleep_until(end_s)
        dispatches.finish(clock.now_ns())
        told.finish(clock.now_ns())

    clock.run(main())
    assert_spans_agree(told)
    assert {name: column.tolist() for name, column in told.columns().items()} == {
        name: column.tolist() for name, column in dispatches.columns().items()
    }
    return dispatches


def assert_spans_agree(dispatches: DispatchTable) -> None:
    """Check that spans lie end to end from each sending to its end, and sum to the phases of the table."""
    phase_ns = {phase: dispatches.phase_ns(phase) for phase in PHASES}
    for row, asked_ns in enumerate(dispatches.asked_ns()):
        _, phases, began_ns, ended_ns, _ = dispatches.spans[dispatches.spans[:, 0] == row].T
        edges = [asked_ns, *ended_ns]
        assert edges[-1] == dispatches.ended_ns()[row]
        assert began_ns.tolist() == edges[:-1]
        assert (began_ns < ended_ns).all()
        assert (np.diff(phases) != 0).all()
        for phase, spent_ns in phase_ns.items():
            assert (ended_ns - began_ns)[phases == PLACES[phase]].sum() == spent_ns[row]


def test_all_is_well(world: Any) -> None:
    result, _ = world.play(world.Scripted(), rounds=2)
    told = rows(result.dispatches)
    assert list(told) == [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)]
    assert told[0, 0] == (0, 5, 1, 3, 1, 0, "merged", None)
    assert told[2, 1] == (5, 10, 1, 3, 1, 0, "merged", None)
    columns = result.dispatches.columns()
    assert columns["round"].tolist() == [1, 1, 1, 2, 2, 2]
    assert columns["exchange"].tolist() == ["talk"] * 6


def test_waiting_for_the_others_is_no_part_of_it(world: Any) -> None:
    algorithm = world.Scripted(work_s=lambda client, exchange: 1.0 + client.client)
    result, _ = world.play(algorithm, sizes=(1, 1))
    assert rows(result.dispatches)[0, 0] == (0, 3, 1, 1, 1, 0, "merged", None)
    assert rows(result.dispatches)[1, 0] == (0, 4, 1, 2, 1, 0, "merged", None)


def test_a_lost_frame_is_waited_for_until_the_lease_runs_out(world: Any) -> None:
    wires = world.Wires(lost=[(1, -1, 0), (-1, 2, 0)])
    result, _ = world.play(world.Scripted(), network=wires)
    told = rows(result.dispatches)
    assert told[1, 0] == (0, 10, 1, 3, 1, 5, "dropped", "timeout")
    assert told[2, 0] == (0, 10, 1, 0, 0, 9, "dropped", "timeout")
    assert {cause: mask.tolist() for cause, mask in result.dispatches.causes().items()} == {
        "timeout": [False, True, True]
    }


def test_a_late_reply_and_the_dispatch_that_queues_behind_it(world: Any) -> None:
    algorithm = world.Scripted(
        work_s=lambda client, exchange: 20.0 if (client.client, client.dispatch) == (1, 0) else 1.0
    )
    result, _ = world.play(algorithm, client_timeout_s=15.0, rounds=2)
    told = rows(result.dispatches)
    assert told[1, 0] == (0, 22, 1, 20, 1, 0, "late", "timeout")
    # Down from 15 to 16, then it waits until the first reply has left at 22.
    assert told[1, 1] == (15, 24, 1, 1, 1, 6, "merged", None)


def test_rubbish_is_rejected(world: Any) -> None:
    algorithm = world.Scripted(answer=lambda client, exchange: world.Other())
    result, _ = world.play(algorithm, sizes=(1,))
    assert rows(result.dispatches) == {(0, 0): (0, 5, 1, 3, 1, 0, "rejected", None)}


def test_without_frames_the_work_is_all(world: Any) -> None:
    algorithm = world.Scripted(
        [Exchange("talk", reply=None)],
        say=lambda server, client: None,
        answer=lambda client, exchange: None,
    )
    result, _ = world.play(algorithm, sizes=(1,))
    assert rows(result.dispatches) == {(0, 0): (0, 3, 0, 3, 0, 0, "merged", None)}


def test_replies_of_a_failed_round_are_dropped_but_ended_when_they_came(world: Any) -> None:
    pacing = SYNCHRONOUS(SYNCHRONOUS.Config(min_replies=3))
    result, _ = world.play(world.Scripted(), network=world.Wires(lost=[(1, -1, 0)]), pacing=pacing)
    told = rows(result.dispatches)
    assert told[0, 0] == (0, 5, 1, 3, 1, 0, "dropped", "round failed")
    assert told[1, 0] == (0, 10, 1, 3, 1, 5, "dropped", "timeout")


def test_who_is_too_slow_for_the_round_works_on_until_the_run_ends(world: Any) -> None:
    pacing = SYNCHRONOUS(SYNCHRONOUS.Config.model_validate({"deadline": "4.5 s"}))
    algorithm = world.Scripted(work_s=lambda client, exchange: 2.0 + client.client)
    result, _ = world.play(algorithm, pacing=pacing, sizes=(1, 1, 1))
    told = rows(result.dispatches)
    assert told[0, 0] == (0, 4, 1, 2, 1, 0, "merged", None)
    assert told[1, 0] == (0, 4.5, 1, 3, 0.5, 0, "dropped", "too late")
    assert told[2, 0] == (0, 4.5, 1, 3.5, 0, 0, "dropped", "too late")


def test_only_what_stands_still_is_away() -> None:
    dispatches = table(
        (0, DISPATCH, 7, 0, 1, "talk", 0),
        (0, DISPATCH, 8, 0, 1, "talk", 0),
        (0, JOB_START, 7, 0, "fit", 1.0, 4.0),
        (0, JOB_START, 8, 0, "fit", 1.0, 4.0),
        (1, LEAVE, 7, "resume"),
        (2, DISPATCH, 7, 1, 1, "more", 1),  # asked while away: it comes when it is back, and waits
        (2, START, 7, 1, False, "word", 1, 1, False),
        (4, JOB_END, 8, 0, "fit", "done"),
        (4.5, RETURN, 7),
        (5.5, END, 7, 1, False, "delivered", ""),
        (7.5, JOB_END, 7, 0, "fit", "done"),
        (7.5, START, 7, 0, True, "word", 1, 1, False),
        (8, LEAVE, 7, "resume"),
        (8.25, RETURN, 7),
        (9, END, 7, 0, True, "delivered", ""),
        (9.5, LEAVE, 7, "resume"),  # its first reply has come, its second work not begun
        (9.75, RETURN, 7),
        (10, MERGE, 1, "talk", 1, [7, 8], [0, 0]),
        (11, JOB_START, 7, 1, "fit", 1.0, 4.0),
        (12, LEAVE, 7, "resume"),
        (14, ABANDON, 7, 1, "dropped out"),
        (14, JOB_END, 7, 1, "fit", "cancelled"),
        (20, DROP, 7, 1, "timeout"),
        (20, DISPATCH, 7, 2, 2, "talk", 2),
        (20, JOB_START, 7, 2, "fit", 1.0, 4.0),
        (24, JOB_END, 7, 2, "fit", "done"),
        (24, MERGE, 2, "talk", 2, [7], [2]),
    )
    columns = dispatches.columns()
    names = ("download", "compute", "upload", "away", "waiting")
    found = list(zip(*(columns[f"{name}_s"].tolist() for name in names), strict=True))
    assert found == [
        (0, 4, 1.25, 3.75, 0),
        (0, 4, 0, 0, 0),
        (1, 1, 0, 2.5 + 2, 5.5 + 6),
        (0, 4, 0, 0, 0),
    ]
    assert (columns["ended_at_s"] - columns["asked_at_s"]).tolist() == [9, 4, 18, 4]
    assert dispatches.work_ns().tolist() == [5_250_000_000, 4_000_000_000, 2_000_000_000, 4_000_000_000]


def test_what_is_under_way_at_the_end_counts_until_then() -> None:
    dispatches = table(
        (0, DISPATCH, 0, 0, 1, "talk", 0),
        (0, DISPATCH, 1, 0, 1, "talk", 0),
        (0, DISPATCH, 2, 0, 1, "talk", 0),
        (1, START, 0, 0, False, "word", 1, 1, False),
        (1, START, 1, 0, False, "word", 1, 1, False),
        (3, END, 1, 0, False, "delivered", ""),
        (4, DROP, 1, 0, "timeout"),
        end_s=10.0,
    )
    assert rows(dispatches) == {
        (0, 0): (0, 10, 9, 0, 0, 1, "open", None),
        (1, 0): (0, 4, 2, 0, 0, 2, "dropped", "timeout"),
        (2, 0): (0, 10, 0, 0, 0, 10, "open", None),
    }


def test_a_reply_that_comes_after_all_is_late() -> None:
    # Its first copy is lost; the second one, which only the server hears of, arrives.
    dispatches = table(
        (0, DISPATCH, 0, 0, 1, "talk", 0),
        (1, START, 0, 0, True, "word", 1, 1, False),
        (2, END, 0, 0, True, "lost", "test"),
        (3, DROP, 0, 0, "timeout"),
        (4, LATE, 0, 0),
    )
    assert rows(dispatches) == {(0, 0): (0, 3, 0, 0, 1, 2, "late", "timeout")}


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([(MERGE, 1, "talk", 1, (3,), (1,))] * 2, "dispatch 1 of client 3 was merged twice"),
        ([(MERGE, 1, "talk", 1, (3, 3), (1, 1))], "dispatch 1 of client 3 was merged twice"),
        ([(MERGE, 1, "talk", 1, (3,), (1,)), (DROP, 3, 1, "timeout")], "was merged, and then dropped"),
        ([(LATE, 3, 1), (MERGE, 1, "talk", 1, (3,), (1,))], "was late, and then merged"),
        ([(REJECT, 3, 1, "no numbers")] * 2, "was rejected twice"),
    ],
)
def test_a_dispatch_ends_once(records: list[tuple[Any, ...]], message: str) -> None:
    asked = [(0, DISPATCH, 3, 0, 1, "talk", 0), (0, DISPATCH, 3, 1, 1, "talk", 0)]
    with pytest.raises(InvariantError, match=message):
        table(*asked, *((1, *record) for record in records))


def test_only_what_may_still_answer_is_kept_open() -> None:
    trace = Trace()
    dispatches = DispatchTable(trace)
    steps: list[tuple[Callable[[], None], int]] = [
        (lambda: trace.record(DISPATCH, 0, 0, 1, "talk", 0), 1),
        (lambda: trace.record(START, 0, 0, False, "word", 1, 1, False), 1),
        (lambda: trace.record(DROP, 0, 0, "timeout"), 1),
        (lambda: trace.record(END, 0, 0, False, "lost", "restarted"), 1),
        (lambda: trace.record(START, 0, 0, False, "word", 1, 1, False), 1),
        (lambda: trace.record(END, 0, 0, False, "undecodable", ""), 0),
        (lambda: trace.record(DISPATCH, 0, 1, 1, "talk", 1), 1),
        (lambda: trace.record(JOB_START, 0, 1, "fit", 1.0, 1.0), 1),
        (lambda: trace.record(ABANDON, 0, 1, "left"), 1),
        (lambda: trace.record(DROP, 0, 1, "timeout"), 1),
        (lambda: trace.record(JOB_END, 0, 1, "fit", "cancelled"), 0),
    ]

    async def main() -> None:
        for step, num_open in steps:
            step()
            assert sum(map(len, dispatches._open.values())) == num_open

    clock.run(main())


def test_the_server_s_own_work_is_nobody_s() -> None:
    dispatches = table((0, JOB_START, -1, -1, "call", 1.0, 1.0), (1, JOB_END, -1, -1, "call", "done"))
    assert len(dispatches) == 0
    assert all(len(column) == 0 for column in dispatches.columns().values())


def test_rows_are_small() -> None:
    dispatches = table((0, DISPATCH, 0, 0, 1, "talk", 0))
    arrays = [part for part in vars(dispatches).values() if isinstance(part, array)]
    assert sum(len(part) * part.itemsize for part in arrays) == 73 <= 80


def test_rows_are_found_by_client_and_number() -> None:
    order = [(5, 0), (2, 0), (5, 1), (0, 0), (2, 1), (5, 2)]
    dispatches = table(*((0, DISPATCH, client, number, 1, "talk", 0) for client, number in order))
    client, number = np.array(order).T
    assert dispatches.rows_of(client, number).tolist() == [0, 1, 2, 3, 4, 5]
    assert dispatches.rows_of(np.array([5, 0]), np.array([2, 0])).tolist() == [5, 3]
    assert dispatches.fate().tolist() == [Fate.OPEN] * 6


@pytest.mark.parametrize("lost", [[], [(0, -1, 1)], [(-1, 0, 0), (2, -1, 0)]])
def test_phases_sum_to_the_turnaround(lost: list[tuple[int, int, int]], world: Any) -> None:
    algorithm = world.Scripted(work_s=lambda client, exchange: 0.1234567891 * (1 + client.client))
    wires = world.Wires(lost=lost, delay_s=0.3333333333)
    result, _ = world.play(algorithm, network=wires, rounds=3)
    columns = result.dispatches.columns()
    parts = [columns[f"{phase}_s"] for phase in PHASES]
    assert sum(parts) == pytest.approx(columns["ended_at_s"] - columns["asked_at_s"], abs=1e-9)
    assert min(part.min() for part in parts) >= 0


def over_sockets(*told_s: float) -> tuple[tuple[Any, ...], ...]:
    """Return what the server of a run over sockets records: a frame, its acknowledgement, an answer."""
    return (
        (0, DISPATCH, 0, 0, 1, "talk", 0),
        (1, START, 0, 0, False, "word", 1, 1, False),
        (7, END, 0, 0, False, "delivered", ""),
        (20, SPENT, 0, 0, *(int(s * 1e9) for s in told_s)),
        (20, START, 0, 0, True, "word", 1, 1, False),
        (20, END, 0, 0, True, "delivered", ""),
        (30, MERGE, 1, "talk", 1, [0], [0]),
    )


@pytest.mark.parametrize(
    ("told_s", "phases_s"),
    [
        ((2, 9, 3), (2, 9, 3, 6)),  # download less than until the acknowledgement
        ((6, 9, 5), (6, 9, 5, 0)),
        ((0, 0, 0), (0, 0, 0, 20)),
        ((30, 30, 3), (17, 0, 3, 0)),  # no longer than the dispatch
    ],
)
def test_what_the_server_has_been_told_stands_in_place_of_events(
    told_s: tuple[float, ...], phases_s: tuple[float, ...]
) -> None:
    told = rows(table(*over_sockets(*told_s)))
    assert told[0, 0] == (0, 20, *phases_s, "merged", None)


def test_what_is_told_of_a_dispatch_that_is_over_changes_nothing() -> None:
    again = (40, SPENT, 0, 0, 1, 1, 1)
    assert rows(table(*over_sockets(2, 9, 3), again)) == rows(table(*over_sockets(2, 9, 3)))


def test_who_is_at_what_now_and_lately() -> None:
    """Client 0 downloads for 1 s, computes for 3 s, uploads for 1 s; 1 downloads for long; 2 leaves."""
    trace, seen = Trace(), list[dict[Any, int]]()
    dispatches = DispatchTable(trace)

    async def main() -> None:
        assert dispatches.lately_at_work(10) == {}
        steps: list[tuple[Any, ...]] = [
            *((0, DISPATCH, client, 0, 1, "talk", 0) for client in (0, 1, 2)),
            *((0, START, client, 0, False, "word", 1, 1, False) for client in (0, 1, 2)),
            (1, END, 0, 0, False, "delivered", ""),
            (1, JOB_START, 0, 0, "fit", 1, 3.0),
            (1, LEAVE, 2, "resume"),
            (4, JOB_END, 0, 0, "fit", "done"),
            (4, START, 0, 0, True, "word", 1, 1, False),
            (4, RETURN, 2),
            (5, END, 0, 0, True, "delivered", ""),
            (8, END, 1, 0, False, "lost", "noise"),
        ]
        for at_s, kind, *values in steps:
            await clock.sleep_until(at_s)
            seen.append(dict(dispatches.at_work()))
            trace.record(kind, *values)
        seen.append(dict(dispatches.at_work()))
        assert dispatches.lately_at_work(10) == {}, "none has ended"
        trace.record(MERGE, 1, "talk", 1, [0], [0])

    clock.run(main())
    assert seen[0] == {}
    assert seen[6] == {"download": 3}
    assert seen[9] == {"compute": 1, "download": 1, "away": 1}
    assert seen[12] == {"upload": 1, "download": 2}
    assert seen[13] == {"waiting": 1, "download": 2}
    assert seen[14] == {"waiting": 2, "download": 1}
    assert dict(dispatches.at_work()) == {"waiting": 1, "download": 1}
    lately = {"download": 0.2, "compute": 0.6, "upload": 0.2, "away": 0.0, "waiting": 0.0}
    assert dispatches.lately_at_work(10) == pytest.approx(lately)
