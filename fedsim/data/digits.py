"""Handwritten digits that come with fedsim: 1,797 grey images of 8 by 8, ten classes, no files."""

from typing import Literal

from fedsim.config import Config
from fedsim.data.base import Dataset, DatasetPlugin, LoadContext
from fedsim.data.digit_images import digit_images
from fedsim.task import Task


class DigitsConfig(Config):
    """Settings of the digits."""

    shape: Literal["flat", "image"] = "flat"
    """``flat`` gives samples of shape (64,), ``image`` of shape (1, 8, 8)."""


class Digits(DatasetPlugin[DigitsConfig]):
    """The digits, scaled from 0..16 to [0, 1]."""

    origin = ()

    def load(self, context: LoadContext) -> Dataset:
        """Return all 1,797 samples; there is no test part."""
        images, digits = digit_images()
        input_shape = (64,) if self.config.shape == "flat" else (1, 8, 8)
        return Dataset(Task(input_shape, 10), images.reshape(-1, *input_shape), digits)


PLUGIN = Digits
