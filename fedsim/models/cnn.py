"""The CNN of the FedAvg paper: two padded convolutions and one wide fully connected layer.

conv 32@5x5, pool, conv 64@5x5, pool, FC 512, FC N, with ReLU, max pooling and padding 2 (McMahan et al.,
2017, "Communication-efficient learning of deep networks from decentralized data"; specification 7.1).
"""

from torch import nn

from fedsim.models.base import ModelPlugin, Net, image_shape, named
from fedsim.models.output_head import HeadConfig, finish
from fedsim.task import Task


class Cnn(ModelPlugin[HeadConfig]):
    """1 663 370 parameters for 28 x 28 x 1 and 10 classes, 2 156 490 for 32 x 32 x 3."""

    Config = HeadConfig

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


PLUGIN = Cnn
