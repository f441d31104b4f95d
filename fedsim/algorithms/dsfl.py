"""DS-FL: clients of any architecture share soft labels of public samples, made sharper by the server.

In a round a client trains on its own samples and sends its probabilities on the round's public samples
(*share*). The server averages them, sharpens the mean by a softmax at a low temperature (entropy reduction
aggregation, *ERA*) and sends the result to those who replied, who distil it (*distil*; specification 5.C.3),
while the server trains its own model on it. If no client confirms its distillation, the server's model stays
as it was. What travels does not depend on any model's size.

Itahara, Nishio, Koda, Morikura, Yamamoto: Distillation-Based Semi-Supervised Federated Learning for
Communication-Efficient Collaborative Training with Non-IID Private Data, 2021 (arXiv 2008.06180). The steps
are the paper's: update, predict, aggregate, distil. The softmax is of mean *probabilities*, as in the paper.
Predictions that a pacing carries over from an earlier round are rejected. Clients are measured with their own
models after the distillation; the server's model, the paper's result, on the global test set (D-003-15). With
forty clients of few classes, four a round, and images of other writers as public set, three seeds, clients'
own models had 73 % after their distillation, and 89 % if they distilled at their next turn, before they
train; the server's had 66 and 67 %.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from fedsim.algorithms.base import (
    About,
    Exchange,
    Exchanges,
    Replies,
    Reply,
    broadcast,
)
from fedsim.algorithms.common import public_predictions, public_set_delivery, share_and_distil
from fedsim.algorithms.common.distillation import Distillation, distil, softmax
from fedsim.algorithms.common.initial_own_model import OwnModelConfig, initial_own_model
from fedsim.algorithms.common.model_rounds import own_and_global
from fedsim.algorithms.common.public_set_delivery import PublicSetDelivery, held
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.engine.compute_context import ComputeContext
from fedsim.engine.jobs import Samples
from fedsim.engine.losses import TEACHER
from fedsim.params import Array, Model
from fedsim.ranges import BatchSize, Epochs, LearningRate, PositiveSamples, Temperature
from fedsim.wire import LogitsDown, LogitsUp, PublicBatch, indices_digest

WORK = "distil"  # name of the server's work while clients distil


class DSFLConfig(OwnModelConfig):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerState(share_and_distil.ServerState):
    """What the server holds."""

    model: Model  # its own
    # Soft labels of the round's samples, float32 [p, N].
    labels: Array = field(default_factory=partial(np.empty, (0, 0), np.float32))
    learning: int = 0  # the round in which the model was trained last, or is being trained; 0 before


@dataclass(frozen=True, slots=True)
class ClientState(public_set_delivery.ClientState):
    """What a client keeps."""

    shared: Array | None = None  # samples of its last share, int64 [p], until it has distilled their labels


def soft_labels(values: Array, given: Array, era_temperature: float | None) -> tuple[Array, Array]:
    """Return soft labels ``[q, N]`` of the samples that anybody gave, and which those are."""
    mean, known = public_predictions.mean_by_sample(values, given)
    return (mean if era_temperature is None else softmax(mean, era_temperature)), known


class DSFL(PublicSetDelivery[DSFLConfig, ServerState, ClientState]):
    """Distillation-based semi-supervised federated learning."""

    about = About(
        kind="distillation",
        down="4pN + 8p",
        up="4pN",
        client="its model",
        server="the global model and the last soft labels",
        own_models=True,
    )

    server_model = True
    models_of = own_and_global
    needs_classes = True

    @property
    def exchanges(self) -> Exchanges[ServerState, ClientState]:
        """Deliver the public set; share and distil in every round."""
        share = Exchange(
            "share",
            instruct=self.instruct_share,
            local=self.local_share,
            merge=self.merge_share,
            reply=LogitsUp,
        )
        distil = Exchange(
            "distil",
            instruct=self.instruct_distil,
            local=self.local_distil,
            merge=self.merge_distil,
            who="answered",
        )
        return (*super().exchanges, share, distil)

    def start(self, server: ServerContext) -> ServerState:
        """Begin with the start values of the server's architecture."""
        return ServerState(model=server.initial_model())

    def join(self, client: ClientContext) -> ClientState:
        """Begin with the start values of the client's architecture."""
        return ClientState(initial_own_model(client, self.config))

    async def instruct_share(
        self, server: ServerContext, state: ServerState, cohort: Sequence[int]
    ) -> tuple[ServerState, Mapping[int, PublicBatch]]:
        """Draw the round's public samples and name them."""
        positions = public_predictions.draw(
            server.key.child("public"), server.num_public, self.config.public_per_round
        )
        state = replace(state, positions=positions, asked=len(positions))
        return state, broadcast(cohort, PublicBatch(positions))

    async def local_share(
        self, client: ClientContext, state: ClientState, message: PublicBatch
    ) -> tuple[ClientState, LogitsUp]:
        """Train on the client's own samples, and send probabilities on those named."""
        model = (await client.fit(state.model)).model
        samples, positions = held(client, state, message.indices)
        predicted = softmax(await client.predict(model, samples))
        reply = public_predictions.predictions(predicted, positions, "probs")
        return replace(state, model=model, shared=positions if len(positions) else None), reply

    async def merge_share(
        self, server: ServerContext, state: ServerState, replies: Replies[LogitsUp]
    ) -> ServerState:
        """Average over those who replied, all alike; sharpen; begin to train the server's own model."""
        values, given = public_predictions.stacked(state.positions, server.task.num_outputs, replies)
        heat = self.config.era_temperature if self.config.aggregation == "era" else None
        flops = float(max(1, values.size)) + (0 if heat is None else 6 * values[0].size)
        labels, known = await server.call(soft_labels, values, given, heat, flops=flops)
        positions = state.positions[known]
        # The server's model meets no other samples, so its running statistics follow these.
        learning = self._distil(
            server, state.model, server.public(positions), labels, public_buffers="moving"
        )
        server.background(WORK, learning)
        return replace(state, positions=positions, labels=labels, learning=server.round)

    async def instruct_distil(
        self, server: ServerContext, state: ServerState, cohort: Sequence[int]
    ) -> tuple[ServerState, Mapping[int, LogitsDown]]:
        """Send the soft labels, the same to everyone."""
        return state, broadcast(cohort, state.message(state.labels, "probs", 1.0))

    async def local_distil(
        self, client: ClientContext, state: ClientState, message: LogitsDown
    ) -> tuple[ClientState, None]:
        """Learn from the soft labels, unless they are on samples other than those of the last share."""
        named = state.shared if message.indices is None else message.indices
        if state.shared is None or named is None or indices_digest(named) != message.indices_digest:
            return state, None
        samples, _ = held(client, state, named)
        model = await self._distil(client, state.model, samples, message.values)
        return replace(state, model=model, shared=None), None

    async def merge_distil(
        self, server: ServerContext, state: ServerState, replies: Replies[None]
    ) -> ServerState:
        """Take the server's trained model."""
        if state.learning != server.round:
            return state  # late replies of a round whose work is gone
        return replace(state, model=await server.collect(WORK))

    def vet(self, server: ServerContext, state: ServerState, reply: Reply) -> str | None:
        """Refuse predictions on other samples, of another shape, or that are no probabilities."""
        return public_predictions.unusable(reply.message, state.positions, server.task.num_outputs, "probs")

    async def _distil(
        self, party: ComputeContext, model: Model, samples: Samples, labels: Array, **options: Any
    ) -> Model:
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
            **options,
        )


PLUGIN = DSFL
