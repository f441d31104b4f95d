"""Augmentations of images."""

from __future__ import annotations

from typing import Annotated

import torch
import torch.nn.functional as F  # noqa: N812 - the name that everyone knows
from pydantic import Field
from torch import Tensor

from fedsim.config import Config
from fedsim.data.augmentations.base import Augmentation
from fedsim.ranges import Share
from fedsim.to_device import to_device


class CropConfig(Config):
    """How far."""

    padding: Annotated[int, Field(ge=1, le=1000)] = 4
    """Pixels on each side: how far an image moves at most."""


class Crop(Augmentation[CropConfig]):
    """Each image is moved by a few pixels: padded with black, and cropped again (torchvision's RandomCrop).

    He, Zhang, Ren, Sun: Deep Residual Learning for Image Recognition, CVPR 2016 (arXiv 1512.03385), section
    4.2: 4 pixels for CIFAR-10.
    """

    def transformed(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Return the images, each moved by its own two draws."""
        padding, device = self.config.padding, images.device
        number, _, height, width = images.shape
        corners = to_device(torch.randint(2 * padding + 1, (number, 2), generator=generator), device)
        rows = corners[:, :1] + torch.arange(height, device=device)
        columns = corners[:, 1:] + torch.arange(width, device=device)
        each = torch.arange(number, device=device).view(-1, 1, 1)
        padded = F.pad(images, [padding] * 4).movedim(1, -1)
        return padded[each, rows[:, :, None], columns[:, None]].movedim(-1, 1).contiguous()

    def fault(self, height: int, width: int) -> str:
        """Refuse to move an image out of sight."""
        if self.config.padding < min(height, width):
            return ""
        problem = f"padding = {self.config.padding} moves images of {height} x {width} pixels out of sight"
        return f"{problem}: write {max(1, min(height, width) // 8)}, say"


class CutoutConfig(Config):
    """How much."""

    size: Annotated[int, Field(ge=1, le=10_000)] = 8
    """Pixels of a side of the square (the paper: 16 for CIFAR-10, 8 for CIFAR-100, of 32)."""


class Cutout(Augmentation[CutoutConfig]):
    """A black square covers a part of each image.

    DeVries, Taylor: Improved Regularization of Convolutional Neural Networks with Cutout, 2017 (arXiv
    1708.04552): the square's centre is anywhere in the image, so a part of it may lie beyond the border.
    """

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


class FlipConfig(Config):
    """How many."""

    probability: Share = 0.5
    """Probability that an image is mirrored."""


class Flip(Augmentation[FlipConfig]):
    """Some images are mirrored, left to right (torchvision's RandomHorizontalFlip)."""

    def transformed(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Return the images, some of them mirrored."""
        are_flipped = torch.rand(len(images), generator=generator) < self.config.probability
        are_flipped = to_device(are_flipped, images.device).view(-1, 1, 1, 1)
        return torch.where(are_flipped, images.flip(-1), images)


PLUGINS = {"crop": Crop, "cutout": Cutout, "flip": Flip}
