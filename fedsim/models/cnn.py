"""CNNs of federated learning's papers, for images of one size."""

from typing import Annotated

from pydantic import Field
from torch import nn

from fedsim.models.base import ModelPlugin, Net, image_shape, named
from fedsim.models.dropout import Dropout
from fedsim.models.output_head import HeadConfig, finish
from fedsim.ranges import PartialShare
from fedsim.task import Task


class Cnn(ModelPlugin[HeadConfig]):
    """The CNN of the FedAvg paper: two padded convolutions and one wide fully connected layer.

    conv 32@5x5, pool, conv 64@5x5, pool, FC 512, FC N, with ReLU, max pooling and padding 2 (McMahan et al.,
    2017, "Communication-efficient learning of deep networks from decentralized data"; specification 7.1).
    1 663 370 parameters for 28 x 28 x 1 and 10 classes, 2 156 490 for 32 x 32 x 3.
    """

    def build(self, task: Task) -> Net:
        """Return a net for images."""
        channels, height, width = image_shape(self, task, smallest=4)
        # Padding keeps the size; each pooling halves, rounding down.
        flat = 64 * (height // 4) * (width // 4)
        blocks: dict[str, nn.Module] = {
            "conv1": named(conv=nn.Conv2d(channels, 32, 5, padding=2), relu=nn.ReLU(), pool=nn.MaxPool2d(2)),
            "conv2": named(conv=nn.Conv2d(32, 64, 5, padding=2), relu=nn.ReLU(), pool=nn.MaxPool2d(2)),
            "fc1": named(flatten=nn.Flatten(), linear=nn.Linear(flat, 512), relu=nn.ReLU()),
        }
        return finish(blocks, 512, task, self.config)


class CnnFemnistConfig(HeadConfig):
    """Settings of the model."""

    layers: Annotated[int, Field(ge=1, le=4)] = 2
    """Number of convolutions."""
    conv_dropout: PartialShare = 0.25
    """Share of the values after the pooling that training leaves out."""
    fc_dropout: PartialShare = 0.5
    """Share of the values after the fully connected layer that training leaves out."""


class CnnFemnist(ModelPlugin[CnnFemnistConfig]):
    """The CNN for handwritten characters: 3x3 convolutions, one pooling, one fully connected layer, dropout.

    conv 32@3x3, conv 64@3x3, pool, dropout, FC 128, dropout, FC N, without padding (Reddi et al., 2021,
    "Adaptive federated optimization"). FedMe lets clients choose from one to four convolutions but does not
    state their channels: here every convolution after the first has 64, and the pooling follows the last
    (specification 7.5). 1 206 590 parameters for 28 x 28 x 1 and 62 classes with two convolutions.
    """

    def build(self, task: Task) -> Net:
        """Return a net for images of ``2 * layers + 2`` pixels or more."""
        layers = self.config.layers
        # Without padding a 3x3 convolution takes 2 pixels.
        channels, height, width = image_shape(self, task, smallest=2 * layers + 2)
        high, wide = ((side - 2 * layers) // 2 for side in (height, width))
        blocks: dict[str, nn.Module] = {}
        for i in range(1, layers + 1):
            outputs = 32 if i == 1 else 64
            blocks[f"conv{i}"] = named(conv=nn.Conv2d(channels, outputs, 3), relu=nn.ReLU())
            channels = outputs
        blocks["pool"] = named(pool=nn.MaxPool2d(2), dropout=Dropout(self.config.conv_dropout))
        blocks["fc1"] = named(
            flatten=nn.Flatten(),
            linear=nn.Linear(channels * high * wide, 128),
            relu=nn.ReLU(),
            dropout=Dropout(self.config.fc_dropout),
        )
        return finish(blocks, 128, task, self.config)


PLUGINS = {"cnn": Cnn, "cnn_femnist": CnnFemnist}
