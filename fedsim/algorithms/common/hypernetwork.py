"""A hypernetwork: a net that makes the parameters of a client's model from an embedding of the client.

It has fully connected layers with ReLU between them, and on the last one a linear head for each parameter
that it makes. Its values are trees of arrays. All functions are pure, for ``server.call``, which computes in
one thread. K: clients, E: numbers of an embedding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod, sqrt

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - the name that everyone knows
from torch import Tensor

from fedsim.engine.optimisers import Clipped
from fedsim.params import Array, Tree, freeze
from fedsim.rng import Key


@dataclass(frozen=True, slots=True)
class Shape:
    """The structure of a hypernetwork.

    Attributes:
        embedding: Numbers of an embedding, E.
        hidden: Width of its layers.
        hidden_layers: How many of them follow on the first one.
        targets: Names and shapes of the parameters that it makes.
    """

    embedding: int
    hidden: int
    hidden_layers: int
    targets: tuple[tuple[str, tuple[int, ...]], ...]

    @property
    def layers(self) -> Iterator[tuple[str, int, int]]:
        """Name, inputs and outputs of each layer: those one after the other, then the heads."""
        for number in range(1 + self.hidden_layers):
            yield f"layer {number}", self.hidden if number else self.embedding, self.hidden
        for name, shape in self.targets:
            yield f"head {name}", self.hidden, prod(shape)

    @property
    def num_weights(self) -> int:
        """Scalars of all layers."""
        return sum((inputs + 1) * outputs for _, inputs, outputs in self.layers)


@dataclass(frozen=True, slots=True)
class Hypernetwork:
    """A hypernetwork, the embeddings of its clients, and what its optimiser remembers.

    Attributes:
        shape: Its structure.
        weights: Of its layers.
        embeddings: Of all clients, float32 ``[K, E]``.
        momentum: Of the weights.
        embedding_momentum: Of the embeddings, float32 ``[K, E]``.
    """

    shape: Shape
    weights: Tree
    embeddings: Array
    momentum: Tree
    embedding_momentum: Array


def begun(shape: Shape, num_clients: int, key: Key) -> Hypernetwork:
    """Return start values: layers as PyTorch begins them, embeddings from a standard normal distribution."""
    draw = key.numpy()
    embeddings = draw.standard_normal((num_clients, shape.embedding), np.float32)
    weights = {}
    for name, inputs, outputs in shape.layers:
        for part, size in (("weight", (outputs, inputs)), ("bias", (outputs,))):
            weights[f"{name} {part}"] = (2 * draw.random(size, np.float32) - 1) / np.float32(sqrt(inputs))
    zeros = freeze({name: np.zeros_like(array) for name, array in weights.items()})
    nothing = _read_only(np.zeros_like(embeddings))
    return Hypernetwork(shape, freeze(weights), _read_only(embeddings), zeros, nothing)


def _read_only(array: Array) -> Array:
    array.flags.writeable = False
    return array


def generated(net: Hypernetwork, clients: Sequence[int]) -> list[Tree]:
    """Return the parameters of each client's model."""
    live = _live(net.weights)
    with torch.no_grad():
        made = [_forward(net.shape, live, torch.tensor(net.embeddings[client])) for client in clients]
    return list(map(_tree, made))


def stepped(net: Hypernetwork, groups: Sequence[Mapping[int, Tree]], optimiser: Clipped) -> Hypernetwork:
    """Return the hypernetwork after one step for each group of clients.

    The gradient is the mean over the group of :func:`products`. Embeddings of clients in no group stay.

    Args:
        net: The hypernetwork before.
        groups: By client, the change of its model: the parameters before its training less those after it.
        optimiser: Of SGD.
    """
    weights, momentum = _live(net.weights), _live(net.momentum)
    embeddings, embedding_momentum = torch.tensor(net.embeddings), torch.tensor(net.embedding_momentum)
    for group in groups:
        params = [*weights.values(), *(embeddings[client] for client in group)]
        state = optimiser.start(params)
        if state.slots:
            state.slots["momentum"] = [*momentum.values(), *(embedding_momentum[client] for client in group)]
        gradients = products(
            net.shape, dict(zip(weights, params, strict=False)), params[len(weights) :], group
        )
        optimiser.update(params, gradients, state)
    after, its_momentum = _read_only(embeddings.numpy()), _read_only(embedding_momentum.numpy())
    return Hypernetwork(net.shape, _tree(weights), after, _tree(momentum), its_momentum)


def products(
    shape: Shape, weights: Mapping[str, Tensor], embeddings: Sequence[Tensor], group: Mapping[int, Tree]
) -> list[Tensor]:
    """Return the products of clients' changes with the Jacobian of what is made for them, their mean.

    Args:
        shape: The structure.
        weights: Of the layers.
        embeddings: Of the clients, each ``[E]``.
        group: By client, in this order, the change of its model.

    Returns:
        One for each weight, then one for each embedding.
    """
    inputs = [tensor.detach().requires_grad_() for tensor in (*weights.values(), *embeddings)]
    live = dict(zip(weights, inputs, strict=False))
    made: list[Tensor] = []
    directions: list[Tensor] = []
    for embedding, change in zip(inputs[len(weights) :], group.values(), strict=True):
        made += _forward(shape, live, embedding).values()
        directions += [torch.tensor(change[name]) / len(group) for name, _ in shape.targets]
    return list(torch.autograd.grad(made, inputs, directions))


def _forward(shape: Shape, live: Mapping[str, Tensor], embedding: Tensor) -> dict[str, Tensor]:
    def layer(name: str, x: Tensor) -> Tensor:
        return F.linear(x, live[f"{name} weight"], live[f"{name} bias"])

    hidden = layer("layer 0", embedding)
    for number in range(1, 1 + shape.hidden_layers):
        hidden = layer(f"layer {number}", hidden.relu())
    return {name: layer(f"head {name}", hidden).reshape(size) for name, size in shape.targets}


def _live(tree: Tree) -> dict[str, Tensor]:
    return {name: torch.tensor(array) for name, array in tree.items()}


def _tree(tensors: Mapping[str, Tensor]) -> Tree:
    return freeze({name: tensor.numpy() for name, tensor in tensors.items()})
