"""Workloads that do not look at time."""

from __future__ import annotations

from collections.abc import Iterator

from fedsim.config import Config
from fedsim.engine.training_config import TrainingConfig
from fedsim.errors import Fault
from fedsim.ranges import PositiveShare
from fedsim.runtime.policies.workloads.base import Soonest, Work, Workload


class Fixed(Workload[Config]):
    """Every dispatch is the work that [training] says."""


class VariableEpochsConfig(Config):
    """Which clients do less."""

    share: PositiveShare = 0.5
    """Probability that a client does a number of epochs from 1 to `training.epochs`, all equally likely; the
    others do them all."""


class VariableEpochs(Workload[VariableEpochsConfig]):
    """A share of the clients does fewer epochs, drawn anew for each dispatch (FedProx's stragglers).

    Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: Federated Optimization in Heterogeneous Networks, MLSys 2020
    (arXiv 1812.06127), section 5.2: 0 %, 50 % or 90 % of the devices of a round do a number of epochs that is
    uniform from 1 to E. The paper fixes how many they are; here each client draws for itself whether it is
    one.
    """

    async def training(self, work: Work) -> TrainingConfig:
        """Draw whether the client is one of them, and its epochs."""
        most = work.training.epochs
        if most is None or work.key.child("straggler").uniform() > self.config.share:
            return work.training
        epochs = int(work.key.child("epochs").numpy().integers(1, most, endpoint=True))
        return work.training.model_copy(update={"epochs": epochs})

    def misfits(self, training: TrainingConfig, soonest: Soonest) -> Iterator[Fault]:
        """Refuse a training in which there is nothing to draw from."""
        epochs, steps = training.epochs, training.steps
        if epochs is None or epochs < 2:
            given = f"epochs = {1 if epochs is None else epochs}" if steps is None else f"steps = {steps}"
            problem = f"it draws from 1 to training.epochs, and with {given} there is nothing to draw from"
            yield Fault("participation.workload", problem, "write training.epochs = 5, say, or 'fixed'")


PLUGINS = {"fixed": Fixed, "variable_epochs": VariableEpochs}
