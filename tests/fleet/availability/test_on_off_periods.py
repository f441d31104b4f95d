import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.fleet.availability.base import TICKS_PER_S
from fedsim.fleet.availability.on_off_periods import CYCLES, Periods, lognormal_periods
from fedsim.rng import Key


@given(st.data())
def test_passed_is_a_count(data: st.DataObject) -> None:
    length = data.draw(st.integers(1, 400) | st.integers(1, 10**15))
    instants = sorted(data.draw(st.lists(st.integers(0, length - 1), max_size=12)))
    places = data.draw(st.lists(st.integers(0, length - 1) | st.sampled_from([0, length - 1]), max_size=12))
    periods = Periods(np.array(instants, np.int64), length)
    expected = [sum(instant <= place for instant in instants) for place in places]
    assert periods.passed(np.array(places, np.int64)).tolist() == expected
    assert [periods.passed_at(place) for place in places] == expected


def test_a_periods_of_intervals_by_hand() -> None:
    periods = lognormal_periods((2.0, 6.0), 0.0, Key.root(0))
    assert periods.length == 8 * CYCLES * TICKS_PER_S
    assert (periods.instants[:4] / TICKS_PER_S).tolist() == [0, 2, 8, 10]
    assert periods.passed(np.array([0, 2047, 2048, periods.length - 1])).tolist() == [1, 1, 2, 2 * CYCLES]


def test_the_intervals_have_the_mean_of_their_law() -> None:
    periods = lognormal_periods((7200.0, 21_600.0), 1.0, Key.root(0))
    mean_s = periods.length / TICKS_PER_S / CYCLES
    assert mean_s == pytest.approx(28_800 * np.exp(0.5), rel=0.02)
