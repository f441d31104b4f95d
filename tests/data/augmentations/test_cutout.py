"""A square of each image is black."""

from typing import Any

import pytest
import torch
from torch import Tensor


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_square_around_some_pixel_is_black(
    size: int, made: Any, images: Tensor, generator: torch.Generator
) -> None:
    changed = made("cutout", size=size).transformed(images, generator)
    centres = set()
    for one, other in zip(changed, images, strict=True):
        for row in range(4):
            for column in range(6):
                top, left = row - size // 2, column - size // 2
                wanted = other.clone()
                wanted[:, max(top, 0) : top + size, max(left, 0) : left + size] = 0
                if torch.equal(one, wanted):
                    centres.add((row, column))
    assert len(centres) == 24  # any pixel may be a centre


@pytest.mark.parametrize("size", [0, -1])
def test_settings_that_make_no_sense_are_refused(size: int, made: Any) -> None:
    with pytest.raises(ValueError, match="greater"):
        made("cutout", size=size)


def test_no_image_is_covered_as_a_whole(made: Any) -> None:
    assert made("cutout", size=5).fault(4, 6) == ""
    problem = "size = 6 covers whole images of 4 x 6 pixels: write 2, say"
    assert made("cutout", size=6).fault(4, 6) == problem
