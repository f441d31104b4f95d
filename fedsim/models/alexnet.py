"""AlexNet in its form for small images: five convolutions and two wide fully connected layers with dropout.

conv 64@3x3 with stride 2, pool, conv 192, pool, conv 384, conv 256, conv 256, pool, FC 4096, FC 4096, FC N
(Krizhevsky et al., 2012, "ImageNet classification with deep convolutional neural networks"; this form is that
of KT-pFL, Zhang et al., 2021, "Parameterized knowledge transfer for personalized federated learning").
"""

from torch import nn

from fedsim.models.base import ModelPlugin, Net, image_shape, named
from fedsim.models.dropout import Dropout
from fedsim.models.output_head import HeadConfig, finish
from fedsim.ranges import PartialShare, Width
from fedsim.task import Task


class AlexNetConfig(HeadConfig):
    """Settings of the model."""

    hidden: Width = 4096
    """Units of each of the two fully connected layers."""
    dropout: PartialShare = 0.5
    """Share of the inputs of those layers that training leaves out."""


class AlexNet(ModelPlugin[AlexNetConfig]):
    """20 125 386 parameters for 28 x 28 x 1 and 10 classes, 23 272 266 for 32 x 32 x 3."""

    def build(self, task: Task) -> Net:
        """Return a net for images of 15 pixels or more."""
        channels, height, width = image_shape(self, task, smallest=15)
        hidden, dropout = self.config.hidden, self.config.dropout
        # The first convolution halves, rounding up; each of the three poolings halves, rounding down.
        high, wide = ((side + 1) // 2 // 8 for side in (height, width))
        blocks: dict[str, nn.Module] = {
            "conv1": named(
                conv=nn.Conv2d(channels, 64, 3, stride=2, padding=1), relu=nn.ReLU(), pool=nn.MaxPool2d(2)
            ),
            "conv2": named(conv=nn.Conv2d(64, 192, 3, padding=1), relu=nn.ReLU(), pool=nn.MaxPool2d(2)),
            "conv3": named(conv=nn.Conv2d(192, 384, 3, padding=1), relu=nn.ReLU()),
            "conv4": named(conv=nn.Conv2d(384, 256, 3, padding=1), relu=nn.ReLU()),
            "conv5": named(conv=nn.Conv2d(256, 256, 3, padding=1), relu=nn.ReLU(), pool=nn.MaxPool2d(2)),
            "fc1": named(
                flatten=nn.Flatten(),
                dropout=Dropout(dropout),
                linear=nn.Linear(256 * high * wide, hidden),
                relu=nn.ReLU(),
            ),
            "fc2": named(dropout=Dropout(dropout), linear=nn.Linear(hidden, hidden), relu=nn.ReLU()),
        }
        return finish(blocks, hidden, task, self.config)


PLUGIN = AlexNet
