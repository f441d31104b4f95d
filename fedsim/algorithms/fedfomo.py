"""FedFomo: clients mix the models of others, by what each would do for their own validation loss.

The server stores clients' models and offers each client of the cohort a few of them: those with the largest
weights for it so far, each replaced at random with a decreasing probability. A client starts from the model
with which its last training began, and moves towards each model that has a smaller validation loss, its own
trained model included, by the gain in loss per distance. There it trains, and sends its model and the weights
(specification 5.D.4). If no model gains anything it goes on with its own. A client that never uploaded is
sent the start model alone.

Zhang, Sapra, Fidler, Yeung, Alvarez: Personalized Federated Learning with First Order Model Optimization,
ICLR 2021 (arXiv 2012.08565), equation 4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite, sqrt
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedsim.algorithms.base import About, Replies, Reply
from fedsim.algorithms.common.model_set_message import ModelSet
from fedsim.algorithms.common.training_rounds import OwnModelRounds
from fedsim.algorithms.common.tree_arithmetic import squared_distance
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.config import Config
from fedsim.params import Array, Model, count, mean_model
from fedsim.ranges import MAX_CLIENTS, Share
from fedsim.rng import Key
from fedsim.wire import ModelUpdate, message

START = -1  # number of the start model in a set


class FedFomoConfig(Config):
    """FedFomo's own parameters."""

    offers: Annotated[int, Field(ge=0, le=MAX_CLIENTS)] = 5
    """Models that a client is sent, M, as far as there are so many (the paper: 5 and 10); with 0 it is Local,
    bit for bit."""
    epsilon: Share = 0.3
    """Probability with which one of them is replaced by any other in the first round (the paper: 0.3)."""
    epsilon_decay: Share = 0.05
    """What it falls by in each round, down to 0 (the authors' code: 0.05)."""


@message("weighed_update")
class WeighedUpdate(ModelUpdate):
    """A model, and what each that was offered was worth, before scaling, in their order, float32 ``[M]``."""

    weights: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class ServerState:
    """What the server holds."""

    # The last model of each client that ever uploaded one.
    models: Mapping[int, Model] = field(default_factory=dict)
    # By client and other client, the sum of weights given to the other's models.
    worth: Mapping[int, Mapping[int, float]] = field(default_factory=dict)
    # By client, the owners of the models that it was sent last, ascending.
    offered: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClientState:
    """What a client keeps."""

    model: Model  # its own, as its last training has left it
    previous: Model | None = None  # the model with which that began; None before the first


def best_offers(key: Key, worth: Mapping[int, float], most: int, epsilon: float) -> tuple[int, ...]:
    """Return the clients of the greatest worth, sorted; ties and replacements are drawn from ``key``."""
    draw = key.numpy()
    others = sorted(draw.permutation(list(worth)).tolist(), key=lambda other: -worth[other])
    chosen, left = others[:most], others[most:]
    for place in range(len(chosen)):
        if left and draw.uniform() < epsilon:
            chosen[place] = left.pop(int(draw.integers(len(left))))
    return tuple(sorted(chosen))


def moved(previous: Model, models: Sequence[Model], gains: Sequence[float]) -> tuple[Model | None, Array]:
    """Return ``previous + sum_l w_l (model_l - previous)``, None without any gain, and the raw weights."""
    gained = [
        gain / (sqrt(squared_distance(model.params, previous.params)) + 1e-5)
        if gain > 0 and isfinite(gain)
        else 0
        for model, gain in zip(models, gains, strict=True)
    ]
    weights = np.array(gained, np.float32)
    total, some = sum(gained), [(model, gain) for model, gain in zip(models, gained, strict=True) if gain]
    if not some:
        return None, weights
    return mean_model([model for model, _ in some], [gain / total for _, gain in some]), weights


