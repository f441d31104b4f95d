"""When a dispatch is in which phase; that spans sum to the table is in test_dispatch_table."""

from __future__ import annotations

from fedsim.runtime.records.dispatch_phases import (
    AWAY,
    COMPUTE,
    DOWNLOAD,
    PASSED,
    UPLOAD,
    WAITING,
    PhaseLog,
    Report,
)


def log(*events: tuple[int, int], row: int = 0) -> PhaseLog:
    """Return the log of a dispatch that is sent at 10 ns, and of events, each as (instant in ns, event)."""
    made = PhaseLog()
    for at_ns, event in ((10, PASSED), *events):
        made.add(row, at_ns, event)
    return made


def spans(made: PhaseLog, *, is_exact: bool = True) -> list[tuple[int, int, int]]:
    """Return the spans as (phase, begin, end)."""
    cells = made.spans([]).tolist()
    assert all(exact == is_exact for *_, exact in cells)
    return [(phase, began_ns, ended_ns) for _, phase, began_ns, ended_ns, _ in cells]


def test_what_overlaps_counts_once_and_what_stands_still_is_away() -> None:
    made = log(
        (11, DOWNLOAD),
        (13, -DOWNLOAD),
        (13, COMPUTE),
        (14, COMPUTE),  # a second job, beside the first
        (15, UPLOAD),  # which computing hides
        (16, -COMPUTE),
        (17, AWAY),
        (19, -AWAY),
        (20, -COMPUTE),
        (22, -UPLOAD),
    )
    assert spans(made) == [
        (WAITING, 10, 11),
        (DOWNLOAD, 11, 13),
        (COMPUTE, 13, 17),
        (AWAY, 17, 19),
        (COMPUTE, 19, 20),
        (UPLOAD, 20, 22),
    ]


def test_who_leaves_with_nothing_under_way_does_not_prolong_the_dispatch() -> None:
    assert spans(log((11, AWAY), (12, COMPUTE), (14, -AWAY), (15, -COMPUTE), (16, AWAY), (17, -AWAY))) == [
        (WAITING, 10, 12),
        (AWAY, 12, 14),
        (COMPUTE, 14, 15),
    ]
    assert spans(log((11, AWAY), (12, -AWAY))) == []


def test_dispatches_that_are_open_stay_in_the_log() -> None:
    made = log((11, COMPUTE), row=3)
    for event in ((2, 10, PASSED), (2, 12, COMPUTE), (3, 13, -COMPUTE), (2, 14, -COMPUTE)):
        made.add(*event)
    made.report(3, Report(20, 2, 3, 4))
    copied = made.copy()
    assert made.spans([3]).tolist() == [[2, WAITING, 10, 12, 1], [2, COMPUTE, 12, 14, 1]]
    assert len(made) == 4
    assert spans(made, is_exact=False) == [
        (WAITING, 10, 11),
        (DOWNLOAD, 11, 13),
        (COMPUTE, 13, 16),
        (UPLOAD, 16, 20),
    ]
    assert len(made) == 0
    assert len(copied) == 7, "a copy is another log"


def test_over_sockets_a_report_replaces_what_was_seen() -> None:
    made = log((12, DOWNLOAD), (30, -DOWNLOAD))  # until its acknowledgement
    made.report(0, Report(40, 5, 8, 3))
    made.add(0, 41, PASSED)
    assert spans(made, is_exact=False) == [
        (WAITING, 10, 12),
        (DOWNLOAD, 12, 17),
        (WAITING, 17, 29),
        (COMPUTE, 29, 37),
        (UPLOAD, 37, 40),
        (WAITING, 40, 41),
    ]


def test_a_report_at_once_has_no_spans() -> None:
    made = log()
    made.report(0, Report(10, 5, 8, 3))
    assert spans(made) == []


def test_more_than_has_passed_is_not_believed() -> None:
    made = log((12, DOWNLOAD))
    made.report(0, Report(20, 100, 100, 3))
    assert spans(made, is_exact=False) == [(DOWNLOAD, 10, 17), (UPLOAD, 17, 20)]
