"""When a dispatch is in which phase; that spans sum to the table is in test_dispatch_table."""

from __future__ import annotations

from fedsim.runtime.records.dispatch_phases import AWAY, COMPUTE, DOWNLOAD, UPLOAD, WAITING, UnderwayInSpans


def underway() -> UnderwayInSpans:
    return UnderwayInSpans(client=0, dispatch=0, row=0, version=0, since_ns=10, is_away=False)


def test_what_overlaps_counts_once_and_what_stands_still_is_away() -> None:
    one = underway()
    one.begin(11, DOWNLOAD)
    one.end(13, DOWNLOAD)
    one.begin(13, COMPUTE)
    one.begin(14, COMPUTE)  # a second job, beside the first
    one.begin(15, UPLOAD)  # which computing hides
    one.end(16, COMPUTE)
    one.advance(17)
    one.is_away = True
    one.advance(19)
    one.is_away = False
    one.end(20, COMPUTE)
    one.end(22, UPLOAD)
    assert one.are_exact
    assert one.spans == [
        (WAITING, 10, 11),
        (DOWNLOAD, 11, 13),
        (COMPUTE, 13, 17),
        (AWAY, 17, 19),
        (COMPUTE, 19, 20),
        (UPLOAD, 20, 22),
    ]


def test_over_sockets_what_is_told_replaces_what_was_seen() -> None:
    one = underway()
    one.begin(12, DOWNLOAD)
    one.end(30, DOWNLOAD)  # until its acknowledgement
    one.told(40, 5, 8, 3)
    assert not one.are_exact
    assert one.spans == [
        (WAITING, 10, 12),
        (DOWNLOAD, 12, 17),
        (WAITING, 17, 29),
        (COMPUTE, 29, 37),
        (UPLOAD, 37, 40),
    ]
    one.advance(41)
    assert one.spans[-1] == (WAITING, 40, 41)


def test_what_is_told_at_once_has_no_spans() -> None:
    one = underway()
    one.told(10, 5, 8, 3)
    assert one.spans == []


def test_more_than_has_passed_is_not_believed() -> None:
    one = underway()
    one.begin(12, DOWNLOAD)
    one.told(20, 100, 100, 3)
    assert one.spans == [(DOWNLOAD, 10, 17), (UPLOAD, 17, 20)]
