"""Falls to 0 along a power."""

from typing import Any

import pytest
from torch.optim.lr_scheduler import PolynomialLR

from fedsim.engine.schedules.polynomial import PLUGIN


def test_by_hand_and_by_torch(factors: Any, torchs: Any) -> None:
    assert factors("polynomial", 6, length=4) == [1, 0.75, 0.5, 0.25, 0, 0]
    assert factors("polynomial", 3, length=9, total_iters=2, power=2.0) == [1, 0.25, 0]
    wanted = torchs(PolynomialLR, total_iters=6, power=1.7)
    assert factors("polynomial", total_iters=6, power=1.7) == pytest.approx(wanted)


def test_it_needs_a_length_unless_it_is_given() -> None:
    assert PLUGIN(PLUGIN.Config()).needs_length
    assert not PLUGIN(PLUGIN.Config(total_iters=3)).needs_length


@pytest.mark.parametrize("params", [{"total_iters": 0}, {"power": 0.0}])
def test_settings_that_make_no_sense_are_refused(factors: Any, params: Any) -> None:
    with pytest.raises(ValueError, match="greater"):
        factors("polynomial", **params)
