"""Fed-ET: clients train small models of several architectures; an ensemble of them teaches one large model.

Every client trains the small model of its architecture and returns it whole. All nets end in a head of one
shape (`representation` in the models' settings). The server takes the mean of the clients' heads into its
large model, and trains it on unlabelled public samples: on the label on which the clients agree, each
weighted by its certainty on the sample, and, with a small weight, on the dissenters' predictions. The small
models become the means of their clients' models, with the large model's head (specification 5.E.8).

Cho, Manoel, Joshi, Sim, Dimitriadis: Heterogeneous Ensemble Knowledge Transfer for Training Large Models in
Federated Learning, IJCAI 2022, algorithm 1. Decisions: the dissenters' weights are not normalised, so that
their share scales the term (D-003-03); both terms use the current large model (D-003-04); a small model
without an update keeps its body (D-003-13). A model whose outputs on the public samples are not finite is
left out, and a round in which the large model diverges changes nothing. The paper selects clients in
proportion to their samples: selector `by_size`. K: clients, m: replies, p: public samples, N: classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - the name that everyone knows
from torch import Tensor

from fedsim import toml_writer
from fedsim.algorithms.base import About, Predictor, Predictors, Replies, Setting
from fedsim.algorithms.common.distillation import distil, divergences, softmax
from fedsim.algorithms.common.finite_outputs import finite_replies, unless_diverged
from fedsim.algorithms.common.model_rounds import ModelTraining, means_by_architecture, shares, start_models
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.config import Config
from fedsim.engine.losses import MODEL, PUBLIC, Batches, Extras, Models
from fedsim.errors import Fault
from fedsim.models import Architecture, with_part
from fedsim.params import Array, Model, mean_model
from fedsim.ranges import BatchSize, Coefficient, LearningRate, Steps
from fedsim.wire import ModelUpdate

LABEL = "label"  # name of the extra with the consensus's label of each public sample
DISSENT = "dissent"  # name of the extra with the dissenters' weighted probabilities
SHARE = "share"  # name of the extra with the dissenters' weight


class FedETConfig(Config):
    """Fed-ET's own parameters; the paper's values for images are the defaults."""

    server_steps: Steps = 128
    """Mini-batches of public samples on which the large model is trained in a round (the paper: 128 for
    images, 10 for texts)."""
    server_batch_size: BatchSize = 64
    """Public samples in a mini-batch (the paper: 64 and 5)."""
    server_lr: LearningRate = 0.005
    """Learning rate of the large model (the paper: 0.005 and 0.001)."""
    lam: Coefficient = 0.05
    """Weight of the dissenters' predictions (the paper: 0.05 and 0.5); 0 is training on labels alone."""
    div_normalise: bool = False
    """Let the term count in full wherever anybody dissents; else it counts by the dissenters' weight, as in
    the paper."""


@dataclass(frozen=True, slots=True)
class EnsembleLoss:
    """The loss of the large model: cross-entropy to the consensus, and KL(dissenters || model)."""

    weight: float  # weight of the second term
    normalised: bool = False  # whether that term counts in full, or by the dissenters' weight

    def __call__(self, models: Models, batches: Batches, extras: Extras) -> Tensor:
        """Return the loss."""
        # The large model is trained on nothing else, so its buffers follow these samples.
        logits = models[MODEL](batches[PUBLIC].x)
        loss = F.cross_entropy(logits, extras[LABEL])
        if self.weight == 0:
            return loss
        share = extras[SHARE]
        # Where nobody dissents all rows are zero, and so is the term.
        teacher = extras[DISSENT] / torch.where(share > 0, share, 1.0)[:, None]
        terms = divergences(teacher, F.log_softmax(logits, dim=1))
        regulariser: Tensor = (terms if self.normalised else share * terms).mean()
        return loss + self.weight * regulariser


def certainty(probabilities: Array) -> Array:
    """Return each model's weight on each sample ``[m, p]``, from the variance of its probabilities."""
    variance = probabilities.var(axis=2)
    variance[np.ptp(probabilities, axis=2) == 0] = 0  # and not what rounding the mean leaves
    total = variance.sum(axis=0)
    return np.where(total == 0, 1 / len(variance), variance / np.where(total == 0, 1, total))


