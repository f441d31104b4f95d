"""He's normal law for convolutions, by which torchvision's nets start.

PyTorch's default law lets the signal shrink by a factor of about 2.4 in each layer with ReLU, unless a
normalisation restores it: 16 layers leave a billionth, and nothing is learned. He's law keeps its size (He et
al., 2015, "Delving deep into rectifiers").
"""

from typing import Any

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
    """Put a :class:`HeConv2d` of the same shape in the place of every convolution inside ``net``."""
    for module in list(net.modules()):
        for name, child in list(module.named_children()):
            if type(child) is nn.Conv2d:
                setattr(module, name, _like(child))


def _like(conv: Any) -> HeConv2d:
    return HeConv2d(
        conv.in_channels,
        conv.out_channels,
        conv.kernel_size,
        stride=conv.stride,
        padding=conv.padding,
        dilation=conv.dilation,
        groups=conv.groups,
        bias=conv.bias is not None,
        padding_mode=conv.padding_mode,
    )
