"""He's normal law for convolutions, by which torchvision's nets start.

PyTorch's default law lets the signal shrink by a factor of about 2.4 in each layer with ReLU, unless a
normalisation restores it: 16 layers leave a billionth, and nothing is learned. He's law keeps its size (He et
al., 2015, "Delving deep into rectifiers").
"""

import torch
from torch import nn


class HeConv2d(nn.Conv2d):
    """A convolution whose weight starts by He's normal law, counted over its outputs, and whose bias at 0."""

    def initialise(self, generator: torch.Generator) -> None:
        """Fill the weight from ``generator``, and the bias with zero."""
        nn.init.kaiming_normal_(self.weight, mode="fan_out", nonlinearity="relu", generator=generator)
        if self.bias is not None:
            nn.init.zeros_(self.bias)


def start_by_he(net: nn.Module) -> None:
    """Make every convolution of ``net`` a :class:`HeConv2d`, which differs in its initialisation alone."""
    for module in net.modules():
        if type(module) is nn.Conv2d:
            module.__class__ = HeConv2d
