"""The digits that come with fedsim."""

import numpy as np

from fedsim.data.base import LoadContext
from fedsim.data.digit_images import digit_images
from fedsim.data.digits import Digits, DigitsConfig
from fedsim.rng import Key
from fedsim.task import Task
from tests.data.conftest import held

CONTEXT = LoadContext(None, 3, Key.root(0))


def test_flat_digits() -> None:
    dataset = Digits(DigitsConfig()).load(CONTEXT)
    assert dataset.task == Task((64,), 10)
    x, y = held(dataset.x), held(dataset.y)
    assert x.shape == (1797, 64)
    assert (x.min(), x.max()) == (0, 1)
    # The first row of the first digit, a zero, is 0 0 5 13 9 1 0 0 of 16.
    assert x[0, :8].tolist() == [0, 0, 5 / 16, 13 / 16, 9 / 16, 1 / 16, 0, 0]
    assert np.bincount(y).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert dataset.test_x is None


def test_an_image_is_the_same_numbers_in_another_shape() -> None:
    flat = Digits(DigitsConfig()).load(CONTEXT)
    image = Digits(DigitsConfig(shape="image")).load(CONTEXT)
    assert image.task == Task((1, 8, 8), 10)
    assert np.array_equal(held(image.x), held(flat.x).reshape(-1, 1, 8, 8))


def test_they_are_those_of_scikit_learn() -> None:
    from sklearn.datasets import load_digits  # takes a second, which other processes of tests do not need

    images, digits = digit_images()
    values, labels = load_digits(return_X_y=True)
    assert (images.dtype.name, digits.dtype.name) == ("float32", "int64")
    assert np.array_equal(images, values / 16)
    assert np.array_equal(digits, labels)
