"""Co-distillation to personal teachers: the round that KT-pFL, Sim-pFD and TopK-pFD have in common.

In a round the server names public samples; the cohort trains and sends its soft predictions on them
(*share*). Each client that answered gets a teacher of its own, a mean of all these predictions with weights
for it alone, and learns from it (*distil*). Neither a model nor a weight travels (D-000-07). Algorithms say
what the weights are (specification 5.E.1, 5.E.3, 5.E.4).

A client that is silent in the first exchange is in no teacher; one that vanishes in the second has
contributed and only misses its own distillation (3.4). Predictions are about the samples of one round, so
those that a pacing carries over into another are rejected: they are on other samples than that round asked
about. m: clients that answered, p: samples, N: classes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeVar

import numpy as np

from fedsim.algorithms.base import (
    Algorithm,
    Exchange,
    Exchanges,
    Predictor,
    Predictors,
    Replies,
    Reply,
    Setting,
    broadcast,
)
from fedsim.algorithms.common import public_samples
from fedsim.algorithms.common.distillation import Distillation, softmax
from fedsim.algorithms.common.ktpfl_coefficients import mixture_flops, teachers
from fedsim.algorithms.common.share_and_distil import ClientState, answer, distilled, shared
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.config import Config
from fedsim.errors import UserError
from fedsim.params import Array, Model
from fedsim.ranges import BatchSize, Epochs, LearningRate, PositiveSamples, Temperature
from fedsim.wire import LogitsDown, LogitsUp, PublicBatch, PublicData


class CoPersonalConfig(Config):
    """The round's own parameters."""

    order: Literal["train_first", "distill_first"] = "train_first"
    """Train, predict, distil, as in the paper (D-000-06); or predict, distil, train, as in the public code,
    where only those train whose predictions have arrived."""
    temperature: Temperature = 1.0
    """What logits are divided by, on both sides (D-000-05: not in the paper; public code: 1 and 10)."""
    theta_sq: bool = False
    """Multiply the distillation's loss by the squared temperature, without which its gradient nearly vanishes
    at a temperature of 10."""
    distill_epochs: Epochs = 1
    """Passes over the round's public samples, R (the paper: 1)."""
    distill_batch_size: BatchSize = 256
    """Public samples in a mini-batch of the distillation (the paper: 256)."""
    distill_lr: LearningRate | None = None
    """Learning rate of the distillation, eta_2; that of the training by default, as in the paper."""
    public_per_round: PositiveSamples | Literal["all"] = 3000
    """Public samples drawn anew in each round, at most as many as there are (the paper: 3000)."""
    replacement: bool = False
    """Draw them with replacement, as the public code does."""
    ramp_epochs: bool = False
    """Train one pass in the first round, two in the second, and so on up to the training's own number, as the
    public code does."""


@dataclass(frozen=True, slots=True)
class ServerState:
    """What the server holds between the two exchanges of a round.

    Attributes:
        positions: The round's public samples, int64 ``[p]``; after the share, those that anybody gave.
        asked: How many samples the cohort was asked about.
        senders: Who has answered, int64 ``[m]``, ascending.
        values: Their probabilities, float32 ``[m, p, N]``, zero where a sample is missing.
        given: Which samples each gave, booleans ``[m, p]``.
    """

    positions: Array
    asked: int
    senders: Array
    values: Array
    given: Array


G = TypeVar("G", bound=CoPersonalConfig)
S = TypeVar("S", bound=ServerState)


