"""PerFed-CKT: clients learn from those who predict alike, through clusters of their predictions.

All clients predict the same small public set. The server clusters the probabilities that it receives by
k-means, and sends the centroids to the next cohort. A client takes the centroid nearest to its own
predictions and trains its model on its own samples, held near that centroid: its loss is ``F_k(w) + lam *
mean over public samples of ||centroid - probabilities||^2``. Then it sends its predictions (specification
5.E.5).

Cho, Wang, Chiruvolu, Joshi: Personalized Federated Learning for Heterogeneous Clients with Clustered
Knowledge Transfer, 2021 (arXiv 2109.08119), equations 1 to 4, reconstructed, since the available text lacks
its formulas (D-001-01). Before there are centroids clients train alone (D-001-05); centroids come from the
last round's cohort, so a client's own predictions are usually not in its teacher (D-001-06); k-means is
Lloyd's (D-001-07). Known settings of the training (D-001-03): 100 clients, 10 a round, SGD without momentum,
``lr = 0.05``, ``batch_size = 64``, ``steps = 30``, 2000 public samples, 500 rounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch.nn.functional as F  # noqa: N812 - the name that everyone knows
from numpy.typing import NDArray
from torch import Tensor

from fedsim.algorithms.base import About, Exchange, Exchanges, Replies, Reply, Setting, broadcast
from fedsim.algorithms.common import public_set_delivery
from fedsim.algorithms.common.distillation import softmax
from fedsim.algorithms.common.initial_own_model import OwnModelConfig, initial_own_model
from fedsim.algorithms.common.prediction_clusters import Clusters, clustered
from fedsim.algorithms.common.public_predictions import predictions, unusable
from fedsim.algorithms.common.public_set_delivery import PublicSetDelivery, held
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.engine.compute_context import ComputeContext
from fedsim.engine.jobs import Samples, Stream, per_sample
from fedsim.engine.losses import (
    MODEL,
    PUBLIC,
    TEACHER,
    TRAIN,
    Batches,
    Extras,
    Models,
    empirical_loss,
    serves_many,
)
from fedsim.engine.steps import Descent
from fedsim.errors import Fault
from fedsim.params import Array, Model
from fedsim.ranges import BatchSize, Clients, Coefficient, PositiveSamples
from fedsim.wire import Form, LogitsUp, Message, counted, message


class PerFedCKTConfig(OwnModelConfig):
    """PerFed-CKT's own parameters."""

    clusters: Clients = 3
    """Clusters of predictions, fewer where fewer clients reply (the paper's value is lost; 1, 2, 3 and 5 are
    worth a try); with 1 all learn from the mean."""
    lam: Coefficient = 1.0
    """Weight of the distance to the centroid (the paper's value is lost); 0 is Local, bit for bit."""
    public_batch_size: BatchSize = 64
    """Public samples in a mini-batch; each step takes one beside a batch of own samples (the papers' grid:
    32 to 256)."""
    public_size: PositiveSamples | None = None
    """Use only this many public samples, the same in the whole run; all by default (the paper: 2000)."""


@message("centroids")
class Centroids(Message):
    """Mean predictions of clusters of clients."""

    values: NDArray[np.float32] = counted(
        probabilities=True
    )  # mean probabilities of each cluster, float32 [C, p, N]
    counts: NDArray[np.int32]  # how many clients each one has, int32 [C]

    def __post_init__(self) -> None:
        if self.values.ndim != 3 or not len(self.values) or self.counts.shape != self.values.shape[:1]:
            raise ValueError(
                f"centroids have the shape [C, p, N] and counts [C], these {list(self.values.shape)} and "
                f"{list(self.counts.shape)}"
            )


@dataclass(frozen=True, slots=True)
class ClientState(public_set_delivery.ClientState):
    """What a client remembers."""

    predictions: Array | None = None  # its probabilities on the public set, [p, N]; None before any


@dataclass(frozen=True, slots=True)
class CloseToTeacher:
    """The loss on own samples, and the mean squared distance of predictions from a centroid's."""

    lam: float  # weight of the distance, which sums over classes
    classes: bool = True  # whether predictions are probabilities of classes, or a regression's outputs

    @serves_many
    def __call__(self, models: Models, batches: Batches, extras: Extras) -> Tensor:
        """Return the loss."""
        outputs = models[MODEL].public(batches[PUBLIC].x)
        predictions = F.softmax(outputs, dim=-1) if self.classes else outputs
        distance = (predictions - extras[TEACHER]).square().sum(-1).mean(-1)
        loss: Tensor = empirical_loss(models, batches, extras) + self.lam * distance
        return loss


