"""FedAMP: clients with similar models help each other most.

The server keeps the last model of every client. It sends each client of the cohort a mixture of all these
models, in which a model weighs the more the nearer it is to the client's own; the client trains its own model
and is held near the mixture. So similar clients attract each other round by round (specification 5.D.3). A
client that never uploaded is in no mixture, and is sent the start model.

A client solves ``F_k(w) + lam / (2 alpha) ||w - u_k||^2`` by the steps of its training; each takes the
quadratic term implicitly, which for plain SGD is the proximal step. The explicit step, as in public code,
diverges where ``lr lam / alpha > 2``; with the default of ``alpha`` that depends on the models' scale.

Huang, Chu, Zhou, Wang, Liu, Pei, Zhang: Personalized Cross-Silo Federated Learning on Non-IID Data, AAAI 2021
(arXiv 2007.03797), algorithm 1; HeurFedAMP is its section 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator
from torch import Tensor

from fedsim.algorithms.base import About, Algorithm, Exchange, Exchanges, Predictor, Predictors, Replies
from fedsim.algorithms.common.attentive_mixtures import (
    by_cosine,
    by_distance,
    scales,
    squared_distances,
)
from fedsim.algorithms.common.model_mixtures import mixtures
from fedsim.algorithms.common.similarity import gram_rows, gram_rows_flops
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.config import Config
from fedsim.engine.jobs import Extra
from fedsim.engine.losses import Extras, LiveModel
from fedsim.engine.steps import Descent
from fedsim.params import Array, Model, count
from fedsim.ranges import Coefficient, PositiveShare
from fedsim.wire import ModelBroadcast, ModelUpdate, message

Scale = Annotated[float, Field(gt=0, le=1e12)]
"""A scale of squared distances of models, or a size of steps of that scale."""

DECAY_ROUNDS = 30
"""Rounds after which alpha shrinks."""


class FedAMPConfig(Config):
    """FedAMP's own parameters."""

    lam: Coefficient = 0.1
    """Weight of the attraction of models, lambda (the authors: 1); 0 is Local, bit for bit. With the default
    of `alpha` the pull ``lam / alpha`` depends on the models' scale, and 1 draws models together until all
    mixtures are nearly the plain mean."""
    alpha: Scale | None = None
    """Size of the server's step; by default such that, after the first merge, others weigh a half in a
    mixture (the authors: 10 000)."""
    alpha_decay: PositiveShare = 1.0
    """Factor of alpha after every 30 rounds (the authors: 0.1)."""
    sigma: Scale | None = None
    """Scale of squared distances; by default their median after the first merge, and 1 with `heur` (public
    code: 1, 25, up to a million)."""
    heur: bool = False
    """Weigh others in proportion to ``exp(sigma cos)`` of the models, and the client's own by ``1 / m`` of m
    models, as in HeurFedAMP, instead of by distances. Give `alpha` too."""
    start: Literal["own", "mixture"] = "own"
    """Where a client's training begins: at its own model or at the mixture."""

    @model_validator(mode="after")
    def _scaled(self) -> Self:
        if self.heur and self.alpha is None:
            raise ValueError("alpha is found from distances, and heur weighs by cosines: give alpha as well")
        return self


@message("mixture")
class Mixture(ModelBroadcast):
    """A client's mixture of models, and how strongly it is held near it: ``lam / alpha``, or 0."""

    pull: float


@dataclass(frozen=True, slots=True)
class ImplicitPull:
    """Gives the gradient ``(g + pull (w - u)) / (1 + lr pull)``, with which a step of SGD is a proximal one.

    With a pull of 0 gradients stay as they are, bit for bit.
    """

    pull: float
    lr: float
    is_elementwise: ClassVar[bool] = True

    def __call__(self, model: LiveModel, gradients: list[Tensor], extras: Extras) -> list[Tensor]:
        """Return the corrected gradients, in the order of the model's parameters."""
        mixture, damping = extras["mixture"], 1 + self.lr * self.pull
        return [
            (gradient + self.pull * (param - mixture[name])) / damping
            for gradient, (name, param) in zip(gradients, model.params.items(), strict=True)
        ]


@dataclass(frozen=True, slots=True)
class ServerState:
    """What the server holds.

    Attributes:
        models: The last model of each client that ever uploaded one.
        sigma: Scale of squared distances; None until it is known.
        alpha: Size of the first steps; None until it is known.
    """

    models: Mapping[int, Model] = field(default_factory=dict)
    sigma: float | None = None
    alpha: float | None = None