class CoPersonal(Algorithm[G, S, ClientState], Generic[G, S]):
    """Two exchanges, and weights that a subclass finds."""

    Config = CoPersonalConfig
    mixed_architectures = True
    needs_public = True

    @property
    def exchanges(self) -> Exchanges[S, ClientState]:
        """Share, then distil with those who answered."""
        return (
            Exchange(
                "share",
                instruct=self.instruct_share,
                local=self.local_share,
                merge=self.merge_share,
                reply=LogitsUp,
            ),
            Exchange("distil", instruct=self.instruct_distil, local=self.local_distil, who="answered"),
        )

    @abstractmethod
    async def weights(self, server: ServerContext, state: S, values: Array, given: Array) -> Array:
        """Return the weight of each teacher for each student, ``[m, m]``, rows that sum to one.

        Args:
            server: To compute with.
            state: After the share; ``senders`` says whose the rows are.
            values: Probabilities, float32 ``[m, p, N]``, zero where a sample is missing.
            given: Which samples each client gave, booleans ``[m, p]``.
        """

    def nothing(self, server: ServerContext) -> ServerState:
        """Return the state in which nobody has said anything.

        Raises:
            UserError: Passes are to be ramped, and the training counts steps.
        """
        if self.config.ramp_epochs and server.training.steps is not None:
            raise UserError(
                f"ramp_epochs counts passes, and training.steps = {server.training.steps} counts "
                "mini-batches: give training.epochs instead"
            )
        empty = np.empty(0, np.int64)
        classes = server.task.num_outputs
        return ServerState(empty, 0, empty, np.empty((0, 0, classes), np.float32), np.empty((0, 0), np.bool_))

    def join(self, client: ClientContext) -> ClientState:
        """Begin with the start values of the client's architecture."""
        return ClientState(client.initial_model(), np.empty(0, np.int64))

    async def instruct_share(
        self, server: ServerContext, state: S, cohort: Sequence[int]
    ) -> tuple[S, Mapping[int, PublicBatch | PublicData]]:
        """Draw the round's public samples and name them."""
        wanted = self.config.public_per_round
        count = server.num_public if wanted == "all" else min(wanted, server.num_public)
        key = server.key.child("public")
        positions = public_samples.draw(key, server.num_public, count, replacement=self.config.replacement)
        message = public_samples.announce(server, positions)
        forgotten = self.nothing(server)
        state = replace(
            state,
            positions=positions,
            asked=len(positions),
            senders=forgotten.senders,
            values=forgotten.values,
            given=forgotten.given,
        )
        return state, broadcast(cohort, message)

    async def local_share(
        self, client: ClientContext, state: ClientState, message: PublicBatch | PublicData
    ) -> tuple[ClientState, LogitsUp]:
        """Train, unless that comes last, and send soft predictions on the samples named."""
        model = state.model
        if self.config.order == "train_first":
            model = await self.trained(client, model)
        state, logits = await shared(client, model, message, self.config.distill_batch_size)
        values = softmax(logits, self.config.temperature)
        return state, self.reply(client, values, message.indices)

    def reply(self, client: ClientContext, values: Array, positions: Array) -> LogitsUp:
        """Return the message that carries soft predictions ``[p, N]`` on the samples named."""
        return public_samples.predictions(values, positions, "probs", self.config.temperature)

    async def merge_share(self, server: ServerContext, state: S, replies: Replies[LogitsUp]) -> S:
        """Keep what has come; a sample that nobody gave is left out (specification 3.5, E10)."""
        newest = {reply.client: reply for reply in replies}
        values, given = public_samples.stacked(
            state.positions, server.task.num_outputs, list(newest.values())
        )
        known = given.any(axis=0)
        return replace(
            state,
            positions=state.positions[known],
            senders=np.array(list(newest), np.int64),
            values=values[:, known],
            given=given[:, known],
        )

    async def instruct_distil(
        self, server: ServerContext, state: S, cohort: Sequence[int]
    ) -> tuple[S, Mapping[int, LogitsDown]]:
        """Mix a teacher for each client and send it; clients know the samples, unless some were left out."""
        weights = await self.weights(server, state, state.values, state.given)
        flops = mixture_flops(*state.values.shape)
        mixed = await server.call(teachers, weights, state.values, state.given, flops=flops)
        positions, asked, temperature = state.positions, state.asked, self.config.temperature
        messages = {
            client: answer(mixed[row], positions, asked, "probs", temperature)
            for row, client in enumerate(state.senders.tolist())
            if client in cohort
        }
        return state, messages

    async def local_distil(
        self, client: ClientContext, state: ClientState, message: LogitsDown
    ) -> tuple[ClientState, None]:
        """Learn from the teacher; then train, if that comes last."""
        temperature = self.config.temperature
        model = await distilled(
            client,
            state,
            message,
            Distillation(temperature, temperature**2 if self.config.theta_sq else 1.0),
            batch_size=self.config.distill_batch_size,
            lr=self.config.distill_lr,
            epochs=self.config.distill_epochs,
            name="distil",
        )
        if model is None:
            return state, None
        if self.config.order == "distill_first":
            model = await self.trained(client, model)
        return replace(state, model=model, samples=None), None

    async def trained(self, client: ClientContext, model: Model) -> Model:
        """Return a model trained on the client's own samples."""
        epochs = None
        if self.config.ramp_epochs:
            usual = 1 if client.training.epochs is None else client.training.epochs
            epochs = min(client.round, usual)
        return (await client.fit(model, epochs=epochs)).model

    def vet(self, server: ServerContext, state: S, reply: Reply) -> str | None:
        """Refuse predictions on other samples, of another shape or temperature, or that are no shares."""
        num_outputs, temperature = server.task.num_outputs, self.config.temperature
        return public_samples.unusable(reply.message, state.positions, num_outputs, "probs", temperature)

    def misfit(self, setting: Setting) -> str | None:
        """Refuse a regression, whose outputs are no shares of classes."""
        if setting.task.kind == "regression":
            return (
                "it exchanges probabilities of classes, and this task is a regression: use an algorithm that "
                "exchanges models, such as 'fedavg' or 'ktpfl_w'"
            )
        return None

    async def models_of(
        self, observer: ClientContext, server_state: Any, client_state: ClientState
    ) -> Predictors:
        """Return the client's own model."""
        return {"personal": Predictor(client_state.model)}
