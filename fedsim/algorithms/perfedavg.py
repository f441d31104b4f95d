"""Per-FedAvg: the global model is trained to be good after one step at each client (MAML).

The objective is the mean of ``F_k(w - alpha grad F_k(w))``. A local step looks ahead on one mini-batch,
``v = w - alpha grad l(w; b)``, and goes along ``g = grad l(v; b')`` of another one (FO, first order). HF adds
the part of the exact gradient with the Hessian, as a difference of two gradients on a third one,
``g - alpha (grad l(w + delta g; b'') - grad l(w - delta g; b'')) / (2 delta)`` (specification 5.D.1). A
client's own model, which is measured, is the global one after steps of size alpha on its training samples;
``gm`` is the global one, measured on the same clients.

Fallah, Mokhtari, Ozdaglar: Personalized Federated Learning with Theoretical Guarantees: A Model-Agnostic
Meta-Learning Approach, NeurIPS 2020 (arXiv 2002.07948), algorithm 1 and section 5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from fedsim.algorithms.base import About, Predictor, Predictors
from fedsim.algorithms.common.model_rounds import Weighting
from fedsim.algorithms.contexts import ClientContext
from fedsim.algorithms.fedavg import FedAvg, FedAvgConfig
from fedsim.engine.jobs import Stream
from fedsim.engine.losses import MODEL, TRAIN, Batch, Batches, LiveModel, label_loss
from fedsim.engine.optimisers import Sgd
from fedsim.engine.steps import Work
from fedsim.params import Model
from fedsim.ranges import Coefficient, LearningRate, Steps
from fedsim.wire import ModelBroadcast, ModelUpdate


class PerFedAvgConfig(FedAvgConfig):
    """Per-FedAvg's own parameters."""

    weighting: Weighting = "uniform"
    """What a model weighs in the mean: the same for all, as in the paper, or its client's samples."""
    variant: Literal["fo", "hf"] = "fo"
    """Whether local steps leave out the Hessian, or estimate what comes of it by two more gradients."""
    alpha: Coefficient = 0.01
    """Rate of the step ahead and of adaptation (the paper: 0.01; in PersFL's comparison 0.001 and 0.01)."""
    beta: LearningRate | None = None
    """Rate of local steps; that of the training by default (the paper: 0.001)."""
    delta: Annotated[float, Field(gt=0, le=1e3)] = 1e-3
    """How far the two gradients of `hf` are from the model, in units of g (the public code: 0.001)."""
    adapt_steps: Steps = 1
    """Steps by which a client's own model is adapted before it is measured."""

    @model_validator(mode="after")
    def _delta_of_hf(self) -> Self:
        if self.variant == "fo" and self.delta != type(self).model_fields["delta"].default:
            raise ValueError(f"delta = {self.delta} belongs to variant = 'hf': leave it out")
        return self


# Names of the streams of the first and the third mini-batch; the second is train.
AHEAD, CURVATURE = "ahead", "curvature"


@dataclass(frozen=True, slots=True)
class MetaDescent:
    """One step on the loss after a step ahead."""

    alpha: float  # rate of the step ahead
    delta: float | None  # distance of the two gradients that give the Hessian's part; None: without it

    def __call__(self, work: Work, batches: Batches) -> Tensor:
        """Move the model; return the loss after the step ahead."""
        model, alpha, delta = work.models[MODEL], self.alpha, self.delta
        _, here = _gradients(model, batches[AHEAD], model.params)
        # Running statistics follow the second mini-batch alone, as they follow the only one of FedAvg.
        ahead = _moved(model, here, -alpha)
        loss, gradients = _gradients(model, batches[TRAIN], ahead, moves_buffers=True)
        if delta is not None:
            (_, up), (_, down) = (
                _gradients(model, batches[CURVATURE], _moved(model, gradients, along))
                for along in (delta, -delta)
            )
            gradients = [
                gradient - alpha * (above - below) / (2 * delta)
                for gradient, above, below in zip(gradients, up, down, strict=True)
            ]
        work.move(MODEL, gradients)
        return loss


Params = Mapping[str, Tensor]


def _moved(model: LiveModel, direction: Sequence[Tensor], factor: float) -> Params:
    places = zip(model.params.items(), direction, strict=True)
    return {name: param.detach() + factor * along for (name, param), along in places}


def _gradients(
    model: LiveModel, batch: Batch, params: Params, *, moves_buffers: bool = False
) -> tuple[Tensor, list[Tensor]]:
    """Return the loss of a batch at some parameters, and its gradients there."""
    places = {name: param.detach().requires_grad_() for name, param in params.items()}
    loss = label_loss(model.at(places, moves_buffers=moves_buffers)(batch.x), batch.labels)
    return loss.detach(), list(torch.autograd.grad(loss, list(places.values())))


class PerFedAvg(FedAvg[PerFedAvgConfig]):
    """FedAvg with steps on the loss after adaptation."""

    about = About(kind="personal models", down="S", up="S", server="the global model")

    async def train(
        self, client: ClientContext, state: Any, message: ModelBroadcast
    ) -> tuple[Any, ModelUpdate]:
        """Train for the loss after a step ahead, on independent mini-batches."""
        config, training = self.config, client.training
        is_first_order = config.variant == "fo"
        names = (AHEAD, TRAIN) if is_first_order else (AHEAD, TRAIN, CURVATURE)
        fitted = await client.fit(
            message.model,
            step=MetaDescent(config.alpha, None if is_first_order else config.delta),
            streams={name: Stream(client.own("train"), training.batch_size) for name in names},
            optimiser=training.make_optimiser(config.beta),
        )
        return state, ModelUpdate.of(fitted.model, num_samples=client.num_samples())

    async def models_of(self, observer: ClientContext, server_state: Model, client_state: Any) -> Predictors:
        """Return the global model, also adapted to the client's training samples."""
        optimiser, steps = Sgd(self.config.alpha), self.config.adapt_steps
        adapted = await observer.fit(server_state, steps=steps, optimiser=optimiser, name="adapt")
        shared = Predictor(server_state)
        return {"personal": Predictor(adapted.model), "global": shared, "gm": shared}


PLUGIN = PerFedAvg
