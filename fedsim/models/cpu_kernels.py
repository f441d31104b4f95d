"""The form of a convolutional net that kernels compute faster: the same layers, in another order or layout.

It concerns the nets that run, in the engine. Operations and memory are counted on the architecture as it was
written, so the form of a net takes no part in simulated time.
"""

from __future__ import annotations

from torch import nn


def pool_before_relu(layers: nn.Module) -> None:
    """Exchange each ReLU with the max pooling behind it, so that it has a quarter of the values or fewer.

    All values stay, of outputs and of gradients. Both layers pass on the largest value of a window, or zero
    where none is positive; NaN goes through either way. A gradient goes to the first place of the largest
    value, and where that is not positive, ReLU stops it, before the pooling or behind it.

    Args:
        layers: A row of layers, such as a net's body. Rows within it are treated alike, but not what other
            modules contain, since those may call their layers one by one.
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
