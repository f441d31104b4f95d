"""MAPPER: each client mixes a model of its own with the global one, with the best weight of a few.

A client trains its own model once for each weight lam, on the loss of ``lam w_own + (1 - lam) w_global``, and
keeps the weight whose mixture has the least loss on its validation samples. Then it trains the global model
on the loss of that mixture, and sends it back; the server averages (specification 5.D.10). Parameters are
mixed, as FedMe describes it and as in the code of Ditto's authors. With ``mix = "outputs"`` a mixture gives
``lam h_own(x) + (1 - lam) h_global(x)``, as in the original (D-004-10); h(x) are logits, or the prediction of
a regression. Each net keeps its own running statistics, and while one trains, the other is in evaluation
mode.

Mansour, Mohri, Ro, Suresh: Three Approaches for Personalization with Applications to Federated Learning, 2020
(arXiv 2002.10619), section 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from torch import Tensor

from fedsim.algorithms.base import About, Predictor, Predictors
from fedsim.algorithms.common.fine_tuning import validation_loss
from fedsim.algorithms.common.interpolation import between, loss_between
from fedsim.algorithms.contexts import ClientContext
from fedsim.algorithms.fedavg import FedAvg, FedAvgConfig
from fedsim.config import Ascending, AsTuple
from fedsim.engine.jobs import Extra, Fitted
from fedsim.engine.losses import MODEL, TRAIN, Batches, Extras, Models, label_loss, serves_many
from fedsim.engine.steps import Descent
from fedsim.models import mixed
from fedsim.params import Model
from fedsim.ranges import Few, Share, Steps
from fedsim.wire import ModelBroadcast, ModelUpdate

Mix = Literal["params", "outputs"]


class MapperConfig(FedAvgConfig):
    """MAPPER's own parameters."""

    lambdas: Annotated[tuple[Share, ...], AsTuple, Few, Ascending] = (0.25, 0.5, 0.75)
    """Weights of a client's own model that it tries in each round, ascending (the public code's; the paper
    tries 0.1 to 0.9). (1.0,) is Local; with (0.0,) there is the global model alone."""
    global_steps: Steps | None = None
    """Mini-batches on which a client trains the global model in a round; by default as many as its own model
    (the public code: 1, with which the global model hardly moves beside several local steps)."""
    mix: Mix = "params"
    """What is mixed: the models' parameters (the public code), or their outputs (the paper)."""


@dataclass(frozen=True, slots=True)
class ClientState:
    """What a client keeps."""

    model: Model  # its own model
    lam: float  # what that weighs in its mixture

    def mixture(self, shared: Model, mix: Mix) -> Model:
        """Return ``lam w_own + (1 - lam) w_global``, or the model whose outputs are mixed like that."""
        if mix == "outputs" and 0 < self.lam < 1:
            return mixed(self.model, shared, self.lam)
        return between(shared, self.model, self.lam)


OTHER = "other"  # name of the model that stays, or of the extra with its parameters


@dataclass(frozen=True, slots=True)
class AtMixture:
    """The loss at a mixture of parameters; those of the other model are the extra ``other``."""

    share: float  # what the model that moves weighs in the mixture

    def __call__(self, models: Models, batches: Batches, extras: Extras) -> Tensor:
        """Return the loss."""
        return loss_between(models[MODEL], extras[OTHER], self.share, batches[TRAIN])


@dataclass(frozen=True, slots=True)
class OfMixedOutputs:
    """The loss of mixed outputs of the model and of ``other``, which is not trained."""

    share: float  # what the outputs of the model that moves weigh

    @serves_many
    def __call__(self, models: Models, batches: Batches, extras: Extras) -> Tensor:
        """Return the loss of ``share model(x) + (1 - share) other(x)``."""
        batch = batches[TRAIN]
        mixed = self.share * models[MODEL](batch.x) + (1 - self.share) * models[OTHER](batch.x)
        return label_loss(mixed, batch.labels)


class Mapper(FedAvg[MapperConfig]):
    """FedAvg of the global part of clients' mixtures."""

    about = About(
        kind="personal models", down="S", up="S", client="its own model and weight", server="the global model"
    )

    def join(self, client: ClientContext) -> ClientState:
        """Begin with the start values and the middle weight."""
        lambdas = self.config.lambdas
        return ClientState(client.initial_model(), lambdas[len(lambdas) // 2])

    async def train(
        self, client: ClientContext, state: ClientState, message: ModelBroadcast
    ) -> tuple[ClientState, ModelUpdate]:
        """Train the own model for each weight, keep the best; train the global model and send it."""
        shared, tried = message.model, list[tuple[ClientState, Fitted]]()
        for lam in self.config.lambdas:
            fitted = await self._fit(client, state.model, shared, lam, name="personal", keeps=False)
            tried.append((ClientState(fitted.model, lam), fitted))
        best = 0
        if len(tried) > 1:
            losses = [
                await validation_loss(client, mine.mixture(shared, self.config.mix)) for mine, _ in tried
            ]
            best = losses.index(min(losses))  # of equals the first
        own, kept = tried[best]
        client.keep("personal", kept)
        steps = self.config.global_steps
        fitted = await self._fit(client, shared, own.model, 1 - own.lam, steps=steps)
        return own, ModelUpdate.of(fitted.model, num_samples=client.num_samples())

    async def own_model(self, client: ClientContext, state: ClientState, message: ModelBroadcast) -> Model:
        """Return the client's mixture."""
        return state.mixture(message.model, self.config.mix)

    async def models_of(
        self, observer: ClientContext, server_state: Model, client_state: ClientState
    ) -> Predictors:
        """Return the client's mixture."""
        return {"personal": Predictor(client_state.mixture(server_state, self.config.mix))}

    async def _fit(
        self, client: ClientContext, model: Model, other: Model, share: float, **options: Any
    ) -> Fitted:
        """Train a model on the loss of its mixture with another, with weight ``share``."""
        if self.config.mix == "outputs":
            step, models = Descent(loss=OfMixedOutputs(share)), {MODEL: model, OTHER: other}
            return await client.fit(models, trained=(MODEL,), step=step, **options)
        step, extras = Descent(loss=AtMixture(share)), {OTHER: Extra(other.params)}
        return await client.fit(model, step=step, extras=extras, **options)


PLUGIN = Mapper
