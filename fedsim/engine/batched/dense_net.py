"""Fully connected nets of many clients, computed at once.

The parameters of a net are a list of tensors: weight and bias of each layer, with one client after the other
along the first dimension. m: clients, b: batch, i: inputs, o: outputs, N: classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

from fedsim.engine.batched.exact_products import Ways, can_pad, can_pad_sums, ways
from fedsim.engine.batched.feed import OwnRows
from fedsim.models import Architecture, Net
from fedsim.params import Array, Tree


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


def names_of(layers: Layers) -> list[str]:
    """Return the names of the parameters, in their order."""
    return [f"{layer.name}.{leaf}" for layer in layers for leaf in ("weight", "bias")]


def num_params(layers: Layers) -> int:
    """Return how many scalars the parameters of one client have."""
    return sum((layer.num_inputs + 1) * layer.num_outputs for layer in layers)


def are_turned(layers: Layers, batch_size: int) -> list[bool]:
    """Say of each parameter whether it is laid out turned, since products of such a batch are faster then."""
    turned = []
    for number, layer in enumerate(layers):
        way = ways(batch_size, layer.num_inputs, layer.num_outputs, is_turned=True)
        turned += [way.are_direct(is_first=number == 0), False]
    return turned


PADDING_FLOPS = 1e6
"""So many operations on padding take less time than the kernels' overhead for one more batch."""


@cache
def worth_padding(
    layers: Layers, are_turned: tuple[bool, ...], num_clients: int, size: int, padded: int
) -> bool:
    """Say whether to pad the batches of some clients from one size to another.

    Args:
        layers: The net.
        are_turned: Which of the weights lie in memory as turned.
        num_clients: m.
        size: Samples in a batch.
        padded: Rows after padding.
    """
    flops = 6 * num_params(layers) * num_clients * (padded - size)
    return flops <= PADDING_FLOPS and all(
        can_pad(size, padded, layer.num_inputs, layer.num_outputs, is_turned=is_turned)
        for layer, is_turned in zip(layers, are_turned, strict=True)
    )


def stack(trees: Sequence[Tree], layers: Layers, turned: Sequence[bool]) -> list[Tensor]:
    """Return the clients' parameters ``[m, ...]``, not to be written into.

    Args:
        trees: Parameters of each client; they take one client's memory where all are one tree.
        layers: The net.
        turned: Which parameters are laid out turned.
    """
    first, num_clients = trees[0], len(trees)
    kept = trees[:1] if all(tree is first for tree in trees) else trees
    stacked = []
    for name, is_turned in zip(names_of(layers), turned, strict=True):
        shape = first[name].shape
        # A copy in any case: torch takes no read-only array.
        tensor = torch.from_numpy(np.concatenate([tree[name] for tree in kept])).view(len(kept), *shape)
        stacked.append(_laid_out(tensor, is_turned).expand(num_clients, *shape))
    return stacked


def own(stacked: Sequence[Tensor], turned: Sequence[bool]) -> list[Tensor]:
    """Return the clients' parameters, each with memory of its own."""
    return [_laid_out(tensor, is_turned) for tensor, is_turned in zip(stacked, turned, strict=True)]


def _laid_out(tensor: Tensor, is_turned: bool) -> Tensor:
    return tensor.mT.contiguous().mT if is_turned else tensor.contiguous()


def rows_of(params: Sequence[Tensor]) -> Array:
    """Return the parameters of each client in a row, ``[m, size]``."""
    rows = np.empty((len(params[0]), sum(tensor[0].numel() for tensor in params)), np.float32)
    start = 0
    for tensor in params:
        of_each = tensor[0].numel()
        rows[:, start : start + of_each].reshape(tensor.shape)[:] = tensor.numpy()
        start += of_each
    return rows


def predictions(layers: Layers, params: Sequence[Tensor], x: Tensor) -> Tensor:
    """Return the logits ``[m, b, N]`` of samples ``[m, b, i]``."""
    values, _ = _forward(layers, params, x)
    return values[-1]


class Nets:
    """A net of each of many clients: the live model of losses that serve many.

    Args:
        layers: The net.
        params: Parameters of m clients.
        is_followed: Whether autograd is to follow what becomes of the logits.

    Attributes:
        logits: Of each call, ``[m, b, N]``.
    """

    def __init__(self, layers: Layers, params: Sequence[Tensor], *, is_followed: bool = False) -> None:
        self.logits: list[Tensor] = []
        self._layers = layers
        self._params = params
        self._is_followed = is_followed
        self._passes: list[tuple[list[Tensor], list[Ways]]] = []

    @property
    def params(self) -> dict[str, Tensor]:
        """Parameters by name, each ``[m, ...]``."""
        return dict(zip(names_of(self._layers), self._params, strict=True))

    def __call__(self, x: Tensor) -> Tensor:
        """Return the logits of samples ``[m, b, ...]``.

        Raises:
            ValueError: The samples are what a trained model gives, whose gradients would end here.
        """
        if x.requires_grad:
            raise ValueError("a loss that serves many passes one trained model's outputs to another model")
        values, chosen = _forward(self._layers, self._params, x.flatten(2))
        self._passes.append((values, chosen))
        logits = values[-1].detach().requires_grad_() if self._is_followed else values[-1]
        self.logits.append(logits)
        return logits

    public = __call__  # these nets have no buffers

    def backward(self, slopes: Sequence[Tensor | None], out: list[Tensor], own_rows: OwnRows) -> None:
        """Compute the gradients of a loss.

        Args:
            slopes: The loss's gradient with respect to the logits of each call; None where it has none, zero
                in rows of padding.
            out: Takes the gradients; laid out like the parameters.
            own_rows: Which rows are not padding.
        """
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
