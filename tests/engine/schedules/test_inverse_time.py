"""Falls as one over the rounds."""

from typing import Any

import pytest


def test_by_hand(factors: Any) -> None:
    assert factors("inverse_time", 4, decay=0.5) == [1, 1 / 1.5, 0.5, 0.4]
    assert factors("inverse_time", 11)[10] == 0.5
    assert factors("inverse_time", decay=0.0) == [1.0] * 8


def test_a_rate_that_grows_is_refused(factors: Any) -> None:
    with pytest.raises(ValueError, match="greater"):
        factors("inverse_time", decay=-0.1)
