from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.engine.cluster.call_sizes import CALL_S, FIRST_S, Rates, sizes


def test_jobs_go_together_until_a_call_pays() -> None:
    assert sizes([0.01] * 10, 0.1, num_actors=1) == [5, 5]
    assert sizes([0.01] * 4, 0.04, num_actors=1) == [4]


def test_a_job_that_pays_is_a_call_of_its_own() -> None:
    assert sizes([0.2, 0.2, 0.2], 0.6, num_actors=2) == [1, 1, 1]


def test_where_there_is_much_work_calls_are_larger() -> None:
    # 8 calls for the one actor, of 8 s of work.
    assert sizes([0.1] * 80, 8.0, num_actors=1) == [10] * 8


def test_long_jobs_fill_calls_sooner() -> None:
    assert sizes([0.06, 0.02, 0.02, 0.02], 0.12, num_actors=1) == [1, 3]


@given(
    takes_s=st.lists(st.floats(0.0, 10.0), min_size=1, max_size=50),
    more_s=st.floats(0.0, 100.0),
    num_actors=st.integers(1, 64),
)
def test_every_job_is_in_one_call_and_no_call_is_empty(
    takes_s: list[float], more_s: float, num_actors: int
) -> None:
    counts = sizes(takes_s, sum(takes_s) + more_s, num_actors)
    assert sum(counts) == len(takes_s)
    assert min(counts) > 0
    assert len(counts) <= max(1, sum(takes_s) / CALL_S + 1e-6)


def test_an_unknown_kind_is_guessed_and_a_known_one_follows_what_was_last() -> None:
    rates = Rates()
    assert rates.seconds("fit", 1e9) == FIRST_S
    rates.learn("fit", 1e9, 2.0)
    assert rates.seconds("fit", 5e8) == pytest.approx(1.0)
    rates.learn("fit", 1e9, 4.0)
    assert rates.seconds("fit", 1e9) == pytest.approx(3.0)
    assert rates.seconds("other", 1e9) == FIRST_S


def test_a_job_without_an_amount_breaks_nothing() -> None:
    rates = Rates()
    rates.learn("evaluate", 0.0, 0.1)
    assert rates.seconds("evaluate", 0.0) == 0.0
