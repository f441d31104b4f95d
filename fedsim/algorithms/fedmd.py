"""FedMD: clients of any architecture teach each other through logits on public samples.

Before the first round every client trains alone. In a round the server names public samples; the cohort
sends its raw logits on them (*share*); the server averages them into a consensus and sends it to those who
replied, who first *digest* it (approach the consensus on the public samples) and then *revisit* their own
samples (*distil*). What travels does not depend on any model's size (specification 5.C.4).

Li, Wang: FedMD: Heterogenous Federated Learning via Model Distillation, 2019 (arXiv 1910.03581), algorithm 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import numpy as np

from fedsim.algorithms.base import Exchange, Exchanges, Replies, Reply, broadcast
from fedsim.algorithms.common import public_predictions, share_and_distil
from fedsim.algorithms.common.distillation import distil
from fedsim.algorithms.common.own_start import OwnStartConfig
from fedsim.algorithms.common.share_and_distil import ClientState, ShareAndDistil
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.engine.jobs import Samples, Stream
from fedsim.engine.losses import TEACHER, TRAIN, Loss, absolute_error, divergence, squared_error
from fedsim.params import Array, Model
from fedsim.ranges import BatchSize, Epochs, LearningRate, PositiveSamples
from fedsim.wire import LogitsDown, LogitsUp, PublicBatch, PublicData

LOSSES: Mapping[str, Loss] = {"mae": absolute_error, "mse": squared_error, "kl": divergence}


class FedMDConfig(OwnStartConfig):
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
class ServerState(share_and_distil.ServerState):
    """What the server holds between the two exchanges of a round.

    Attributes:
        consensus: Mean of the logits that arrived, float32 ``[p, N]``.
    """

    consensus: Array = field(default_factory=partial(np.empty, (0, 0), np.float32))


class FedMD(ShareAndDistil[FedMDConfig, ServerState]):
    """Model distillation over logits."""

    Config = FedMDConfig

    @property
    def exchanges(self) -> Exchanges[ServerState, ClientState]:
        """Pretrain once; then share and distil in every round."""
        pretrain = Exchange("pretrain", local=self.local_pretrain, when="opening", who="all")
        return (pretrain, *super().exchanges) if self.config.pretrain_epochs else super().exchanges

    def start(self, server: ServerContext) -> ServerState:
        """Nothing is known yet."""
        return ServerState()

    async def local_pretrain(
        self, client: ClientContext, state: ClientState, message: None
    ) -> tuple[ClientState, None]:
        """Train on the public set, if its labels are to be used, and then alone."""
        model, epochs = state.model, self.config.pretrain_epochs
        if self.config.pretrain_public:
            everything = client.public(np.arange(client.num_public), labelled=True)
            streams = {TRAIN: Stream(everything, client.training.batch_size)}
            model = (await client.fit(model, streams=streams, epochs=epochs, name="pretrain_public")).model
        return replace(state, model=(await client.fit(model, epochs=epochs, name="pretrain")).model), None

    def drawn(self, server: ServerContext) -> Array:
        """Return positions drawn without replacement."""
        return public_predictions.draw(
            server.key.child("public"), server.num_public, self.config.public_per_round
        )

    async def local_share(
        self, client: ClientContext, state: ClientState, message: PublicBatch | PublicData
    ) -> tuple[ClientState, LogitsUp]:
        """Send raw logits on the samples named."""
        announced, batch_size = public_predictions.Announced.of(message), self.config.digest_batch_size
        logits = await client.predict(state.model, announced.samples(), batch_size=batch_size)
        return ClientState(state.model, announced), public_predictions.predictions(
            logits, message.indices, "logits"
        )

    async def merge_share(
        self, server: ServerContext, state: ServerState, replies: Replies[LogitsUp]
    ) -> ServerState:
        """Average each sample's logits over those who sent some, all alike (the paper's consensus).

        A sample that nobody has is left out (specification 3.5, E10).
        """
        values, given = public_predictions.stacked(state.positions, server.task.num_outputs, replies)
        flops = float(max(1, values.size))
        consensus, known = await server.call(public_predictions.mean_by_sample, values, given, flops=flops)
        return replace(state, positions=state.positions[known], consensus=consensus)

    async def instruct_distil(
        self, server: ServerContext, state: ServerState, cohort: Sequence[int]
    ) -> tuple[ServerState, Mapping[int, LogitsDown]]:
        """Send the consensus."""
        return state, broadcast(cohort, state.message(state.consensus, "logits", 1.0))

    async def distilled(self, client: ClientContext, model: Model, samples: Samples, values: Array) -> Model:
        """Digest the consensus, then revisit the client's own samples."""
        # In the order of the share and in its batches: the draw of the round has shuffled them already, and a
        # client that is alone meets exactly its own logits, so that it learns nothing from itself.
        digested = await distil(
            client,
            model,
            samples,
            {TEACHER: values},
            loss=LOSSES[self.config.digest],
            batch_size=self.config.digest_batch_size,
            shuffled=False,
            optimiser=client.training.make_optimiser(self.config.digest_lr),
            epochs=self.config.digest_epochs,
            name="digest",
        )
        return (await client.fit(digested)).model

    def vet(self, server: ServerContext, state: ServerState, reply: Reply) -> str | None:
        """Refuse logits on other samples, or of another shape, and what are no logits."""
        return public_predictions.unusable(reply.message, state.positions, server.task.num_outputs, "logits")


PLUGIN = FedMD
