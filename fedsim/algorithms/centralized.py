"""Centralized: the server trains on everybody's samples, the reference point that is no federation.

All training samples are pooled; in a round the server trains on them as much as a client would on its own
(specification 5.A.2, tables 4 and 7 of FedMe). Their order is that of the data set, whoever holds them, so a
single client's FedAvg gives the same model, bit for bit. With ``upload`` every client sends its samples once,
before round 1, in a frame of data, and the server trains on the samples of those whose frame arrives. Only
the form of these frames is checked: the server takes the samples from the run's data, whose order no upload
can change. Every client can fine-tune the model at the end (specification 5.A.4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from pydantic import model_validator

from fedsim.algorithms.base import About, Exchange, Exchanges, Replies, Reply
from fedsim.algorithms.common import public_predictions
from fedsim.algorithms.common.fine_tuning import FineTuning, FineTuningConfig, Passes
from fedsim.algorithms.common.model_rounds import ModelTraining
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.engine.jobs import PooledSamples, Stream
from fedsim.engine.kept_optimisers import Keeping
from fedsim.engine.losses import TRAIN
from fedsim.params import Array, Model, Tree
from fedsim.wire import Message, message


class CentralizedConfig(FineTuningConfig):
    """Centralized's own parameters."""

    upload: bool = False
    """Let every client send its training samples to the server first; else they are there."""
    finetune: bool = False
    """Let every client fine-tune the model after the last round."""

    @model_validator(mode="after")
    def _tunes(self) -> Self:
        if self.finetune_epochs != "chosen" and not self.finetune:
            raise ValueError("finetune_epochs without fine-tuning: add finetune = true, or leave it out")
        return self

    @property
    def passes(self) -> Passes | None:
        """How long to fine-tune; None: not at all."""
        return super().passes if self.finetune else None


@message("samples", data=True)
class SamplesUp(Message):
    """A client's samples on their way to the server."""

    values: Array  # the samples [n, ...]: uint8 for images of eight bits, else of the task's type
    labels: Array  # their labels [n]

    def __post_init__(self) -> None:
        if self.labels.ndim != 1 or self.values.shape[:1] != self.labels.shape:
            raise ValueError(
                f"values of shape {list(self.values.shape)} and labels of {list(self.labels.shape)}: one "
                "label for each sample"
            )


@dataclass(frozen=True, slots=True)
class ServerState:
    """What the server holds."""

    model: Model  # the one model
    holders: tuple[int, ...] | None  # clients whose samples it has, ascending; None for all there are
    # The optimiser's state, under training.keep_optimiser.
    optimisers: Mapping[str, Tree] = field(default_factory=dict)


class Centralized(ModelTraining[CentralizedConfig, ServerState]):
    """Training on the pooled samples."""

    messages = (SamplesUp,)
    work_is_given = "it is the server that trains"

    @property
    def exchanges(self) -> Exchanges[ServerState, Any]:
        """The upload, if set; training, in which no client is asked."""
        upload = Exchange(
            "upload", local=self.upload, merge=self.merge, when="opening", who="all", reply=SamplesUp
        )
        train = Exchange("train", instruct=self.train_pooled, who="all")
        return (upload, train) if self.config.upload else (train,)

    def start(self, server: ServerContext) -> ServerState:
        """Begin with the start values of the server's architecture."""
        return ServerState(server.initial_model(), () if self.config.upload else None)

    async def upload(self, client: ClientContext, state: Any, message: None) -> tuple[Any, SamplesUp]:
        """Send all training samples."""
        values, labels = client.own_values("train")
        return state, SamplesUp(public_predictions.compact(values), labels)

    async def merge(
        self, server: ServerContext, state: ServerState, replies: Replies[SamplesUp]
    ) -> ServerState:
        """Pool the samples that arrived."""
        return replace(state, holders=tuple(reply.client for reply in replies))

    async def train_pooled(
        self, server: ServerContext, state: ServerState, cohort: Sequence[int]
    ) -> tuple[ServerState, Mapping[int, None]]:
        """Train as long as a client would in a round, with client 0's generators; ask no client."""
        # Alone, client 0 would do the same, and keep its optimiser likewise.
        keeping = Keeping(state.optimisers) if server.training.keep_optimiser else None
        fitted = await server.fit(
            state.model,
            streams={TRAIN: Stream(PooledSamples("train", state.holders), server.training.batch_size)},
            key=server.key_of_client(0, server.round - 1),
            keeping=keeping,
        )
        optimisers = {} if keeping is None else keeping.held
        return replace(state, model=fitted.model, optimisers=optimisers), {}

    def vet(self, server: ServerContext, state: ServerState, reply: Reply) -> str | None:
        """Refuse samples of another shape or type than the task's, and labels of another type."""
        message: SamplesUp = reply.message
        task, values, labels = server.task, message.values, message.labels
        if values.shape[1:] != task.input_shape:
            return f"samples of shape {values.shape[1:]}"
        types = (task.dtype, "uint8") if task.dtype == "float32" else (task.dtype,)
        if values.dtype not in types:
            return f"samples of {values.dtype}, not {' or '.join(types)}"
        if labels.dtype != task.label_dtype:
            return f"labels of {labels.dtype}, not {task.label_dtype}"
        return None


class FineTunedCentralized(FineTuning[CentralizedConfig, ServerState], Centralized):
    """The same with fine-tuning at the clients, if set."""

    about = About(
        kind="reference", down="0", up="0, or its samples once", server="one model and everybody's samples"
    )


PLUGIN = FineTunedCentralized
