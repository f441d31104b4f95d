"""Rows, tallies, causes and lines of the log, drawn from the records of a trace."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from fedsim import clock
from fedsim.bus import Header, Ledger
from fedsim.clock import Trace
from fedsim.clock.event_trace import stored_hash
from fedsim.runtime.evaluation import Accuracy, FinalModels
from fedsim.runtime.records.recorder import Recorder, silent
from fedsim.runtime.records.result import RoundRow, RunResult
from fedsim.runtime.server.actor import MERGE, REJECT
from fedsim.runtime.server.open_dispatches import DISPATCH, DROP, LATE


class Notes:
    """A logger that keeps what it is told."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, dict[str, Any]]] = []

    def info(self, event: str, **values: Any) -> None:
        self.lines.append(("info", event, values))

    def warning(self, event: str, **values: Any) -> None:
        self.lines.append(("warning", event, values))


class Story:
    """A run of three clients told by hand."""

    def __init__(self) -> None:
        self.ledger, self.trace, self.notes = Ledger(), Trace(keep=True), Notes()
        self.told = list[RoundRow]()
        self.recorder = Recorder(3, self.ledger, self.trace, self.notes, self.told.append)

    def play(self, *steps: tuple[Any, ...]) -> RunResult:
        """Take steps, each (instant in s, function, *arguments); the run ends with the last."""

        async def main() -> RunResult:
            for at_s, step, *values in steps:
                await clock.sleep_until(at_s)
                step(*values)
            return self.recorder.close()(FinalModels("digest", None))

        return clock.run(main())

    def send(self, num_bytes: int) -> None:
        self.ledger.sent(0, Header(-1, 0, 1, "talk", 0, 0), False, ("word", num_bytes, 3, False, 0))

    def ask(self, *clients: int, dispatch: int = 0) -> None:
        for client in clients:
            self.trace.record(DISPATCH, client, dispatch, 1, "talk", dispatch)


ACCURACY = Accuracy(np.arange(1), np.ones(1), np.ones(1, np.int64), None, np.ones(1), None)


def test_rows_tallies_and_what_is_told() -> None:
    story = Story()
    recorder, record = story.recorder, story.trace.record
    result = story.play(
        (2.0, recorder.begin_round, 1),
        (2.0, story.ask, 0, 1, 2),
        (2.0, story.send, 100),
        (3.0, record, DROP, 1, 0, "timeout"),
        (4.0, record, REJECT, 2, 0, "rubbish"),
        (4.0, record, MERGE, 1, "talk", 1, [0], [0]),
        (5.0, recorder.end_round, ACCURACY),
    )
    (row,) = result.rounds
    assert (row.round, row.began_at_s, row.ended_at_s) == (1, 2.0, 5.0)
    assert (row.asked, row.merged, row.dropped, row.rejected, row.late) == (3, 1, 1, 1, 0)
    assert (row.traffic.frames_down, row.traffic.bytes_down, row.traffic.parameters_down) == (1, 100, 3)
    assert row.accuracy is ACCURACY
    assert story.told == [row]
    assert result.drops == row.drops == {"timeout": 1}
    assert result.rejections == {"rubbish": 1}
    assert {name: tally.tolist() for name, tally in result.by_client.items()} == {
        "asked": [1, 1, 1],
        "merged": [1, 0, 0],
        "dropped": [0, 1, 0],
        "rejected": [0, 0, 1],
        "late": [0, 0, 0],
    }
    assert all(tally.dtype == np.int32 for tally in result.by_client.values())
    assert story.trace.kept[-1] == (5_000_000_000, "round_end", 1, 3, 1)
    assert result.trace_hash == story.trace.hash()


def test_the_log_has_a_line_for_each_drop_rejection_and_late_reply_and_for_each_round() -> None:
    story = Story()
    recorder, record = story.recorder, story.trace.record
    story.play(
        (0.0, recorder.begin_round, 1),
        (0.0, story.ask, 0, 1),
        (1.0, record, DROP, 1, 0, "timeout"),
        (2.0, record, REJECT, 0, 0, "rubbish"),
        (3.0, record, LATE, 1, 0),
        (4.0, recorder.end_round),
    )
    assert story.notes.lines == [
        ("warning", "dropped", {"client": 1, "dispatch": 0, "cause": "timeout"}),
        ("warning", "rejected", {"client": 0, "dispatch": 0, "reason": "rubbish"}),
        ("info", "late", {"client": 1, "dispatch": 0}),
        ("info", "round", {"round": 1, "asked": 2, "merged": 0, "dropped": 1}),
    ]


