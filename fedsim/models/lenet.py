"""LeNet, and the small CNN of PerFed-CKT and Fed-ET, which has its convolutions."""

from __future__ import annotations

from typing import Any

from torch import nn

from fedsim.models.base import ModelPlugin, Net, dense, image_shape, named
from fedsim.models.output_head import HeadConfig, finish
from fedsim.task import Task


def _convolutions(plugin: ModelPlugin[Any], task: Task) -> tuple[dict[str, nn.Module], int]:
    """Return two convolutions for images of 16 pixels or more, and the number of their outputs."""
    channels, height, width = image_shape(plugin, task, smallest=16)
    # Without padding a 5x5 convolution takes 4 pixels; pooling then halves, rounding down.
    high, wide = (((side - 4) // 2 - 4) // 2 for side in (height, width))
    blocks: dict[str, nn.Module] = {
        "conv1": named(conv=nn.Conv2d(channels, 6, 5), relu=nn.ReLU(), pool=nn.MaxPool2d(2)),
        "conv2": named(conv=nn.Conv2d(6, 16, 5), relu=nn.ReLU(), pool=nn.MaxPool2d(2)),
    }
    return blocks, 16 * high * wide


class LeNet(ModelPlugin[HeadConfig]):
    """LeNet: two convolutions and three fully connected layers, for images of 16 pixels or more.

    conv 6@5x5, pool, conv 16@5x5, pool, FC 120, FC 84, FC N, with ReLU and max pooling (specification 7.1).
    44 426 parameters for 28 x 28 x 1 and 10 classes, 62 006 for 32 x 32 x 3.
    """

    def build(self, task: Task) -> Net:
        """Return a net for images."""
        blocks, flat = _convolutions(self, task)
        blocks |= {
            "fc1": named(flatten=nn.Flatten(), linear=nn.Linear(flat, 120), relu=nn.ReLU()),
            "fc2": named(linear=nn.Linear(120, 84), relu=nn.ReLU()),
        }
        return finish(blocks, 84, task, self.config)


UNITS = (120, 100, 84, 50)


class CnnCkt(ModelPlugin[HeadConfig]):
    """The small CNN of PerFed-CKT and Fed-ET: two convolutions and four narrow fully connected layers.

    conv 6@5x5, pool, conv 16@5x5, pool, FC 120, 100, 84, 50, FC N (Cho et al., 2021, "Personalized federated
    learning for heterogeneous clients with clustered knowledge transfer", and 2022, Fed-ET; the channels are
    those of LeNet, because the papers' layers start from its flattened size of 400; specification 7.2 and
    7.4). 75 826 parameters below the head for 32 x 32 x 3, and 510 in it for 10 classes.
    """

    def build(self, task: Task) -> Net:
        """Return a net for images of 16 pixels or more."""
        blocks, flat = _convolutions(self, task)
        blocks |= {
            "flatten": nn.Flatten(),
            **dense(flat, *UNITS),
        }
        return finish(blocks, UNITS[-1], task, self.config)


PLUGINS = {"lenet": LeNet, "cnn_ckt": CnnCkt}
