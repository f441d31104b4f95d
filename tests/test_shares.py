import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedsim.shares import apportion


def test_apportion_by_largest_remainders() -> None:
    # 10 * (1, 2, 4) / 7 is 1.43, 2.86, 5.71: the missing two go to the second and the third.
    assert apportion(10, np.array([1.0, 2.0, 4.0])).tolist() == [1, 3, 6]


def test_the_first_of_equal_remainders_is_rounded_up() -> None:
    assert apportion(5, np.ones(3)).tolist() == [2, 2, 1]


def test_huge_and_tiny_weights() -> None:
    assert apportion(10, np.array([1e308, 1e308, 1.5e308])).tolist() == [3, 3, 4]
    assert apportion(10, np.array([5e-324, 5e-324])).tolist() == [5, 5]


@given(st.integers(0, 10**6), st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=20))
def test_scaling_changes_no_bit(total: int, weights: list[float]) -> None:
    exact = total * (np.array(weights) / np.array(weights).sum())
    counts = np.floor(exact).astype(np.int64)
    counts[np.argsort(counts - exact, kind="stable")[: total - int(counts.sum())]] += 1
    assert apportion(total, np.array(weights)).tolist() == counts.tolist()


@given(
    st.integers(0, 1000), st.lists(st.floats(0, 1e3), min_size=1, max_size=20).filter(lambda w: sum(w) > 1e-6)
)
def test_apportion_is_within_one_and_complete(total: int, weights: list[float]) -> None:
    exact = total * np.array(weights) / sum(weights)
    counts = apportion(total, np.array(weights))
    assert counts.sum() == total
    assert (np.abs(counts - exact) < 1 + 1e-9).all()
