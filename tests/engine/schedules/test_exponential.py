"""Falls with every round."""

from typing import Any

import pytest
from torch.optim.lr_scheduler import ExponentialLR


def test_by_hand_and_by_torch(factors: Any, torchs: Any) -> None:
    assert factors("exponential", 4, gamma=0.5) == [1, 0.5, 0.25, 0.125]
    assert factors("exponential") == pytest.approx(torchs(ExponentialLR, gamma=0.99))
    assert factors("exponential", gamma=1.0) == [1.0] * 8


@pytest.mark.parametrize("gamma", [0.0, 1.1])
def test_settings_that_make_no_sense_are_refused(factors: Any, gamma: float) -> None:
    with pytest.raises(ValueError, match=r"greater|less"):
        factors("exponential", gamma=gamma)
