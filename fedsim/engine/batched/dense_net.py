"""Fully connected nets of many clients, computed at once.

The parameters are a list of stacked tensors ``[m, ...]``: weight and bias of each layer. m: clients,
b: batch, o: outputs, N: classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from fedsim.engine.batched.exact_products import Products, can_pad, can_pad_sums, exact_products
from fedsim.engine.batched.feed import OwnRows
from fedsim.models import Architecture, Net
from fedsim.params import Tree

TILE_BYTES = 4 * 2**20
"""Memory of nets that are computed at once: more does not stay in the processor's cache."""
PADDING_FLOPS = 1e6
"""So many operations on padding take less time than the kernels' overhead for one more batch."""


@dataclass(frozen=True, slots=True)
class Dense:
    """A linear layer, and whether ReLU follows it; its name is its path in the net."""

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


class DenseNet:
    """How nets of such layers are computed at once.

    Attributes:
        names: Of the parameters.
        num_params: Scalars of one client's parameters.
        num_values: Scalars that one sample leaves behind in the layers for the backward pass, with itself.
    """

    def __init__(self, layers: Layers) -> None:
        self.layers = layers
        self.names = tuple([f"{layer.name}.{leaf}" for layer in layers for leaf in ("weight", "bias")])
        self.num_params = sum((layer.num_inputs + 1) * layer.num_outputs for layer in layers)
        self.num_values = layers[0].num_inputs + sum(layer.num_outputs for layer in layers)

    def can_pad(self, num_clients: int, size: int, padded: int) -> bool:
        """Return whether to pad batches: where no bit changes, and rows cost less than another batch."""
        flops = 6 * self.num_params * num_clients * (padded - size)
        return flops <= PADDING_FLOPS and all(
            can_pad(size, padded, layer.num_inputs, layer.num_outputs) for layer in self.layers
        )


class LiveNets:
    """The nets of many clients while a batch passes: the live model of losses that serve many.

    Attributes:
        logits: Of each call, ``[m, b, N]``; autograd follows what becomes of them if ``with_autograd``.
    """

    def __init__(self, net: DenseNet, params: Sequence[Tensor], *, with_autograd: bool = False) -> None:
        self.logits: list[Tensor] = []
        self._net, self._params, self._with_autograd = net, params, with_autograd
        # Of each call, the input of each layer and the logits, and how each layer was computed.
        self._calls: list[tuple[list[Tensor], list[Products]]] = []

    @property
    def params(self) -> Mapping[str, Tensor]:
        """Parameters by name, each ``[m, ...]``."""
        return dict(zip(self._net.names, self._params, strict=True))

    def __call__(self, x: Tensor) -> Tensor:
        """Return the logits of samples ``[m, b, ...]``.

        Raises:
            ValueError: The samples are what a trained model gives, whose gradients would end here.
        """
        if x.requires_grad:
            raise ValueError("a loss that serves many passes one trained model's outputs to another model")
        num_clients, batch_size = x.shape[:2]
        values, chosen = [x.flatten(2)], []
        for number, layer in enumerate(self._net.layers):
            weight, bias = self._params[2 * number : 2 * number + 2]
            products = exact_products(
                batch_size, layer.num_inputs, layer.num_outputs, is_alone=num_clients == 1
            )
            y = products.outputs(values[-1], weight, bias)
            values.append(y.relu_() if layer.relu else y)
            chosen.append(products)
        self._calls.append((values, chosen))
        logits = values[-1].detach()
        if self._with_autograd:
            logits.requires_grad_()
        self.logits.append(logits)
        return logits

    public = __call__  # these nets have no buffers

    def backward(self, grad_logits: Sequence[Tensor | None], out: list[Tensor], own_rows: OwnRows) -> None:
        """Write the gradients of a loss into ``out``.

        Args:
            grad_logits: The loss's gradient with respect to the logits of each call; None where it has none,
                zero in rows of padding.
            out: One tensor for each parameter.
            own_rows: Which rows are not padding; empty where none is.
        """
        is_first = True
        # The last call first, as autograd does; of three gradients, the order of adding them up shows.
        for grad_outputs, (values, chosen) in zip(reversed(grad_logits), reversed(self._calls), strict=True):
            if grad_outputs is None:
                continue
            its_out = out if is_first else [torch.empty_like(tensor) for tensor in out]
            self._backward(grad_outputs, values, chosen, its_out, own_rows)
            if not is_first:
                torch._foreach_add_(out, its_out)
            is_first = False
        if is_first:
            torch._foreach_zero_(out)

    def _backward(
        self,
        grad_outputs: Tensor,
        values: Sequence[Tensor],
        chosen: Sequence[Products],
        out: Sequence[Tensor],
        own_rows: OwnRows,
    ) -> None:
        for number, layer in reversed(list(enumerate(self._net.layers))):
            if layer.relu:
                grad_outputs = torch.ops.aten.threshold_backward(grad_outputs, values[number + 1], 0)
            chosen[number].weight_gradients(grad_outputs, values[number], out[2 * number])
            _sum_rows(grad_outputs, out[2 * number + 1], own_rows)
            if number:
                grad_outputs = chosen[number].input_gradients(grad_outputs, self._params[2 * number])


def _sum_rows(rows: Tensor, out: Tensor, own_rows: OwnRows) -> None:
    """Add up the rows of each client ``[m, b, o]``."""
    _, padded, num_outputs = rows.shape
    if all(size == padded or can_pad_sums(size, padded, num_outputs) for _, size in own_rows):
        torch.sum(rows, 1, out=out)
    else:
        for clients, size in own_rows:
            torch.sum(rows[clients, :size], 1, out=out[clients])


def stack(trees: Sequence[Tree], names: Sequence[str]) -> list[Tensor]:
    """Return the clients' arrays of these names ``[m, ...]``, not to be written into.

    They take the memory of one client where all have the same tree.
    """
    first, num_clients = trees[0], len(trees)
    if all(tree is first for tree in trees):
        # Copies, since torch takes no read-only array.
        one = [torch.from_numpy(first[name].copy()) for name in names]
        return [tensor.expand(num_clients, *tensor.shape) for tensor in one]
    return [torch.from_numpy(np.stack([tree[name] for tree in trees])) for name in names]
