"""PersFL: each client picks its best teacher among the global models and distils it on its own samples.

Stage 1 is FedAvg. A client measures every global model that it receives on its validation samples, before it
trains, and keeps the best as its teacher. After the last round the final model is sent to all clients and
measured too. Stage 2 sends nothing: for every pair of a grid of imitation weights and temperatures a student
starts from the teacher and learns from labels and from the teacher's softened predictions. The student with
the smallest validation loss is the client's own model (specification 5.E.6).

Divi, Farrukh, Celik: Unifying Distillation with Personalization in Federated Learning, 2021 (arXiv
2105.15191).

Decisions: KL(teacher || student), mean over the batch, by default (D-002-03); the teacher is chosen by loss
(D-002-06), the student by validation cross-entropy (D-002-09); the grid is that implied by the paper's table
5 (D-002-05); the paper gives no passes of the distillation (D-002-15). Teachers are the models of rounds 1 to
T; the initial model is none, even if it is sent again because no round has merged anything.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from math import inf
from typing import Annotated, Any, Literal, TypeVar

import torch.nn.functional as F  # noqa: N812 - the name that everyone knows
from torch import Tensor

from fedsim.algorithms.base import About, Exchange, Exchanges, Predictor, Predictors
from fedsim.algorithms.common.distillation import divergences
from fedsim.algorithms.common.fine_tuning import validation_loss
from fedsim.algorithms.common.model_check import same
from fedsim.algorithms.contexts import ClientContext
from fedsim.algorithms.fedavg import FedAvg, FedAvgConfig
from fedsim.config import Ascending, AsTuple
from fedsim.engine.jobs import per_sample
from fedsim.engine.losses import (
    MODEL,
    TEACHER,
    TRAIN,
    Batches,
    Extras,
    Models,
    each,
    empirical_loss,
    label_loss,
    serves_many,
)
from fedsim.engine.steps import Descent
from fedsim.params import Model
from fedsim.ranges import Epochs, Few, LearningRate, Share, Temperature
from fedsim.wire import ModelBroadcast, ModelUpdate

# Imitation weight and temperature of a client that has no validation samples to choose by.
UNSEEN = (0.5, 5.0)

Soft = Literal["forward", "reverse", "cross_entropy"]

TEMPERATURES = (1.0, 5.0, 9.0, 13.0, 17.0, 21.0, 25.0)


class DistillingConfig(FedAvgConfig):
    """Parameters of PersFL and PersFL-GD."""

    lambdas: Annotated[tuple[Share, ...], AsTuple, Few, Ascending] = (0.0, 0.25, 0.5, 0.75, 1.0)
    """Weights of the teacher's predictions against the labels that each client tries, ascending; 0 is
    fine-tuning (inferred from the paper's table 5)."""
    temperatures: Annotated[tuple[Temperature, ...], AsTuple, Few, Ascending] = TEMPERATURES
    """Temperatures that each client tries with each weight above 0, ascending (inferred likewise)."""
    distill_epochs: Epochs = 20
    """Passes over the client's own samples for each pair (not given in the paper)."""
    distill_lr: LearningRate | None = None
    """Learning rate of the distillation; that of the training by default (not given in the paper)."""
    teacher: Literal["best", "final"] = "best"
    """Who teaches a client: the global model with its smallest validation loss, or the last one, as in the
    column FedAvg of the paper's table 4."""


class PersFLConfig(DistillingConfig):
    """PersFL's own parameters."""

    kl_direction: Literal["forward", "reverse"] = "forward"
    """KL(teacher || student), as in the paper's algorithm 1, or the reverse, as in its equation 3."""
    kl_reduction: Literal["batch", "mean"] = "batch"
    """Sum over classes and mean over the batch; or mean over both, the default of torch's `kl_div`. With the
    order of algorithm 1 that reading would explain table 6, where PersFL and PersFL-GD differ."""


@dataclass(frozen=True, slots=True)
class Imitating:
    """The loss ``(1 - weight) CE + weight * temperature^2 * soft`` of a student."""

    weight: float  # imitation weight
    temperature: float  # what both models' logits are divided by
    # KL(teacher || student), KL(student || teacher), or the cross-entropy, with the gradient of the first.
    soft: Soft = "forward"
    per_class: bool = False  # take the mean over classes, not the sum

    @property
    def counted_as(self) -> Imitating:
        """A loss with the same cost, one for the whole grid."""
        return replace(self, weight=0.5, temperature=2.0)

    @serves_many
    def __call__(self, models: Models, batches: Batches, extras: Extras) -> Tensor:
        """Return the loss."""
        batch = batches[TRAIN]
        logits = models[MODEL](batch.x)
        hard = label_loss(logits, batch.labels)
        temperature = each(self.temperature, logits)
        student = F.log_softmax(logits / temperature, dim=-1)
        teacher = F.log_softmax(extras[TEACHER] / temperature, dim=-1)
        soft = self._soft(teacher, student).mean(-1)
        if self.per_class:
            soft = soft / logits.shape[-1]
        return each(1 - self.weight, hard) * hard + each(self.weight * self.temperature**2, soft) * soft

    def _soft(self, teacher: Tensor, student: Tensor) -> Tensor:
        """Return each row's term ``[b]`` for logarithms of probabilities."""
        if self.soft == "forward":
            return divergences(teacher.exp(), student, teacher)
        if self.soft == "reverse":
            return divergences(student.exp(), teacher, student)
        return -(teacher.exp() * student).sum(dim=-1)


@dataclass(frozen=True, slots=True)
class ClientState:
    """What a client keeps."""

    teacher: Model | None = None  # the best global model so far; None before one was measured
    loss: float = inf  # its validation loss, nat
    teacher_round: int | None = None  # the last round that had ended when it came, from 1 to T
    personal: Model | None = None  # the client's own model; None before the end
    pair: tuple[float, float] | None = None  # imitation weight and temperature of its training


G = TypeVar("G", bound=DistillingConfig)


class Distilling(FedAvg[G]):
    """FedAvg, then distillation from each client's best teacher; a subclass gives the loss."""

    needs_classes = True

    @abstractmethod
    def loss(self, weight: float, temperature: float) -> Imitating:
        """Return the loss of one pair of the grid."""

    @property
    def exchanges(self) -> Exchanges[Model, Any]:
        """FedAvg's, and the final model to all clients."""
        distil = Exchange("distil", instruct=self.send, local=self.local_distil, when="closing", who="all")
        return (*super().exchanges, distil)

    @property
    def grid(self) -> tuple[tuple[float, float], ...]:
        """The pairs of weight and temperature, in the order of trials."""
        return tuple(
            (weight, temperature)
            for weight in self.config.lambdas
            for temperature in (self.config.temperatures if weight else (1.0,))
        )

    def join(self, client: ClientContext) -> Any:
        """Begin without a teacher."""
        return ClientState()

    async def train(
        self, client: ClientContext, state: Any, message: ModelBroadcast
    ) -> tuple[Any, ModelUpdate]:
        """Measure the global model as a teacher, then train it as FedAvg does."""
        # In the first round it is the initial model.
        if self.config.teacher == "best" and client.round > 1 and client.num_samples("val"):
            state = await considered(client, state, message.model)
        return await super().train(client, state, message)

    async def local_distil(
        self, client: ClientContext, state: ClientState, message: ModelBroadcast
    ) -> tuple[ClientState, None]:
        """Choose the teacher, train a student for each pair of the grid, keep the best."""
        unseen = not client.num_samples("val")
        if unseen:
            client.warn("no validation samples", instead="final model as teacher, weight 0.5, temperature 5")
        if unseen or self.config.teacher == "final":
            state = ClientState()
        if not unseen:
            state = await considered(client, state, message.model)
        teacher = state.teacher
        if teacher is None:  # not measured, or no loss was a number, or no round has merged anything
            teacher = message.model
            state = ClientState(teacher, state.loss, client.round - 1)
        # The teacher predicts the client's training samples once, for all students.
        extras = {TEACHER: per_sample(await client.predict(teacher, client.own("train")), TRAIN)}
        best, least, chosen = teacher, None, UNSEEN
        for pair in (UNSEEN,) if unseen else self.grid:
            weight, temperature = pair
            fitted = await client.fit(
                teacher,
                # With weight 0 the teacher plays no part, whatever the temperature.
                step=Descent(loss=self.loss(weight, temperature) if weight else empirical_loss),
                extras=extras,
                optimiser=client.training.make_optimiser(self.config.distill_lr),
                epochs=self.config.distill_epochs,
                name=f"distil {weight:g} {temperature:g}",
            )
            loss = inf if unseen else await validation_loss(client, fitted.model)
            if least is None or loss < least:  # of equals the first
                best, least, chosen = fitted.model, loss, pair
        weight, temperature = chosen
        client.note(
            "student chosen", teacher_round=state.teacher_round, weight=weight, temperature=temperature
        )
        return replace(state, personal=best, pair=chosen), None

    async def models_of(self, observer: ClientContext, server_state: Model, client_state: Any) -> Predictors:
        """Return the global model; after the end also the client's own and its teacher."""
        models = dict(await super().models_of(observer, server_state, client_state))
        if client_state.personal is not None:
            models["personal"] = Predictor(client_state.personal)
            models["teacher"] = Predictor(client_state.teacher)
        return models


async def considered(client: ClientContext, state: ClientState, model: Model) -> ClientState:
    """Return the state with a model as teacher, if its validation loss is lower than the teacher's."""
    # A model's values are looked at only once it is measured as better; the initial one is no round's result.
    loss = await validation_loss(client, model)
    if loss < state.loss and not same(model, client.initial_model()):
        return ClientState(model, loss, client.round - 1)
    return state


class PersFL(Distilling[PersFLConfig]):
    """Distillation by KL divergence."""

    about = About(
        kind="personal models",
        down="S, and once more after the last round",
        up="S",
        client="its best teacher, then its student",
        server="the global model",
    )

    def loss(self, weight: float, temperature: float) -> Imitating:
        """Return the loss with the KL divergence of the settings."""
        return Imitating(weight, temperature, self.config.kl_direction, self.config.kl_reduction == "mean")


PLUGIN = PersFL
