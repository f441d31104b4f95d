"""Some images are mirrored, left to right (torchvision's RandomHorizontalFlip)."""

from __future__ import annotations

import torch
from torch import Tensor

from fedsim.config import Config
from fedsim.data.augmentations.base import Augmentation
from fedsim.ranges import Share
from fedsim.to_device import to_device


class FlipConfig(Config):
    """How many."""

    probability: Share = 0.5
    """Probability that an image is mirrored."""


class Flip(Augmentation[FlipConfig]):
    """Mirrors images."""

    Config = FlipConfig

    def transformed(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Return the images, some of them mirrored."""
        are_flipped = torch.rand(len(images), generator=generator) < self.config.probability
        are_flipped = to_device(are_flipped, images.device).view(-1, 1, 1, 1)
        return torch.where(are_flipped, images.flip(-1), images)


PLUGIN = Flip
