"""The digits that come with fedsim."""

# mypy: disable-error-code="arg-type, index, union-attr"

import numpy as np

from fedsim.data.base import LoadContext
from fedsim.data.digits import Digits, DigitsConfig
from fedsim.rng import Key
from fedsim.task import Task

CONTEXT = LoadContext(None, 3, Key.root(0))


def test_flat_digits() -> None:
    dataset = Digits(DigitsConfig()).load(CONTEXT)
    assert dataset.task == Task((64,), 10)
    assert dataset.x.shape == (1797, 64)
    assert (dataset.x.min(), dataset.x.max()) == (0, 1)
    # The first row of the first digit, a zero, is 0 0 5 13 9 1 0 0 of 16.
    assert dataset.x[0, :8].tolist() == [0, 0, 5 / 16, 13 / 16, 9 / 16, 1 / 16, 0, 0]
    assert np.bincount(dataset.y).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert dataset.test_x is None


def test_an_image_is_the_same_numbers_in_another_shape() -> None:
    flat = Digits(DigitsConfig()).load(CONTEXT)
    image = Digits(DigitsConfig(shape="image")).load(CONTEXT)
    assert image.task == Task((1, 8, 8), 10)
    assert np.array_equal(image.x, flat.x.reshape(-1, 1, 8, 8))
