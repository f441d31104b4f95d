"""The ready-made parts of a run: a test or a notebook makes one in ten lines, without any file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from fedsim.algorithms.base import Algorithm
from fedsim.algorithms.contexts import Initial
from fedsim.data import FederatedData, Split
from fedsim.engine.executors.base import Executor
from fedsim.engine.training import TrainingConfig
from fedsim.errors import UserError
from fedsim.fleet import Fleet
from fedsim.models import Architecture
from fedsim.network import NetworkPlugin
from fedsim.params import Array
from fedsim.rng import Key
from fedsim.runtime.pacing.base import Pacing
from fedsim.runtime.presence import OnLeave
from fedsim.runtime.selectors.base import Selector


@dataclass(frozen=True, slots=True)
class EvaluationSettings:
    """When and on whom to measure.

    Attributes:
        every: Rounds between two evaluations; the last round is always evaluated. 0: never.
        clients: At most so many clients, drawn once by seed; None for all.
        split: On which of the clients' splits: ``test`` or ``val``.
        batch_size: Samples in a forward pass.
    """

    every: int = 1
    clients: int | None = None
    split: Split = "test"
    batch_size: int = 256


@dataclass(frozen=True, slots=True)
class Parts:
    """All that a run is made of.

    Attributes:
        algorithm: What is run.
        data: Samples, and who holds them.
        fleet: Devices of clients and server.
        architectures: By label.
        network: How parcels move.
        executor: Who trains.
        selector: Who is asked.
        pacing: When a round closes.
        training: How clients train.
        evaluation: What is measured.
        rounds: How many rounds.
        clients_per_round: Size of a cohort; None for all that are eligible.
        seed: The one seed.
        client_timeout_s: The lease of a dispatch: a client that has not answered by then counts as dropped.
        on_leave: What becomes of work when its client goes away.
        device: Where jobs run: ``cpu`` or ``cuda``.
        verify: Check everything that can be checked, at the price of speed.

    Raises:
        UserError: The fleet is not as large as the data set's population.
    """

    algorithm: Algorithm[Any, Any, Any]
    data: FederatedData
    fleet: Fleet
    architectures: Mapping[str, Architecture]
    network: NetworkPlugin[Any]
    executor: Executor
    selector: Selector[Any]
    pacing: Pacing[Any]
    training: TrainingConfig
    rounds: int
    seed: int = 0
    clients_per_round: int | None = None
    client_timeout_s: float = 3600.0
    on_leave: OnLeave = "resume"
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)
    device: str = "cpu"
    verify: bool = False

    def __post_init__(self) -> None:
        if len(self.fleet) != self.data.num_clients:
            raise UserError(
                f"the fleet has {len(self.fleet)} devices and the data {self.data.num_clients} clients: "
                "give both the same number"
            )

    @property
    def key(self) -> Key:
        """The root of all generators."""
        return Key.root(self.seed)

    def initial(self) -> Initial:
        """Return the start values of all architectures, made when first asked for."""
        key = self.key.child("initial")
        return Initial(
            {
                label: partial(architecture.initial, key.child(label))
                for label, architecture in self.architectures.items()
            }
        )

    def eligible(self) -> Array:
        """Return the clients that have something to train on, int64, ascending (specification 3.5, E8).

        Raises:
            UserError: There are none.
        """
        eligible = np.flatnonzero(self.data.sizes("train") > 0)
        if not len(eligible):
            raise UserError(
                "no client has a training sample: give the data set more samples, or use fewer clients"
            )
        return eligible
