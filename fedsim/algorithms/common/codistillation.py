"""Co-distillation to personal teachers: the round of KT-pFL, Sim-pFD and TopK-pFD.

The server names public samples. Each client of the cohort trains and sends its soft predictions on them
(*share*). Each client that replied is sent a teacher of its own, a weighted mean of all these predictions,
and learns from it (*distil*). Algorithms differ in the weights (specification 5.E.1, 5.E.3, 5.E.4). Neither
models nor weights travel (D-000-07). ``share_and_distil.py`` has the two exchanges, and calls the steps here.

A client that is silent in the share is in no teacher. One that vanishes in the second exchange has
contributed, and only misses its own distillation (3.4). Predictions that a pacing carries over from an
earlier round are rejected, since they are on other samples. m: clients that replied, p: samples, N: classes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, TypeVar, cast

import numpy as np

from fedsim.algorithms.base import Replies, Reply, Setting
from fedsim.algorithms.common import share_and_distil
from fedsim.algorithms.common.distillation import Distillation, distil, softmax
from fedsim.algorithms.common.ktpfl_coefficients import mixture, mixture_flops
from fedsim.algorithms.common.public_predictions import Announced, draw, predictions, stacked, unusable
from fedsim.algorithms.common.share_and_distil import ShareAndDistil, ShareAndDistilConfig
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.engine.jobs import Samples
from fedsim.engine.losses import TEACHER
from fedsim.errors import Fault
from fedsim.params import Array, Model
from fedsim.ranges import BatchSize, Epochs, LearningRate, PositiveSamples, Temperature
from fedsim.wire import LogitsDown, LogitsUp


class CodistillationConfig(ShareAndDistilConfig):
    """The round's own parameters."""

    order: Literal["distill_first", "train_first"] = "train_first"
    """Train, predict, distil, as in the paper's algorithm 1, and be measured after the distillation; or
    predict, distil, train, as in the authors' code, and be measured after training, as FedMD is by default.
    Then only those train whose predictions have arrived."""
    temperature: Temperature = 1.0
    """What logits are divided by, on both sides (no value in the paper; 1 and 10 in the public code)."""
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
class ServerState(share_and_distil.ServerState):
    """What the server holds between the two exchanges of a round."""

    senders: Array = field(default_factory=partial(np.empty, 0, np.int64))  # who replied, [m], ascending
    values: Array = field(default_factory=partial(np.empty, (0, 0, 0), np.float32))  # theirs, [m, p, N]
    given: Array = field(default_factory=partial(np.empty, (0, 0), np.bool_))  # which rows are there, [m, p]


G = TypeVar("G", bound=CodistillationConfig)
S = TypeVar("S", bound=ServerState)


class Codistillation(ShareAndDistil[G, S]):
    """The round, in the order of its steps; a subclass gives the weights of teachers."""

    needs_classes = True

    def start(self, server: ServerContext) -> S:
        """Begin with nothing."""
        return cast(S, ServerState())

    def drawn(self, server: ServerContext) -> Array:
        """Draw the round's public samples."""
        key, wanted = server.key.child("public"), self.config.public_per_round
        return draw(key, server.num_public, wanted, replacement=self.config.replacement)

    async def trained(self, client: ClientContext, model: Model) -> Model:
        """Train on the client's own samples: before the share, or after the distillation."""
        usual = 1 if client.training.epochs is None else client.training.epochs
        epochs = min(client.round, usual) if self.config.ramp_epochs else None
        return (await client.fit(model, epochs=epochs)).model

    async def predicted(self, client: ClientContext, model: Model, announced: Announced) -> LogitsUp:
        """Make soft predictions on the samples."""
        batch_size = self.config.distill_batch_size
        logits = await client.predict(model, announced.samples(), batch_size=batch_size)
        return self.reply(client, softmax(logits, self.config.temperature), announced.positions)

    def reply(self, client: ClientContext, values: Array, positions: Array) -> LogitsUp:
        """Return the message with soft predictions ``[p, N]``."""
        return predictions(values, positions, "probs", self.config.temperature)

    def vet(self, server: ServerContext, state: S, reply: Reply) -> str | None:
        """Reject predictions on other samples, of a wrong shape or temperature, or no probabilities."""
        num_outputs, temperature = server.task.num_outputs, self.config.temperature
        return unusable(reply.message, state.positions, num_outputs, "probs", temperature)

    async def merge_share(self, server: ServerContext, state: S, replies: Replies[LogitsUp]) -> S:
        """Store the predictions. A sample that nobody predicted is left out (specification 3.5, E10)."""
        newest = {reply.client: reply for reply in replies}
        values, given = stacked(state.positions, server.task.num_outputs, list(newest.values()))
        known = given.any(axis=0)
        return replace(
            state,
            positions=state.positions[known],
            senders=np.array(list(newest), np.int64),
            values=values[:, known],
            given=given[:, known],
        )

    @abstractmethod
    async def weights(self, server: ServerContext, state: S) -> Array:
        """Return the weights ``[m, m]`` of senders' predictions in each student's teacher."""

    async def instruct_distil(
        self, server: ServerContext, state: S, cohort: Sequence[int]
    ) -> tuple[S, Mapping[int, LogitsDown]]:
        """Mix a teacher for each client and send it."""
        weights, flops = await self.weights(server, state), mixture_flops(*state.values.shape)
        mixed = await server.call(mixture, weights, state.values, state.given, flops=flops)
        teachers = dict(zip(state.senders.tolist(), mixed.astype(np.float32), strict=True))
        temperature = self.config.temperature
        return state, {client: state.message(teachers[client], "probs", temperature) for client in cohort}

    async def distilled(self, client: ClientContext, model: Model, samples: Samples, values: Array) -> Model:
        """Learn from the teacher."""
        config = self.config
        return await distil(
            client,
            model,
            samples,
            {TEACHER: values},
            loss=Distillation(config.temperature, config.temperature**2 if config.theta_sq else 1.0),
            batch_size=config.distill_batch_size,
            optimiser=client.training.make_optimiser(config.distill_lr),
            epochs=config.distill_epochs,
            name="distil",
        )

    def misfits(self, setting: Setting) -> Iterator[Fault]:
        """Refuse a task without classes, and growing passes if the training counts steps."""
        yield from super().misfits(setting)
        if self.config.ramp_epochs and setting.training.steps is not None:
            yield Fault(
                "algorithm.params.ramp_epochs",
                f"it counts passes, and training.steps = {setting.training.steps} counts mini-batches",
                "give training.epochs instead, or leave it out",
            )
        elif self.config.ramp_epochs and setting.work_varies:
            problem = "it decides how many passes clients do, and so does participation.workload"
            yield Fault("algorithm.params.ramp_epochs", problem, "leave it out, or write workload = 'fixed'")
