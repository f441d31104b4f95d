"""FedDF: clients of several architectures share one teacher, the mean of all their models' predictions.

The server keeps one model for each architecture, its *prototype*. In a round every client of the cohort
trains the prototype of its own architecture; the server averages what comes back by architecture, and then
distils the ensemble of all models received, on public samples without labels, into every prototype
(specification 5.C.1).

Lin, Kong, Stich, Jaggi: Ensemble Distillation for Robust Model Fusion in Federated Learning, NeurIPS 2020
(arXiv 2006.07242), algorithms 1 and 3. Decisions: the paper stops distilling when accuracy on the server's
validation samples no longer rises; here the server has none, and the clients' stay where they are, so it
distils for a fixed number of steps and keeps the last, not the best. It has no model beside the prototypes:
the largest stands for it on the global test set (D-003-15), and beside it, where there are several, the mean
over them as ``prototypes``, each weighted by the training samples of the clients of its architecture. Each
client is measured with the prototype of its own. Models whose outputs on the public samples are not finite
are in no mean and teach nobody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch.nn.functional as F  # noqa: N812 - the name that everyone knows
from torch import Tensor

from fedsim.algorithms.base import (
    Predictor,
    Predictors,
    Replies,
    Reply,
    Setting,
)
from fedsim.algorithms.common.distillation import Distillation, kl_divergence, no_classes, softmax
from fedsim.algorithms.common.finite_outputs import taken_up
from fedsim.algorithms.common.per_architecture import PerArchitecture, public_logits, start_models
from fedsim.algorithms.common.weighted_means import mean_of_models
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.algorithms.fedavg import FedAvgConfig
from fedsim.engine.jobs import Stream, per_sample
from fedsim.engine.losses import MODEL, PUBLIC, TEACHER, Batches, Extras, Loss, Models
from fedsim.engine.optimisers import Adam, Clipped, Cosine
from fedsim.engine.steps import Descent
from fedsim.params import Array, Model, count
from fedsim.ranges import BatchSize, LearningRate, Norm, Steps
from fedsim.wire import ModelUpdate

BETTER_THAN_CHANCE = 1.2
"""With ``drop_worst``, models less accurate than so many times chance are left out (the paper's code)."""


class FedDFConfig(FedAvgConfig):
    """FedDF's own parameters."""

    ensemble: Literal["logits", "probs", "losses"] = "logits"
    """What is averaged over the models received: their logits (the paper), their probabilities, or the losses
    towards each of them, whose gradient is that of the probabilities."""
    server_steps: Steps = 500
    """Mini-batches on which each prototype is distilled in a round (the paper: at most 10000, with early
    stopping on a validation set); 0 is FedAvg by architecture."""
    server_lr: LearningRate = 1e-3
    """Learning rate of Adam at the server; it falls to 0 along a cosine in every round (the paper)."""
    server_batch_size: BatchSize = 128
    """Public samples in a mini-batch (the paper: 128)."""
    server_clip: Norm = 5.0
    """Largest norm of the gradient of a step (the authors' code: 5)."""
    distill_idle: bool = True
    """Also distil into prototypes of which no model has come back in the round."""
    drop_worst: bool = False
    """Leave models out that are less than 1.2 times as accurate as chance on the public set, which therefore
    needs labels (the paper's drop-worst)."""


@dataclass(frozen=True, slots=True)
class ServerState:
    """What the server holds.

    Attributes:
        prototypes: One model for each architecture in the fleet, in the fleet's order of first mention.
    """

    prototypes: Mapping[str, Model]


@dataclass(frozen=True, slots=True)
class MeanDivergence:
    """The mean over m teachers, probabilities ``[b, m, N]``, of KL(teacher || student)."""

    def __call__(self, models: Models, batches: Batches, extras: Extras) -> Tensor:
        """Return the loss."""
        teachers = extras[TEACHER]
        log_student = F.log_softmax(models[MODEL](batches[PUBLIC].x).to(teachers.dtype), dim=1)
        of_each = log_student[:, None, :].expand_as(teachers).flatten(0, 1)
        return kl_divergence(teachers.flatten(0, 1), of_each)


def teacher_of(logits: Sequence[Array], ensemble: str) -> Array:
    """Return the teacher's probabilities: float64 ``[p, N]``, or ``[p, m, N]`` for ``losses``.

    In float64, so that a model which is the only teacher learns nothing from itself (see ``Distillation``).

    Args:
        logits: Of m models, float32 ``[p, N]`` each.
        ensemble: As in :class:`FedDFConfig`.
    """
    if ensemble == "logits":
        return softmax(np.stack(logits).mean(axis=0, dtype=np.float64), dtype=np.float64)
    probabilities = softmax(np.stack(logits, axis=1), dtype=np.float64)
    if ensemble == "losses":
        return probabilities
    mean: Array = probabilities.mean(axis=1)
    return mean


class FedDF(PerArchitecture[FedDFConfig, ServerState]):
    """Ensemble distillation for model fusion."""

    Config = FedDFConfig
    mixed_architectures = True
    needs_public = True

    def start(self, server: ServerContext) -> ServerState:
        """Begin with the start values of each client architecture."""
        return ServerState(start_models(server))

    def models(self, state: ServerState) -> Mapping[str, Model]:
        """Return the prototypes."""
        return state.prototypes

    async def merge(
        self, server: ServerContext, state: ServerState, replies: Replies[ModelUpdate]
    ) -> ServerState:
        """Average by architecture; then distil the ensemble of all models received into the prototypes."""
        if self.config.drop_worst:
            replies = await self._better_than_chance(server, replies)
        logits: list[Array] = []
        if replies and self.config.server_steps:
            replies, logits = await public_logits(server, replies)
        if not replies:
            return state
        groups: dict[str, list[Reply[ModelUpdate]]] = {}
        for reply in replies:
            groups.setdefault(reply.message.architecture, []).append(reply)
        means = {label: mean_of_models(group, self.config.weighting) for label, group in groups.items()}
        prototypes = {label: means.get(label, kept) for label, kept in state.prototypes.items()}
        if not self.config.server_steps:
            return ServerState(prototypes)
        teacher = await self._teacher(server, logits)
        for label in prototypes if self.config.distill_idle else means:
            distilled = await self._distil(server, prototypes[label], teacher)
            prototypes[label] = taken_up(server, distilled, state.prototypes[label])
        return ServerState(prototypes)

    def misfit(self, setting: Setting) -> str | None:
        """Refuse tasks without classes, and ``drop_worst`` without labels to choose by."""
        if self.config.drop_worst and not setting.public_labelled:
            return (
                "drop_worst measures models on the public set, whose samples come from another data set and "
                "have no labels of this task: leave data.public.source out, or write drop_worst = false"
            )
        return no_classes(setting.task)

    async def models_of(
        self, observer: ClientContext, server_state: ServerState, client_state: Any
    ) -> Predictors:
        """Return the largest prototype and that of the client's architecture, for its samples and for all."""
        prototypes = server_state.prototypes
        largest = max(prototypes.values(), key=lambda model: count(model.params))
        own = prototypes[observer.architecture]
        models = {"global": Predictor(largest)}
        if len(prototypes) > 1:
            models["prototypes"] = Predictor(own, on="global", weight=observer.num_samples())
        return models if own is largest else {**models, "personal": Predictor(own)}

    async def _teacher(self, server: ServerContext, logits: Sequence[Array]) -> Array:
        """Make one teacher of what all models say about all public samples."""
        flops = 6.0 * sum(array.size for array in logits)
        teacher: Array = await server.call(teacher_of, logits, self.config.ensemble, flops=flops)
        return teacher

    async def _distil(self, server: ServerContext, prototype: Model, teacher: Array) -> Model:
        """Bring a prototype's predictions near the teacher's, by the paper's optimiser."""
        config = self.config
        loss: Loss = MeanDivergence() if config.ensemble == "losses" else Distillation()
        everything = server.public(np.arange(server.num_public))
        fitted = await server.fit(
            prototype,
            step=Descent(loss=loss),
            streams={PUBLIC: Stream(everything, config.server_batch_size)},
            extras={TEACHER: per_sample(teacher, PUBLIC)},
            optimiser=Clipped(Cosine(Adam(config.server_lr), config.server_steps), config.server_clip),
            steps=config.server_steps,
            name=f"distil {prototype.architecture}",
        )
        return fitted.model

    async def _better_than_chance(
        self, server: ServerContext, replies: Replies[ModelUpdate]
    ) -> list[Reply[ModelUpdate]]:
        """Return the replies whose models know something of the public set's labels."""
        everything = server.public(np.arange(server.num_public), labelled=True)
        least = BETTER_THAN_CHANCE / server.task.num_outputs
        scores = [await server.evaluate(reply.message.model, everything) for reply in replies]
        # Written so that NaN stays: where nothing is evaluated, nothing is left out.
        return [reply for reply, score in zip(replies, scores, strict=True) if not score.accuracy < least]


PLUGIN = FedDF
