"""FedGEMS: clients of any architecture teach a large model at the server where it is wrong and they are not.

The public set has labels. In a round the server sends its logits on all public samples, and the positions of
those on which it never was right. Clients learn from labels and logits, then train on their own samples, and
send their logits on the samples asked for. The server trains on the public set: from labels alone where it is
right; where it is wrong also from its logits of the last time when it was right, which it keeps in a pool, or
from those of the clients that are right, with larger weights for surer clients (specification 5.C.6).

Cheng, Wu, Xiao, Liu: FedGEMS: Federated Learning of Larger Server Models via Selective Knowledge Fusion, 2021
(arXiv 2110.11027). There is no public code; what the specification says is from memory of the paper.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch.nn.functional as F  # noqa: N812 - the name that everyone knows
from numpy.typing import NDArray
from torch import Tensor

from fedsim.algorithms.base import About, Exchange, Exchanges, Replies, Reply, Setting
from fedsim.algorithms.common import public_set_delivery
from fedsim.algorithms.common.distillation import SMALLEST, distil, divergences, softmax
from fedsim.algorithms.common.finite_outputs import unless_diverged
from fedsim.algorithms.common.initial_own_model import OwnModelConfig, initial_own_model
from fedsim.algorithms.common.model_rounds import own_and_global
from fedsim.algorithms.common.public_predictions import compact, predictions, stacked, unusable
from fedsim.algorithms.common.public_set_delivery import PublicSetDelivery, held
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.engine.compute_context import ComputeContext
from fedsim.engine.losses import MODEL, PUBLIC, TEACHER, Batches, Extras, Models
from fedsim.errors import Fault
from fedsim.params import Array, Model
from fedsim.ranges import Epochs, LearningRate, Share
from fedsim.wire import LogitsUp, Message, PublicData, counted, message


class FedGEMSConfig(OwnModelConfig):
    """FedGEMS' own parameters."""

    epsilon: Share = 0.5
    """Weight of labels against logits (the paper: 0.25, 0.5 and 0.75); with 1 the server learns from labels
    alone."""
    public_epochs: Epochs = 1
    """A client's passes over the public set in each round."""
    server_epochs: Epochs = 1
    """The server's passes over it."""
    server_lr: LearningRate | None = None
    """The server's learning rate; that of the training by default."""


@message("labelled_data", data=True)
class LabelledData(PublicData):
    """The public set for clients that do not hold it, and its labels, int64 ``[p]``."""

    labels: NDArray[np.int64]


@message("lesson")
class Lesson(Message):
    """The server's logits on the public set, ``[p, N]``, and where it asks for those of clients, ``[q]``."""

    values: NDArray[np.float32] = counted()
    wanted: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ServerState:
    """What the server holds."""

    model: Model  # its own
    pool: Array  # its logits on public samples from the last time that it was right, float32 [p, N]
    pooled: Array  # on which it ever was, booleans [p]
    right: Array  # on which it was at the start of the round, booleans [p]
    # Positions of the samples that clients were asked about, int64 [q].
    wanted: Array = field(default_factory=partial(np.empty, 0, np.int64))


@dataclass(frozen=True, slots=True)
class ClientState(public_set_delivery.ClientState):
    """What a client keeps."""

    labels: Array | None = None  # of the public samples that it was sent, int64 [p]


LABELS = "labels"  # name of the extra that holds the labels of public samples

# Name of the extra that says what the teacher weighs against the label, for each sample.
IMITATION = "imitation"

MIN_ENTROPY = 1e-6  # entropies are taken to be at least this, nat


def guided(models: Models, batches: Batches, extras: Extras) -> Tensor:
    """Return the mean of ``(1 - k) CE + k KL(teacher || student)``, k being the extra ``imitation``."""
    logits, imitation = models[MODEL].public(batches[PUBLIC].x), extras[IMITATION]
    hard = F.cross_entropy(logits, extras[LABELS], reduction="none")
    soft = divergences(extras[TEACHER], F.log_softmax(logits, dim=1))
    loss: Tensor = ((1 - imitation) * hard + imitation * soft).mean()
    return loss


def fused(values: Array, given: Array, labels: Array) -> tuple[Array, Array]:
    """Return the weighted mean of those that are right, ``[q, N]``, and where anybody is, ``[q]``."""
    probabilities = softmax(values, dtype=np.float64)
    entropy = -(probabilities * np.log(np.maximum(probabilities, SMALLEST))).sum(axis=2)
    right = given & (values.argmax(axis=2) == labels)
    sureness = np.where(right, 1 / np.maximum(entropy, MIN_ENTROPY), -np.inf)
    known = right.any(axis=0)
    most = np.where(known, sureness.max(axis=0), 0)
    weights = np.where(right, np.exp(np.where(right, sureness - most, 0)), 0)
    total = np.where(known, weights.sum(axis=0), 1)
    mean = (weights[:, :, None] * values).sum(axis=0) / total[:, None]
    return softmax(mean), known


