"""Each image is moved by a few pixels: padded with black, and cropped again (torchvision's RandomCrop).

He, Zhang, Ren, Sun: Deep Residual Learning for Image Recognition, CVPR 2016 (arXiv 1512.03385), section 4.2:
4 pixels for CIFAR-10.
"""

from __future__ import annotations

from typing import Annotated

import torch
import torch.nn.functional as F  # noqa: N812 - the name that everyone knows
from pydantic import Field
from torch import Tensor

from fedsim.config import Config
from fedsim.data.augmentations.base import Augmentation
from fedsim.to_device import to_device


class CropConfig(Config):
    """How far."""

    padding: Annotated[int, Field(ge=1, le=1000)] = 4
    """Pixels on each side: how far an image moves at most."""


class Crop(Augmentation[CropConfig]):
    """Moves images."""

    Config = CropConfig

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


PLUGIN = Crop
