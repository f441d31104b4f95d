"""pFedHN: a hypernetwork at the server makes each client's model from an embedding of the client.

A client is sent the parameters that the hypernetwork makes for it, trains them, and sends their change. The
server takes the change for the gradient of the client's loss in these parameters: its product with the
Jacobian is a gradient of the hypernetwork and of the client's embedding, along which they take a step. The
hypernetwork never travels, and running statistics stay at the client (specification 5.D.5).

The authors have one client in a round, and thousands of rounds. With more clients, one step for each applies
changes of parameters that the hypernetwork no longer makes: with all of four clients in a round, 400 digits,
the authors' rates and 200 rounds, that ended at 13 %, the mean of their gradients at 100 % (Local: 91 %).
Clients' gradients are clipped as in the authors' code, so their nets are trained one by one.

Shamsian, Navon, Fetaya, Chechik: Personalized Federated Learning using Hypernetworks, ICML 2021 (arXiv
2103.04628), algorithm 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod, sqrt
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - the name that everyone knows
from torch import Tensor

from fedsim.algorithms.base import About, Predictor, Predictors, Replies, Reply, Setting
from fedsim.algorithms.common.model_check import unlike
from fedsim.algorithms.common.training_rounds import TrainingRounds
from fedsim.algorithms.common.tree_arithmetic import difference
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.config import Config
from fedsim.engine.optimisers import Clipped, Sgd
from fedsim.errors import Fault
from fedsim.models.architecture import MAX_PARAMS
from fedsim.params import Array, Model, Tree, freeze
from fedsim.ranges import Coefficient, Epochs, LearningRate, Norm, PartialShare, Width
from fedsim.rng import Key
from fedsim.wire import ModelBroadcast, ModelUpdate

# Numbers of an embedding, unless told otherwise: else its memory would grow with the square of K.
MAX_DEFAULT_EMBEDDING = 100


class PFedHNConfig(Config):
    """pFedHN's own parameters; the defaults are those of the authors' code, but for `updates`."""

    embedding: Width | None = None
    """Numbers of a client's embedding; by default ``1 + K / 4`` of K clients, at most 100."""
    hidden: Width = 100
    """Width of the hypernetwork's layers; for each parameter of a client's model it has one weight more than
    this."""
    hidden_layers: Epochs = 3
    """Layers after the first one."""
    updates: Literal["mean", "each"] = "mean"
    """One step along the mean of the gradients of those who reply, or one for each of them, in order."""
    server_lr: LearningRate = 0.01
    """Size of a step; for fewer rounds than thousands a larger one may serve."""
    momentum: PartialShare = 0.9
    """Its momentum."""
    weight_decay: Coefficient = 1e-3
    """Its L2 penalty."""
    server_clip: Norm = 50.0
    """Norm to which a longer gradient of the hypernetwork is shortened."""
    client_clip: Norm = 50.0
    """The same for the gradients of a client's training."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The structure of a hypernetwork."""

    embedding: int  # numbers of an embedding, E
    hidden: int  # width of its layers
    hidden_layers: int  # how many of them follow on the first one
    targets: tuple[tuple[str, tuple[int, ...]], ...]  # names and shapes of the parameters that it makes

    @property
    def layers(self) -> Iterator[tuple[str, int, int]]:
        """Name, inputs and outputs of each layer, hidden layers before heads."""
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
    """A hypernetwork, the embeddings of its clients, and its optimiser's momentum."""

    shape: Shape
    weights: Tree  # of its layers
    embeddings: Array  # of all clients, float32 [K, E]
    momentum: Tree  # of the weights
    embedding_momentum: Array  # of the embeddings, float32 [K, E]


def initial_hypernetwork(shape: Shape, num_clients: int, key: Key) -> Hypernetwork:
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
    """Return the hypernetwork after one step for each group, along the mean of its :func:`products`."""
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
    """Return the mean product of clients' changes with the Jacobian: for each weight, then each embedding."""
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


