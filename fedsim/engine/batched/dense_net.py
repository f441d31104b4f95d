"""Fully connected nets of many clients, computed at once.

The parameters are a list of stacked tensors ``[m, ...]``: weight and bias of each layer. m: clients,
b: batch, o: outputs, N: classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

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


class _Call(NamedTuple):
    """Values on their way through some layers.

    Attributes:
        first: The number of the first layer.
        values: The input of each layer ``[m, b, i]``, and the outputs.
        chosen: How each layer was computed.
    """

    first: int
    values: list[Tensor]
    chosen: list[Products]


class _Head(torch.autograd.Function):
    """The last layer of nets, from features to logits."""

    @staticmethod
    def forward(context: Any, features: Tensor, nets: LiveNets) -> Tensor:
        context.nets, context.call = nets, nets.head_forward(features)
        # Another tensor than the one that is kept: it will refer to this context.
        logits: Tensor = context.call.values[-1].detach()
        return logits

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Any:
        return context.nets.head_backward(gradients[0], context.call), None


class LiveNets:
    """The nets of many clients while a batch passes: the live model of losses that serve many.

    Attributes:
        outputs: Of each call for logits ``[m, b, N]`` or features ``[m, b, f]``, these; autograd follows what
            becomes of them if ``with_autograd``.
    """

    def __init__(self, net: DenseNet, params: Sequence[Tensor], *, with_autograd: bool = False) -> None:
        self.outputs: list[Tensor] = []
        self._net, self._params, self._with_autograd = net, params, with_autograd
        self._calls: list[_Call] = []
        self._calls_head = False
        self._head_gradients: list[Tensor] | None = None  # of its parameters, once they are known

    @property
    def params(self) -> Mapping[str, Tensor]:
        """Parameters by name, each ``[m, ...]``."""
        return dict(zip(self._net.names, self._params, strict=True))

    def __call__(self, x: Tensor) -> Tensor:
        """Return the logits of samples ``[m, b, ...]``.

        Raises:
            ValueError: The samples are what a trained model gives, whose gradients would end here.
        """
        return self._called(x, self._net.layers)

    public = __call__  # these nets have no buffers

    def features(self, x: Tensor) -> Tensor:
        """Return the features of samples ``[m, b, ...]``; errors as of a call."""
        return self._called(x, self._net.layers[:-1])

    def head(self, features: Tensor) -> Tensor:
        """Return the logits of features.

        Raises:
            ValueError: A trained model's head has been called before.
        """
        if self._calls_head and self._with_autograd:
            raise ValueError("a loss that serves many calls a trained model's head more than once")
        self._calls_head = True
        logits: Tensor = _Head.apply(features, self)  # type: ignore[no-untyped-call]
        return logits

    def _called(self, x: Tensor, layers: Layers) -> Tensor:
        if x.requires_grad:
            raise ValueError("a loss that serves many passes one trained model's outputs to another model")
        self._calls.append(call := self._forward(x.flatten(2), layers))
        outputs = call.values[-1].detach()
        if self._with_autograd:
            outputs.requires_grad_()
        self.outputs.append(outputs)
        return outputs

    def _forward(self, x: Tensor, layers: Layers, first: int = 0) -> _Call:
        """Pass values ``[m, b, i]`` through layers, of which the first has this number."""
        num_clients, batch_size = x.shape[:2]
        values, chosen = [x], list[Products]()
        for number, layer in enumerate(layers, first):
            weight, bias = self._params[2 * number : 2 * number + 2]
            products = exact_products(
                batch_size, layer.num_inputs, layer.num_outputs, is_alone=num_clients == 1
            )
            y = products.outputs(values[-1], weight, bias)
            values.append(y.relu_() if layer.relu else y)
            chosen.append(products)
        return _Call(first, values, chosen)

    def head_forward(self, features: Tensor) -> _Call:
        """Pass features through the last layer."""
        return self._forward(features, self._net.layers[-1:], len(self._net.layers) - 1)

    def backward(self, gradients: Sequence[Tensor | None], out: list[Tensor], own_rows: OwnRows) -> None:
        """Write the gradients of a loss into ``out``.

        Args:
            gradients: The loss's gradient with respect to the outputs of each call; None where it has none,
                zero in rows of padding.
            out: One tensor for each parameter.
            own_rows: Which rows are not padding; empty where none is.
        """
        is_first = True
        # The last call first, as autograd does; of three gradients, the order of adding them up shows.
        for grad_outputs, call in zip(reversed(gradients), reversed(self._calls), strict=True):
            if grad_outputs is None:
                continue
            its_out = out if is_first else [torch.empty_like(tensor) for tensor in out]
            self._backward(grad_outputs, call, its_out, own_rows)
            if len(call.chosen) < len(self._net.layers):
                if self._head_gradients is None:
                    torch._foreach_zero_(its_out[-2:])
                else:
                    torch._foreach_copy_(its_out[-2:], self._head_gradients)
                    self._head_gradients = None
            if not is_first:
                torch._foreach_add_(out, its_out)
            is_first = False
        if is_first:
            torch._foreach_zero_(out)

    def head_backward(self, grad_logits: Tensor, call: _Call) -> Tensor:
        """Keep the gradients of the head's parameters; return that of the features."""
        out = list(map(torch.empty_like, self._params[-2:]))
        grad_features = self._backward(grad_logits, call, out, ())
        self._head_gradients = out
        return grad_features

    def _backward(
        self, grad_outputs: Tensor, call: _Call, out: Sequence[Tensor], own_rows: OwnRows
    ) -> Tensor:
        """Write the gradients of a call's layers; return that of its input, unless that is samples."""
        for place, products in reversed(list(enumerate(call.chosen))):
            number = call.first + place
            if self._net.layers[number].relu:
                grad_outputs = torch.ops.aten.threshold_backward(grad_outputs, call.values[place + 1], 0)
            products.weight_gradients(grad_outputs, call.values[place], out[2 * place])
            _sum_rows(grad_outputs, out[2 * place + 1], own_rows)
            if number:
                grad_outputs = products.input_gradients(grad_outputs, self._params[2 * number])
        return grad_outputs


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
