"""Each augmentation of images."""

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


@pytest.mark.parametrize(
    ("name", "setting", "largest", "problem"),
    [
        ("crop", "padding", 3, "padding = 4 moves images of 4 x 6 pixels out of sight: write 1, say"),
        ("cutout", "size", 5, "size = 6 covers whole images of 4 x 6 pixels: write 2, say"),
    ],
)
def test_no_image_is_moved_out_of_sight_or_covered_as_a_whole(
    name: str, setting: str, largest: int, problem: str, made: Any
) -> None:
    assert made(name, **{setting: largest}).fault(4, 6) == ""
    assert made(name, **{setting: largest + 1}).fault(4, 6) == problem
