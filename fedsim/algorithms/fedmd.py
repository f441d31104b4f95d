"""FedMD: clients of any architecture teach each other through logits on public samples.

Before the first round every client trains alone. In a round the server names public samples; the cohort
sends its raw logits on them (*share*); the server averages them into a consensus and sends it to those who
answered, who first *digest* it (approach the consensus on the public samples) and then *revisit* their own
samples (*distil*). What travels does not depend on any model's size (specification 5.C.4).

Li, Wang: FedMD: Heterogenous Federated Learning via Model Distillation, 2019 (arXiv 1910.03581), algorithm 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedsim.algorithms.base import (
    Algorithm,
    Exchange,
    Exchanges,
    Predictor,
    Predictors,
    Replies,
    Reply,
    broadcast,
)
from fedsim.algorithms.common import public_samples
from fedsim.algorithms.common.share_and_distil import ClientState, answer, distilled, shared
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.config import Config
from fedsim.engine.jobs import Stream
from fedsim.engine.losses import TRAIN, Loss, absolute_error, divergence, squared_error
from fedsim.params import Array
from fedsim.ranges import BatchSize, Epochs, LearningRate, PositiveSamples
from fedsim.wire import LogitsDown, LogitsUp, PublicBatch, PublicData

LOSSES: Mapping[str, Loss] = {"mae": absolute_error, "mse": squared_error, "kl": divergence}


class FedMDConfig(Config):
    """FedMD's own parameters."""

    public_per_round: PositiveSamples | None = None
    """Public samples named in a round, drawn anew each time; all of them by default (the paper: 5000)."""
    pretrain_epochs: Epochs = 1
    """Passes over the client's own samples before the first round (the paper trains to convergence)."""
    pretrain_public: bool = False
    """First train as long on the public set with its labels, as the paper does where they are usable; the
    profiles here have public labels of another label space."""
    digest: Literal["mae", "mse", "kl"] = "mae"
    """Distance to the consensus: mean absolute (the paper's) or squared error of logits, or KL divergence."""
    digest_epochs: Epochs = 1
    """Passes over the round's public samples (the paper: 1)."""
    digest_batch_size: BatchSize = 256
    """Public samples in a mini-batch (the authors' code: 256)."""
    digest_lr: LearningRate | None = None
    """Learning rate of the digest; that of the training by default."""


@dataclass(frozen=True, slots=True)
class ServerState:
    """What the server holds between the two exchanges of a round.

    Attributes:
        positions: The round's public samples, int64 ``[p]``.
        consensus: Mean of the logits that arrived, float32 ``[p, N]``.
        asked: How many samples the cohort was asked about.
    """

    positions: Array
    consensus: Array
    asked: int = 0


class FedMD(Algorithm[FedMDConfig, ServerState, ClientState]):
    """Model distillation over logits."""

    Config = FedMDConfig
    mixed_architectures = True
    needs_public = True

    @property
    def exchanges(self) -> Exchanges[ServerState, ClientState]:
        """Pretrain once; then share and distil in every round."""
        pretrain = Exchange("pretrain", local=self.local_pretrain, when="opening", who="all")
        return (
            *((pretrain,) if self.config.pretrain_epochs else ()),
            Exchange(
                "share",
                instruct=self.instruct_share,
                local=self.local_share,
                merge=self.merge_share,
                reply=LogitsUp,
            ),
            Exchange("distil", instruct=self.instruct_distil, local=self.local_distil, who="answered"),
        )

    def start(self, server: ServerContext) -> ServerState:
        """Nothing is known yet."""
        return ServerState(np.empty(0, np.int64), np.empty((0, server.task.num_outputs), np.float32))

    def join(self, client: ClientContext) -> ClientState:
        """Begin with the start values of the client's architecture."""
        return ClientState(client.initial_model(), np.empty(0, np.int64))

    async def local_pretrain(
        self, client: ClientContext, state: ClientState, message: None
    ) -> tuple[ClientState, None]:
        """Train on the public set, if its labels are to be used, and then alone."""
        model, epochs = state.model, self.config.pretrain_epochs
        if self.config.pretrain_public:
            everything = client.public(np.arange(client.num_public), labelled=True)
            streams = {TRAIN: Stream(everything, client.training.batch_size)}
            fitted = await client.fit(model, streams=streams, epochs=epochs, name="pretrain_public")
            model = fitted.model
        fitted = await client.fit(model, epochs=epochs, name="pretrain")
        return ClientState(fitted.model, state.positions, state.samples), None

    async def instruct_share(
        self, server: ServerContext, state: ServerState, cohort: Sequence[int]
    ) -> tuple[ServerState, Mapping[int, PublicBatch | PublicData]]:
        """Draw the round's public samples, without replacement, and name them."""
        key = server.key.child("public")
        positions = public_samples.draw(key, server.num_public, self.config.public_per_round)
        message = public_samples.announce(server, positions)
        return ServerState(positions, state.consensus[:0], len(positions)), broadcast(cohort, message)

    async def local_share(
        self, client: ClientContext, state: ClientState, message: PublicBatch | PublicData
    ) -> tuple[ClientState, LogitsUp]:
        """Send raw logits on the samples named."""
        state, logits = await shared(client, state.model, message, self.config.digest_batch_size)
        return state, public_samples.predictions(logits, message.indices, "logits")

    async def merge_share(
        self, server: ServerContext, state: ServerState, replies: Replies[LogitsUp]
    ) -> ServerState:
        """Average each sample's logits over those who sent some, all alike (the paper's consensus).

        A sample that nobody has is left out (specification 3.5, E10).
        """
        values, given = public_samples.stacked(state.positions, server.task.num_outputs, replies)
        flops = public_samples.mean_flops(values)
        consensus, known = await server.call(public_samples.mean_by_sample, values, given, flops=flops)
        return ServerState(state.positions[known], consensus, state.asked)

    async def instruct_distil(
        self, server: ServerContext, state: ServerState, cohort: Sequence[int]
    ) -> tuple[ServerState, Mapping[int, LogitsDown]]:
        """Send the consensus."""
        message = answer(state.consensus, state.positions, state.asked, "logits", 1.0)
        return state, broadcast(cohort, message)

    async def local_distil(
        self, client: ClientContext, state: ClientState, message: LogitsDown
    ) -> tuple[ClientState, None]:
        """Digest the consensus, then revisit the client's own samples."""
        # In the order of the share and in its batches: the draw of the round has shuffled them already, and a
        # client that is alone meets exactly its own logits, so that it learns nothing from itself.
        digested = await distilled(
            client,
            state,
            message,
            LOSSES[self.config.digest],
            batch_size=self.config.digest_batch_size,
            lr=self.config.digest_lr,
            epochs=self.config.digest_epochs,
            name="digest",
            shuffled=False,
        )
        if digested is None:
            return state, None
        revisited = await client.fit(digested)
        return ClientState(revisited.model, state.positions), None

    def vet(self, server: ServerContext, state: ServerState, reply: Reply) -> str | None:
        """Refuse logits on other samples, or of another shape, and what are no logits."""
        return public_samples.unusable(reply.message, state.positions, server.task.num_outputs, "logits")

    async def models_of(
        self, observer: ClientContext, server_state: ServerState, client_state: ClientState
    ) -> Predictors:
        """Return the client's own model."""
        return {"personal": Predictor(client_state.model)}


PLUGIN = FedMD
