"""Fine-tuning after the last round, for any algorithm that ends with a model for each client to start from.

Every client trains it on its own samples (specification 5.A.4). How long is a setting, or its
own choice: after each of up to ten passes it measures the loss on its validation samples, and keeps the best,
the start included. Without validation samples it makes five passes. Other choices by validation fall back on
the training samples there (specification 3.5, E11).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isnan
from typing import Any, cast

from fedsim.algorithms.base import C, Exchange, Exchanges, Predictor, Predictors, S
from fedsim.algorithms.common.model_rounds import ModelTraining
from fedsim.algorithms.contexts import ClientContext
from fedsim.config import Config
from fedsim.data import Split
from fedsim.params import Model
from fedsim.ranges import Epochs
from fedsim.wire import ModelBroadcast

MOST_PASSES = 10
"""Passes at most, where each client chooses."""
PASSES_UNSEEN = 5
"""Passes of a client that has no validation samples to choose by."""


class FineTuningConfig(Config):
    """How long to fine-tune."""

    finetune_epochs: Epochs | None = None
    """Passes over the client's own samples; by default each client chooses from 0 to 10 by its validation
    loss, and makes 5 where it has no validation samples. The papers do not say. Where a client chooses, each
    pass begins with a new optimiser; a fixed number of passes is one training, whose momentum goes on."""


async def validation_loss(client: ClientContext, model: Model, split: Split = "val") -> float:
    """Return a model's mean loss on the client's validation samples; infinite where it is no number.

    Without validation samples it is the loss on the training samples, with a warning (specification 3.5,
    E11). Takes the client's time. Another ``split`` measures on that instead.
    """
    if not client.num_samples(split):
        client.warn("no validation samples", instead="training loss")
        split = "train"
    loss = (await client.evaluate(model, client.own(split))).loss
    return inf if isnan(loss) else loss


async def finetuned(client: ClientContext, model: Model, passes: int | None) -> Model:
    """Return a model trained on the client's own samples, for so many passes or as many as serve it best."""
    if passes is None and not client.num_samples("val"):
        client.warn("no validation samples", instead=f"{PASSES_UNSEEN} passes of fine-tuning")
        passes = PASSES_UNSEEN
    if passes is not None:
        return (await client.fit(model, epochs=passes, name="finetune")).model if passes else model
    best, least = model, await validation_loss(client, model)
    for number in range(MOST_PASSES):
        model = (await client.fit(model, epochs=1, name=f"finetune {number}")).model
        loss = await validation_loss(client, model)
        if loss < least:
            best, least = model, loss
    return best


@dataclass(frozen=True, slots=True)
class ClientState:
    """What a client keeps.

    Attributes:
        tuned: Its fine-tuned model; None before the end.
    """

    tuned: Model | None = None


class FineTuning(ModelTraining[C, S]):
    """Adds an exchange after the last round to an algorithm whose clients keep nothing.

    A class derives from this and from the algorithm, in this order; its config has ``finetune_epochs``.
    """

    @property
    def exchanges(self) -> Exchanges[S, Any]:
        """The algorithm's, and fine-tuning at the end."""
        finetune = Exchange(
            "finetune", instruct=self.send, local=self.local_finetune, when="closing", who="all"
        )
        return (*super().exchanges, finetune)

    def join(self, client: ClientContext) -> ClientState:
        """Nothing is tuned yet."""
        return ClientState()

    async def local_finetune(
        self, client: ClientContext, state: ClientState, message: ModelBroadcast
    ) -> tuple[ClientState, None]:
        """Train the model that came, and keep it."""
        epochs = cast(FineTuningConfig, self.config).finetune_epochs
        return ClientState(await finetuned(client, message.model, epochs)), None

    async def models_of(
        self, observer: ClientContext, server_state: S, client_state: ClientState
    ) -> Predictors:
        """Return what the algorithm returns and, after the end, the client's own model."""
        models = await super().models_of(observer, server_state, client_state)  # type: ignore[safe-super]
        return with_tuned(models, client_state)


def with_tuned(models: Predictors, state: ClientState) -> Predictors:
    """Return the models of an algorithm and, after fine-tuning, the client's own and the one before it."""
    if state.tuned is None:
        return models
    untuned = models.get("personal") or models["global"]
    return {**models, "personal": Predictor(state.tuned), "untuned": untuned}
