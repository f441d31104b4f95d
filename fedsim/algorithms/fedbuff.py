"""FedBuff: clients send how they have changed the model, and the server adds the mean of K such changes.

A client trains the version that it was sent, ``w^tau``, and sends ``delta = w_k - w^tau``. When K are there,
the server takes the step ``w <- w + server_lr * u`` with ``u <- momentum * u + 1 / K * sum s(staleness)
delta``, where K and the discount s are those of the pacing ``buffered`` (specification 5.F.2). Running
statistics are averaged, all weighing the same. It runs under other pacings as well: in synchronous rounds K
is the number of replies, and nothing is stale.

Nguyen, Malik, Zhan, Yousefpour, Rabbat, Malek, Huba: Federated Learning with Buffered Asynchronous
Aggregation, AISTATS 2022 (arXiv 2106.06639), algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedsim.algorithms.base import About, Replies
from fedsim.algorithms.common.model_rounds import ModelTraining, combined
from fedsim.algorithms.common.tree_arithmetic import combination, difference
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.config import Config
from fedsim.params import Model, Tree, weighted_mean
from fedsim.ranges import LearningRate, PartialShare
from fedsim.wire import ModelBroadcast, ModelUpdate


class FedBuffConfig(Config):
    """FedBuff's own parameters; K and the discount are the pacing's."""

    server_lr: LearningRate = 1.0
    """What a step is multiplied by, eta_g (the example of FLSim: 0.7)."""
    momentum: PartialShare = 0.0
    """How much of a step is repeated in the next one (the example of FLSim: 0.9)."""


@dataclass(frozen=True, slots=True)
class ServerState:
    """What the server holds."""

    model: Model  # the global model, w
    velocity: Tree  # the last step before its learning rate, u, float64


class FedBuff(ModelTraining[FedBuffConfig, ServerState]):
    """Buffered asynchronous aggregation."""

    about = About(kind="one global model", down="S", up="S", server="the global model and its velocity")

    discounted = "steps"
    own_aggregation = None

    @property
    def changes(self) -> tuple[str, ...]:
        """What clients send are changes."""
        return ("params",)

    def start(self, server: ServerContext) -> ServerState:
        """Begin with the start values of the server's architecture, and a velocity of 0."""
        model = server.initial_model()
        return ServerState(model, {name: np.zeros(array.shape) for name, array in model.params.items()})

    async def train(
        self, client: ClientContext, state: Any, message: ModelBroadcast
    ) -> tuple[Any, ModelUpdate]:
        """Train the model that came down, and send the change of its parameters."""
        state, update = await super().train(client, state, message)
        return state, replace(update, params=difference(update.params, message.params))

    async def merge(
        self, server: ServerContext, state: ServerState, replies: Replies[ModelUpdate]
    ) -> ServerState:
        """``u <- momentum u + 1 / K * sum s delta``, ``w <- w + server_lr u``."""
        replies = combined(server, replies)
        changes, share = [reply.message for reply in replies], 1 / len(replies)
        velocity = combination(
            [state.velocity, *(change.params for change in changes)],
            [self.config.momentum, *(share * reply.discount for reply in replies)],
        )
        params = combination([state.model.params, velocity], [1.0, self.config.server_lr])
        buffers = weighted_mean([change.buffers for change in changes], [share] * len(changes))
        return ServerState(Model(state.model.architecture, params, buffers), velocity)


PLUGIN = FedBuff
