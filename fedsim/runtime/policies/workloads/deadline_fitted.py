"""Each dispatch is the largest work whose reply arrives by a deadline (TimelyFL).

Zhang et al.: TimelyFL: Heterogeneity-aware Asynchronous Federated Learning with Adaptive Partial Training,
2023 (arXiv 2304.06947). There work is counted in epochs, here in mini-batches, so that it need not be whole
epochs. A client that cannot do one epoch trains a part of the model there; here it does as many mini-batches
as it can, at least ``min_steps``, with which it may be late. Faults are surprises: clients predict without
them, so one whose device is slow (``[[faults]]``) may be late too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from fedsim.config import Config
from fedsim.engine.training_config import TrainingConfig
from fedsim.errors import Fault
from fedsim.runtime.policies.workloads.base import Soonest, Work, Workload
from fedsim.units import PositiveSeconds, format_quantity

ROUNDING_S = 1e-9
"""Virtual time is in whole nanoseconds."""


class DeadlineFittedConfig(Config):
    """What the work has to fit into."""

    deadline: PositiveSeconds = Field(examples=['"30 s"'])
    """Time from the dispatch by which the reply is to arrive, as its client predicts it, without faults."""
    min_steps: Annotated[int, Field(ge=1, le=10**6)] = 1
    """Mini-batches that a client does in any case; never more than `training` says."""


class DeadlineFitted(Workload[DeadlineFittedConfig]):
    """As much as fits into a deadline."""

    async def training(self, work: Work) -> TrainingConfig:
        """Return the training as it is if it fits, else with the most mini-batches that do."""
        usual = work.usual_steps
        least = min(self.config.min_steps, usual)
        if least == usual or await self._fits(work, work.training):
            return work.training
        # It fits with at least `least`, if with any, and not with `most`.
        most = usual
        if await self._fits(work, _with_steps(work, least)):
            while most - least > 1:
                middle = (least + most) // 2
                if await self._fits(work, _with_steps(work, middle)):
                    least = middle
                else:
                    most = middle
        return _with_steps(work, least)

    async def _fits(self, work: Work, training: TrainingConfig) -> bool:
        return await work.reply_after_s(training) < self.config.deadline + ROUNDING_S

    @property
    def reply_by_s(self) -> float:
        """The deadline."""
        return self.config.deadline

    def misfits(self, training: TrainingConfig, soonest: Soonest) -> Iterator[Fault]:
        """Refuse a deadline by which nobody can reply, however little is done."""
        deadline_s, steps, least_s = self.config.deadline, self.config.min_steps, None
        for needed_s in soonest(steps):
            if needed_s <= deadline_s:
                return
            least_s = needed_s if least_s is None else min(least_s, needed_s)
        if least_s is not None:
            deadline, needed = (format_quantity(time_s, "time") for time_s in (deadline_s, least_s))
            yield Fault(
                "participation.workload.params.deadline",
                f"no client can do min_steps = {steps} and reply in {deadline}: the soonest reply would come "
                f"after {needed}, were its frames empty",
                "give a longer deadline, smaller batches, a smaller model or faster devices",
            )


def _with_steps(work: Work, steps: int) -> TrainingConfig:
    return work.training.model_copy(update={"epochs": None, "steps": steps})


PLUGIN = DeadlineFitted
