"""KT-pFL for one architecture: personal mixtures of models instead of soft predictions.

The server keeps the last model of every client that ever uploaded one. It sends each client of the cohort a
mixture of these, with the client's row of the coefficient matrix c as weights. The client moves its own model
onto the mixture, or some of the way, trains and uploads. Then the server moves c on the distances between the
models, in the block of those that replied (specification 5.E.2). A client that never uploaded is in no sum
(3.5, E1); until the first upload clients go on with their own models.

The paper leaves the equations to an appendix; they are reconstructed with parameters for predictions and the
squared distance for KL (D-000-18). The Gram matrix of the centred parameters is divided by the mean of its
diagonal, without which rho would freeze c. Instead of being learned, c can follow from cosines between
parameters: the homogeneous forms of Sim-pFD and TopK-pFD (D-000-13).

Zhang, Guo, Ma, Wang, Xu, Wu: Parameterized Knowledge Transfer for Personalized Federated Learning, NeurIPS
2021 (arXiv 2111.02862), section 5.2.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from fedsim.algorithms.base import About, Replies, broadcast
from fedsim.algorithms.common.interpolation import between
from fedsim.algorithms.common.ktpfl_coefficients import CoefficientConfig, learned_from_gram, restricted
from fedsim.algorithms.common.model_rounds import broadcasts
from fedsim.algorithms.common.similarity import (
    by_range,
    by_rank,
    cosines,
    gram_rows,
    gram_rows_flops,
    mixtures,
)
from fedsim.algorithms.common.training_rounds import OwnModelRounds
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.params import Array, Model, count
from fedsim.ranges import Clients, Epochs, Share, Steps
from fedsim.wire import ModelBroadcast, ModelUpdate


class KTpFLWConfig(CoefficientConfig):
    """Parameters of KT-pFL's weights version."""

    mixing: Literal["learned", "similarity", "topk"] = "learned"
    """Where the weights of a mixture come from: the matrix c, learned; cosines between parameters, min-max
    normalised as in `sim_pfd`; or the nearest by cosine, as in `topk_pfd`."""
    c_steps: Annotated[Steps, Field(le=10_000)] = 12
    """Steps of c after each round: as many as `ktpfl` makes on 3000 samples."""
    neighbours: Clients = 5
    """Models in a mixture with `mixing = "topk"`, the client's own included (the paper: 5)."""
    pull: Share = 1.0
    """How far a client moves onto its mixture, b; 1 starts from the mixture, 0 is Local."""
    pull_epochs: Epochs | None = None
    """Instead of `pull`: so many steps on the squared distance, R, of size `pull_lr`."""
    pull_lr: Annotated[float, Field(gt=0, le=0.5)] | None = None
    """Size of these steps, eta_2: b = 1 - (1 - 2 eta_2)^R."""

    @model_validator(mode="after")
    def _one_pull(self) -> Self:
        if (self.pull_epochs is None) != (self.pull_lr is None):
            raise ValueError("pull_epochs and pull_lr belong together: give both, or pull alone")
        if self.pull_epochs is not None and self.pull != 1:
            raise ValueError(
                f"pull = {self.pull} and pull_epochs = {self.pull_epochs} both say how far: give one"
            )
        return self

    @model_validator(mode="after")
    def _one_mixing(self) -> Self:
        for_learning = (*CoefficientConfig.model_fields, "c_steps")
        owners = {**dict.fromkeys(for_learning, "learned"), "neighbours": "topk"}
        for name, owner in owners.items():
            if owner != self.mixing and getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(
                    f"{name} = {getattr(self, name)!r} belongs to mixing = {owner!r}, and mixing is "
                    f"{self.mixing!r}: leave it out"
                )
        return self

    @property
    def strength(self) -> float:
        """How far a client moves onto its mixture, from 0 to 1."""
        if self.pull_epochs is None or self.pull_lr is None:
            return self.pull
        return 1 - (1 - 2 * self.pull_lr) ** self.pull_epochs


