"""Falls every so many rounds."""

from typing import Any

import pytest
from torch.optim.lr_scheduler import StepLR


def test_by_hand_and_by_torch(factors: Any, torchs: Any) -> None:
    assert factors("step", 5, step_size=2, gamma=0.5) == [1, 1, 0.5, 0.5, 0.25]
    assert factors("step", step_size=3) == pytest.approx(torchs(StepLR, step_size=3))


def test_a_factor_of_1_changes_nothing(factors: Any) -> None:
    assert factors("step", step_size=1, gamma=1.0) == [1.0] * 8


@pytest.mark.parametrize("params", [{}, {"step_size": 0}, {"step_size": 1, "gamma": 1.1}])
def test_settings_that_make_no_sense_are_refused(factors: Any, params: Any) -> None:
    with pytest.raises(ValueError, match=r"it is missing|greater|less"):
        factors("step", **params)
