import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.rng import Key
from fedsim.studies.intervals import Interval, Method, interval, is_best
from tests.conftest import there


def test_the_quantiles_are_those_of_the_tables() -> None:
    # 12.706, 4.303 and 2.571 are Student's t for 1, 2 and 5 degrees of freedom.
    two = there(interval([1.0, 3.0]))
    assert two.half == pytest.approx(12.706 * math.sqrt(2) / math.sqrt(2), abs=1e-3)
    three = there(interval([1.0, 2.0, 3.0]))
    assert (three.mean, three.count) == (2.0, 3)
    assert three.half == pytest.approx(4.3027 / math.sqrt(3), abs=1e-4)
    assert three.low == pytest.approx(2 - 4.3027 / math.sqrt(3), abs=1e-4)
    assert three.high == pytest.approx(2 + 4.3027 / math.sqrt(3), abs=1e-4)
    six = there(interval([0.0, 0.0, 0.0, 2.0, 2.0, 2.0]))
    assert six.half == pytest.approx(2.5706 * math.sqrt(1.2 / 6), abs=1e-4)


def test_one_value_has_no_interval_and_none_no_mean() -> None:
    one = there(interval([0.25]))
    assert (one.mean, one.half, one.low, one.high, one.count) == (0.25, None, None, None, 1)
    assert interval([]) is None
    assert interval([], "bootstrap") is None


def test_a_bootstrap_of_few_values_has_no_interval() -> None:
    five = there(interval([0.1, 0.2, 0.3, 0.4, 0.5], "bootstrap"))
    assert five.mean == pytest.approx(0.3)
    assert five.low is five.high is five.half is None


@given(st.lists(st.floats(-1, 1), min_size=6, max_size=9))
def test_a_bootstrap_stays_within_the_values_and_is_the_same_each_time(values: list[float]) -> None:
    found = there(interval(values, "bootstrap"))
    assert found.low is not None
    assert found.high is not None
    assert min(values) - 1e-9 <= found.low <= found.mean + 1e-9
    assert found.mean - 1e-9 <= found.high <= max(values) + 1e-9
    assert interval(values, "bootstrap") == found
    # Values that are twice as large and one larger, as in other units, have the same interval in them.
    moved = there(interval([2 * value + 1 for value in values], "bootstrap"))
    assert moved.low == pytest.approx(2 * found.low + 1, abs=1e-9)


def coverage(method: Method, seeds: int, studies: int) -> float:
    """Return in which share of studies with normal values their interval holds the mean."""
    generator = Key.root(0).child("coverage", seeds).numpy()
    covered = 0
    for values in generator.normal(0.7, 0.05, (studies, seeds)):
        found = there(interval(values.tolist(), method))
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 0.7 <= found.high
    return covered / studies


@pytest.mark.parametrize("seeds", [2, 3, 10])
def test_it_covers_the_mean_about_as_often_as_it_says(seeds: int) -> None:
    assert 0.92 < coverage("t", seeds, 500) < 0.98


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [2, 3, 5, 10])
def test_it_covers_the_mean_as_often_as_it_says(seeds: int) -> None:
    assert 0.94 < coverage("t", seeds, 4000) < 0.96


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [6, 7, 8, 10, 20])
def test_a_bootstrap_covers_the_mean_nearly_as_often(seeds: int) -> None:
    assert 0.925 < coverage("bootstrap", seeds, 4000) < 0.96


def test_equal_means_are_judged_each_by_its_own_interval() -> None:
    narrow, wide, other = (
        Interval(mean, mean - half, mean + half, 2) for mean, half in ((1, 0.5), (1, 2), (3, 0.5))
    )
    for values in ([narrow, wide, other], [wide, narrow, other]):
        assert [is_best(value, values, 2) for value in (narrow, wide, other)] == [True, False, False]
    assert is_best(other, [narrow, other], 2, highest=True)
    assert not is_best(narrow, [narrow, wide], 2)  # nothing tells them apart
    assert not is_best(narrow, [narrow, other], 3)
    assert not is_best(None, [narrow, other], 2)
