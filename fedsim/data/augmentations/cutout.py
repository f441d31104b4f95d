"""A black square covers a part of each image.

DeVries, Taylor: Improved Regularization of Convolutional Neural Networks with Cutout, 2017 (arXiv
1708.04552): the square's centre is anywhere in the image, so a part of it may lie beyond the border.
"""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedsim.config import Config
from fedsim.data.augmentations.base import Augmentation
from fedsim.to_device import to_device


class CutoutConfig(Config):
    """How much."""

    size: Annotated[int, Field(ge=1, le=10_000)] = 8
    """Pixels of a side of the square (the paper: 16 for CIFAR-10, 8 for CIFAR-100, of 32)."""


class Cutout(Augmentation[CutoutConfig]):
    """Covers squares."""

    Config = CutoutConfig

    def transformed(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Return the images, each without the pixels around a centre of its own."""
        number, _, height, width = images.shape
        rows = self._covered(torch.randint(height, (number, 1), generator=generator), height)
        columns = self._covered(torch.randint(width, (number, 1), generator=generator), width)
        covered = rows[:, :, None] & columns[:, None]
        return images.masked_fill(to_device(covered, images.device)[:, None], 0.0)

    def _covered(self, centres: Tensor, length: int) -> Tensor:
        """Return which rows, or columns, squares around centres ``[b, 1]`` cover, ``[b, length]``."""
        offsets = torch.arange(length) - (centres - self.config.size // 2)
        return (offsets >= 0) & (offsets < self.config.size)

    def fault(self, height: int, width: int) -> str:
        """Refuse to cover whole images."""
        if self.config.size < max(height, width):
            return ""
        problem = f"size = {self.config.size} covers whole images of {height} x {width} pixels"
        return f"{problem}: write {max(1, min(height, width) // 2)}, say"


PLUGIN = Cutout