class FedFomo(OwnModelRounds[FedFomoConfig, ServerState, ClientState]):
    """First-order model optimisation."""

    about = About(
        kind="personal models",
        down="M S",
        up="S + 4M",
        client="its model, before and after its last training",
        server="every client's last model, sums of weights",
    )
    messages = (ModelSet, WeighedUpdate)
    reply = WeighedUpdate

    def start(self, server: ServerContext) -> ServerState:
        """Nothing is known yet."""
        return ServerState()

    def join(self, client: ClientContext) -> ClientState:
        """Begin with the start values."""
        return ClientState(client.initial_model())

    async def send(
        self, server: ServerContext, state: ServerState, cohort: Sequence[int]
    ) -> tuple[ServerState, Mapping[int, ModelSet | None]]:
        """Offer each client models of others; the start model to those who never uploaded."""
        first = ModelSet.of({START: server.initial_model()})
        epsilon = max(0.0, self.config.epsilon - self.config.epsilon_decay * (server.round - 1))
        offered: dict[int, tuple[int, ...]] = dict.fromkeys(cohort, ())
        sent: dict[int, ModelSet | None] = dict.fromkeys(cohort, first)
        for client in cohort:
            if client in state.models:
                worth = {other: state.worth.get(client, {}).get(other, 0.0) for other in sorted(state.models)}
                del worth[client]
                key = server.key.child("offers", client)
                offered[client] = best_offers(key, worth, self.config.offers, epsilon)
                models = {other: state.models[other] for other in offered[client]}
                sent[client] = ModelSet.of(models) if models else None
        return replace(state, offered={**state.offered, **offered}), sent

    async def train(
        self, client: ClientContext, state: ClientState, message: ModelSet | None
    ) -> tuple[ClientState, WeighedUpdate]:
        """Mix, train there, and send the model and the weights of those that were offered."""
        sent = {} if message is None else message.models
        start, weights = await self._mixed(client, state, [sent[other] for other in sent if other != START])
        if state.previous is None:
            start = sent.get(START, start)
        model = (await client.fit(start)).model
        reply = WeighedUpdate(model.architecture, model.params, model.buffers, client.num_samples(), weights)
        return ClientState(model, start), reply

    async def _mixed(
        self, client: ClientContext, state: ClientState, offered: Sequence[Model]
    ) -> tuple[Model, Array]:
        """Return where the client's training begins, and the weights of the models offered."""
        weights = np.zeros(len(offered), np.float32)
        if not offered or state.previous is None:
            return state.model, weights
        if not client.num_samples("val"):
            client.warn("no validation samples", instead="the client's own model")
            return state.model, weights
        models = [*offered, state.model]
        before, *losses = [
            (await client.evaluate(model, client.own("val"))).loss for model in (state.previous, *models)
        ]
        gains = [before - loss for loss in losses]
        flops = float(max(1, 5 * len(models) * count(state.model.params)))
        mixed, weights = await client.call(moved, state.previous, models, gains, flops=flops)
        return (state.model if mixed is None else mixed), weights[:-1]

    async def merge(
        self, server: ServerContext, state: ServerState, replies: Replies[WeighedUpdate]
    ) -> ServerState:
        """Keep the models, and add up what others were worth."""
        models, worth = dict(state.models), dict(state.worth)
        for reply in replies:
            models[reply.client] = reply.message.model
            sums = dict(worth.get(reply.client, {}))
            for other, weight in zip(
                state.offered[reply.client], reply.message.weights.tolist(), strict=True
            ):
                sums[other] = sums.get(other, 0.0) + weight
            worth[reply.client] = sums
        return replace(state, models=models, worth=worth)

    def vet(self, server: ServerContext, state: ServerState, reply: Reply) -> str | None:
        """Refuse a model of another architecture, and weights that cannot be."""
        weights, num_offered = reply.message.weights, len(state.offered[reply.client])
        if weights.shape != (num_offered,) or (weights < 0).any():
            return f"weights that are not {num_offered} non-negative numbers"
        return super().vet(server, state, reply)


PLUGIN = FedFomo