def test_a_round_starts_with_nothing() -> None:
    story = Story()
    recorder = story.recorder
    result = story.play(
        (0.0, recorder.begin_round, 1),
        (0.0, story.ask, 0),
        (1.0, story.trace.record, DROP, 0, 0, "timeout"),
        (1.0, recorder.end_round, ACCURACY),
        (1.0, recorder.begin_round, 2),
        (2.0, recorder.end_round),
    )
    first, row = result.rounds
    assert (row.asked, row.accuracy, row.traffic.frames_down) == (0, None, 0)
    assert (first.drops, row.drops) == ({"timeout": 1}, {})


def test_what_happens_between_two_rounds_counts_in_the_second() -> None:
    story = Story()
    recorder, record = story.recorder, story.trace.record
    result = story.play(
        (0.0, recorder.begin_round, 1),
        (0.0, story.ask, 0),
        (1.0, record, DROP, 0, 0, "timeout"),
        (1.0, recorder.end_round),
        (1.5, story.send, 10),
        (1.5, record, LATE, 0, 0),
        (2.0, recorder.begin_round, 2),
        (2.0, story.send, 20),
        (3.0, recorder.end_round),
    )
    row = result.rounds[1]
    assert (row.began_at_s, row.late, row.traffic.bytes_down) == (2.0, 1, 30)
    assert result.by_client["late"].tolist() == [1, 0, 0]
    assert result.by_client["dropped"].tolist() == [1, 0, 0]  # before it was late


def test_what_is_left_at_the_end_gets_a_row_after_the_last() -> None:
    story = Story()
    recorder = story.recorder
    result = story.play(
        (0.0, recorder.begin_round, 4),
        (0.0, story.ask, 0),
        (1.0, recorder.end_round),
        (1.5, story.trace.record, DROP, 0, 0, "the run ended"),
        (1.5, story.send, 10),
    )
    _, row = result.rounds
    assert (row.round, row.began_at_s, row.ended_at_s, row.dropped) == (5, 1.5, 1.5, 1)
    assert (row.drops, row.traffic.bytes_down) == ({"the run ended": 1}, 10)
    assert result.drops == {"the run ended": 1}


def test_traffic_alone_gets_one_too_and_nothing_none() -> None:
    for num_bytes in ((), (10,)):
        story = Story()
        sent = [(1.0, story.send, one) for one in num_bytes]
        result = story.play((0.0, story.recorder.begin_round, 1), (1.0, story.recorder.end_round), *sent)
        assert [row.traffic.bytes_down for row in result.rounds] == [0, *num_bytes]


def test_a_round_that_never_ended_ends_with_the_run() -> None:
    story = Story()
    result = story.play(
        (2.0, story.recorder.begin_round, 3),
        (2.0, story.ask, 0),
        (5.0, story.trace.record, DROP, 0, 0, "the run ended"),
    )
    assert [(row.round, row.began_at_s, row.ended_at_s, row.asked) for row in result.rounds] == [(3, 2, 5, 1)]


def test_what_comes_after_the_end_belongs_to_no_run() -> None:
    sink = io.BytesIO()
    ledger, trace, notes = Ledger(), Trace(sink), Notes()
    recorder = Recorder(1, ledger, trace, notes)

    async def main() -> RunResult:
        make = recorder.close(is_going_on=True)
        trace.record(DISPATCH, 0, 0, 1, "talk", 0)
        trace.record(LATE, 0, 0)
        ledger.sent(0, Header(-1, 0, 1, "talk", 0, 0), False, ("word", 10, 3, False, 0))
        return make(FinalModels("digest", None))

    result = clock.run(main())
    assert (result.rounds, notes.lines, len(result.dispatches), len(result.ledger)) == ((), [], 0, 0)
    assert result.by_client["asked"].tolist() == [0]
    assert result.trace_hash == Trace().hash() == stored_hash(io.BytesIO(sink.getvalue()))


def test_nobody_has_to_watch_a_round() -> None:
    recorder = Recorder(1, Ledger(), Trace(), silent())

    async def main() -> None:
        recorder.begin_round(1)
        recorder.end_round()

    clock.run(main())
    assert [row.round for row in recorder.rows] == [1]