class PFedHN(TrainingRounds[PFedHNConfig, Hypernetwork, Tree]):
    """Personalised models by a hypernetwork; a client's state are the buffers of its model."""

    about = About(
        kind="personal models",
        down="4d",
        up="4d",
        client="running statistics",
        server="a hypernetwork, an embedding of each client",
    )

    @property
    def changes(self) -> tuple[str, ...]:
        """What clients send are changes."""
        return ("params",)

    def start(self, server: ServerContext) -> Hypernetwork:
        """Begin with a hypernetwork and embeddings drawn from the server's key."""
        config, params = self.config, server.initial_model().params
        shape = Shape(
            config.embedding or min(1 + server.num_clients // 4, MAX_DEFAULT_EMBEDDING),
            config.hidden,
            config.hidden_layers,
            tuple((name, array.shape) for name, array in params.items()),
        )
        return initial_hypernetwork(shape, server.num_clients, server.key.child("hypernetwork"))

    def join(self, client: ClientContext) -> Tree:
        """Begin with the buffers of the start model."""
        return client.initial_model().buffers

    async def send(
        self, server: ServerContext, state: Hypernetwork, cohort: Sequence[int]
    ) -> tuple[Hypernetwork, Mapping[int, ModelBroadcast]]:
        """Generate the parameters of each client's model."""
        flops = 2.0 * state.shape.num_weights * len(cohort)
        made = await server.call(generated, state, list(cohort), flops=flops)
        messages = [ModelBroadcast(server.architecture, params, {}) for params in made]
        return state, dict(zip(cohort, messages, strict=True))

    async def train(
        self, client: ClientContext, state: Tree, message: ModelBroadcast
    ) -> tuple[Tree, ModelUpdate]:
        """Train the received parameters, and send them less the trained ones."""
        start = await self.own_model(client, state, message)
        optimiser = Clipped(client.training.make_optimiser(), self.config.client_clip)
        model = (await client.fit(start, optimiser=optimiser)).model
        change = difference(start.params, model.params)
        return model.buffers, ModelUpdate(model.architecture, change, {}, client.num_samples())

    async def own_model(self, client: ClientContext, state: Tree, message: ModelBroadcast) -> Model:
        """Return the received parameters with the client's running statistics."""
        return Model(message.architecture, message.params, state)

    async def merge(
        self, server: ServerContext, state: Hypernetwork, replies: Replies[ModelUpdate]
    ) -> Hypernetwork:
        """Step along the gradients that follow from the changes."""
        config, changes = self.config, {reply.client: reply.message.params for reply in replies}
        each = [{client: change} for client, change in changes.items()]
        groups = each if config.updates == "each" else [changes]
        optimiser = Clipped(Sgd(config.server_lr, config.momentum, config.weight_decay), config.server_clip)
        # Forward and backward for each client, and some operations on each weight in a step.
        flops = state.shape.num_weights * (6.0 * len(changes) + 8.0 * len(groups))
        moved: Hypernetwork = await server.call(stepped, state, groups, optimiser, flops=flops)
        return moved

    def vet(self, server: ServerContext, state: Hypernetwork, reply: Reply) -> str | None:
        """Reject changes of other parameters, and any buffers."""
        initial = server.initial_model()
        return unlike(reply.message.model, Model(initial.architecture, initial.params))

    def misfits(self, setting: Setting) -> Iterator[Fault]:
        """Refuse a hypernetwork that is too large for memory."""
        yield from super().misfits(setting)
        config, own = self.config, setting.server
        layers = (config.embedding or 1, config.hidden, config.hidden_layers)
        num_weights = Shape(*layers, (("all", (own.num_params,)),)).num_weights
        if num_weights > MAX_PARAMS:
            yield Fault(
                "algorithm.params.hidden",
                f"a hypernetwork of {num_weights} weights, {config.hidden + 1} of them for each parameter of "
                f"model {own.label!r}: the most are {MAX_PARAMS}",
                "write a smaller number, or take a smaller model",
            )

    async def models_of(
        self, observer: ClientContext, server_state: Hypernetwork, client_state: Tree
    ) -> Predictors:
        """Return the model generated for the client, untrained."""
        flops = 2.0 * server_state.shape.num_weights
        (params,) = await observer.call(generated, server_state, [observer.client], flops=flops)
        return {"personal": Predictor(Model(observer.architecture, params, client_state))}


PLUGIN = PFedHN
