"""What holds for every augmentation, and which samples can be transformed."""

from typing import Any

import pytest
import torch
from torch import Tensor

from fedsim.data.augmentations.base import check_images, transformed
from fedsim.errors import DataError
from fedsim.plugins import available
from fedsim.rng import Key
from fedsim.task import Task

NAMES = [found.name for found in available("fedsim.data.augmentations")]


@pytest.mark.parametrize("name", NAMES)
def test_it_is_a_function_of_images_and_draws(name: str, made: Any, images: Tensor) -> None:
    one, before, state = made(name), images.clone(), torch.get_rng_state()
    first, second, third = (one.transformed(images, Key.root(seed).torch()) for seed in (1, 1, 2))
    assert torch.equal(first, second)
    assert not torch.equal(first, third)
    assert torch.equal(images, before)
    assert torch.equal(torch.get_rng_state(), state)
    assert (first.shape, first.dtype, first.is_contiguous()) == (images.shape, images.dtype, True)


@pytest.mark.parametrize("name", NAMES)
def test_its_cost_can_be_counted_without_values(name: str, made: Any, generator: torch.Generator) -> None:
    images = torch.empty(5, 3, 32, 32, device="meta")
    assert made(name).transformed(images, generator).shape == images.shape


def test_one_comes_after_the_other(made: Any, images: Tensor) -> None:
    some = [made("crop"), made("cutout", size=2)]
    generator = Key.root(1).torch()
    wanted = some[1].transformed(some[0].transformed(images, generator), generator)
    assert torch.equal(transformed(some, images, Key.root(1).torch()), wanted)
    assert transformed((), images, generator) is images


@pytest.mark.parametrize(
    ("task", "problem"),
    [
        (Task((64,), 10), "the samples are of the shape 64: leave it out, or take images"),
        (Task((8, 8), 10), "the samples are of the shape 8 x 8"),
        (Task((80,), 10, vocabulary=90), "the samples are texts"),
        (Task((1, 3, 2), 10), "'crop': padding = 4 moves images of 3 x 2 pixels out of sight"),
    ],
)
def test_only_images_that_are_large_enough_can_be_transformed(task: Task, problem: str, made: Any) -> None:
    with pytest.raises(DataError) as caught:
        check_images([made("crop")], task)
    assert problem in str(caught.value)
    assert caught.value.setting == "augmentations"
    check_images([made("crop")], Task((3, 32, 32), 10))
    check_images([], task)
