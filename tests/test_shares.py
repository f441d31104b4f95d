import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedsim.shares import apportion


def test_apportion_by_largest_remainders() -> None:
    # 10 * (1, 2, 4) / 7 is 1.43, 2.86, 5.71: the missing two go to the second and the third.
    assert apportion(10, np.array([1.0, 2.0, 4.0])).tolist() == [1, 3, 6]


def test_the_first_of_equal_remainders_is_rounded_up() -> None:
    assert apportion(5, np.ones(3)).tolist() == [2, 2, 1]


@given(
    st.integers(0, 1000), st.lists(st.floats(0, 1e3), min_size=1, max_size=20).filter(lambda w: sum(w) > 1e-6)
)
def test_apportion_is_within_one_and_complete(total: int, weights: list[float]) -> None:
    exact = total * np.array(weights) / sum(weights)
    counts = apportion(total, np.array(weights))
    assert counts.sum() == total
    assert (np.abs(counts - exact) < 1 + 1e-9).all()
