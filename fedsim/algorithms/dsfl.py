"""DS-FL: clients of any architecture share soft labels of public samples, made sharper by the server.

In a round a client first distils the soft labels of an earlier round's public samples, then trains on its own
samples, and then sends its probabilities on the samples that the round names. The server averages
them and sharpens the mean by a softmax at a low temperature (entropy reduction aggregation, *ERA*); it
trains its own model on the result, which goes to the next cohort (specification 5.C.3). What travels does not
depend on any model's size.

Itahara, Nishio, Koda, Morikura, Yamamoto: Distillation-Based Semi-Supervised Federated Learning for
Communication-Efficient Collaborative Training with Non-IID Private Data, 2021 (arXiv 2008.06180). The
softmax is taken of mean *probabilities*, as the paper has it. Predictions are about the samples of one round:
those that a pacing carries over into another are rejected. Clients are measured with their own models, the
server's on the global test set (D-003-15).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedsim.algorithms.base import Exchange, Exchanges, Predictor, Predictors, Replies, Reply, broadcast
from fedsim.algorithms.common import public_predictions
from fedsim.algorithms.common.distillation import Distillation, distil, softmax
from fedsim.algorithms.common.own_start import OwnStartConfig, own_start
from fedsim.algorithms.common.public_set_delivery import ClientState, PublicSetDelivery, held
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.engine.compute_context import ComputeContext
from fedsim.engine.jobs import Samples
from fedsim.engine.losses import TEACHER
from fedsim.params import Array, Model
from fedsim.ranges import BatchSize, Epochs, LearningRate, PositiveSamples, Temperature
from fedsim.wire import LogitsUp, Message, counted, message


class DSFLConfig(OwnStartConfig):
    """DS-FL's own parameters."""

    aggregation: Literal["era", "sa"] = "era"
    """Sharpen the mean of the clients' probabilities, or take it as it is (simple aggregation)."""
    era_temperature: Temperature = 0.1
    """Temperature of the sharpening (the paper: 0.1); a high one makes all labels uniform."""
    public_per_round: PositiveSamples | None = 1000
    """Public samples named in a round, drawn anew each time; all of them where there are fewer (the paper:
    1000)."""
    kd_epochs: Epochs = 5
    """Passes over the labelled public samples, at clients and at the server (the paper: 5)."""
    kd_lr: LearningRate | None = None
    """Learning rate of the distillation; that of the training by default (the paper: 0.1 for both)."""
    kd_batch_size: BatchSize | None = None
    """Public samples in a mini-batch; as many as in the training by default (the paper: 100 for both)."""


@message("soft_labels")
class SoftLabels(Message):
    """Soft labels of an earlier round's public samples, and which samples to label next.

    These are the ``4 q N`` and ``8 p`` bytes of specification 5.C.3, and ``8 q`` more for the names of the
    samples labelled: who was absent does not know what that round asked about, nor does anybody know which
    of these got labels.

    Attributes:
        values: One row of N probabilities per sample, float32 ``[q, N]``; None before there are any.
        labelled: The samples that these belong to, int64 ``[q]``; None likewise.
        indices: The samples to label, int64 ``[p]``.
    """

    values: NDArray[np.float32] | None = counted()
    labelled: NDArray[np.int64] | None
    indices: NDArray[np.int64]

    def __post_init__(self) -> None:
        if self.indices.ndim != 1:
            raise ValueError(f"indices have the shape [p], these {list(self.indices.shape)}")
        if self.values is None and self.labelled is None:
            return
        if self.values is None or self.labelled is None or self.values.ndim != 2:
            raise ValueError("values of the shape [q, N] and the samples labelled come together")
        if self.labelled.shape != self.values.shape[:1]:
            raise ValueError(f"labelled has the shape [q], here [{len(self.values)}]")


@dataclass(frozen=True, slots=True)
class ServerState:
    """What the server holds.

    Attributes:
        model: Its own.
        positions: The samples that the round asks about, int64 ``[p]``.
        labelled: The samples that have soft labels, int64 ``[q]``; None before there are any.
        labels: These, float32 ``[q, N]``; None likewise.
    """

    model: Model
    positions: Array
    labelled: Array | None = None
    labels: Array | None = None


