"""Falls along half a cosine."""

from math import sqrt
from typing import Any

import pytest
from torch.optim.lr_scheduler import CosineAnnealingLR

from fedsim.engine.schedules.cosine import PLUGIN


def test_by_hand(factors: Any) -> None:
    assert factors("cosine", 6, length=4) == pytest.approx(
        [1, (2 + sqrt(2)) / 4, 0.5, (2 - sqrt(2)) / 4, 0, 0]
    )
    assert factors("cosine", 4, length=9, total_iters=2, min_factor=0.2) == pytest.approx([1, 0.6, 0.2, 0.2])


def test_it_is_torchs_up_to_the_end(factors: Any, torchs: Any) -> None:
    wanted = torchs(CosineAnnealingLR, T_max=7, eta_min=0.1)
    assert factors("cosine", total_iters=7, min_factor=0.1) == pytest.approx(wanted)


def test_it_needs_a_length_unless_it_is_given() -> None:
    assert PLUGIN(PLUGIN.Config()).needs_length
    assert not PLUGIN(PLUGIN.Config(total_iters=3)).needs_length


@pytest.mark.parametrize("params", [{"total_iters": 0}, {"min_factor": 1.5}, {"min_factor": -0.1}])
def test_settings_that_make_no_sense_are_refused(factors: Any, params: Any) -> None:
    with pytest.raises(ValueError, match=r"greater|less"):
        factors("cosine", **params)
