"""pFedMe: every client has a model of its own, tied to the global one by a squared distance.

The global objective is the mean of the clients' Moreau envelopes,
``min over t of F_k(t) + lam / 2 ||t - w||^2``. On each mini-batch a client brings its personal model t near
that minimum by a few steps of rate ``training.lr``, and then moves its copy of the global model along the
envelope's gradient, ``w_k <- w_k - eta lam (w_k - t)``. It sends w_k and keeps t (specification 5.D.2).
``gm`` is the global model, measured on the clients' own samples.

Both models take plain gradient steps, as in the algorithm: ``training.momentum`` has no effect, and Adam is
refused. ``training.weight_decay`` is a part of F_k, as in the authors' code.

Dinh, Tran, Nguyen: Personalized Federated Learning with Moreau Envelopes, NeurIPS 2020 (arXiv 2006.08848),
algorithm 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, Self, cast

import torch
from pydantic import Field, model_validator
from torch import Tensor

from fedsim.algorithms.base import About, Exchange, Exchanges, Predictor, Predictors, Replies, Setting
from fedsim.algorithms.common.model_rounds import Weighting
from fedsim.algorithms.common.tree_arithmetic import combination
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.algorithms.fedavg import FedAvg, FedAvgConfig
from fedsim.engine.losses import TRAIN, Batches, label_loss
from fedsim.engine.optimisers import Sgd
from fedsim.engine.steps import Work
from fedsim.errors import Fault
from fedsim.params import Model
from fedsim.ranges import Coefficient, LearningRate
from fedsim.wire import ModelBroadcast, ModelUpdate

PERSONAL, SHARED = "personal", "shared"  # names of a client's two models in a job: t and w_k


class PFedMeConfig(FedAvgConfig):
    """pFedMe's own parameters; its personal rate, eta_p, and R mini-batches are those of the training."""

    weighting: Weighting = "samples"
    """What a model weighs: its client's samples (the public code), or the same for all (the paper)."""
    lam: Coefficient = 15.0
    """Weight of the distance between a personal model and the global one (the paper: 15)."""
    eta: LearningRate | None = None
    """Rate of a client's copy of the global model; eta * lam is at most 1. The lesser of `training.lr` and
    1 / lam by default (the public code: 0.005, for 800 rounds)."""
    inner_steps: Annotated[int, Field(ge=1, le=10_000)] = 5
    """Steps of the personal model on each mini-batch, K (the paper: 5)."""
    beta: LearningRate = 1.0
    """How far the server goes towards the mean of what came, perhaps beyond (the paper: 1, tuned 2)."""
    all_train: bool = False
    """Send every client the model and let it train, and ask the cohort alone for the result, as in the paper;
    else only the cohort trains. A round then waits for all clients, or for its deadline, and a client of the
    cohort that has not trained by then sends nothing."""

    @model_validator(mode="after")
    def _no_overshooting(self) -> Self:
        # 1 / lam, rounded as the advice has it, is no overshooting.
        if self.eta is not None and self.eta * self.lam > 1 + 1e-5:
            raise ValueError(
                f"eta * lam = {self.eta * self.lam:g} carries the copy of the global model beyond the "
                f"personal one: lower eta to {1 / self.lam:g} or less"
            )
        return self


@dataclass(frozen=True, slots=True)
class ClientState:
    """What a client keeps."""

    personal: Model | None = None  # its own model, t; None before it has trained by a step
    shared: Model | None = None  # with all_train its copy of the global model, w_k, until it is asked for it
    round: int = 0  # the round in which that was trained


@dataclass(frozen=True, slots=True)
class EnvelopeDescent:
    """One step on the Moreau envelope of a mini-batch's loss."""

    lam: float  # weight of the squared distance
    inner_steps: int  # steps of the personal model towards the envelope's minimum

    @property
    def moves(self) -> int:
        """Moves of the personal model in a step."""
        return self.inner_steps

    def __call__(self, work: Work, batches: Batches) -> Tensor:
        """Move the personal model, then the shared one; return the loss before the last inner step."""
        personal, batch = work.models[PERSONAL], batches[TRAIN]
        inner, outer = list(personal.params.values()), list(work.models[SHARED].params.values())
        for _ in range(self.inner_steps):
            loss = label_loss(personal(batch.x), batch.labels)
            gradients = torch.autograd.grad(loss, inner)
            with torch.no_grad():
                pulled = [
                    gradient + self.lam * (own - shared)
                    for gradient, own, shared in zip(gradients, inner, outer, strict=True)
                ]
            work.move(PERSONAL, pulled)
        with torch.no_grad():
            along = [self.lam * (shared - own) for own, shared in zip(inner, outer, strict=True)]
        work.move(SHARED, along)
        return loss.detach()


