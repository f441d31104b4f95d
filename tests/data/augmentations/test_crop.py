"""Images are moved by a few pixels."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor


def test_each_image_is_cut_out_of_its_padded_self(
    made: Any, images: Tensor, generator: torch.Generator
) -> None:
    changed = made("crop", padding=1).transformed(images, generator)
    places = set()
    for one, other in zip(changed, F.pad(images, [1] * 4), strict=True):
        places |= {
            (top, left)
            for top in range(3)
            for left in range(3)
            if torch.equal(one, other[:, top : top + 4, left : left + 6])
        }
    assert changed.is_contiguous()
    assert len(places) == 9
    assert [int(one.count_nonzero()) >= 2 * 3 * 5 for one in changed] == [True] * 200


@pytest.mark.parametrize("padding", [0, -1])
def test_settings_that_make_no_sense_are_refused(padding: int, made: Any) -> None:
    with pytest.raises(ValueError, match="greater"):
        made("crop", padding=padding)


def test_no_image_is_moved_out_of_sight(made: Any) -> None:
    assert made("crop", padding=3).fault(4, 6) == ""
    problem = "padding = 4 moves images of 4 x 6 pixels out of sight: write 1, say"
    assert made("crop", padding=4).fault(4, 6) == problem
