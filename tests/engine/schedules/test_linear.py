"""Goes from one factor to another."""

from typing import Any

import pytest
from torch.optim.lr_scheduler import LinearLR


def test_by_hand_and_by_torch(factors: Any, torchs: Any) -> None:
    warm_up = factors("linear", 4, start_factor=0.5, total_iters=2)
    assert warm_up == [0.5, 0.75, 1, 1]
    assert factors("linear", 4, start_factor=1.0, end_factor=0.0, total_iters=2) == [1, 0.5, 0, 0]
    assert factors("linear") == pytest.approx(torchs(LinearLR))


@pytest.mark.parametrize("params", [{"total_iters": 0}, {"start_factor": 1.5}, {"end_factor": -0.1}])
def test_settings_that_make_no_sense_are_refused(factors: Any, params: Any) -> None:
    with pytest.raises(ValueError, match=r"greater|less"):
        factors("linear", **params)
