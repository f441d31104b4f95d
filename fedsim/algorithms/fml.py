"""FML: a client's own model and a common "meme" learn from labels and from each other; memes travel.

Each batch goes through both models, and both are moved at once: the own one on
``alpha CE + (1 - alpha) KL(meme || own)``, the meme on ``beta CE + (1 - beta) KL(own || meme)``. The server
averages memes (specification 5.D.12). Own models never travel and may be of any architecture; the meme is of
the server's.

Shen, Zhang, Jia, Zhang, Huang, Zhou, Kuang, Wu, Wu: Federated Mutual Learning, 2020 (arXiv 2006.16765),
algorithm 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from fedsim.algorithms.base import About, Algorithm, Reply
from fedsim.algorithms.common.distillation import kl_of_logits
from fedsim.algorithms.common.initial_own_model import OwnModelConfig, initial_own_model
from fedsim.algorithms.common.model_check import unlike
from fedsim.algorithms.common.model_rounds import Weighting, own_and_global
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.algorithms.fedavg import FedAvg, FedAvgConfig
from fedsim.engine.losses import TRAIN, Batches, Extras, Models, label_loss, serves_many
from fedsim.engine.optimisers import Clipped
from fedsim.engine.steps import Descent
from fedsim.params import Model
from fedsim.ranges import Norm, Share
from fedsim.wire import ModelBroadcast, ModelUpdate


class FMLConfig(FedAvgConfig, OwnModelConfig):
    """FML's own parameters."""

    weighting: Weighting = "uniform"
    """What a meme weighs in the server's mean: the same for all (the paper), or its client's samples."""
    alpha: Share = 0.5
    """Weight of the labels in an own model's loss, against the meme's predictions; 1 is Local."""
    beta: Share = 0.5
    """Weight of the labels in the meme's loss, against the own model's predictions; 1 is FedAvg."""
    clip: Norm | None = None
    """Norm to which a longer gradient of either model is clipped (10 in the public code PFLlib)."""


PERSONAL, MEME = "personal", "meme"  # names of a client's own model and of the meme in a job of two


@dataclass(frozen=True, slots=True)
class Mutual:
    """The losses of both models; what has weight 0 is not computed."""

    alpha: float  # weight of the labels for the own model
    beta: float  # weight of the labels for the meme

    @serves_many
    def __call__(self, models: Models, batches: Batches, extras: Extras) -> Mapping[str, Tensor]:
        """Return the loss."""
        batch = batches[TRAIN]
        own, meme = models[PERSONAL](batch.x), models[MEME](batch.x)
        return {
            PERSONAL: _loss(own, meme, batch.labels, self.alpha),
            MEME: _loss(meme, own, batch.labels, self.beta),
        }


def _loss(student: Tensor, teacher: Tensor, labels: Tensor, share: float) -> Tensor:
    if share == 1:
        return label_loss(student, labels)
    imitation = (1 - share) * kl_of_logits(teacher, student)
    return imitation + share * label_loss(student, labels) if share else imitation


class FML(FedAvg[FMLConfig]):
    """FedAvg of memes beside clients' own models; a client's state is its own model."""

    about = About(
        kind="personal models",
        down="S of the meme",
        up="S of the meme",
        client="its own model",
        server="the meme",
    )

    mixed_architectures = True
    server_model = True
    needs_classes = True

    # A client goes on with the model that it has, so nothing is sent after the last round.
    own_model, send_last = Algorithm.own_model, Algorithm.send_last
    models_of = own_and_global

    def join(self, client: ClientContext) -> Model:
        """Begin with the start values of the client's architecture."""
        return initial_own_model(client, self.config)

    async def train(
        self, client: ClientContext, state: Model, message: ModelBroadcast
    ) -> tuple[Model, ModelUpdate]:
        """Train both models together, keep the own one and send the meme back."""
        optimiser = client.training.make_optimiser()
        fitted = await client.fit(
            {PERSONAL: state, MEME: message.model},
            step=Descent(loss=Mutual(self.config.alpha, self.config.beta)),
            optimiser=optimiser if self.config.clip is None else Clipped(optimiser, self.config.clip),
        )
        reply = ModelUpdate.of(fitted.models[MEME], num_samples=client.num_samples())
        return fitted.models[PERSONAL], reply

    def vet(self, server: ServerContext, state: Model, reply: Reply) -> str | None:
        """Reject anything but a meme."""
        return unlike(reply.message.model, state)


PLUGIN = FML
