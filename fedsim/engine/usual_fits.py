"""The usual fit: one model is trained on its client's own samples, as ``training`` says.

Most algorithms ask for nothing else, and every dispatch does. By default it descends on the loss. Fits that
differ in values, in their seeds and in whose samples they train on alone share all that is found out of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedsim.engine.cost import Costs, FitWork, extra_shape
from fedsim.engine.jobs import ClientSamples, Extra, Fit, PublicBuffers, Stream
from fedsim.engine.losses import MODEL, TRAIN
from fedsim.engine.optimisers import Optimiser, lasting
from fedsim.engine.steps import Descent, Step
from fedsim.engine.training_config import TrainingConfig
from fedsim.params import Model

DEFAULT_STEP = Descent()
"""Descent on the loss of the party's own samples."""

MOST_KINDS = 4096
"""Kinds of usual fits that are remembered at once."""

_TRAINED = (MODEL,)

_NO_EXTRAS: Mapping[str, Extra] = {}
_Kind = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class UsualFit:
    """What usual fits have in common.

    Attributes:
        work: The operations of the fits.
        optimisers: What applies gradients.
        batch_size: Samples of a full batch.
        public_buffers: As in :class:`fedsim.engine.jobs.Fit`.
        step: What a step does.
    """

    work: FitWork
    optimisers: Mapping[str, Optimiser]
    batch_size: int
    public_buffers: PublicBuffers
    step: Step

    def of(self, model: Model, client: int, seed: int, extras: Mapping[str, Extra] | None = None) -> Fit:
        """Return one of them.

        Args:
            model: Start values.
            client: Whose samples.
            seed: Of the fit's generators.
            extras: What else the step needs, of the same form for all.
        """
        return Fit(
            step=self.step,
            models={MODEL: model},
            trained=_TRAINED,
            streams={TRAIN: Stream(ClientSamples(client), self.batch_size)},
            optimisers=self.optimisers,
            num_steps=self.work.num_steps,
            seed=seed,
            extras=_NO_EXTRAS if extras is None else extras,
            public_buffers=self.public_buffers,
            like=self.work,
        )


class UsualFits:
    """Finds out what usual fits have in common.

    Args:
        costs: Counts what they come to.
    """

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._kinds: dict[_Kind, UsualFit] = {}

    def like(
        self,
        model: Model,
        client: int,
        num_samples: int,
        training: TrainingConfig,
        *,
        step: Step = DEFAULT_STEP,
        extras: Mapping[str, Extra] | None = None,
        epochs: int | None = None,
        steps: int | None = None,
        optimiser: Optimiser | None = None,
        public_buffers: PublicBuffers | None = None,
    ) -> UsualFit:
        """Return what a fit has in common with those that are like it; one object for all of them.

        Args:
            model: Start values.
            client: Whose samples.
            num_samples: How many training samples it has.
            training: How to train.
            step: What a step does.
            extras: What else it needs.
            epochs: Passes over the samples. Without ``epochs`` and ``steps``, the work of ``training``.
            steps: Mini-batches, instead of ``epochs``.
            optimiser: By default that of ``training``.
            public_buffers: By default as ``training`` says.
        """
        if epochs is None and steps is None:
            epochs, steps = training.epochs, training.steps
        batch_size = training.batch_size
        buffers = training.public_buffers if public_buffers is None else public_buffers
        chosen = training.make_optimiser() if optimiser is None else optimiser
        kind: _Kind = (model.architecture, num_samples, batch_size, epochs, steps, buffers, chosen)
        extras = _NO_EXTRAS if extras is None else extras
        if step is not DEFAULT_STEP or extras:
            kind += step, *[(name, extra.stream, extra_shape(extra)) for name, extra in extras.items()]
        if (known := self._kinds.get(kind)) is not None:
            return known
        streams = {TRAIN: Stream(ClientSamples(client), batch_size)}
        optimisers: Mapping[str, Optimiser] = {MODEL: chosen}
        work = self._costs.fit_work(
            step, {MODEL: model}, _TRAINED, streams, extras, {}, optimisers, buffers, epochs, steps
        )
        # A copy, which is theirs alone: what fits of other optimisers cost is the same, what they do not.
        work = FitWork(work.shape, work.passes, work.num_steps)
        if training.changes_by_step:
            optimisers = {MODEL: lasting(chosen, work.num_steps * getattr(step, "moves", 1))}
        if len(self._kinds) == MOST_KINDS:  # a scheduled rate is another in each round
            self._kinds.clear()
        self._kinds[kind] = usual = UsualFit(work, optimisers, batch_size, buffers, step)
        return usual
