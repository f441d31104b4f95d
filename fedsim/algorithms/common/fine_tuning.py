"""Fine-tuning after the last round, for any algorithm that ends with a model for each client to start from.

Every client trains it on its own samples (specification 5.A.4). How long is a setting, or its
own choice: after each of up to ten passes it measures the loss on its validation samples, and keeps the best,
the start included. Without validation samples it makes five passes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from fedsim.algorithms.base import Algorithm, C, Exchange, Exchanges, Predictor, Predictors, S
from fedsim.algorithms.common.validation_loss import validation_loss
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.config import Config
from fedsim.params import Model
from fedsim.ranges import Epochs
from fedsim.wire import ModelBroadcast

MOST_PASSES = 10
"""Passes at most, where each client chooses."""
PASSES_UNSEEN = 5
"""Passes of a client that has no validation samples to choose by."""


class TuningConfig(Config):
    """How long to fine-tune."""

    finetune_epochs: Epochs | None = None
    """Passes over the client's own samples; by default each client chooses from 0 to 10 by its validation
    loss, and makes 5 where it has no validation samples. The papers do not say. Where a client chooses, each
    pass begins with a new optimiser; a fixed number of passes is one training, whose momentum goes on."""


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
class Tuned:
    """A client after the end.

    Attributes:
        model: Its fine-tuned model; None before.
    """

    model: Model | None = None


class FineTuning(Algorithm[C, S, Any]):
    """Adds an exchange after the last round to an algorithm whose clients remember nothing.

    A class derives from this and from the algorithm, in this order; its config has ``finetune_epochs``.
    """

    tuned_label: ClassVar[str] = "untuned"
    """Under which name the model before fine-tuning is measured on clients' own samples."""

    @property
    def exchanges(self) -> Exchanges[S, Any]:
        """The algorithm's, and fine-tuning at the end."""
        finetune = Exchange(
            "finetune", instruct=self.instruct_finetune, local=self.local_finetune, when="closing", who="all"
        )
        return (*super().exchanges, finetune)  # type: ignore[safe-super]

    def join(self, client: ClientContext) -> Tuned:
        """Nothing is tuned yet."""
        return Tuned()

    @abstractmethod
    def model_for(self, server: ServerContext, state: S, client: int) -> Model:
        """Return what a client starts from."""

    async def instruct_finetune(
        self, server: ServerContext, state: S, cohort: Sequence[int]
    ) -> tuple[S, Mapping[int, ModelBroadcast]]:
        """Send every client the model that it is to make its own."""
        # By identity: a model for many is one message. Models are kept too, for an identity lasts no longer.
        made: dict[int, tuple[Model, ModelBroadcast]] = {}
        messages: dict[int, ModelBroadcast] = {}
        for client in cohort:
            model = self.model_for(server, state, client)
            if id(model) not in made:
                made[id(model)] = model, ModelBroadcast.of(model)
            messages[client] = made[id(model)][1]
        return state, messages

    async def local_finetune(
        self, client: ClientContext, state: Tuned, message: ModelBroadcast
    ) -> tuple[Tuned, None]:
        """Train it, and keep it."""
        config = cast(TuningConfig, self.config)
        return Tuned(await finetuned(client, message.model, config.finetune_epochs)), None

    async def models_of(self, observer: ClientContext, server_state: S, client_state: Tuned) -> Predictors:
        """Return what the algorithm returns and, after the end, the client's own model."""
        models = await super().models_of(observer, server_state, client_state)  # type: ignore[safe-super]
        if client_state.model is None:
            return models
        untuned = models.get("personal", models.get("global"))
        personal = {"personal": Predictor(client_state.model)}
        return {**models, **personal, **({} if untuned is None else {self.tuned_label: untuned})}
