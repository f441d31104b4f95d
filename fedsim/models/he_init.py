"""He's normal initialisation of convolutions, which torchvision's nets use.

With PyTorch's default initialisation the signal shrinks by a factor of about 2.4 in each layer with ReLU,
unless a normalisation restores it. After 16 layers a millionth is left, and nothing is learned. With He's
initialisation its size stays the same (He et al., 2015, "Delving deep into rectifiers").
"""

import torch
from torch import nn


class HeConv2d(nn.Conv2d):
    """A convolution with He's normal initialisation of its weight (fan-out), and with a bias of 0."""

    def initialise(self, generator: torch.Generator) -> None:
        """Fill the weight from ``generator``, and the bias with zero."""
        nn.init.kaiming_normal_(self.weight, mode="fan_out", nonlinearity="relu", generator=generator)
        if self.bias is not None:
            nn.init.zeros_(self.bias)


def start_by_he(net: nn.Module) -> None:
    """Make every convolution of ``net`` a :class:`HeConv2d`, which differs only in its initialisation."""
    for module in net.modules():
        if type(module) is nn.Conv2d:
            module.__class__ = HeConv2d
