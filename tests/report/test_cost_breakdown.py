"""Time and bytes of three dispatches by hand: a first download is lost; client 2 is dropped, then late."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

from fedsim.bus import Header, Ledger, Outcome, Totals
from fedsim.report import cost_breakdown
from fedsim.runtime.records.result import RoundRow, RunResult
from tests.report.conftest import replayed, summary

EVENTS: list[tuple[Any, ...]] = [
    (0, "dispatch", 0, 0, 1, "talk", 0),
    (0, "dispatch", 2, 0, 1, "talk", 0),
    (0, "transfer_start", 0, 0, False),
    (2, "transfer_end", 0, 0, False, "lost", "restarted"),
    (2, "transfer_start", 0, 0, False),
    (3, "transfer_end", 0, 0, False, "delivered", ""),
    (3, "job_start", 0, 0, "fit"),
    (7, "job_end", 0, 0, "fit", "done"),
    (7, "transfer_start", 0, 0, True),
    (8, "transfer_end", 0, 0, True, "delivered", ""),
    (9, "drop", 2, 0, "too late"),
    (9, "merge", 1, "talk", 1, (0,), (0,)),
    (10, "dispatch", 2, 1, 2, "talk", 1),
    (10, "job_start", 2, 0, "fit"),
    (15, "job_end", 2, 0, "fit", "done"),
    (15, "late", 2, 0),
    (15, "job_start", 2, 1, "fit"),
    (16, "job_end", 2, 1, "fit", "done"),
    (16, "merge", 2, "talk", 2, (2,), (1,)),
]
FRAMES = [
    (-1, 0, 1, 0, 100, Outcome.LOST),
    (-1, 0, 1, 0, 100, Outcome.DELIVERED),
    (-1, 2, 1, 0, 100, Outcome.DELIVERED),
    (0, -1, 1, 0, 30, Outcome.DELIVERED),
    (-1, 2, 2, 1, 100, Outcome.DELIVERED),
]


@pytest.fixture
def result() -> RunResult:
    ledger = Ledger()
    for sender, receiver, number, dispatch, num_bytes, outcome in FRAMES:
        header = Header(sender, receiver, number, "talk", dispatch, 0)
        ledger.ended(0, ledger.sent(0, header, header.sender >= 0, ("word", num_bytes, 1, False, 4)), outcome)
    drops = Counter({"too late": 1})
    rows = [
        RoundRow(1, 0.0, 9.0, 2, 1, 1, 0, 0, Totals(), None, drops),
        RoundRow(2, 9.0, 16.0, 1, 1, 0, 0, 1, Totals(), None),
    ]
    tallies = {"asked": [1, 0, 2], "merged": [1, 0, 1], "dropped": [0, 0, 1], "rejected": [0] * 3}
    by_client = {name: np.array(tally, np.int32) for name, tally in (tallies | {"late": [0, 0, 1]}).items()}
    return RunResult(16.0, rows, by_client, ledger, replayed(EVENTS, 16), drops, Counter(), "t", "m")


def told(columns: cost_breakdown.Columns) -> dict[str, list[Any]]:
    return {name: values.tolist() for name, values in columns.items()}


def test_the_summary(result: RunResult) -> None:
    assert cost_breakdown.breakdown(result) == {
        "time": {
            "download_s": 3.0,
            "compute_s": 4.0 + 5.0 + 1.0,
            "upload_s": 1.0,
            "away_s": 0.0,
            # Client 2 waits for 10 s before its first work, and for 5 before its second.
            "waiting_s": 15.0,
            "wasted_s": 5.0,
        },
        "bytes": {
            "payload_up": 30,
            "payload_down": 400,
            "overhead_up": 4,
            "overhead_down": 16,
            "wasted": 100 + 100,
        },
        "drops_by_cause": {"too late": 1},
        "participation": {
            "asked": 3,
            "merged": 2,
            "dropped": 1,
            "rejected": 0,
            "late": 1,
            "clients_asked": 2,
            "clients_merged": 2,
        },
    }


def test_rounds_count_the_work_that_they_asked_for(result: RunResult) -> None:
    assert told(cost_breakdown.by_round(result)) == {
        "download_s": [3.0, 0.0],
        "compute_s": [9.0, 1.0],
        "upload_s": [1.0, 0.0],
        "away_s": [0.0, 0.0],
        "waiting_s": [10.0, 5.0],
        "wasted_s": [5.0, 0.0],
        "wasted_bytes": [200, 0],
        "dropped_too_late": [1, 0],
    }


def test_clients(result: RunResult) -> None:
    assert told(cost_breakdown.by_client(result, 3)) == {
        "download_s": [3.0, 0.0, 0.0],
        "compute_s": [4.0, 0.0, 6.0],
        "upload_s": [1.0, 0.0, 0.0],
        "away_s": [0.0, 0.0, 0.0],
        "waiting_s": [0.0, 0.0, 15.0],
        "wasted_s": [0.0, 0.0, 5.0],
        "wasted_bytes": [100, 0, 100],
        "dropped_too_late": [0, 0, 1],
    }


def test_the_table_for_people() -> None:
    nothing = {"payload_up": 0, "payload_down": 0, "overhead_up": 0, "overhead_down": 0, "wasted": 0}
    idle = {"download_s": 0.0, "compute_s": 0.0, "upload_s": 0.0, "wasted_s": 0.0}
    grid = cost_breakdown.table(
        [
            summary("fedavg", drops_by_cause={"timeout": 3, "left": 1}),
            summary("fedavg", time={"compute_s": 14.0}, drops_by_cause={"timeout": 2}),
            summary("local", bytes=nothing, time=idle),
        ]
    )
    fedavg, local = grid.rows
    # A quarter and an eighth of the work are wasted.
    assert fedavg == ("fedavg", "1 s", "10 s", "1 s", "30 s", "18.8", "4 kB", "100 B", "10.0")
    assert local == ("local", "0 s", "0 s", "0 s", "30 s", "-", "0 B", "0 B", "-")
    assert grid.notes[-1] == "drops of fedavg: left 0.5, timeout 2.5"


def test_time_away_is_told_where_there_is_any() -> None:
    away = summary("fedavg", time={"away_s": 90.0})
    grid = cost_breakdown.table([away, summary("local")])
    assert grid.headings[:5] == ("algorithm", "download", "compute", "upload", "waiting")
    assert grid.notes[-1] == "pauses during work, fedavg: 1 min 30 s"
    # A quarter of the work is wasted, as without the absence.
    assert grid.rows[0][5] == grid.rows[1][5] == "25.0"
    assert cost_breakdown.lines(away)[0] == (
        "client time",
        "1 s download, 6 s compute, 1 s upload, 1 min 30 s away, 30 s waiting",
    )


def test_the_table_fits_in_100_columns() -> None:
    long_s = 23 * 3600.0 + 59 * 60
    time = {f"{name}_s": long_s for name in ("download", "compute", "upload", "away", "waiting")}
    grid = cost_breakdown.table(
        [
            summary(
                "fedsomething",
                time=time | {"wasted_s": 3 * long_s},
                bytes={"payload_up": 123_000_000, "overhead_up": 123_000_000, "wasted": 123_003_000},
            )
        ]
    )
    assert max(map(len, grid.lines())) <= 100
    assert max(map(len, grid.notes)) <= 98


def test_the_block_of_one_run() -> None:
    assert cost_breakdown.lines(summary("fedavg")) == [
        ("client time", "1 s download, 6 s compute, 1 s upload, 30 s waiting"),
        ("wasted", "25.0 % of the work, 10.0 % of the bytes"),
        ("payload", "1 kB up, 3 kB down"),
        ("overhead", "40 B up, 60 B down"),
        ("dispatches", "9 to 4 of 5 clients: merged 6, dropped 2, rejected 1, late 1"),
    ]