class FedAMP(Algorithm[FedAMPConfig, ServerState, Model]):
    """Attentive message passing; a client's state is its own model."""

    Config = FedAMPConfig
    about = About(
        kind="personal models",
        down="S",
        up="S",
        client="its model",
        server="every client's last model",
        personal=True,
    )
    messages = (Mixture,)

    @property
    def exchanges(self) -> Exchanges[ServerState, Model]:
        """One: train near a mixture."""
        return (Exchange("train", instruct=self.send, local=self.train, merge=self.merge, reply=ModelUpdate),)

    def start(self, server: ServerContext) -> ServerState:
        """Nothing is known but what is given."""
        return ServerState(sigma=self.config.sigma, alpha=self.config.alpha)

    def join(self, client: ClientContext) -> Model:
        """Begin with the start values."""
        return client.initial_model()

    async def send(
        self, server: ServerContext, state: ServerState, cohort: Sequence[int]
    ) -> tuple[ServerState, Mapping[int, Mixture]]:
        """Send each its mixture; to those who never uploaded the start model."""
        sent = dict.fromkeys(cohort, server.initial_model())
        known, mixing = sorted(state.models), [client for client in cohort if client in state.models]
        models = [state.models[client] for client in known]
        shrunk = self.config.alpha_decay ** ((server.round - 1) // DECAY_ROUNDS)
        if mixing:
            rows = [known.index(client) for client in mixing]
            state, weights = await self._weighed(server, state, models, rows, shrunk)
            flops = float(max(1, 2 * weights.size * count(models[0].params)))
            sent |= zip(mixing, await server.call(mixtures, models, weights, flops=flops), strict=True)
        # Where alpha is not known yet there is nobody to be near to.
        pull = 0.0 if state.alpha is None else self.config.lam / max(state.alpha * shrunk, 1e-12)
        distinct = {id(model): model for model in sent.values()}
        made = {
            key: Mixture(one.architecture, one.params, one.buffers, pull) for key, one in distinct.items()
        }
        return state, {client: made[id(model)] for client, model in sent.items()}

    async def _weighed(
        self,
        server: ServerContext,
        state: ServerState,
        models: Sequence[Model],
        rows: Sequence[int],
        shrunk: float,
    ) -> tuple[ServerState, Array]:
        """Return the state, and what the models weigh in the mixtures of those at ``rows``, ``[r, m]``."""
        heur = self.config.heur
        # Scales are found from the distances of all models, once.
        finds_scales = not heur and None in (state.sigma, state.alpha)
        near = range(len(models)) if finds_scales else rows
        flops = gram_rows_flops(len(near), len(models), count(models[0].params))
        trees, own = [model.params for model in models], np.eye(len(models), dtype=np.bool_)[list(near)]
        products, squares = await server.call(gram_rows, trees, near, not heur, flops=flops)
        if heur:
            return state, by_cosine(products, squares, own, state.sigma or 1.0)
        distances = squared_distances(products, squares, own)
        if finds_scales:
            sigma, alpha = scales(distances, state.sigma, state.alpha)
            state = replace(state, sigma=sigma, alpha=alpha)
            distances, own = distances[list(rows)], own[list(rows)]
        weights, num_heavy = by_distance(distances, own, state.sigma, (state.alpha or 0.0) * shrunk)
        if num_heavy:
            server.warn("others weigh more than a mixture holds", clients=num_heavy, instead="less")
        return state, weights

    async def train(self, client: ClientContext, state: Model, message: Mixture) -> tuple[Model, ModelUpdate]:
        """Train the client's own model, held near the mixture, and send it."""
        fitted = await client.fit(
            state if self.config.start == "own" else message.model,
            step=Descent(correct=ImplicitPull(message.pull, client.training.lr)),
            extras={"mixture": Extra(message.model.params)},
        )
        return fitted.model, ModelUpdate.of(fitted.model, num_samples=client.num_samples())

    async def merge(
        self, server: ServerContext, state: ServerState, replies: Replies[ModelUpdate]
    ) -> ServerState:
        """Keep the models."""
        return replace(state, models={**state.models, **{one.client: one.message.model for one in replies}})

    async def models_of(
        self, observer: ClientContext, server_state: ServerState, client_state: Model
    ) -> Predictors:
        """Return the client's own model."""
        return {"personal": Predictor(client_state)}


PLUGIN = FedAMP
