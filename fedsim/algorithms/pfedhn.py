"""pFedHN: a hypernetwork at the server makes each client's model from an embedding of the client.

A client is sent the parameters that the hypernetwork makes for it, trains them, and sends how they have
changed. The server takes that change for the gradient of the client's loss in these parameters: its product
with the Jacobian is a gradient of the hypernetwork and of the client's embedding, along which they take a
step. The hypernetwork never travels, and running statistics stay at the client (specification 5.D.5).

The authors have one client in a round, and thousands of rounds. With more, one step for each takes changes of
parameters that the hypernetwork has ceased to make by then: with all of four clients in a round, 400 digits,
the authors' rates and 200 rounds, that ended at 13 %, the mean of their gradients at 100 % (Local: 91 %).
Clients' gradients are clipped as in the authors' code, so their nets are trained one by one.

Shamsian, Navon, Fetaya, Chechik: Personalized Federated Learning using Hypernetworks, ICML 2021 (arXiv
2103.04628), algorithm 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from fedsim.algorithms.base import About, Predictor, Predictors, Replies, Reply, Setting
from fedsim.algorithms.common.hypernetwork import Hypernetwork, Shape, begun, generated, stepped
from fedsim.algorithms.common.model_check import unlike
from fedsim.algorithms.common.training_rounds import TrainingRounds
from fedsim.algorithms.common.tree_arithmetic import difference
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.config import Config
from fedsim.engine.optimisers import Clipped, Sgd
from fedsim.errors import Fault
from fedsim.models.architecture import MAX_PARAMS
from fedsim.params import Model, Tree
from fedsim.ranges import Coefficient, Epochs, LearningRate, Norm, PartialShare, Width
from fedsim.wire import ModelBroadcast, ModelUpdate

MOST_BY_DEFAULT = 100
"""Numbers of an embedding, unless told otherwise: else its memory would grow with the square of K."""


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


class PFedHN(TrainingRounds[PFedHNConfig, Hypernetwork, Tree]):
    """Personalised models by a hypernetwork; a client's state are the buffers of its model."""

    Config = PFedHNConfig
    about = About(
        kind="personal models",
        down="4d",
        up="4d",
        client="running statistics",
        server="a hypernetwork, an embedding of each client",
    )

    def start(self, server: ServerContext) -> Hypernetwork:
        """Begin with a hypernetwork and embeddings drawn from the server's key."""
        config, params = self.config, server.initial_model().params
        shape = Shape(
            config.embedding or min(1 + server.num_clients // 4, MOST_BY_DEFAULT),
            config.hidden,
            config.hidden_layers,
            tuple((name, array.shape) for name, array in params.items()),
        )
        return begun(shape, server.num_clients, server.key.child("hypernetwork"))

    def join(self, client: ClientContext) -> Tree:
        """Begin with the buffers of the start model."""
        return client.initial_model().buffers

    async def send(
        self, server: ServerContext, state: Hypernetwork, cohort: Sequence[int]
    ) -> tuple[Hypernetwork, Mapping[int, ModelBroadcast]]:
        """Make the parameters of each client's model."""
        flops = 2.0 * state.shape.num_weights * len(cohort)
        made = await server.call(generated, state, list(cohort), flops=flops)
        messages = [ModelBroadcast(server.architecture, params, {}) for params in made]
        return state, dict(zip(cohort, messages, strict=True))

    async def train(
        self, client: ClientContext, state: Tree, message: ModelBroadcast
    ) -> tuple[Tree, ModelUpdate]:
        """Train from what came, and send what it was less what it has become."""
        start = await self.own_model(client, state, message)
        optimiser = Clipped(client.training.make_optimiser(), self.config.client_clip)
        model = (await client.fit(start, optimiser=optimiser)).model
        change = difference(start.params, model.params)
        return model.buffers, ModelUpdate(model.architecture, change, {}, client.num_samples())

    async def own_model(self, client: ClientContext, state: Tree, message: ModelBroadcast) -> Model:
        """Return the parameters that came, with the client's running statistics."""
        return Model(message.architecture, message.params, state)

    async def send_last(
        self, server: ServerContext, state: Hypernetwork, cohort: Sequence[int]
    ) -> tuple[Hypernetwork, Mapping[int, ModelBroadcast]]:
        """Make the parameters of each client's model."""
        return await self.send(server, state, cohort)

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
        """Refuse changes of other parameters, and any buffers."""
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
        """Return what the hypernetwork makes for the client, untrained."""
        flops = 2.0 * server_state.shape.num_weights
        (params,) = await observer.call(generated, server_state, [observer.client], flops=flops)
        return {"personal": Predictor(Model(observer.architecture, params, client_state))}


PLUGIN = PFedHN
