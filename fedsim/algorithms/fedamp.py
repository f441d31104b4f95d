"""FedAMP: clients with similar models help each other most.

The server keeps the last model of every client. It sends each client of the cohort a mixture of all these
models, with larger weights for models nearer to the client's own. The client trains its own model and is held
near the mixture. So similar clients attract each other round by round (specification 5.D.3). A client that
never uploaded is in no mixture, and is sent the start model.

A client solves ``F_k(w) + lam / (2 alpha) ||w - u_k||^2`` by the steps of its training; each takes the
quadratic term implicitly. The explicit step, as in public code, diverges where ``lr lam / alpha > 2``.

Squared distances of models grow a hundredfold over a run, and depend on the learning rate; with scales of the
first round, mixtures soon are the clients' own models. So scales that are not given are found anew in each
round, and the strength of the pull is relative to what a client's training can move. Under partial
participation results are close to those of Local with `follow_selection`, since a client is held near a
mixture only in its own rounds.

Huang, Chu, Zhou, Wang, Liu, Pei, Zhang: Personalized Cross-Silo Federated Learning on Non-IID Data, AAAI 2021
(arXiv 2007.03797), algorithm 1; HeurFedAMP is its section 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Self, TypeAlias

import numpy as np
from pydantic import Field, model_validator
from torch import Tensor

from fedsim.algorithms.base import About, Replies
from fedsim.algorithms.common.proximal import Proximal
from fedsim.algorithms.common.similarity import gram_rows, gram_rows_flops, mixtures, rounded_cosines
from fedsim.algorithms.common.training_rounds import OwnModelRounds
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.config import Config
from fedsim.engine.jobs import Extra
from fedsim.engine.losses import Extras, LiveModel
from fedsim.engine.steps import Descent
from fedsim.params import Array, Model, count
from fedsim.ranges import Coefficient, PositiveShare
from fedsim.wire import ModelBroadcast, ModelUpdate, message

# A scale of squared distances of models, or a size of steps of that scale.
Scale = Annotated[float, Field(gt=0, le=1e12)]

DECAY_ROUNDS = 30  # rounds after which alpha shrinks

PULL = 0.1  # lam / alpha by default, times the learning rate and the steps of a client's training

MASS = 0.5  # what others weigh in a client's mixture, the mean over mixtures, where alpha is found


class FedAMPConfig(Config):
    """FedAMP's own parameters."""

    lam: Coefficient | None = None
    """Weight of the attraction of models, lambda (the authors: 1); 0 is Local, bit for bit. By default such
    that a client's training, if it had no gradients, would end a tenth of the way to the mixture."""
    alpha: Scale | None = None
    """Size of the server's step; by default such that others weigh a half in a round's mixtures (the authors:
    10 000)."""
    alpha_decay: PositiveShare = 1.0
    """Factor of a given alpha after every 30 rounds (the authors: 0.1)."""
    sigma: Scale | None = None
    """Scale of squared distances; by default their median in a round, and 1 with `heur` (public code: 1, 25,
    up to a million)."""
    heur: bool = False
    """Weigh others in proportion to ``exp(sigma cos)`` of the models, and the client's own by ``1 / m`` of m
    models, as in HeurFedAMP, instead of by distances. Then alpha only divides `lam`: give both or neither."""
    start: Literal["own", "mixture"] = "own"
    """Where a client's training begins: at its own model or at the mixture."""

    @model_validator(mode="after")
    def _divides(self) -> Self:
        if self.heur and (self.lam is None) != (self.alpha is None):
            raise ValueError("with heur alpha only divides lam: give both or neither")
        if self.alpha is None and self.alpha_decay != 1:
            raise ValueError(
                "alpha_decay shrinks a given alpha, not one found in each round: give alpha as well"
            )
        return self


@message("mixture")
class Mixture(ModelBroadcast):
    """A client's mixture of models, and how strongly it is held near it."""

    pull: float  # lam / alpha; without `lam` the same times the learning rate and the steps of its training


# The server's state: the last model of each client that ever uploaded one.
Models: TypeAlias = Mapping[int, Model]

# m: stored models, r: mixtures to make. ``own``, booleans [r, m]: which model is that of a row's client.


def squared_distances(products: Array, squares: Array, own: Array) -> Array:
    """Return squared distances ``[r, m]`` from inner products ``[r, m]`` and squares ``[m]``."""
    mine = squares[own.argmax(axis=1)]
    distances: Array = np.maximum(mine[:, None] + squares[None, :] - 2 * products, 0)
    distances[own] = 0
    return distances


def scales(
    distances: Array, own: Array, sigma: float | None, alpha: float | None
) -> tuple[float | None, float | None]:
    """Return sigma and alpha; both None where no two models differ. ``distances`` are squared, ``[r, m]``."""
    if sigma is None and not own.all():
        sigma = float(np.median(distances[~own])) or None
    if alpha is None and sigma is not None:
        nearness = float(np.exp(-distances / sigma)[~own].sum() / len(distances))
        alpha = MASS * sigma / nearness if nearness else None
    return sigma, alpha


