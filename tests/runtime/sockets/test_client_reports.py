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


def answer(client: int, dispatch: int) -> Header:
    return Header(client, -1, 1, "talk", dispatch, dispatch)


def told(*records: tuple[Any, ...]) -> Reports:
    """Return reports of jobs, each begun (+) or ended (-) at an instant in s."""
    trace = Trace()
    reports = Reports(trace)

    async def main() -> None:
        for at_s, edge, client, dispatch in records:
            await clock.sleep_until(at_s)
            if edge == "+":
                trace.record(START, client, dispatch, "fit", 1.0, 1.0)
            else:
                trace.record(END, client, dispatch, "fit", "done")

    clock.run(main())
    return reports


@pytest.mark.parametrize(
    ("records", "spent_s"),
    [
        ([(1, "+", 0, 0), (3, "-", 0, 0), (10, "+", 0, 0), (11, "-", 0, 0)], {(0, 0): 3}),
        ([(1, "+", 0, 0), (2, "+", 0, 0), (3, "-", 0, 0), (5, "-", 0, 0)], {(0, 0): 4}),
        (
            [(1, "+", 0, 0), (1, "+", 1, 0), (2, "-", 0, 0), (2, "+", 0, 1), (4, "-", 1, 0), (7, "-", 0, 1)],
            {(0, 0): 1, (1, 0): 3, (0, 1): 5, (2, 0): 0},
        ),
    ],
    ids=["one after the other", "at the same time", "of several dispatches"],
)
def test_how_long_jobs_ran(records: Any, spent_s: dict[tuple[int, int], int]) -> None:
    reports = told(*records)
    for of, seconds in spent_s.items():
        assert reports.of(answer(*of)).compute_ns == seconds * 1_000_000_000
        assert reports.of(answer(*of)).compute_ns == 0  # it was told


def test_the_end_of_a_job_that_was_reported_before_is_no_fault() -> None:
    trace = Trace()
    reports = Reports(trace)

    async def main() -> None:
        trace.record(START, 0, 0, "fit", 1.0, 1.0)
        assert reports.of(answer(0, 0)).compute_ns == 0
        trace.record(END, 0, 0, "fit", "cancelled")

    clock.run(main())


def test_notes_go_with_the_next_answer_of_their_client() -> None:
    reports = Reports(Trace())
    reports.warn("careful", client=1, why="so")
    reports.note("ordinary", client=2)
    reports.note("more", client=1)
    assert list(reports.of(answer(1, 4)).notes) == [
        Note("warning", "careful", {"why": "so"}),
        Note("info", "more", {}),
    ]
    assert list(reports.of(answer(1, 5)).notes) == []
    assert list(reports.of(answer(2, 0)).notes) == [Note("info", "ordinary", {})]


def test_notes_without_end_are_bounded_and_counted() -> None:
    reports = Reports(Trace())
    for number in range(10_000):
        reports.note("again", client=0, number=number)
    reports.note("once", client=1)
    report = reports.of(answer(0, 0))
    assert [note.values["number"] for note in report.notes] == list(range(MOST_PER_REPLY))
    assert report.left_out == 9_984
    last = json.loads(written(report.notes, report.left_out) or "")[-1]
    assert last == ["warning", "notes left out", {"count": 9_984}]
    assert reports.of(answer(1, 0)).left_out == 0  # each client has its own
    reports.note("again", client=0)
    assert reports.of(answer(0, 1)) == (0, [Note("info", "again", {})], 0)  # and it was told


def test_a_note_keeps_its_values_and_nothing_alive() -> None:
    reports = Reports(Trace())
    chosen, array = [1, 2], np.arange(3)
    gone = weakref.ref(array)
    reports.note("chosen", client=0, clients=chosen)
    reports.warn("odd", client=0, weights=array)
    chosen.append(3)
    del array
    assert gone() is None
    assert reports.of(answer(0, 0)).notes == [
        Note("info", "chosen", {"clients": "[1, 2]"}),
        Note("warning", "odd", {"weights": "[0 1 2]"}),
    ]