def nearest(centroids: Array, predictions: Array) -> int:
    """Return which of ``[C, p, N]`` is nearest to ``[p, N]`` in l2; the first on ties."""
    differences = centroids.astype(np.float64) - predictions
    return int(np.argmin(np.square(differences).sum(axis=(1, 2))))


class PerFedCKT(PublicSetDelivery[PerFedCKTConfig, Clusters | None, ClientState]):
    """Clustered knowledge transfer; the server's state is the newest clusters, or None."""

    about = About(
        kind="distillation",
        down="4CpN + 4C for C clusters",
        up="4pN",
        client="its model and its predictions",
        server="the centroids",
        own_models=True,
    )

    messages = (Centroids,)

    @property
    def exchanges(self) -> Exchanges[Clusters | None, ClientState]:
        """Deliver the public set; train."""
        train = Exchange("train", instruct=self.send, local=self.train, merge=self.merge, reply=LogitsUp)
        return (*super().exchanges, train)

    def start(self, server: ServerContext) -> None:
        """Begin without clusters."""

    def join(self, client: ClientContext) -> ClientState:
        """Begin with the start values of the client's architecture."""
        return ClientState(initial_own_model(client, self.config))

    def public_positions(self, party: ComputeContext) -> Array:
        """Return the run's public samples: the first ones, as their order is random."""
        return super().public_positions(party)[: self.config.public_size]

    async def send(
        self, server: ServerContext, state: Clusters | None, cohort: Sequence[int]
    ) -> tuple[Clusters | None, Mapping[int, Centroids | None]]:
        """Send the newest centroids to every client; no frame before there are any."""
        message = None if state is None else Centroids(state.centroids, state.counts)
        return state, broadcast(cohort, message)

    async def train(
        self, client: ClientContext, state: ClientState, message: Centroids | None
    ) -> tuple[ClientState, LogitsUp]:
        """Train near the nearest centroid, and send predictions."""
        samples, positions = held(client, state, self.public_positions(client))
        near: dict[str, Any] = {}
        if message is not None and self.config.lam and len(positions):
            near = await self._near(client, state, samples, message.values)
        model = (await client.fit(state.model, **near)).model
        predicted = await _predictions(client, model, samples)
        reply = predictions(predicted, positions, _form(client))
        # A client that gets the public set late has nothing from before to compare with centroids.
        return replace(state, model=model, predictions=predicted if len(positions) else None), reply

    async def merge(
        self, server: ServerContext, state: Clusters | None, replies: Replies[LogitsUp]
    ) -> Clusters:
        """Cluster the predictions."""
        vectors = [reply.message.values for reply in replies]
        return await clustered(server, vectors, self.config.clusters)

    def vet(self, server: ServerContext, state: Clusters | None, reply: Reply) -> str | None:
        """Reject predictions on other samples, on some or none of them, and non-probabilities."""
        message: LogitsUp = reply.message
        if message.indices is not None and not len(message.indices):
            return "no public samples"
        everything = replace(message, indices=None)
        positions, num_outputs = self.public_positions(server), server.task.num_outputs
        return unusable(everything, positions, num_outputs, _form(server))

    def misfits(self, setting: Setting) -> Iterator[Fault]:
        """Refuse more public samples than there are."""
        yield from super().misfits(setting)
        wanted = self.config.public_size
        if wanted is not None and wanted > setting.num_public:
            yield Fault(
                "algorithm.params.public_size",
                f"{wanted} samples, and the public set has {setting.num_public}",
                "write that or fewer, or a larger data.public.size",
            )

    async def _near(
        self, client: ClientContext, state: ClientState, samples: Samples, centroids: Array
    ) -> dict[str, Any]:
        """Return the arguments of a fit near the centroid nearest to the model's predictions."""
        predicted = state.predictions
        if predicted is None:
            predicted = await _predictions(client, state.model, samples)
        teacher = centroids[nearest(centroids, predicted)]
        return {
            "step": Descent(loss=CloseToTeacher(self.config.lam, _form(client) == "probs")),
            "streams": {
                TRAIN: Stream(client.own("train"), client.training.batch_size),
                PUBLIC: Stream(samples, self.config.public_batch_size),
            },
            "extras": {TEACHER: per_sample(teacher, PUBLIC)},
        }


async def _predictions(client: ClientContext, model: Model, samples: Samples) -> Array:
    """Return a model's probabilities on public samples, or, for a regression, its outputs; ``[p, N]``."""
    outputs = await client.predict(model, samples)
    return softmax(outputs) if _form(client) == "probs" else outputs


def _form(party: ComputeContext) -> Form:
    """Return the form of predictions: a regression has no probabilities."""
    return "probs" if party.task.kind == "classification" else "logits"


PLUGIN = PerFedCKT
