from __future__ import annotations

import numpy as np

from fedsim.bus import Header, Ledger
from fedsim.runtime.observer import Accuracy
from fedsim.runtime.recorder import Recorder, RoundRow


def _send(ledger: Ledger, num_bytes: int) -> None:
    ledger.sent(Header(-1, 0, 1, "talk", 0, 0), "word", num_bytes, 3, False)


def test_rows_tallies_and_what_is_told() -> None:
    ledger, told = Ledger(), list[RoundRow]()
    recorder = Recorder(3, ledger, told.append)
    recorder.begin(1, 2.0)
    for client in range(3):
        recorder.asked(client)
    _send(ledger, 100)
    recorder.merged(0)
    recorder.dropped(1, "timeout")
    recorder.rejected(2, "rubbish")
    accuracy = Accuracy(np.arange(1), np.ones(1), np.ones(1, np.int64), None, np.ones(1), None)
    recorder.measured(accuracy)
    row = recorder.end(5.0)
    assert (row.round, row.began_at_s, row.ended_at_s) == (1, 2.0, 5.0)
    assert (row.asked, row.merged, row.dropped, row.rejected, row.late) == (3, 1, 1, 1, 0)
    assert (row.traffic.frames_down, row.traffic.bytes_down, row.traffic.parameters_down) == (1, 100, 3)
    assert row.accuracy is accuracy
    assert recorder.rows == told == [row]
    assert recorder.drops == row.drops == {"timeout": 1}
    assert recorder.reasons == {"rubbish": 1}
    assert {name: tally.tolist() for name, tally in recorder.by_client.items()} == {
        "asked": [1, 1, 1],
        "merged": [1, 0, 0],
        "dropped": [0, 1, 0],
        "rejected": [0, 0, 1],
        "late": [0, 0, 0],
    }


def test_a_round_starts_with_nothing() -> None:
    recorder = Recorder(1, Ledger())
    recorder.begin(1, 0.0)
    recorder.asked(0)
    recorder.dropped(0, "timeout")
    recorder.measured(Accuracy(np.arange(1), np.ones(1), np.ones(1, np.int64), None, np.ones(1), None))
    recorder.end(1.0)
    recorder.begin(2, 1.0)
    row = recorder.end(2.0)
    assert (row.asked, row.accuracy, row.traffic.frames_down) == (0, None, 0)
    assert (recorder.rows[0].drops, row.drops) == ({"timeout": 1}, {})


def test_what_happens_between_two_rounds_counts_in_the_second() -> None:
    ledger = Ledger()
    recorder = Recorder(1, ledger)
    recorder.begin(1, 0.0)
    recorder.end(1.0)
    _send(ledger, 10)
    recorder.late(0)
    recorder.begin(2, 2.0)
    _send(ledger, 20)
    row = recorder.end(3.0)
    assert (row.late, row.traffic.bytes_down) == (1, 30)
    assert recorder.by_client["late"].tolist() == [1]


def test_what_is_left_at_the_end_gets_a_row_after_the_last() -> None:
    ledger = Ledger()
    recorder = Recorder(1, ledger)
    recorder.begin(4, 0.0)
    recorder.asked(0)
    recorder.end(1.0)
    recorder.dropped(0, "the run ended")
    _send(ledger, 10)
    recorder.close(1.5)
    row = recorder.rows[-1]
    assert (row.round, row.began_at_s, row.ended_at_s, row.dropped) == (5, 1.5, 1.5, 1)
    assert (row.drops, row.traffic.bytes_down) == ({"the run ended": 1}, 10)
    recorder.close(2.0)
    assert len(recorder.rows) == 2


def test_traffic_alone_gets_one_too_and_nothing_none() -> None:
    ledger = Ledger()
    recorder = Recorder(1, ledger)
    recorder.begin(1, 0.0)
    recorder.end(1.0)
    recorder.close(1.0)
    assert len(recorder.rows) == 1
    _send(ledger, 10)
    recorder.close(1.0)
    assert [row.traffic.bytes_down for row in recorder.rows] == [0, 10]


def test_a_round_that_never_ended_ends_with_the_run() -> None:
    recorder = Recorder(1, Ledger())
    recorder.begin(3, 2.0)
    recorder.asked(0)
    recorder.close(5.0)
    assert [(row.round, row.began_at_s, row.ended_at_s, row.asked) for row in recorder.rows] == [(3, 2, 5, 1)]
