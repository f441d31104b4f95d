"""Fully connected nets of many clients, computed at once.

The parameters of a net are weight and bias of each layer. m: clients, b: batch, i: inputs, o: outputs,
N: classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedsim.engine.batched.exact_products import Ways, can_pad, can_pad_sums, ways
from fedsim.engine.batched.feed import OwnRows
from fedsim.engine.batched.stacked_net import Nets, StackedNet
from fedsim.models import Architecture, Net


@dataclass(frozen=True, slots=True)
class Dense:
    """A linear layer, and whether ReLU follows it.

    Attributes:
        name: Path of the layer in the net.
        num_inputs: i.
        num_outputs: o.
        relu: Whether ReLU follows.
    """

    name: str
    num_inputs: int
    num_outputs: int
    relu: bool = False


Layers = tuple[Dense, ...]


def layers_of(architecture: Architecture) -> Layers | None:
    """Return the layers of a net that is nothing but linear layers with ReLU between them, else None."""
    layers, task = _dense_layers(architecture.structure), architecture.task
    return layers if layers and not task.vocabulary and layers[0].num_inputs == task.num_inputs else None


def _dense_layers(net: Net) -> Layers | None:
    layers: list[Dense] = []
    for path, module in net.named_modules(remove_duplicate=False):
        hooks = (entries for name, entries in vars(module).items() if name.endswith("_hooks"))
        if any(hooks):
            return None
        last = layers[-1] if layers else None
        match module:
            case nn.Linear() if type(module) is nn.Linear and module.bias is not None:
                if last and last.num_outputs != module.in_features:
                    return None
                layers.append(Dense(path, module.in_features, module.out_features))
            case nn.ReLU() if type(module) is nn.ReLU and last and not last.relu:
                layers[-1] = Dense(last.name, last.num_inputs, last.num_outputs, relu=True)
            case nn.Flatten() if type(module) is nn.Flatten and not layers:
                if (module.start_dim, module.end_dim) != (1, -1):
                    return None
            case _ if type(module) not in (Net, nn.Sequential):
                return None
    num_tensors = len(list(net.parameters()))  # fewer where modules share one
    is_plain = layers and num_tensors == 2 * len(layers) and next(net.buffers(), None) is None
    return tuple(layers) if is_plain else None


PADDING_FLOPS = 1e6
"""So many operations on padding take less time than the kernels' overhead for one more batch."""


class DenseNet(StackedNet):
    """How nets of such layers are computed at once."""

    tile_bytes = 4 * 2**20  # more does not stay in the processor's cache
    fewest = fewest_predicting = 2
    least_share = 0.0

    def __init__(self, layers: Layers) -> None:
        self.layers = layers
        self.names = tuple([f"{layer.name}.{leaf}" for layer in layers for leaf in ("weight", "bias")])
        self.num_params = sum((layer.num_inputs + 1) * layer.num_outputs for layer in layers)
        self.num_values = layers[0].num_inputs + sum(layer.num_outputs for layer in layers)

    def are_turned(self, batch_size: int) -> list[bool]:
        """Say of each parameter whether products of such a batch are faster if it is laid out turned."""
        turned = []
        for number, layer in enumerate(self.layers):
            way = ways(batch_size, layer.num_inputs, layer.num_outputs, is_turned=True)
            turned += [way.are_direct(is_first=number == 0), False]
        return turned

    def can_pad(self, params: Sequence[Tensor], num_clients: int, size: int, padded: int) -> bool:
        """Say whether to pad batches: where no bit changes, and rows cost less than another batch."""
        flops = 6 * self.num_params * num_clients * (padded - size)
        return flops <= PADDING_FLOPS and all(
            can_pad(
                size,
                padded,
                layer.num_inputs,
                layer.num_outputs,
                is_turned=not params[2 * number].is_contiguous(),
            )
            for number, layer in enumerate(self.layers)
        )

    def live(
        self,
        params: Sequence[Tensor],
        *,
        is_trained: bool = False,
        is_followed: bool = False,
    ) -> DenseNets:
        """Return the nets of m clients."""
        return DenseNets(self, params, is_followed=is_followed)


class DenseNets(Nets):
    """Fully connected nets, of whose passes it is remembered what the backward pass needs."""

    def __init__(self, net: DenseNet, params: Sequence[Tensor], *, is_followed: bool = False) -> None:
        super().__init__(net.names, params, is_followed=is_followed)
        self._layers = net.layers
        self._passes: list[tuple[list[Tensor], list[Ways]]] = []

    def _outputs(self, x: Tensor) -> Tensor:
        values, chosen = _forward(self._layers, self._params, x.flatten(2))
        self._passes.append((values, chosen))
        return values[-1]

    def backward(self, slopes: Sequence[Tensor | None], out: list[Tensor], own_rows: OwnRows) -> None:
        """Compute the gradients of a loss."""
        is_first = True
        # The last call first, as autograd does; of three gradients, the order of adding them up shows.
        for its_slopes, (values, chosen) in zip(reversed(slopes), reversed(self._passes), strict=True):
            if its_slopes is None:
                continue
            its_out = out if is_first else [torch.empty_like(tensor) for tensor in out]
            self._backward(its_slopes, values, chosen, its_out, own_rows)
            if not is_first:
                torch._foreach_add_(out, its_out)
            is_first = False
        if is_first:
            torch._foreach_zero_(out)

    def _backward(
        self,
        slopes: Tensor,
        values: Sequence[Tensor],
        chosen: Sequence[Ways],
        out: Sequence[Tensor],
        own_rows: OwnRows,
    ) -> None:
        layers = self._layers
        for number in reversed(range(len(layers))):
            if layers[number].relu:
                slopes = torch.ops.aten.threshold_backward(slopes, values[number + 1], 0)
            chosen[number].weight_gradients(slopes, values[number], out[2 * number])
            _sum_rows(slopes, out[2 * number + 1], own_rows)
            if number:
                slopes = chosen[number].input_gradients(slopes, self._params[2 * number])


def _sum_rows(slopes: Tensor, out: Tensor, own_rows: OwnRows) -> None:
    """Add up the rows of each client ``[m, b, o]``."""
    _, padded, num_outputs = slopes.shape
    if all(size == padded or can_pad_sums(size, padded, num_outputs) for _, size in own_rows):
        torch.sum(slopes, 1, out=out)
    else:
        for clients, size in own_rows:
            torch.sum(slopes[clients, :size], 1, out=out[clients])


def _forward(layers: Layers, params: Sequence[Tensor], x: Tensor) -> tuple[list[Tensor], list[Ways]]:
    """Return the input of each layer and the logits, and how each layer's products are computed."""
    num_clients, batch_size, _ = x.shape
    chosen, values = [], [x]
    for number, layer in enumerate(layers):
        weight, bias = params[2 * number : 2 * number + 2]
        way = ways(
            batch_size,
            layer.num_inputs,
            layer.num_outputs,
            is_turned=not weight.is_contiguous(),
            is_alone=num_clients == 1,
        )
        chosen.append(way)
        y = way.outputs(values[-1], weight, bias)
        values.append(y.relu_() if layer.relu else y)
    return values, chosen