class FedGEMS(PublicSetDelivery[FedGEMSConfig, ServerState, ClientState]):
    """Selective knowledge fusion."""

    about = About(
        kind="distillation",
        down="4pN + 8q",
        up="4qN, q samples on which the server never was right",
        client="its model",
        server="a large model, its logits on the public set",
        own_models=True,
    )
    messages = (LabelledData, Lesson)
    server_model = True
    models_of = own_and_global
    needs_classes = True
    new_replies_only = (
        "predictions are on the samples of one round, and in a later one they would be rejected"
    )

    @property
    def exchanges(self) -> Exchanges[ServerState, ClientState]:
        """Deliver the public set; learn in every round."""
        learn = Exchange(
            "learn",
            instruct=self.instruct_learn,
            local=self.local_learn,
            merge=self.merge_learn,
            reply=LogitsUp,
        )
        return (*super().exchanges, learn)

    def start(self, server: ServerContext) -> ServerState:
        """Begin with the start values of the server's architecture, right nowhere."""
        p = server.num_public
        nowhere = np.zeros(p, np.bool_)
        pool = np.zeros((p, server.task.num_outputs), np.float32)
        return ServerState(server.initial_model(), pool, nowhere, nowhere)

    def join(self, client: ClientContext) -> ClientState:
        """Begin with the start values of the client's architecture."""
        return ClientState(initial_own_model(client, self.config))

    def delivery(self, server: ServerContext) -> LabelledData:
        """Return the message with the samples and their labels."""
        positions = self.public_positions(server)
        return LabelledData(positions, compact(server.public_values(positions)), self.labels(server))

    async def local_hand_out(
        self, client: ClientContext, state: ClientState, message: Any
    ) -> tuple[ClientState, None]:
        """Keep the samples and their labels."""
        return replace(state, received=message.values, labels=message.labels), None

    def labels(self, party: ComputeContext) -> Array:
        """Return the labels of the public set, of a party that holds it, int64 ``[p]``."""
        return party.labels(party.public(self.public_positions(party), labelled=True))

    async def instruct_learn(
        self, server: ServerContext, state: ServerState, cohort: Sequence[int]
    ) -> tuple[ServerState, Mapping[int, Lesson]]:
        """See where the server is right; send its logits, and ask where it never was."""
        positions = self.public_positions(server)
        logits = await server.predict(state.model, server.public(positions))
        right = logits.argmax(axis=1) == self.labels(server)
        pool, pooled = np.where(right[:, None], logits, state.pool), state.pooled | right
        state = replace(state, pool=pool, pooled=pooled, right=right, wanted=positions[~pooled])
        return state, dict.fromkeys(cohort, Lesson(logits, state.wanted))

    async def local_learn(
        self, client: ClientContext, state: ClientState, message: Lesson
    ) -> tuple[ClientState, LogitsUp]:
        """Learn from the server, train on the client's own samples, and say what was asked."""
        model = state.model
        samples, positions = held(client, state, self.public_positions(client))
        if len(positions):
            labels = self.labels(client) if state.labels is None else state.labels
            imitation = np.full(len(positions), 1 - self.config.epsilon, np.float32)
            model = await distil(
                client,
                model,
                samples,
                {TEACHER: softmax(message.values), LABELS: labels, IMITATION: imitation},
                loss=guided,
                batch_size=client.training.batch_size,
                epochs=self.config.public_epochs,
                name="distil",
            )
        model = (await client.fit(model)).model
        asked, positions = held(client, state, message.wanted)
        logits = await client.predict(model, asked)
        return replace(state, model=model), predictions(logits, positions, "logits")

    async def merge_learn(
        self, server: ServerContext, state: ServerState, replies: Replies[LogitsUp]
    ) -> ServerState:
        """Train on the public set: from labels, from the pool and from the clients that are right."""
        positions = self.public_positions(server)
        labels = self.labels(server)
        values, given = stacked(state.wanted, server.task.num_outputs, replies)
        flops = float(max(1, 10 * values.size))
        ensemble, known = await server.call(fused, values, given, labels[state.wanted], flops=flops)
        teacher, imitates = softmax(state.pool), state.pooled & ~state.right
        teacher[state.wanted], imitates[state.wanted] = ensemble, known
        imitation = np.where(imitates, 1 - self.config.epsilon, 0).astype(np.float32)
        model = await distil(
            server,
            state.model,
            server.public(positions),
            {TEACHER: teacher, LABELS: labels, IMITATION: imitation},
            loss=guided,
            batch_size=server.training.batch_size,
            optimiser=server.training.make_optimiser(self.config.server_lr),
            epochs=self.config.server_epochs,
            public_buffers="moving",  # it meets no other samples
            name="train",
        )
        return replace(state, model=unless_diverged(server, model, state.model))

    def vet(self, server: ServerContext, state: ServerState, reply: Reply) -> str | None:
        """Refuse predictions on other samples, or of another shape."""
        return unusable(reply.message, state.wanted, server.task.num_outputs, "logits")

    def misfits(self, setting: Setting) -> Iterator[Fault]:
        """Refuse a public set without labels."""
        yield from super().misfits(setting)
        if not setting.public_labelled:
            problem = "all learn from its labels, and samples of another data set have none of this task"
            yield Fault("data.public.source", problem, "leave it out")


PLUGIN = FedGEMS
