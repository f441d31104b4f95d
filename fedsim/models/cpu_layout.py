"""The form of a convolutional net that kernels compute faster: the same layers, in another order or layout.

It concerns the nets that run, in the engine. Operations and memory are counted on the architecture as it was
written, so the form of a net takes no part in simulated time.
"""

from __future__ import annotations

from torch import nn

MAX_CHANNELS = 256
"""The widest convolution that is faster where the channels of a pixel lie beside each other, as measured."""
KNOWN = {"torch", "torchvision", "fedsim"}
"""Packages whose layers take inputs in any layout. Others may flatten with ``view``, which does not."""


def pool_before_relu(layers: nn.Module) -> None:
    """Exchange each ReLU with the max pooling behind it, so that it has a quarter of the values or fewer.

    All values stay, of outputs and of gradients. Both layers pass on the largest value of a window, or zero
    where none is positive; NaN goes through either way. A gradient goes to the first place of the largest
    value, and where that is not positive, ReLU stops it, before the pooling or behind it.
    """
    if type(layers) is not nn.Sequential:
        return
    row = list(layers._modules.items())
    for i, (_, layer) in enumerate(row):
        pool_before_relu(layer)
        behind = row[i + 1][1] if i + 1 < len(row) else None
        if type(layer) is nn.ReLU and type(behind) is nn.MaxPool2d and not behind.return_indices:
            row[i : i + 2] = row[i + 1], row[i]
    layers._modules.clear()
    layers._modules.update(row)


def is_faster_channels_last(net: nn.Module) -> bool:
    """Say whether a CPU computes a net faster where the channels of a pixel lie beside each other.

    Max pooling does, and convolutions that are not too wide; group normalisation is slower. Sums are rounded
    otherwise than in the usual layout, so this depends on the net alone, never on the machine.
    """
    layers = list(net.modules())
    widest = max((layer.out_channels for layer in layers if isinstance(layer, nn.Conv2d)), default=0)
    return (
        0 < widest <= MAX_CHANNELS
        and not any(isinstance(layer, nn.GroupNorm) for layer in layers)
        and all(type(layer).__module__.partition(".")[0] in KNOWN for layer in layers)
    )
