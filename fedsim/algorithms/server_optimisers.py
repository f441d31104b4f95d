"""Server optimisers: the server takes the mean change of the clients' models as a gradient.

Clients train as in FedAvg. The server forms the mean change ``D = sum_k p_k (w_k - w)`` and gives it to an
optimiser of its own, which remembers moments of it (specification 5.B.4). Running statistics are averaged. A
client's change has the dtype of its model, as if the client had sent it; the mean, the moments and the step
are in float64, so that squares of large changes do not overflow.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from fedsim.algorithms.base import About, Replies
from fedsim.algorithms.common.model_rounds import ModelTraining, Weighting, combined, mean_weights
from fedsim.algorithms.contexts import ServerContext
from fedsim.config import Config
from fedsim.params import Array, Model, weighted_mean
from fedsim.ranges import LearningRate, Norm, PartialShare
from fedsim.wire import ModelUpdate


class ServerOptimiserConfig(Config):
    """Parameters of every server optimiser."""

    weighting: Weighting = "samples"
    """What a model weighs in the mean: its client's samples, or the same for all."""
    server_lr: LearningRate = 1.0
    """What the optimiser's step is multiplied by."""


@dataclass(frozen=True, slots=True)
class ServerState:
    """What the server holds."""

    model: Model  # the global model
    # By parameter, the optimiser's moments, arrays like it, float64.
    moments: Mapping[str, tuple[Array, ...]]


G = TypeVar("G", bound=ServerOptimiserConfig)


class ServerOptimisation(ModelTraining[G, ServerState]):
    """FedAvg with an optimiser at the server."""

    own_aggregation = None
    no_edges = None
    new_replies_only = "how the global model has moved since their dispatch would count as a change"

    @abstractmethod
    def initial_moments(self, like: Array) -> tuple[Array, ...]:
        """Return the moments of a parameter before the first step."""

    @abstractmethod
    def step(self, change: Array, *moments: Array) -> tuple[Array, ...]:
        """Return a parameter's step without the learning rate, then its new moments; float64."""

    def start(self, server: ServerContext) -> ServerState:
        """Begin with the start values of the server's architecture."""
        model = server.initial_model()
        moments = {name: self.initial_moments(array) for name, array in model.params.items()}
        return ServerState(model, moments)

    async def merge(
        self, server: ServerContext, state: ServerState, replies: Replies[ModelUpdate]
    ) -> ServerState:
        """Take a step: ``w <- w + server_lr * step(D)``."""
        model, replies = state.model, combined(server, replies, state.model)
        models = [reply.message.model for reply in replies]
        weights = mean_weights(replies, self.config.weighting)
        params, moments = dict[str, Array](), dict[str, tuple[Array, ...]]()
        for name, array in model.params.items():
            change = np.zeros(array.shape)
            for trained, weight in zip(models, weights, strict=True):
                change += np.multiply(trained.params[name] - array, weight, dtype=np.float64)
            step, *after = self.step(change, *state.moments[name])
            params[name] = np.asarray(array + self.config.server_lr * step, array.dtype)
            moments[name] = tuple(after)
        buffers = weighted_mean([trained.buffers for trained in models], weights)
        return ServerState(Model(model.architecture, params, buffers), moments)


class FedAvgMConfig(ServerOptimiserConfig):
    """FedAvgM's own parameters."""

    momentum: PartialShare = 0.9
    """How much of the velocity stays from round to round, beta (the paper tries 0 to 0.997)."""
    nesterov: bool = False
    """Move by ``D + beta u`` instead of u: Nesterov's momentum, which the paper uses."""


class FedAvgM(ServerOptimisation[FedAvgMConfig]):
    """FedAvgM: FedAvg with momentum at the server.

    The mean change D of the clients' models moves a velocity, ``u <- beta u + D``, and that moves the global
    model, ``w <- w + server_lr u``. Changes of earlier rounds so stand in for the clients that a round does
    not ask.

    Hsu, Qi, Brown: Measuring the Effects of Non-Identical Data Distribution for Federated Visual
    Classification, 2019 (arXiv 1909.06335), section 4.3.
    """

    about = About(kind="one global model", down="S", up="S", server="the global model and its velocity")

    def initial_moments(self, like: Array) -> tuple[Array, ...]:
        """Return a velocity of 0."""
        return (np.zeros(like.shape),)

    def step(self, change: Array, *moments: Array) -> tuple[Array, ...]:
        """Return how a parameter moves, and its new velocity."""
        momentum, (u,) = self.config.momentum, moments
        u = momentum * u + change
        return change + momentum * u if self.config.nesterov else u, u


