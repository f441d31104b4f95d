"""Fine-tuning after the last round, for any algorithm that ends with a model for each client to start from.

Every client trains it on its own samples (specification 5.A.4), for a fixed number of passes or its own
choice: after each of up to ten passes it measures the loss on its validation samples, and keeps the best
model, the start included. Without validation samples it makes five passes. Other choices by validation use
the training samples there (specification 3.5, E11).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import wraps
from math import inf, isnan
from typing import Any, Literal, TypeAlias, cast

from fedsim.algorithms.base import Algorithm, C, Exchange, Exchanges, Local, Predictor, Predictors, S
from fedsim.algorithms.contexts import ClientContext
from fedsim.config import Config
from fedsim.data import Split
from fedsim.engine.kept_optimisers import Keeping
from fedsim.params import Model
from fedsim.ranges import Epochs

MAX_PASSES = 10  # passes at most, where each client chooses
PASSES_UNSEEN = 5  # passes of a client that has no validation samples to choose by

# How long to fine-tune: a number of passes, or as many as serve the client best.
Passes: TypeAlias = Epochs | Literal["chosen"]


class OptionalFineTuningConfig(Config):
    """Whether to fine-tune, and how long."""

    finetune_epochs: Passes | None = None
    """Passes over the client's own samples after the last round, on a copy of its model; `chosen`: from 0 to
    10, as its validation loss says. Left out, there is no fine-tuning."""

    @property
    def passes(self) -> Passes | None:
        """How long to fine-tune; None: not at all."""
        return self.finetune_epochs


class FineTuningConfig(OptionalFineTuningConfig):
    """How long to fine-tune."""

    finetune_epochs: Passes = "chosen"
    """Passes over the client's own samples; by default each client chooses from 0 to 10 by its validation
    loss, and makes 5 where it has no validation samples. The papers do not say. All passes are one training,
    whose optimiser goes on, whether their number is fixed or chosen."""


async def validation_loss(client: ClientContext, model: Model, split: Split = "val") -> float:
    """Return a model's mean loss on a client's split, or on its training samples if that is empty."""
    if not client.num_samples(split):
        client.warn("no validation samples", instead="training loss")
        split = "train"
    loss = (await client.evaluate(model, client.own(split))).loss
    return inf if isnan(loss) else loss


async def finetuned(client: ClientContext, model: Model, passes: Passes) -> Model:
    """Return a model trained on the client's own samples, for given passes or as many as serve it best."""
    if passes == "chosen" and not client.num_samples("val"):
        client.warn("no validation samples", instead=f"{PASSES_UNSEEN} passes of fine-tuning")
        passes = PASSES_UNSEEN
    if passes != "chosen":
        return (await client.fit(model, epochs=passes, name="finetune")).model if passes else model
    # Fits that keep what an optimiser remembers are done one by one, so only where there is anything.
    keeping = Keeping({}) if client.training.make_optimiser().start(()).slots else None
    best, least = model, await validation_loss(client, model)
    for number in range(MAX_PASSES):
        name = f"finetune {number}"
        model = (await client.fit(model, epochs=1, name=name, kept_as="finetune", keeping=keeping)).model
        loss = await validation_loss(client, model)
        if loss < least:
            best, least = model, loss
    return best


@dataclass(frozen=True, slots=True)
class Tuned:
    """What a client keeps once it has fine-tuned."""

    before: Any  # what the algorithm has it keep
    model: Model  # its fine-tuned model


def _untuned(local: Local) -> Local:
    """Return what does a client's work for a dispatch of the algorithm's; its fine-tuned model stays."""

    @wraps(local)
    async def on_untuned(client: ClientContext, state: Any, message: Any) -> tuple[Any, Any]:
        if not isinstance(state, Tuned):
            return await local(client, state, message)
        before, reply = await local(client, state.before, message)
        return replace(state, before=before), reply

    return on_untuned


class FineTuning(Algorithm[C, S, Any]):
    """Adds fine-tuning of :meth:`own_model` after the last round to any algorithm.

    A class derives from this and from the algorithm, in this order; its config derives from one of those
    here.
    """

    @property
    def exchanges(self) -> Exchanges[S, Any]:
        """The algorithm's, and fine-tuning at the end, if set."""
        exchanges = super().exchanges  # type: ignore[safe-super]
        if self._passes is None:
            return exchanges
        # The frame of an earlier dispatch may arrive after that of fine-tuning.
        others = [
            exchange if exchange.local is None else replace(exchange, local=_untuned(exchange.local))
            for exchange in exchanges
        ]
        finetune = Exchange(
            "finetune", instruct=self.send_last, local=self.local_finetune, when="closing", who="all"
        )
        return (*others, finetune)

    async def local_finetune(self, client: ClientContext, state: Any, message: Any) -> tuple[Tuned, None]:
        """Train the client's own model; keep the result beside the algorithm's state."""
        start = await self.own_model(client, state, message)
        return Tuned(state, await finetuned(client, start, cast(Passes, self._passes))), None

    async def models_of(self, observer: ClientContext, server_state: S, client_state: Any) -> Predictors:
        """Return the algorithm's models; after fine-tuning also the tuned and the untuned one."""
        is_tuned = isinstance(client_state, Tuned)
        before = client_state.before if is_tuned else client_state
        models = await super().models_of(observer, server_state, before)
        if not is_tuned:
            return models
        untuned = models.get("personal") or models["global"]
        return {**models, "personal": Predictor(client_state.model), "untuned": untuned}

    @property
    def _passes(self) -> Passes | None:
        return cast(OptionalFineTuningConfig, self.config).passes
