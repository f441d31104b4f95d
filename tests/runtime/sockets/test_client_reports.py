import json
import weakref
from typing import Any

import numpy as np
import pytest

from fedsim import clock
from fedsim.bus import Header
from fedsim.bus.reply_report import MOST_PER_REPLY, Note, written
from fedsim.clock import RecordKind, Trace
from fedsim.runtime.sockets.client_reports import Reports

START = RecordKind("job_start", ("client", "dispatch", "job", "flops", "duration_s"))
END = RecordKind("job_end", ("client", "dispatch", "job", "outcome"))


def reply(client: int, dispatch: int) -> Header:
    return Header(client, -1, 1, "talk", dispatch, dispatch)


@pytest.mark.parametrize(
    ("records", "spent_s"),
    [
        ([(1, "+", 0, 0), (3, "-", 0, 0), (10, "+", 0, 0), (11, "-", 0, 0)], {(0, 0): 3}),
        ([(1, "+", 0, 0), (2, "+", 0, 0), (3, "-", 0, 0), (5, "-", 0, 0)], {(0, 0): 4}),
        (
            [(1, "+", 0, 0), (1, "+", 1, 0), (2, "-", 0, 0), (2, "+", 0, 1), (4, "-", 1, 0), (7, "-", 0, 1)],
            {(0, 0): 1, (1, 0): 3, (0, 1): 5, (2, 0): 0},
        ),
        ([(1, "+", 0, 0), (2, "?", 0, 0), (3, "-", 0, 0)], {(0, 0): 0}),
    ],
    ids=["one after the other", "at the same time", "of several dispatches", "told before the end"],
)
def test_how_long_jobs_ran(records: Any, spent_s: dict[tuple[int, int], int]) -> None:
    """Each begins (+) or ends (-) at an instant in s, or its report is asked for (?)."""
    trace = Trace()
    reports = Reports(trace)

    async def main() -> None:
        for at_s, edge, client, dispatch in records:
            await clock.sleep_until(at_s)
            if edge == "+":
                trace.record(START, client, dispatch, "fit", 1.0, 1.0)
            elif edge == "-":
                trace.record(END, client, dispatch, "fit", "done")
            else:
                assert reports.of(reply(client, dispatch)).compute_ns == 0

    clock.run(main())
    for of, seconds in spent_s.items():
        assert reports.of(reply(*of)).compute_ns == seconds * 1_000_000_000
        assert reports.of(reply(*of)).compute_ns == 0  # it was told


def test_notes_go_with_the_next_reply_of_their_client_and_keep_nothing_alive() -> None:
    reports, chosen, array = Reports(Trace()), [1, 2], np.arange(3)
    gone = weakref.ref(array)
    reports.warn("careful", client=1, why="so", weights=array)
    reports.note("ordinary", client=2)
    reports.note("more", client=1, clients=chosen)
    chosen.append(3)
    del array
    assert gone() is None
    assert list(reports.of(reply(1, 4)).notes) == [
        Note("warning", "careful", {"why": "so", "weights": "[0 1 2]"}),
        Note("info", "more", {"clients": "[1, 2]"}),
    ]
    assert list(reports.of(reply(1, 5)).notes) == []
    assert list(reports.of(reply(2, 0)).notes) == [Note("info", "ordinary", {})]


def test_notes_without_end_are_bounded_and_counted() -> None:
    reports = Reports(Trace())
    for number in range(10_000):
        reports.note("again", client=0, number=number)
    reports.note("once", client=1)
    report = reports.of(reply(0, 0))
    assert [note.values["number"] for note in report.notes] == list(range(MOST_PER_REPLY))
    assert report.left_out == 9_984
    last = json.loads(written(report.notes, report.left_out) or "")[-1]
    assert last == ["warning", "notes left out", {"count": 9_984}]
    assert reports.of(reply(1, 0)).left_out == 0  # each client has its own
    reports.note("again", client=0)
    assert reports.of(reply(0, 1)) == (0, [Note("info", "again", {})], 0)  # and it was told
