import numpy as np

from fedsim.data.digit_images import digit_images


def test_they_are_those_of_scikit_learn() -> None:
    from sklearn.datasets import load_digits  # takes a second, which other processes of tests do not need

    images, digits = digit_images()
    values, labels = load_digits(return_X_y=True)
    assert (images.dtype.name, digits.dtype.name) == ("float32", "int64")
    assert np.array_equal(images, values / 16)
    assert np.array_equal(digits, labels)
