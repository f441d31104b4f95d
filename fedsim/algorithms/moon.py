"""MOON: clients keep the features of their samples near the global model's and away from their last model's.

The local loss is the cross-entropy and mu times a contrast of features r, of which those of the global model
should be nearer than those of the client's previous models (specification 5.B.3)::

    -log(e^(cos(r, r_global) / t) / (e^(cos(r, r_global) / t) + sum_b e^(cos(r, r_b) / t)))

Features are what a net's last layer is given; with the paper's projection head, an option ``projection`` of
the models, they are its outputs. A client without a previous model trains as in FedAvg, as in the authors'
code.

Li, He, Song: Model-Contrastive Federated Learning, CVPR 2021 (arXiv 2103.16257), algorithm 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import torch
import torch.nn.functional as F  # noqa: N812 - the name that everyone knows
from pydantic import Field
from torch import Tensor

from fedsim import toml_writer
from fedsim.algorithms.base import About, Setting
from fedsim.algorithms.contexts import ClientContext
from fedsim.algorithms.fedavg import FedAvg, FedAvgConfig
from fedsim.engine.losses import MODEL, TRAIN, Batches, Extras, Models, label_loss, serves_many
from fedsim.engine.steps import Descent
from fedsim.errors import Fault
from fedsim.params import Model
from fedsim.ranges import Coefficient, Temperature
from fedsim.wire import ModelBroadcast, ModelUpdate


class MoonConfig(FedAvgConfig):
    """MOON's own parameters."""

    mu: Coefficient = 1.0
    """Weight of the contrast (the paper: 5 for CIFAR-10, 1 for CIFAR-100); 0 is FedAvg, bit for bit."""
    temperature: Temperature = 0.5
    """What cosines are divided by, t (the paper: 0.5)."""
    buffer: Annotated[int, Field(ge=1, le=100)] = 1
    """How many of its last models a client remembers and keeps away from (the paper: 1)."""


GLOBAL = "global"  # name of the global model in a job


@dataclass(frozen=True, slots=True)
class Contrast:
    """The cross-entropy plus ``mu`` times the contrast; other names are previous models."""

    mu: float  # weight of the contrast
    temperature: float  # what cosines are divided by

    @serves_many
    def __call__(self, models: Models, batches: Batches, extras: Extras) -> Tensor:
        """Return the loss."""
        model, batch = models[MODEL], batches[TRAIN]
        features = model.features(batch.x)
        others = [GLOBAL, *(name for name in models if name not in (MODEL, GLOBAL))]
        near = [F.cosine_similarity(features, models[name].features(batch.x), dim=-1) for name in others]
        contrast = -F.log_softmax(torch.stack(near, -1) / self.temperature, dim=-1)[..., 0].mean(-1)
        return label_loss(model.head(features), batch.labels) + self.mu * contrast


@dataclass(frozen=True, slots=True)
class ClientState:
    """What a client keeps."""

    previous: tuple[Model, ...] = ()  # its last models as it sent them, the newest first


class Moon(FedAvg[MoonConfig]):
    """FedAvg with a contrast of models."""

    about = About(
        kind="one global model", down="S", up="S", client="its last model", server="the global model"
    )

    def join(self, client: ClientContext) -> ClientState:
        """Begin without a previous model."""
        return ClientState()

    async def train(
        self, client: ClientContext, state: ClientState, message: ModelBroadcast
    ) -> tuple[ClientState, ModelUpdate]:
        """Train with the contrast to the previous models, if any, and store the result."""
        models, step = {MODEL: message.model}, Descent()
        if state.previous and self.config.mu:
            models |= {GLOBAL: message.model}
            models |= {f"previous {age}": model for age, model in enumerate(state.previous)}
            step = Descent(Contrast(self.config.mu, self.config.temperature))
        model = (await client.fit(models, trained=(MODEL,), step=step)).model
        remembered = (model, *state.previous)[: self.config.buffer]
        return ClientState(remembered), ModelUpdate.of(model, num_samples=client.num_samples())

    def misfits(self, setting: Setting) -> Iterator[Fault]:
        """Refuse models without a head, and those whose features are the samples."""
        yield from super().misfits(setting)
        for label, architecture in setting.clients.items():
            if (fault := architecture.cut_fault(-1)) is not None:
                yield fault
            elif next(architecture.structure.body.parameters(), None) is None:
                yield Fault(
                    toml_writer.path("models", label),
                    "it has no layer below its last one, so its features do not depend on training",
                    "take a model with hidden layers, such as 'mlp' or 'cnn'",
                )


PLUGIN = Moon
