"""Falls at milestones."""

from typing import Any

import pytest
from torch.optim.lr_scheduler import MultiStepLR


def test_by_hand_and_by_torch(factors: Any, torchs: Any) -> None:
    assert factors("multistep", 6, milestones=[2, 5], gamma=0.5) == [1, 1, 0.5, 0.5, 0.5, 0.25]
    wanted = torchs(MultiStepLR, milestones=[1, 4, 6], gamma=0.3)
    assert factors("multistep", milestones=[1, 4, 6], gamma=0.3) == pytest.approx(wanted)


@pytest.mark.parametrize("milestones", [[], [0], [3, 2], [2, 2]])
def test_settings_that_make_no_sense_are_refused(factors: Any, milestones: Any) -> None:
    with pytest.raises(ValueError, match=r"at least 1 item|greater|ascending"):
        factors("multistep", milestones=milestones)
