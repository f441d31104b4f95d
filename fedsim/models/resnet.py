"""Residual nets for small images: a 3x3 stem, four stages of basic blocks, and the mean over the image.

The blocks are torchvision's (He et al., 2016, "Deep residual learning for image recognition"), and so is the
initialisation of convolutions; the stem with stride 1 and without pooling is the usual one for images of 32
pixels.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import Any, Literal

from torch import nn

from fedsim.models.base import ModelPlugin, Net, image_shape, named
from fedsim.models.initialise import start_by_he
from fedsim.models.output_head import HeadConfig, finish
from fedsim.ranges import Width
from fedsim.task import Task
from fedsim.torchvision_compat import torchvision_module

Norm = Literal["batch", "group", "none"]

GROUPS = 32
"""Groups of a group normalisation; fewer if the channels cannot be divided by it (Wu and He, 2018)."""


class ResidualConfig(HeadConfig):
    """Settings of a residual net."""

    norm: Norm = "batch"
    """Normalisation after each convolution: `batch`, `group` (of 32 groups, or fewer in a narrow net) or
    `none`, which may need a smaller learning rate."""
    width: Width = 64
    """Channels of the first stage; each further stage has twice as many as the one before."""


def build_residual(
    plugin: ModelPlugin[Any], config: ResidualConfig, blocks_per_stage: int, task: Task
) -> Net:
    """Return a residual net of four stages for images of 8 pixels or more."""
    channels, _, _ = image_shape(plugin, task, smallest=8)
    norm, width = _NORMS[config.norm], config.width
    basic_block = torchvision_module("models.resnet").BasicBlock
    stem = named(conv=nn.Conv2d(channels, width, 3, padding=1, bias=False), norm=norm(width), relu=nn.ReLU())
    blocks: dict[str, nn.Module] = {"stem": stem}
    inputs = width
    for stage in range(4):
        outputs = width * 2**stage
        rows = []
        for place in range(blocks_per_stage):
            stride = 2 if stage and not place else 1
            shortcut = None
            if inputs != outputs:
                shortcut = nn.Sequential(
                    nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), norm(outputs)
                )
            rows.append(basic_block(inputs, outputs, stride, shortcut, norm_layer=norm))
            inputs = outputs
        blocks[f"stage{stage + 1}"] = nn.Sequential(*rows)
    blocks["pool"] = named(mean=nn.AdaptiveAvgPool2d(1), flatten=nn.Flatten())
    net = finish(blocks, inputs, task, config)
    start_by_he(net)
    return net


_NORMS: dict[Norm, Callable[[int], nn.Module]] = {
    "batch": nn.BatchNorm2d,
    "group": lambda channels: nn.GroupNorm(gcd(GROUPS, channels), channels),
    "none": nn.Identity,  # which takes any arguments
}


class ResNet18(ModelPlugin[ResidualConfig]):
    """ResNet-18 for small images: 64-128-256-512 channels, two basic blocks each, BatchNorm.

    With ``norm = "none"`` and ``representation = {}`` it is Fed-ET's ResNet-18 (specification 7.1 and 7.4).
    """

    def build(self, task: Task) -> Net:
        """Return a net for images of 8 pixels or more."""
        return build_residual(self, self.config, 2, task)


class ResNet8Config(ResidualConfig):
    """Settings of the model."""

    norm: Norm = "none"
    """Normalisation after each convolution: `batch`, `group` (of 32 groups, or fewer in a narrow net) or
    `none`, as in the paper, which may need a smaller learning rate."""


class ResNet8(ModelPlugin[ResNet8Config]):
    """Fed-ET's ResNet-8: 64-128-256-512 channels, one basic block each, without normalisation.

    Despite its name the net has ten layers with weights: this form has the size in the paper's table
    (specification 7.4, D-003-07). With ``representation = {}`` the head is the paper's.
    """

    def build(self, task: Task) -> Net:
        """Return a net for images of 8 pixels or more."""
        return build_residual(self, self.config, 1, task)


PLUGINS = {"resnet18": ResNet18, "resnet8": ResNet8}
