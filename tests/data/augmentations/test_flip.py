"""Some images are mirrored."""

from typing import Any

import pytest
import torch
from torch import Tensor


def test_about_so_many_are_mirrored_and_the_others_are_as_they_were(
    made: Any, images: Tensor, generator: torch.Generator
) -> None:
    changed = made("flip", probability=0.3).transformed(images, generator)
    are_flipped = [torch.equal(one, other.flip(-1)) for one, other in zip(changed, images, strict=True)]
    are_same = [torch.equal(one, other) for one, other in zip(changed, images, strict=True)]
    assert [one != other for one, other in zip(are_flipped, are_same, strict=True)] == [True] * 200
    assert 40 <= sum(are_flipped) <= 80


@pytest.mark.parametrize(("probability", "flips"), [(0.0, False), (1.0, True)])
def test_none_and_all(
    probability: float, flips: bool, made: Any, images: Tensor, generator: torch.Generator
) -> None:
    changed = made("flip", probability=probability).transformed(images, generator)
    assert torch.equal(changed, images.flip(-1) if flips else images)


@pytest.mark.parametrize("probability", [-0.1, 1.1])
def test_settings_that_make_no_sense_are_refused(probability: float, made: Any) -> None:
    with pytest.raises(ValueError, match=r"greater|less"):
        made("flip", probability=probability)
