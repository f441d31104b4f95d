from array import array
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.bus import Header, Ledger, Outcome, Totals
from fedsim.errors import InvariantError

DOWN = Header(-1, 7, 1, "train", 0, 0)
UP = DOWN.reply()
S = 1_000_000_000

totals = st.builds(Totals, **{field.name: st.integers(0, 10**12) for field in fields(Totals)})


def filled() -> Ledger:
    ledger = Ledger()
    ledger.sent(0 * S, DOWN, False, ("model", 100, 10, False, 0))
    ledger.sent(1 * S, UP, True, ("update", 60, 10, False, 7))
    ledger.sent(2 * S, UP, True, ("samples", 500, 3, True, 9))
    ledger.sent(3 * S, DOWN, False, ("samples", 40, 0, True, 0))
    return ledger


def test_data_is_counted_apart_from_bytes_and_parameters() -> None:
    assert filled().totals() == Totals(
        frames_up=2,
        frames_down=2,
        bytes_up=60,
        bytes_down=100,
        parameters_up=10,
        parameters_down=10,
        data_up=500,
        data_down=40,
        overhead_up=7 + 9,
        bytes_plain_up=60,
        bytes_plain_down=100,
    )


def test_coded_frames_have_a_length_without_codecs_too() -> None:
    ledger = filled()
    ledger.sent(4 * S, UP, True, ("update+coded", 20, 10, False, 0), 60)
    ledger.sent(4 * S, UP, True, ("samples+coded", 5, 0, True, 0), 50)
    totals = ledger.totals()
    assert (totals.bytes_up, totals.bytes_plain_up, totals.data_up) == (80, 120, 505)
    assert ledger.columns()["bytes_plain"].tolist() == [100, 60, 500, 40, 60, 50]
    ledger.check()


def test_rows_come_out_as_columns() -> None:
    ledger = filled()
    ledger.ended(int(2.5 * S), 1, Outcome.DELIVERED)
    columns = {name: column.tolist() for name, column in ledger.columns().items()}
    np.testing.assert_equal(columns.pop("arrived_at_s"), [np.nan, 2.5, np.nan, np.nan])
    assert columns == {
        "round": [1, 1, 1, 1],
        "client": [7, 7, 7, 7],
        "dispatch": [0, 0, 0, 0],
        "bytes": [100, 60, 500, 40],
        "bytes_plain": [100, 60, 500, 40],
        "parameters": [10, 10, 3, 0],
        "overhead": [0, 7, 9, 0],
        "arrivals": [0, 1, 0, 0],
        "up": [False, True, True, False],
        "data": [False, False, True, True],
        "exchange": ["train"] * 4,
        "kind": ["model", "update", "samples", "samples"],
        "outcome": ["in_flight", "delivered", "in_flight", "in_flight"],
        "sent_at_s": [0.0, 1.0, 2.0, 3.0],
    }


def test_an_empty_ledger_has_empty_columns_of_the_same_names() -> None:
    ledger = Ledger()
    assert ledger.columns().keys() == filled().columns().keys()
    assert {len(column) for column in ledger.columns().values()} == {0}
    assert ledger.outcomes() == dict.fromkeys(("in_flight", "lost", "undecodable", "delivered"), 0)
    assert ledger.totals() == Totals()
    ledger.check()


@pytest.mark.parametrize(
    ("ends", "outcome", "arrivals", "arrived_at_s"),
    [
        ([], "in_flight", 0, np.nan),
        ([Outcome.DELIVERED], "delivered", 1, 10),
        ([Outcome.LOST], "lost", 0, np.nan),
        ([Outcome.UNDECODABLE], "undecodable", 1, 10),
        ([Outcome.DELIVERED, Outcome.DELIVERED], "delivered", 2, 10),
        ([Outcome.UNDECODABLE, Outcome.DELIVERED], "delivered", 2, 11),
        ([Outcome.DELIVERED, Outcome.UNDECODABLE], "delivered", 2, 10),
        ([Outcome.DELIVERED, Outcome.LOST], "delivered", 1, 10),
        ([Outcome.LOST, Outcome.DELIVERED], "delivered", 1, 11),
        ([Outcome.LOST, Outcome.UNDECODABLE], "undecodable", 1, 11),
    ],
)
def test_of_several_copies_the_best_outcome_stands_and_the_first_that_had_it(
    ends: list[Outcome], outcome: str, arrivals: int, arrived_at_s: float
) -> None:
    ledger = filled()
    firsts = [ledger.ended(at_s * S, 2, end) for at_s, end in enumerate(ends, 10)]
    assert firsts == [index == 0 for index in range(len(ends))]
    columns = ledger.columns()
    assert (columns["outcome"][2], columns["arrivals"][2]) == (outcome, arrivals)
    np.testing.assert_equal(columns["arrived_at_s"][2], arrived_at_s)
    assert sum(ledger.outcomes().values()) == len(ledger) == 4
    assert ledger.outcomes()[outcome] == (4 if outcome == "in_flight" else 1)


def test_a_row_costs_at_most_64_bytes() -> None:
    ledger = filled()
    columns = [column for column in vars(ledger).values() if isinstance(column, array)]
    assert sum(len(column) * column.itemsize for column in columns) / len(ledger) == 59 <= 64


def test_columns_are_copies_so_the_ledger_can_grow() -> None:
    ledger = filled()
    columns = ledger.columns()
    ledger.sent(0, UP, True, ("update", 1, 1, False, 0))
    columns["bytes"][0] = 0
    assert len(columns["bytes"]) == 4
    assert ledger.columns()["bytes"][0] == 100


def test_a_total_that_differs_from_its_rows_is_found() -> None:
    ledger = filled()
    ledger._totals[True][1] += 1
    with pytest.raises(
        InvariantError, match=r"rows up sum to \[2, 60, 10, 500, 16, 60\].*\[2, 61, 10, 500, 16, 60\]"
    ):
        ledger.check()


@given(
    st.lists(
        st.tuples(st.booleans(), st.integers(0, 2**40), st.integers(0, 2**40), st.booleans()), max_size=20
    )
)
def test_totals_are_the_sums_of_the_rows(frames: list[tuple[bool, int, int, bool]]) -> None:
    ledger = Ledger()
    before = ledger.totals()
    added = Totals()
    for up, num_bytes, parameters, is_data in frames:
        ledger.sent(0, UP if up else DOWN, up, ("k", num_bytes, parameters, is_data, 0))
        added = added + (ledger.totals() - before)
        before = ledger.totals()
    ledger.check()
    assert added == before == ledger.totals()
    assert before.frames_up + before.frames_down == len(frames)
    all_bytes = before.bytes_up + before.bytes_down + before.data_up + before.data_down
    assert all_bytes == sum(num_bytes for _, num_bytes, _, _ in frames)
    assert before.sent_up == sum(num_bytes for up, num_bytes, _, _ in frames if up)
    assert before.sent_up + before.sent_down == all_bytes


@given(totals, totals)
def test_totals_add_and_subtract(one: Totals, other: Totals) -> None:
    assert (one + other) - other == one
    assert one - one == Totals()
    assert one + Totals() == one
    assert one + other == other + one


def test_a_client_number_may_be_large() -> None:
    ledger = Ledger()
    ledger.sent(0, Header(-1, 2**31 - 1, 0, "x", 0, 0), False, ("k", 2**31, 0, False, 0))
    assert ledger.columns()["client"].tolist() == [2**31 - 1]
    assert ledger.columns()["bytes"].dtype == np.int64
