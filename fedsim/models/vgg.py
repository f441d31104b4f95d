"""VGG nets of 11 to 19 layers, in three forms that papers on federated learning use.

The layers are torchvision's (Simonyan and Zisserman, 2015, "Very deep convolutional networks for large-scale
image recognition"), and so is the initialisation of convolutions. The forms are those of PerFed-CKT (the
default), of FedMA (Wang et al., 2020, "Federated learning with matched averaging") and of torchvision
(specification 7.2, 7.4, 7.5, D-001-09).
"""

from itertools import pairwise
from typing import Literal

import torch
from torch import nn

from fedsim.models.base import ModelPlugin, Net, image_shape, named
from fedsim.models.dropout import Dropout
from fedsim.models.initialise import start_by_he
from fedsim.models.output_head import HeadConfig, finish
from fedsim.ranges import Width
from fedsim.task import Task
from fedsim.torchvision_compat import torchvision_module

LETTERS = {11: "A", 13: "B", 16: "D", 19: "E"}
"""Torchvision's names, after the paper's table 1."""


class VggConfig(HeadConfig):
    """Settings of the model."""

    depth: Literal[11, 13, 16, 19] = 11
    """Layers with weights in the form `imagenet`: all convolutions and three fully connected ones."""
    form: Literal["cifar", "fedma", "imagenet"] = "cifar"
    """`cifar`: BatchNorm and one linear layer; `fedma`: no BatchNorm, FC 512-512-N, and with a representation
    module Fed-ET's net; `imagenet`: BatchNorm and torchvision's classifier, FC 4096-4096-N with dropout."""
    width: Width = 64
    """Channels of the first stage; all other layers but the head are scaled in proportion."""


class Vgg(ModelPlugin[VggConfig]):
    """For 32 x 32 x 3 and 10 classes 9 231 114 parameters in the default form with 11 layers."""

    def build(self, task: Task) -> Net:
        """Return a net for images of 32 pixels or more."""
        config = self.config
        channels, height, width = image_shape(self, task, smallest=32)
        blocks = _stages(channels, config.depth, config.width, batch_norm=config.form != "fedma")
        last = 8 * config.width
        if config.form == "imagenet":
            blocks["pool"] = named(mean=Grid(), flatten=nn.Flatten())
            flat, wide = last * Grid.SIDE**2, 64 * config.width
        else:
            blocks["flatten"] = nn.Flatten()
            flat, wide = last * (height // 32) * (width // 32), last
        if config.form == "cifar":
            return finish(blocks, flat, task, config)
        for name, inputs in (("fc1", flat), ("fc2", wide)):
            drop = {"dropout": Dropout(0.5)} if config.form == "imagenet" else {}
            blocks[name] = named(linear=nn.Linear(inputs, wide), relu=nn.ReLU(), **drop)
        return finish(blocks, wide, task, config)


class Grid(nn.Module):
    """Means over the fields of a 7 x 7 grid, which overlap if the image's sides are not multiples of 7.

    These are the values of ``nn.AdaptiveAvgPool2d(7)``, whose gradient is not deterministic on CUDA.
    """

    SIDE = 7

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``[b, c, 7, 7]`` for ``[b, c, h, w]``."""
        for dim in (2, 3):
            size = x.shape[dim]
            starts = [i * size // self.SIDE for i in range(self.SIDE)]
            ends = [-(-(i + 1) * size // self.SIDE) for i in range(self.SIDE)]
            fields = [
                x.narrow(dim, a, b - a).mean(dim, keepdim=True) for a, b in zip(starts, ends, strict=True)
            ]
            x = torch.cat(fields, dim)
        return x


def _stages(channels: int, depth: int, width: int, *, batch_norm: bool) -> dict[str, nn.Module]:
    """Return five blocks, each ending with a pooling that halves the image."""
    vgg = torchvision_module("models.vgg")
    plan = [layer if layer == "M" else layer * width // 64 for layer in vgg.cfgs[LETTERS[depth]]]
    layers = vgg.make_layers(plan, batch_norm=batch_norm)
    # Torchvision's first convolution takes three channels.
    layers[0] = nn.Conv2d(channels, plan[0], 3, padding=1)
    start_by_he(layers)
    ends = [place for place, layer in enumerate(layers, start=1) if isinstance(layer, nn.MaxPool2d)]
    return {
        f"stage{number}": nn.Sequential(*list(layers)[start:end])
        for number, (start, end) in enumerate(pairwise([0, *ends]), start=1)
    }


PLUGIN = Vgg