class AdaptiveConfig(ServerOptimiserConfig):
    """Parameters of the adaptive optimisers."""

    server_lr: LearningRate = 0.1
    """What the optimiser's step is multiplied by (the paper tries 0.001 to 10)."""
    beta1: PartialShare = 0.9
    """Decay of the first moment (the paper: 0.9)."""
    epsilon: Norm = 1e-3
    """What is added to the root of the second moment, tau; that begins at its square (the paper: 0.001)."""


A = TypeVar("A", bound=AdaptiveConfig)


class AdaptiveOptimisation(ServerOptimisation[A]):
    """Steps ``u / (sqrt(v) + epsilon)`` without bias correction; a subclass computes v.

    The first moment is ``u <- beta1 u + (1 - beta1) D``, and the model moves by ``server_lr`` times the step.
    """

    @abstractmethod
    def second_moment(self, v: Array, squared: Array) -> Array:
        """Return the second moment after a change with these squares."""

    def initial_moments(self, like: Array) -> tuple[Array, ...]:
        """Return u = 0 and v = epsilon squared."""
        return np.zeros(like.shape), np.full(like.shape, self.config.epsilon**2)

    def step(self, change: Array, *moments: Array) -> tuple[Array, ...]:
        """Return a parameter's step and its new moments."""
        u, v = moments
        u = self.config.beta1 * u + (1 - self.config.beta1) * change
        v = self.second_moment(v, np.square(change))
        return u / (np.sqrt(v) + self.config.epsilon), u, v


class FedAdagradConfig(AdaptiveConfig):
    """FedAdagrad's own parameters."""

    beta1: PartialShare = 0.0
    """Decay of the first moment. The paper sets it to 0 for FedAdagrad, as Adagrad has no momentum; 0.9 is
    what it takes for FedAdam and FedYogi."""


class FedAdagrad(AdaptiveOptimisation[FedAdagradConfig]):
    """FedAdagrad: FedAvg whose server moves the global model as Adagrad would.

    The second moment is the sum of all squared mean changes, ``v <- v + D^2``, so the steps become shorter
    from round to round. By default, as in the paper's runs, the first moment is the change itself.

    Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar, McMahan: Adaptive Federated Optimization, ICLR 2021
    (arXiv 2003.00295), algorithm 2.
    """

    about = About(kind="one global model", down="S", up="S", server="the global model and two moments")

    def second_moment(self, v: Array, squared: Array) -> Array:
        """Return the sum of the squares."""
        return v + squared


class FedAdamConfig(AdaptiveConfig):
    """FedAdam's own parameters."""

    beta2: PartialShare = 0.99
    """Decay of the second moment (the paper: 0.99)."""


class FedAdam(AdaptiveOptimisation[FedAdamConfig]):
    """FedAdam: FedAvg whose server moves the global model as Adam would.

    The second moment is ``v <- beta2 v + (1 - beta2) D^2``.

    Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar, McMahan: Adaptive Federated Optimization, ICLR 2021
    (arXiv 2003.00295), algorithm 2.
    """

    about = About(kind="one global model", down="S", up="S", server="the global model and two moments")

    def second_moment(self, v: Array, squared: Array) -> Array:
        """Return a moving average of the squares."""
        return self.config.beta2 * v + (1 - self.config.beta2) * squared


class FedYogiConfig(AdaptiveConfig):
    """FedYogi's own parameters."""

    beta2: PartialShare = 0.99
    """One minus the length of the second moment's steps (the paper: 0.99)."""


class FedYogi(AdaptiveOptimisation[FedYogiConfig]):
    """FedYogi: FedAvg whose server moves the global model as Yogi would.

    As FedAdam, but the second moment moves towards the squares by a step that does not grow with their
    distance: ``v <- v - (1 - beta2) D^2 sign(v - D^2)``. So it falls slowly where changes become small, and
    the steps stay short.

    Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar, McMahan: Adaptive Federated Optimization, ICLR 2021
    (arXiv 2003.00295), algorithm 2.
    """

    about = About(kind="one global model", down="S", up="S", server="the global model and two moments")

    def second_moment(self, v: Array, squared: Array) -> Array:
        """Return the second moment, moved towards the squares."""
        moved: Array = v - (1 - self.config.beta2) * squared * np.sign(v - squared)
        return moved


PLUGINS = {"fedadagrad": FedAdagrad, "fedadam": FedAdam, "fedavgm": FedAvgM, "fedyogi": FedYogi}
