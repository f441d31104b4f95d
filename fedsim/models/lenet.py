"""LeNet: two convolutions and three fully connected layers, for images of 16 pixels or more.

conv 6@5x5, pool, conv 16@5x5, pool, FC 120, FC 84, FC N, with ReLU and max pooling (specification 7.1).
"""

from torch import nn

from fedsim.models.base import ModelPlugin, Net, image_shape, named
from fedsim.models.output_head import HeadConfig, finish
from fedsim.task import Task


class LeNet(ModelPlugin[HeadConfig]):
    """44 426 parameters for 28 x 28 x 1 and 10 classes, 62 006 for 32 x 32 x 3."""

    Config = HeadConfig

    def build(self, task: Task) -> Net:
        """Return a net for images."""
        channels, height, width = image_shape(self, task, smallest=16)
        # Without padding a 5x5 convolution takes 4 pixels; pooling then halves, rounding down.
        high, wide = (((side - 4) // 2 - 4) // 2 for side in (height, width))
        blocks: dict[str, nn.Module] = {
            "conv1": named(conv=nn.Conv2d(channels, 6, 5), relu=nn.ReLU(), pool=nn.MaxPool2d(2)),
            "conv2": named(conv=nn.Conv2d(6, 16, 5), relu=nn.ReLU(), pool=nn.MaxPool2d(2)),
            "fc1": named(flatten=nn.Flatten(), linear=nn.Linear(16 * high * wide, 120), relu=nn.ReLU()),
            "fc2": named(linear=nn.Linear(120, 84), relu=nn.ReLU()),
        }
        return finish(blocks, 84, task, self.config)


PLUGIN = LeNet