def soft_labels(values: Array, given: Array, era_temperature: float | None) -> tuple[Array, Array]:
    """Return soft labels of the samples that anybody gave, float32 ``[q, N]``, and which those are.

    Args:
        values: Probabilities ``[m, p, N]``, zero where a sample is missing.
        given: Booleans ``[m, p]``.
        era_temperature: Of ERA's softmax of mean probabilities; None takes the mean as it is.
    """
    mean, known = public_predictions.mean_by_sample(values, given)
    return (mean if era_temperature is None else softmax(mean, era_temperature)), known


class DSFL(PublicSetDelivery[DSFLConfig, ServerState, ClientState]):
    """Distillation-based semi-supervised federated learning."""

    Config = DSFLConfig
    messages = (SoftLabels,)
    needs_classes = True

    @property
    def exchanges(self) -> Exchanges[ServerState, ClientState]:
        """Deliver the public set; train."""
        train = Exchange("train", instruct=self.send, local=self.train, merge=self.merge, reply=LogitsUp)
        return (*super().exchanges, train)

    def start(self, server: ServerContext) -> ServerState:
        """Begin with the start values of the server's architecture."""
        return ServerState(server.initial_model(), np.empty(0, np.int64))

    def join(self, client: ClientContext) -> ClientState:
        """Begin with the start values of the client's architecture."""
        return ClientState(own_start(client, self.config))

    async def send(
        self, server: ServerContext, state: ServerState, cohort: Sequence[int]
    ) -> tuple[ServerState, Mapping[int, SoftLabels]]:
        """Draw the round's public samples, and send the newest soft labels, the same to everyone."""
        positions = public_predictions.draw(
            server.key.child("public"), server.num_public, self.config.public_per_round
        )
        message = SoftLabels(state.labels, state.labelled, positions)
        return replace(state, positions=positions), broadcast(cohort, message)

    async def train(
        self, client: ClientContext, state: ClientState, message: SoftLabels
    ) -> tuple[ClientState, LogitsUp]:
        """Distil what came, train on the client's own samples, and send probabilities on those named."""
        model = state.model
        samples, positions = held(client, state, message.indices)
        if message.values is not None and message.labelled is not None and len(positions):
            labelled, _ = held(client, state, message.labelled)
            model = await self._distil(client, model, labelled, message.values)
        model = (await client.fit(model)).model
        predicted = softmax(await client.predict(model, samples))
        return replace(state, model=model), public_predictions.predictions(predicted, positions, "probs")

    async def merge(
        self, server: ServerContext, state: ServerState, replies: Replies[LogitsUp]
    ) -> ServerState:
        """Average over those who replied, all alike; sharpen; train the server's own model."""
        values, given = public_predictions.stacked(state.positions, server.task.num_outputs, replies)
        heat = self.config.era_temperature if self.config.aggregation == "era" else None
        flops = float(max(1, values.size)) + (0 if heat is None else 6 * values[0].size)
        labels, known = await server.call(soft_labels, values, given, heat, flops=flops)
        if not known.any():
            return state
        labelled = state.positions[known]
        model = await self._distil(server, state.model, server.public(labelled), labels)
        return ServerState(model, state.positions, labelled, labels)

    def vet(self, server: ServerContext, state: ServerState, reply: Reply) -> str | None:
        """Refuse predictions on other samples, of another shape, or that are no probabilities."""
        return public_predictions.unusable(reply.message, state.positions, server.task.num_outputs, "probs")

    async def models_of(
        self, observer: ClientContext, server_state: ServerState, client_state: ClientState
    ) -> Predictors:
        """Return the client's own model and the server's."""
        return {"personal": Predictor(client_state.model), "global": Predictor(server_state.model)}

    async def _distil(self, party: ComputeContext, model: Model, samples: Samples, labels: Array) -> Model:
        """Bring a model's probabilities near soft labels, at a client or at the server."""
        training, config = party.training, self.config
        return await distil(
            party,
            model,
            samples,
            {TEACHER: labels},
            loss=Distillation(),
            batch_size=config.kd_batch_size or training.batch_size,
            optimiser=training.make_optimiser(config.kd_lr),
            epochs=config.kd_epochs,
            name="distil",
        )


PLUGIN = DSFL
