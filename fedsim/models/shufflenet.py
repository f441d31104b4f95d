"""ShuffleNetV2 of width 1 for small images: a 3x3 stem with stride 1 and no pooling.

24, then 116 (4 units), 232 (8) and 464 (4) channels, conv 1024@1x1, the mean over the image, FC N (Ma et al.,
2018, "ShuffleNet V2: practical guidelines for efficient CNN architecture design"). Convolutions have biases,
and the first unit of a stage keeps the input's channels until its last convolution, so that the net has the
size that specification 7.1 gives; torchvision's has 4 792 parameters fewer.
"""

import torch
from torch import Tensor, nn

from fedsim.models.base import ModelPlugin, Net, image_shape, named
from fedsim.models.output_head import HeadConfig, finish
from fedsim.task import Task

STAGES = ((116, 4), (232, 8), (464, 4))
"""Channels and units of each stage."""
FIRST, LAST = 24, 1024
"""Channels before the first stage and after the last."""


class ShuffleNet(ModelPlugin[HeadConfig]):
    """1 268 214 parameters for one channel and 10 classes, 1 268 646 for three; 16 100 buffer values."""

    def build(self, task: Task) -> Net:
        """Return a net for images of 8 pixels or more."""
        channels, _, _ = image_shape(self, task, smallest=8)
        blocks: dict[str, nn.Module] = {"stem": nn.Sequential(*_full(channels, FIRST, 3))}
        inputs = FIRST
        for number, (outputs, units) in enumerate(STAGES, start=1):
            others = (Unit(outputs) for _ in range(units - 1))
            blocks[f"stage{number}"] = nn.Sequential(Halving(inputs, outputs), *others)
            inputs = outputs
        blocks["last"] = nn.Sequential(*_full(inputs, LAST, 1))
        blocks["pool"] = named(mean=nn.AdaptiveAvgPool2d(1), flatten=nn.Flatten())
        return finish(blocks, LAST, task, self.config)


class Unit(nn.Module):
    """Convolves half of the channels, passes the others on, and shuffles both together."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        self.branch = nn.Sequential(*_full(half, half, 1), *_depthwise(half, 1), *_full(half, half, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Return a tensor of the shape of ``x``."""
        passed, convolved = x.chunk(2, dim=1)
        return _shuffled(passed, self.branch(convolved))


class Halving(nn.Module):
    """Halves the image and changes the channels, in two branches."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        half = outputs // 2
        self.left = nn.Sequential(*_depthwise(inputs, 2), *_full(inputs, half, 1))
        self.right = nn.Sequential(*_full(inputs, inputs, 1), *_depthwise(inputs, 2), *_full(inputs, half, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Return ``[b, outputs, h / 2, w / 2]``, rounded up, for ``[b, inputs, h, w]``."""
        return _shuffled(self.left(x), self.right(x))


def _full(inputs: int, outputs: int, size: int) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, size, padding=size // 2), nn.BatchNorm2d(outputs), nn.ReLU()]


def _depthwise(channels: int, stride: int) -> list[nn.Module]:
    conv = nn.Conv2d(channels, channels, 3, stride=stride, padding=1, groups=channels)
    return [conv, nn.BatchNorm2d(channels)]


def _shuffled(left: Tensor, right: Tensor) -> Tensor:
    """Return the channels of both, alternately."""
    return torch.stack((left, right), dim=2).flatten(1, 2)


PLUGIN = ShuffleNet
