"""What usual fits have in common, remembered: one model is trained on its client's own samples.

Most algorithms ask for nothing else, and every dispatch does. Such a fit descends on the loss, as the
training's settings say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedsim.engine.cost import Costs, FitWork
from fedsim.engine.jobs import ClientSamples, Fit, PublicBuffers, Stream
from fedsim.engine.losses import MODEL, TRAIN
from fedsim.engine.optimisers import Optimiser, lasting
from fedsim.engine.steps import Descent
from fedsim.engine.training_config import TrainingConfig
from fedsim.params import Model

DEFAULT_STEP = Descent()
"""Descent on the loss of the party's own samples."""

MAX_KINDS = 4096
"""Kinds of fits that are remembered at once."""


@dataclass(frozen=True, slots=True)
class CachedFit:
    """What usual fits have in common that differ in values, in seeds and in whose samples they train on."""

    work: FitWork
    optimisers: Mapping[str, Optimiser]
    batch_size: int
    public_buffers: PublicBuffers

    def of(self, model: Model, client: int, seed: int) -> Fit:
        """Return the fit of a client, from these start values."""
        return Fit(
            step=DEFAULT_STEP,
            models={MODEL: model},
            trained=(MODEL,),
            streams={TRAIN: Stream(ClientSamples(client), self.batch_size)},
            optimisers=self.optimisers,
            num_steps=self.work.num_steps,
            seed=seed,
            public_buffers=self.public_buffers,
            like=self.work,
        )


class FitJobCache:
    """Finds what usual fits have in common."""

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._kinds: dict[tuple[Any, ...], CachedFit] = {}

    def like(
        self,
        model: Model,
        client: int,
        num_samples: int,
        training: TrainingConfig,
        *,
        epochs: int | None = None,
        steps: int | None = None,
        optimiser: Optimiser | None = None,
        public_buffers: PublicBuffers | None = None,
    ) -> CachedFit:
        """Return one object for all fits that are like this one; what is None is as ``training`` says."""
        if epochs is None and steps is None:
            epochs, steps = training.epochs, training.steps
        batch_size = training.batch_size
        buffers = training.public_buffers if public_buffers is None else public_buffers
        chosen = training.make_optimiser() if optimiser is None else optimiser
        kind = model.architecture, num_samples, batch_size, epochs, steps, buffers, chosen
        if (known := self._kinds.get(kind)) is not None:
            return known
        nothing = FitWork((), {}, 0)
        fit = CachedFit(nothing, {MODEL: chosen}, batch_size, buffers).of(model, client, 0)
        shared = self._costs.fit_work(fit, epochs, steps)
        # A copy, which is theirs alone: what fits of other optimisers cost is the same, what they do not.
        work = FitWork(shared.shape, shared.passes, shared.num_steps)
        if training.changes_by_step:
            chosen = lasting(chosen, work.num_steps)
        if len(self._kinds) == MAX_KINDS:  # a scheduled rate is another in each round
            self._kinds.clear()
        self._kinds[kind] = cached = CachedFit(work, {MODEL: chosen}, batch_size, buffers)
        return cached
