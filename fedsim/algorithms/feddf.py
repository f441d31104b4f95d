"""FedDF: clients of several architectures share one teacher, the mean of all their models' predictions.

The server keeps one model for each architecture, its *prototype*. In a round every client of the cohort
trains the prototype of its own architecture. The server averages the replies by architecture, and then
distils the ensemble of all models received, on public samples without labels, into every prototype
(specification 5.C.1).

Lin, Kong, Stich, Jaggi: Ensemble Distillation for Robust Model Fusion in Federated Learning, NeurIPS 2020
(arXiv 2006.07242), algorithms 1 and 3. Decisions: the paper stops distilling by accuracy on the server's
validation samples, which it does not have here; so it distils for a fixed number of steps and keeps the last
model. On the global test set the largest prototype is measured (D-003-15), and with several also their mean
accuracy as ``prototypes``, weighted by the training samples of the clients of each architecture. Each client
is measured with the prototype of its own. Models whose outputs on the public samples are not finite are in no
mean and teach nobody.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from fedsim.algorithms.base import About, Predictor, Predictors, Replies, Reply, Setting
from fedsim.algorithms.common.distillation import Distillation, distil, softmax
from fedsim.algorithms.common.finite_outputs import finite_replies, unless_diverged
from fedsim.algorithms.common.model_rounds import ModelTraining, means_by_architecture, start_models
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.algorithms.fedavg import FedAvgConfig
from fedsim.engine.losses import TEACHER
from fedsim.engine.optimisers import Adam, Clipped, cosine
from fedsim.errors import Fault
from fedsim.params import Array, Model, count
from fedsim.ranges import BatchSize, LearningRate, Norm, Steps
from fedsim.wire import ModelUpdate

# With drop_worst, models less accurate than so many times chance are left out (the paper's code).
BETTER_THAN_CHANCE = 1.2


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


def teacher_of(logits: Sequence[Array], ensemble: str) -> Array:
    """Return the teacher's probabilities, float64: ``[p, N]``, or ``[p, m, N]`` for ``losses``."""
    # In float64, so that a model which is the only teacher learns nothing from itself (see Distillation).
    if ensemble == "logits":
        return softmax(np.stack(logits).mean(axis=0, dtype=np.float64), dtype=np.float64)
    probabilities = softmax(np.stack(logits, axis=1), dtype=np.float64)
    if ensemble == "losses":
        return probabilities
    mean: Array = probabilities.mean(axis=1)
    return mean


class FedDF(ModelTraining[FedDFConfig, Mapping[str, Model]]):
    """Ensemble distillation for model fusion; the server's state is one prototype per architecture."""

    about = About(kind="distillation", down="S", up="S", server="one model of each architecture")

    mixed_architectures = True
    needs_public = True
    needs_classes = True
    own_aggregation = "its server also distils what all models predict, the attackers' among them"

    def start(self, server: ServerContext) -> Mapping[str, Model]:
        """Begin with the start values of each client architecture."""
        return start_models(server)

    def model_for(self, server: ServerContext, state: Mapping[str, Model], client: int) -> Model:
        """Return the prototype of the client's architecture."""
        return state[server.architecture_of(client)]

    async def merge(
        self, server: ServerContext, state: Mapping[str, Model], replies: Replies[ModelUpdate]
    ) -> Mapping[str, Model]:
        """Average by architecture; then distil the ensemble of all models received into the prototypes."""
        config, logits = self.config, list[Array]()
        if config.drop_worst:
            replies = await self._better_than_chance(server, replies)
        if config.server_steps:
            replies, logits = await finite_replies(server, replies)
        means = means_by_architecture(replies, config.weighting)
        prototypes = {**state, **means}
        if not logits:
            return prototypes
        flops = 6.0 * sum(array.size for array in logits)
        teacher = await server.call(teacher_of, logits, config.ensemble, flops=flops)
        for label in prototypes if config.distill_idle else means:
            distilled = await distil(
                server,
                prototypes[label],
                server.public(np.arange(server.num_public)),
                {TEACHER: teacher},
                loss=Distillation(),
                batch_size=config.server_batch_size,
                optimiser=Clipped(cosine(Adam(config.server_lr), config.server_steps), config.server_clip),
                steps=config.server_steps,
                name=f"distil {label}",
            )
            prototypes[label] = unless_diverged(server, distilled, state[label])
        return prototypes

    def misfits(self, setting: Setting) -> Iterator[Fault]:
        """Refuse tasks without classes, and ``drop_worst`` without labels to choose by."""
        yield from super().misfits(setting)
        if self.config.drop_worst and not setting.public_labelled:
            yield Fault(
                "algorithm.params.drop_worst",
                "it measures models on the public set, whose samples come from another data set and have no "
                "labels of this task",
                "leave data.public.source out, or write drop_worst = false",
            )

    async def models_of(
        self, observer: ClientContext, server_state: Mapping[str, Model], client_state: Any
    ) -> Predictors:
        """Return the largest prototype and that of the client's architecture, for its samples and for all."""
        largest = max(server_state.values(), key=lambda model: count(model.params))
        own = server_state[observer.architecture]
        models = {"global": Predictor(largest)}
        if len(server_state) > 1:
            models["prototypes"] = Predictor(own, on="global", weight=observer.num_samples())
        return models if own is largest else {**models, "personal": Predictor(own)}

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
