"""The usual fit: one model descends on the loss of its client's own samples, as ``training`` says.

Most algorithms ask for nothing else, and every dispatch does. Fits that differ in values, in their seeds and
in whose samples they train on alone share all that is found out of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from fedsim.engine.cost import Costs, FitWork
from fedsim.engine.jobs import ClientSamples, Fit, PublicBuffers, Stream
from fedsim.engine.losses import MODEL, TRAIN
from fedsim.engine.optimisers import Optimiser, lasting
from fedsim.engine.steps import Descent
from fedsim.engine.training_config import TrainingConfig
from fedsim.params import Model

DEFAULT_STEP = Descent()
"""Descent on the loss of the party's own samples."""

MOST_KINDS = 4096
"""Kinds of usual fits that are remembered at once."""

_TRAINED = (MODEL,)

_Kind = tuple[str, int, int, int | None, int | None, PublicBuffers, Optimiser]


class UsualFits:
    """Makes usual fits.

    Args:
        costs: Counts what they come to.
    """

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._kinds: dict[_Kind, tuple[FitWork, Mapping[str, Optimiser]]] = {}

    def make(
        self,
        model: Model,
        client: int,
        num_samples: int,
        training: TrainingConfig,
        seed: int,
        *,
        epochs: int | None = None,
        steps: int | None = None,
        optimiser: Optimiser | None = None,
        public_buffers: PublicBuffers | None = None,
    ) -> tuple[Fit, FitWork]:
        """Return a fit, and what it has in common with those that are like it.

        Args:
            model: Start values.
            client: Whose samples.
            num_samples: How many training samples it has.
            training: How to train.
            seed: Of the fit's generators.
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
        kind = model.architecture, num_samples, batch_size, epochs, steps, buffers, chosen
        models, streams = {MODEL: model}, {TRAIN: Stream(ClientSamples(client), batch_size)}
        known = self._kinds.get(kind)
        if known is None:
            optimisers: Mapping[str, Optimiser] = {MODEL: chosen}
            work = self._costs.fit_work(
                DEFAULT_STEP, models, _TRAINED, streams, {}, {}, optimisers, buffers, epochs, steps
            )
            # A copy, which is theirs alone: what fits of other optimisers cost is the same, what they do not.
            work = FitWork(work.shape, work.passes, work.num_steps)
            if training.changes_by_step:
                optimisers = {MODEL: lasting(chosen, work.num_steps)}
            if len(self._kinds) == MOST_KINDS:  # a scheduled rate is another in each round
                self._kinds.clear()
            known = self._kinds[kind] = work, optimisers
        work, optimisers = known
        fit = Fit(
            step=DEFAULT_STEP,
            models=models,
            trained=_TRAINED,
            streams=streams,
            optimisers=optimisers,
            num_steps=work.num_steps,
            seed=seed,
            public_buffers=buffers,
            like=work,
        )
        return fit, work