def consensus(logits: Array) -> dict[str, Array]:
    """Return the extras of :class:`EnsembleLoss` from all models' logits ``[m, p, N]``, m at least 1."""
    probabilities = softmax(logits).astype(np.float64)
    weights = certainty(probabilities)
    weighted = weights[:, :, None] * probabilities
    labels = weighted.sum(axis=0).argmax(axis=1)
    dissents = probabilities.argmax(axis=2) != labels
    return {
        LABEL: labels,
        DISSENT: np.where(dissents[:, :, None], weighted, 0).sum(axis=0).astype(np.float32),
        SHARE: np.where(dissents, weights, 0).sum(axis=0).astype(np.float32),
    }


def head_of(architectures: Mapping[str, Architecture], model: Model) -> Model:
    """Return a model's head, under one label for those of all architectures."""
    head = architectures[model.architecture].above(-1).part_of(model)
    return replace(head, architecture="head")


@dataclass(frozen=True, slots=True)
class ServerState:
    """The server's models."""

    small: Mapping[str, Model]  # by label of the clients' architectures
    large: Model  # the result


class FedET(ModelTraining[FedETConfig, ServerState]):
    """Ensemble transfer."""

    about = About(
        kind="distillation", down="S", up="S", server="one small model of each architecture and a large one"
    )

    mixed_architectures = True
    server_model = True
    needs_public = True
    needs_classes = True
    own_aggregation = "its server also distils what all models predict, the attackers' among them"

    def start(self, server: ServerContext) -> ServerState:
        """Begin with the start values of all architectures."""
        return ServerState(start_models(server), server.initial_model())

    def model_for(self, server: ServerContext, state: ServerState, client: int) -> Model:
        """Return the small model of the client's architecture."""
        return state.small[server.architecture_of(client)]

    async def merge(
        self, server: ServerContext, state: ServerState, replies: Replies[ModelUpdate]
    ) -> ServerState:
        """Transfer: heads to the large model, the ensemble's knowledge, its head to the small models."""
        config, logits = self.config, list[Array]()
        if config.server_steps:
            replies, logits = await finite_replies(server, replies)
        if not replies:
            return state
        heads = [head_of(server.architectures, reply.message.model) for reply in replies]
        large = with_part(state.large, mean_model(heads, shares(replies, [1.0] * len(replies))))
        if logits:
            stacked = np.stack(logits)
            large = await distil(  # equation 10
                server,
                large,
                server.public(np.arange(server.num_public)),
                await server.call(consensus, stacked, flops=12.0 * stacked.size),
                loss=EnsembleLoss(config.lam, config.div_normalise),
                batch_size=config.server_batch_size,
                optimiser=server.training.make_optimiser(config.server_lr),
                steps=config.server_steps,
            )
        if unless_diverged(server, large, state.large) is state.large:
            return state  # all models would get the diverged head
        means = means_by_architecture(replies, "uniform")
        head = head_of(server.architectures, large)
        small = {label: with_part(means.get(label, former), head) for label, former in state.small.items()}
        return ServerState(small, large)

    def misfits(self, setting: Setting) -> Iterator[Fault]:
        """Refuse heads that cannot be averaged, and a task without classes."""
        yield from super().misfits(setting)
        models = {net.label: net for net in (setting.server, *setting.clients.values())}
        if faults := [fault for net in models.values() if (fault := net.cut_fault(-1)) is not None]:
            yield from faults
            return
        wanted = _head_shapes(setting.server)
        for label, architecture in setting.clients.items():
            if _head_shapes(architecture) != wanted:
                yield Fault(
                    toml_writer.path("models", label),
                    "the mean of the heads of all models is taken, and its head and that of the server's "
                    f"{setting.server.label!r} differ in shape",
                    "give all models the same `representation`, such as params = { representation = {} }",
                )

    async def models_of(
        self, observer: ClientContext, server_state: ServerState, client_state: None
    ) -> Predictors:
        """Return the large model and, beside it, the small one of the client's architecture."""
        small = server_state.small[observer.architecture]
        return {"global": Predictor(server_state.large), "small": Predictor(small)}


def _head_shapes(architecture: Architecture) -> dict[str, tuple[int, ...]]:
    values = architecture.above(-1).structure.state_dict()
    return {name: tuple(value.shape) for name, value in values.items()}


PLUGIN = FedET
