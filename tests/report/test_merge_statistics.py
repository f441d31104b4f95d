"""Staleness, clients at work and merges of runs of a few dispatches, made by hand."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.bus import Ledger, Totals
from fedsim.report import merge_statistics
from fedsim.runtime.records.result import RoundRow, RunResult
from tests.report.conftest import replayed

# Clients 0 and 1 from 0 s on; round 1 merges 0 at 2 s, and asks it again; round 2 merges both at 6 s; 0 is
# asked once more and never answers.
EVENTS: list[tuple[Any, ...]] = [
    (0, "dispatch", 0, 0, 0, "greet", 0),
    (0, "merge", 0, "greet", 1, (0,), (0,)),
    (0, "dispatch", 0, 1, 1, "train", 0),
    (0, "dispatch", 1, 0, 1, "train", 0),
    (0, "job_start", 0, 1, "fit"),
    (0, "job_start", 1, 0, "fit"),
    (2, "job_end", 0, 1, "fit", "done"),
    (2, "merge", 1, "train", 2, (0,), (1,)),
    (2, "dispatch", 0, 2, 1, "train", 1),
    (2, "job_start", 0, 2, "fit"),
    (5, "job_end", 1, 0, "fit", "done"),
    (6, "job_end", 0, 2, "fit", "done"),
    (6, "merge", 2, "train", 3, (0, 1), (2, 0)),
    (6, "dispatch", 0, 3, 2, "train", 2),
    (8, "drop", 0, 3, "timeout"),
]


def _result(
    events: Sequence[tuple[Any, ...]], rounds: Sequence[tuple[float, float]], end_s: float
) -> RunResult:
    rows = [RoundRow(n, *ends, 0, 0, 0, 0, 0, Totals(), None) for n, ends in enumerate(rounds)]
    none = Counter[str]()
    return RunResult(end_s, rows, {}, Ledger(), replayed(events, end_s), none, none, "", "")


@pytest.fixture
def result() -> RunResult:
    return _result(EVENTS, [(0, 0), (0, 2), (2, 8)], 8)


def test_the_summary(result: RunResult) -> None:
    # Client 1 was asked before the first merge of a round, and is merged by the second; the opening is none.
    assert merge_statistics.merge_figures(result) == {
        "staleness": {"mean": pytest.approx(1 / 3), "p99": 1, "max": 1},
        "concurrency": {"mean": (2 + 5 + 4 + 2) / 8, "max": 2},
        "merges": 2,
        "merges_per_hour": 900.0,
    }


def test_99_percent_of_the_replies_are_at_most_so_stale() -> None:
    # 200 replies, each merged on its own: the staleness of each is the number of those before it.
    asked = [(0, "dispatch", client, 0, 1, "train", 0) for client in range(200)]
    merges = [(1, "merge", 1, "train", client + 1, (client,), (0,)) for client in range(200)]
    found = merge_statistics.merge_figures(_result([*asked, *merges], [(0, 1)], 1))["staleness"]
    assert found == {"mean": 99.5, "p99": 197, "max": 199}


def test_the_columns_of_rounds(result: RunResult) -> None:
    columns = merge_statistics.by_round(result)
    assert columns["merges"].tolist() == [0, 1, 1]
    assert columns["staleness_mean"].tolist()[1:] == [0, 0.5]
    assert np.isnan(columns["staleness_mean"][0])
    assert columns["staleness_max"].tolist() == [None, 0, 1]
    # Of a moment there is no mean over time; in the third round 3, 4 and 2 s of work lie within 6 s.
    assert columns["concurrency_mean"].tolist()[1:] == [2.0, 9 / 6]
    assert np.isnan(columns["concurrency_mean"][0])


def test_the_table_of_dispatches_has_version_and_staleness(result: RunResult) -> None:
    columns = result.dispatches.columns()
    assert columns["version"].tolist() == [0, 0, 0, 1, 2]
    assert columns["staleness"].tolist() == [None, 0, 1, 0, None]


def test_nothing_was_merged_and_no_time_has_passed() -> None:
    empty = _result([], [(0, 0)], 0)
    assert merge_statistics.merge_figures(empty) == {
        "staleness": {"mean": None, "p99": None, "max": None},
        "concurrency": {"mean": None, "max": 0},
        "merges": 0,
        "merges_per_hour": None,
    }
    assert {name: column.tolist() for name, column in merge_statistics.by_round(empty).items()} == {
        "merges": [0],
        "staleness_mean": [pytest.approx(np.nan, nan_ok=True)],
        "staleness_max": [None],
        "concurrency_mean": [pytest.approx(np.nan, nan_ok=True)],
    }


def test_the_line_is_told_where_replies_were_stale(result: RunResult) -> None:
    said = merge_statistics.line(merge_statistics.merge_figures(result))
    assert said == (
        "staleness 0.333, 99 % of the replies at most 1, largest 1; 1.62 clients at work; 900 merges an hour"
    )
    assert merge_statistics.line({**merge_statistics.merge_figures(result), "staleness": {"max": 0}}) is None


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=20))
def test_clients_at_work_are_counted_as_one_by_one(spans: list[tuple[int, int]]) -> None:
    asked = np.array([min(span) for span in spans], np.int64)
    ended = np.array([max(span) for span in spans], np.int64)
    instants = np.arange(52)
    during = [int(sum((asked <= at) & (at < ended))) for at in instants.tolist()]
    assert merge_statistics._most_at_work(asked, ended) == max(during)
    worked = merge_statistics.accumulated(asked, ended, np.ones_like(asked), instants)
    assert worked.tolist() == [0, *np.cumsum(during)[:-1].tolist()]