def by_distance(distances: Array, own: Array, sigma: float | None, alpha: float) -> tuple[Array, int]:
    """Return weights ``[r, m]`` from squared distances, and in how many rows others would exceed 1."""
    weights = np.zeros(distances.shape)
    if sigma is not None:
        weights = alpha / sigma * np.exp(-distances / sigma)
        weights[own] = 0
    mass = weights.sum(axis=1)
    heavy = mass > 1
    weights[heavy] *= ((1 - 1 / distances.shape[1]) / mass[heavy])[:, None]
    weights[own] = np.maximum(1 - weights.sum(axis=1), 0)
    return weights, int(heavy.sum())


def by_cosine(products: Array, squares: Array, own: Array, sigma: float) -> Array:
    """Return weights ``[r, m]``: ``1 / m`` for oneself, the rest for others as ``exp(sigma cos)``."""
    m = len(squares)
    near = rounded_cosines(products, squares[own.argmax(axis=1)][:, None], squares[None, :])
    weights = np.exp(sigma * (near - 1))
    weights[own] = 0
    weights *= (1 - 1 / m) / np.where(m > 1, weights.sum(axis=1, keepdims=True), 1)
    weights[own] = 1 / m
    return weights


@dataclass(frozen=True, slots=True)
class ImplicitProximal:
    """Gives the gradient ``(g + mu (w - anchor)) / (1 + lr mu)``: a proximal step, stable for any mu."""

    mu: float
    lr: float
    is_elementwise: ClassVar[bool] = True

    def __call__(self, model: LiveModel, gradients: list[Tensor], extras: Extras) -> list[Tensor]:
        """Return the corrected gradients."""
        held = Proximal(self.mu)(model, gradients, extras)
        return [gradient / (1 + self.lr * self.mu) for gradient in held]


class FedAMP(OwnModelRounds[FedAMPConfig, Models, Model]):
    """Attentive message passing; a client's state is its own model."""

    about = About(
        kind="personal models", down="S", up="S", client="its model", server="every client's last model"
    )
    messages = (Mixture,)

    def start(self, server: ServerContext) -> Models:
        """Begin without models."""
        return {}

    async def send(
        self, server: ServerContext, state: Models, cohort: Sequence[int]
    ) -> tuple[Models, Mapping[int, Mixture]]:
        """Send each its mixture; to those who never uploaded the start model."""
        alpha = self.config.alpha
        if alpha is not None:
            alpha *= self.config.alpha_decay ** ((server.round - 1) // DECAY_ROUNDS)
        sent = dict.fromkeys(cohort, self._mixture(server.initial_model(), alpha))
        known, mixing = sorted(state), [client for client in cohort if client in state]
        if mixing:
            models = [state[client] for client in known]
            weights, alpha = await self._attention(server, models, list(map(known.index, mixing)), alpha)
            flops = float(max(1, 2 * weights.size * count(models[0].params)))
            mixed = await server.call(mixtures, models, weights, flops=flops)
            sent |= {client: self._mixture(model, alpha) for client, model in zip(mixing, mixed, strict=True)}
        return state, sent

    async def _attention(
        self, server: ServerContext, models: Sequence[Model], rows: Sequence[int], alpha: float | None
    ) -> tuple[Array, float | None]:
        """Return what the models weigh in the mixtures of those at ``rows``, ``[r, m]``, and alpha."""
        config, trees = self.config, [model.params for model in models]
        own = np.eye(len(models), dtype=np.bool_)[rows]
        flops = gram_rows_flops(len(rows), len(models), count(trees[0]))
        products, squares = await server.call(gram_rows, trees, rows, not config.heur, flops=flops)
        if config.heur:
            return by_cosine(products, squares, own, config.sigma or 1.0), alpha or 1.0
        distances = squared_distances(products, squares, own)
        sigma, scaled = scales(distances, own, config.sigma, alpha)
        weights, num_heavy = by_distance(distances, own, sigma, scaled or 0.0)
        if num_heavy and alpha is not None:
            server.warn("others weigh more than a mixture holds", clients=num_heavy, instead="less")
        return weights, scaled

    def _mixture(self, model: Model, alpha: float | None) -> Mixture:
        """Return the message; without alpha there is no pull."""
        lam = self.config.lam
        pull = 0.0 if alpha is None else PULL if lam is None else lam / max(alpha, 1e-12)
        return Mixture(model.architecture, model.params, model.buffers, pull)

    async def train(self, client: ClientContext, state: Model, message: Mixture) -> tuple[Model, ModelUpdate]:
        """Train the client's own model, held near the mixture, and send it."""
        pull, lr = message.pull, client.training.lr
        if self.config.lam is None:
            pull /= client.training.total_rate(max(1, client.usual_steps(client.architecture))) or 1.0
        fitted = await client.fit(
            state if self.config.start == "own" else message.model,
            step=Descent(correct=ImplicitProximal(pull, lr)),
            extras={"anchor": Extra(message.model.params)},
        )
        return fitted.model, ModelUpdate.of(fitted.model, num_samples=client.num_samples())

    async def merge(self, server: ServerContext, state: Models, replies: Replies[ModelUpdate]) -> Models:
        """Keep the models."""
        return {**state, **{reply.client: reply.message.model for reply in replies}}


PLUGIN = FedAMP