class PFedMe(FedAvg[PFedMeConfig]):
    """Personal models beside the global one."""

    about = About(kind="personal models", down="S", up="S", client="its model", server="the global model")
    own_aggregation = None
    no_edges = None

    def start(self, server: ServerContext) -> Model:
        """Begin with the start values; warn of momentum, which no step has."""
        if server.training.momentum:
            server.warn("pFedMe takes steps without momentum", momentum=server.training.momentum, instead=0.0)
        return super().start(server)

    @property
    def exchanges(self) -> Exchanges[Model, ClientState]:
        """Training by the cohort; or by all, and then the cohort's replies."""
        if not self.config.all_train:
            return super().exchanges
        learn = Exchange("train", instruct=self.send, local=self.learn, who="all")
        return (learn, Exchange("collect", local=self.upload, merge=self.merge, reply=ModelUpdate))

    def join(self, client: ClientContext) -> ClientState:
        """Begin without a model."""
        return ClientState()

    async def learn(
        self, client: ClientContext, state: ClientState, message: ModelBroadcast
    ) -> tuple[ClientState, None]:
        """Train both models from the global one."""
        start, config, lr = message.model, self.config, client.training.lr
        eta = config.eta
        if eta is None:
            eta = min(lr, 1 / config.lam) if config.lam else lr
        plain = client.training.model_copy(update={"momentum": 0.0})
        fitted = await client.fit(
            {PERSONAL: start, SHARED: start},
            step=EnvelopeDescent(config.lam, config.inner_steps),
            optimiser={PERSONAL: plain.make_optimiser(), SHARED: Sgd(eta)},
        )
        personal, shared = fitted.models[PERSONAL], fitted.models[SHARED]
        # The shared model computes nothing, so its running statistics are the personal one's.
        shared = replace(shared, buffers=personal.buffers)
        return ClientState(personal if fitted.num_steps else state.personal, shared, client.round), None

    async def upload(
        self, client: ClientContext, state: ClientState, message: None
    ) -> tuple[ClientState, Any]:
        """Send the copy of the global model; None, which is rejected, without one of this round."""
        shared = state.shared if state.round == client.round else None
        reply = None if shared is None else ModelUpdate.of(shared, num_samples=client.num_samples())
        return ClientState(state.personal), reply

    async def train(
        self, client: ClientContext, state: ClientState, message: ModelBroadcast
    ) -> tuple[ClientState, Any]:
        """Train both models from the global one, send one and keep the other."""
        state, _ = await self.learn(client, state, message)
        return await self.upload(client, state, None)

    async def merge(self, server: ServerContext, state: Model, replies: Replies[ModelUpdate]) -> Model:
        """``w <- (1 - beta) w + beta * mean``; buffers are averaged."""
        mean, beta = await super().merge(server, state, replies), self.config.beta
        return replace(mean, params=combination([state.params, mean.params], [1 - beta, beta]))

    def misfits(self, setting: Setting) -> Iterator[Fault]:
        """Refuse Adam, and a rate at which the pull to the global model makes inner steps diverge."""
        yield from super().misfits(setting)
        training = setting.training
        pull = self.config.lam + training.weight_decay
        if training.optimiser != "sgd":
            problem = f"{training.optimiser!r}: pFedMe's inner steps are plain gradient descent"
            yield Fault("training.optimiser", problem, "write 'sgd', and an lr for it")
        elif training.lr * pull >= 2:
            yield Fault(
                "training.lr",
                f"lr * (lam + weight_decay) = {training.lr * pull:g}: steps towards the global model diverge",
                f"lower it to less than {2 / pull:g}, or lower algorithm.params.lam",
            )

    async def own_model(
        self, client: ClientContext, state: ClientState, message: ModelBroadcast | None
    ) -> Model:
        """Return the client's own model, or else the last one received."""
        received = cast(Model, state.shared) if message is None else message.model
        return state.personal or received

    async def models_of(
        self, observer: ClientContext, server_state: Model, client_state: ClientState
    ) -> Predictors:
        """Return the client's own model, or else the global one; and the global one."""
        shared = Predictor(server_state)
        return {"personal": Predictor(client_state.personal or server_state), "global": shared, "gm": shared}


PLUGIN = PFedMe
