"""L2SGD: clients train models of their own, which move towards their mean now and then, by chance.

In an iteration of the paper all clients, by a common draw, either take a step each or move towards the mean
of their models, ``w <- (1 - a) w + a mean``. A round is a run of steps and the run of moves after it, both of
geometric length. The server draws the number of steps, clients take them and upload; the server sends the
plain mean and draws the number of moves, and the clients in the mean move (specification 5.D.6). A move does
not change the mean, so M moves need one message: ``w <- (1 - a)^M w + (1 - (1 - a)^M) mean``. A client that
does not get the mean keeps its model.

Hanzely, Richtarik: Federated Learning of a Mixture of Global and Local Models, 2020 (arXiv 2002.05516),
algorithm 1, with gradients of mini-batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import Field

from fedsim.algorithms.base import About, Exchange, Exchanges, Replies, broadcast
from fedsim.algorithms.common.interpolation import between
from fedsim.algorithms.common.model_rounds import combined, mean_of_models
from fedsim.algorithms.common.training_rounds import OwnModelRounds
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.config import Config
from fedsim.params import Model
from fedsim.ranges import Share
from fedsim.wire import Message, ModelBroadcast, ModelUpdate, message


@message("moves")
class Moves(ModelBroadcast):
    """The mean of clients' models, and the number of moves towards it, at least one."""

    num_moves: int


@message("local_steps")
class LocalSteps(Message):
    """The number of mini-batches on which a client trains in a round, at least one."""

    num_steps: int


class L2SGDConfig(Config):
    """L2SGD's own parameters."""

    probability: Annotated[float, Field(ge=1e-4, lt=1)] = 0.1
    """Probability that an iteration is a move towards the mean. So a round has 1 / probability mini-batches
    on average, whatever `training` says of epochs or steps, and 1 / (1 - probability) moves."""
    pull: Share = 0.5
    """How far one move goes towards the mean, a; 0 is Local, 1 FedAvg. With the paper's step size eta it is
    eta * lam / (clients * probability), and the learning rate eta / (clients * (1 - probability))."""


class L2SGD(OwnModelRounds[L2SGDConfig, Model, Model]):
    """The server's state is the last mean, a client's is its own model."""

    about = About(
        kind="personal models",
        down="S, and two numbers",
        up="S",
        client="its own model",
        server="the last mean",
    )

    messages = (LocalSteps, Moves)
    own_aggregation = None
    work_is_given = "the server draws how many steps all clients take"

    @property
    def exchanges(self) -> Exchanges[Model, Model]:
        """Train, then move those whose models are in the mean."""
        move = Exchange("move", instruct=self.send_mean, local=self.move, who="answered")
        return (*super().exchanges, move)

    def start(self, server: ServerContext) -> Model:
        """Begin with the start values, the mean of all."""
        return server.initial_model()

    async def send(
        self, server: ServerContext, state: Model, cohort: Sequence[int]
    ) -> tuple[Model, Mapping[int, LocalSteps]]:
        """Draw the number of steps before the next move, the same for all."""
        num_steps = int(server.key.child("steps").numpy().geometric(self.config.probability))
        return state, broadcast(cohort, LocalSteps(num_steps))

    async def train(
        self, client: ClientContext, state: Model, message: LocalSteps
    ) -> tuple[Model, ModelUpdate]:
        """Take the steps, ``w <- w - lr g``, and upload."""
        model = (await client.fit(state, steps=message.num_steps)).model
        return model, ModelUpdate.of(model, num_samples=client.num_samples())

    async def merge(self, server: ServerContext, state: Model, replies: Replies[ModelUpdate]) -> Model:
        """Take the plain mean of the models that came."""
        return mean_of_models(combined(server, replies, state), "uniform")

    async def send_mean(
        self, server: ServerContext, state: Model, cohort: Sequence[int]
    ) -> tuple[Model, Mapping[int, Moves]]:
        """Draw the number of moves; send it and the mean to the clients whose models are in it."""
        num_moves = int(server.key.child("moves").numpy().geometric(1 - self.config.probability))
        return state, broadcast(cohort, Moves(state.architecture, state.params, state.buffers, num_moves))

    async def move(self, client: ClientContext, state: Model, message: Moves) -> tuple[Model, None]:
        """Move towards the mean, ``w <- (1 - a)^M w + (1 - (1 - a)^M) mean``."""
        strength = 1 - (1 - self.config.pull) ** message.num_moves
        return between(state, message.model, strength), None


PLUGIN = L2SGD