@dataclass(frozen=True, slots=True)
class ServerState:
    """What the server holds."""

    uploads: Mapping[int, ModelUpdate]  # the last upload of each client that ever made one
    c: Array  # weight of each model for each client, float64 [K, K]


class KTpFLW(OwnModelRounds[KTpFLWConfig, ServerState, Model]):
    """Personal mixtures of models; a client's state is its own model."""

    about = About(
        kind="personal models",
        down="S",
        up="S",
        client="its model",
        server="every client's last model and the coefficient matrix",
    )

    def start(self, server: ServerContext) -> ServerState:
        """Begin with equal weights and no model."""
        return ServerState({}, np.full((server.num_clients,) * 2, 1 / server.num_clients))

    async def send(
        self, server: ServerContext, state: ServerState, cohort: Sequence[int]
    ) -> tuple[ServerState, Mapping[int, ModelBroadcast | None]]:
        """Send each client its mixture: the initial model in round 1, no frame until a mixture exists."""
        if not state.uploads:
            # Later, the initial model would undo what clients have trained whose uploads were lost.
            first = ModelBroadcast.of(server.initial_model()) if server.round <= 1 else None
            return state, broadcast(cohort, first)
        known = sorted(state.uploads)
        models = [state.uploads[client].model for client in known]
        weights = restricted(state.c[np.ix_(list(cohort), known)])
        flops = float(max(1, 2 * int(np.count_nonzero(weights)) * count(models[0].params)))
        mixed = await server.call(mixtures, models, weights, flops=flops)
        return state, broadcasts(dict(zip(cohort, mixed, strict=True)))

    async def train(
        self, client: ClientContext, state: Model, message: ModelBroadcast | None
    ) -> tuple[Model, ModelUpdate]:
        """Move onto the mixture, train and send the result; without one, train the client's own model."""
        start = state if message is None else between(state, message.model, self.config.strength)
        model = (await client.fit(start)).model
        return model, ModelUpdate.of(model, num_samples=client.num_samples())

    async def merge(
        self, server: ServerContext, state: ServerState, replies: Replies[ModelUpdate]
    ) -> ServerState:
        """Store the models, and move c."""
        newest = {reply.client: reply.message for reply in replies}
        uploads = {**state.uploads, **newest}
        learning = self.config.mixing == "learned"
        members = sorted(newest if learning else uploads)
        vectors = [uploads[client].params for client in members]
        everybody = range(len(members))
        flops = gram_rows_flops(len(members), len(members), count(vectors[0]))
        products, _ = await server.call(gram_rows, vectors, everybody, learning, flops=flops)
        place = np.ix_(members, members)
        c = state.c.copy()
        if learning:
            factors = np.ones(len(members))
            if self.config.c_weighting == "data":
                sizes = np.array([uploads[client].num_samples for client in members], np.float64)
                factors = sizes / sum(upload.num_samples for upload in uploads.values())
            uniform, steps = 1 / server.num_clients, self.config.c_steps
            arguments = (c[place], scaled(products), factors, uniform, steps, self.config)
            flops = float(max(1, 2 * max(1, steps) * len(members) ** 3))
            c[place] = await server.call(learned_from_gram, *arguments, flops=flops)
        else:
            # Rows of clients without a model stay at 1/K: the plain mean of the models that there are.
            near = cosines(products)
            is_topk = self.config.mixing == "topk"
            c[place] = by_rank(near, self.config.neighbours) if is_topk else by_range(near)
            c[np.ix_(members, [client for client in range(len(c)) if client not in uploads])] = 0
        return ServerState(uploads, c)


def scaled(products: Array) -> Array:
    """Return a Gram matrix divided by the mean of its diagonal; zeros as they are."""
    level = float(np.diagonal(products).mean())
    return products / level if level > 0 else products


PLUGIN = KTpFLW
