"""APFL: each client mixes a model of its own with the global one, and learns by how much.

In each step a client descends on the global model's loss, as in FedAvg. Then it descends on the loss of the
mixture ``alpha v + (1 - alpha) w``: by its own model v and, once a round or in every step, by alpha. Only w
travels (specification 5.D.11). The mixture is measured, with w as the client last trained it or with the
server's.

Deng, Kamani, Mahdavi: Adaptive Personalized Federated Learning, 2020 (arXiv 2003.13461), algorithm 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
import torch
from pydantic import model_validator
from torch import Tensor

from fedsim.algorithms.base import About, Predictor, Predictors
from fedsim.algorithms.common.interpolation import between, loss_between
from fedsim.algorithms.common.model_rounds import Weighting
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.algorithms.fedavg import FedAvg, FedAvgConfig
from fedsim.engine.losses import TRAIN, Batches, label_loss
from fedsim.engine.steps import Work
from fedsim.params import Model, Tree, selected
from fedsim.ranges import Coefficient, LearningRate, Share
from fedsim.wire import ModelBroadcast, ModelUpdate

SHARED, OWN, ALPHA, MAY_MOVE = "shared", "own", "alpha", "may_move"


class APFLConfig(FedAvgConfig):
    """APFL's own parameters."""

    weighting: Weighting = "uniform"
    """What a model weighs in the server's mean: the same for all (the paper), or its client's samples."""
    alpha: Share = 0.5
    """Share of a client's own model in its mixture, at first."""
    adapt: Literal["never", "round", "step"] = "round"
    """When alpha moves: never, in the first step of each round, as in public code, or in every step."""
    alpha_lr: LearningRate | None = None
    """Learning rate of alpha; that of the training's first step by default."""
    alpha_decay: Coefficient = 0.0
    """Factor of alpha in its own gradient (0.02 in the authors' code FedTorch)."""
    mix_with: Literal["client", "server"] = "client"
    """Which global model is in the mixture that is measured: as the client left it after its last training,
    or the server's."""

    @model_validator(mode="after")
    def _adapted(self) -> Self:
        if self.adapt == "never" and (self.alpha_lr is not None or self.alpha_decay):
            raise ValueError("alpha_lr and alpha_decay move alpha, and adapt = 'never': leave them out")
        return self


@dataclass(frozen=True, slots=True)
class ClientState:
    """What a client keeps."""

    model: Model  # its own model, v
    shared: Model  # the global model as it last trained it, w
    alpha: Tree  # its share of the own model, a scalar called alpha

    def mixture(self, shared: Model) -> Model:
        """Return ``alpha v + (1 - alpha) w``."""
        return between(shared, self.model, float(self.alpha[ALPHA]))


@dataclass(frozen=True, slots=True)
class Interpolated:
    """One step of the global model; then one of the own model and of alpha at the mixture."""

    adapt: Literal["never", "round", "step"]  # when alpha moves
    lr: float  # learning rate of alpha
    decay: float  # factor of alpha in its gradient

    def __call__(self, work: Work, batches: Batches) -> Tensor:
        """Move w, then v at ``alpha v + (1 - alpha) w``, and alpha by its gradient there."""
        batch, shared, own = batches[TRAIN], work.models[SHARED], work.models[OWN]
        loss = label_loss(shared(batch.x), batch.labels)
        work.move(SHARED, _slopes(loss, shared.params.values()))

        other = {name: param.detach() for name, param in shared.params.items()}
        alpha = work.outputs[ALPHA].detach().requires_grad_()
        mixed = loss_between(own, other, alpha, batch)
        *gradients, slope = _slopes(mixed, [*own.params.values(), alpha])
        work.move(OWN, gradients)
        if self.adapt != "never":
            with torch.no_grad():
                # Where models have diverged the slope may be no number; alpha stays one.
                move = self.lr * work.outputs[MAY_MOVE] * (slope + self.decay * alpha).nan_to_num()
                work.outputs[ALPHA] = (alpha - move).clamp(0, 1)
            if self.adapt == "round":
                work.outputs[MAY_MOVE] = torch.zeros_like(move)
        return (loss + mixed).detach()


def _slopes(loss: Tensor, by: Iterable[Tensor]) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(by), allow_unused=True, materialize_grads=True))


class APFL(FedAvg[APFLConfig]):
    """FedAvg beside clients' own models, each mixed with the global one."""

    about = About(
        kind="personal models",
        down="S",
        up="S",
        client="its own model, the global one as it trained it, alpha",
        server="the global model",
    )

    def join(self, client: ClientContext) -> ClientState:
        """Begin with the start values for both models."""
        model, alpha = client.initial_model(), np.array(self.config.alpha, np.float32)
        return ClientState(model, model, {ALPHA: alpha})

    async def train(
        self, client: ClientContext, state: ClientState, message: ModelBroadcast
    ) -> tuple[ClientState, ModelUpdate]:
        """Train the global model that came and the mixture with it; send the global one back."""
        config = self.config
        rate = client.training.lr if config.alpha_lr is None else config.alpha_lr
        fitted = await client.fit(
            {SHARED: message.model, OWN: state.model},
            step=Interpolated(config.adapt, rate, config.alpha_decay),
            outputs={ALPHA: state.alpha[ALPHA], MAY_MOVE: np.array(1, np.float32)},
        )
        shared = fitted.models[SHARED]
        state = ClientState(fitted.models[OWN], shared, selected(fitted.outputs, [ALPHA]))
        return state, ModelUpdate.of(shared, num_samples=client.num_samples())

    async def own_model(
        self, client: ClientContext, state: ClientState, message: ModelBroadcast | None
    ) -> Model:
        """Return the client's mixture."""
        return state.mixture(state.shared if message is None else message.model)

    async def send_last(
        self, server: ServerContext, state: Model, cohort: Sequence[int]
    ) -> tuple[Model, Mapping[int, ModelBroadcast | None]]:
        """Send the global model, if clients mix with the server's."""
        if self.config.mix_with == "server":
            return await self.send(server, state, cohort)
        return state, dict.fromkeys(cohort)

    async def models_of(
        self, observer: ClientContext, server_state: Model, client_state: ClientState
    ) -> Predictors:
        """Return the client's mixture."""
        shared = client_state.shared if self.config.mix_with == "client" else server_state
        return {"personal": Predictor(client_state.mixture(shared))}


PLUGIN = APFL
