"""How much local work a dispatch is: the contract of a workload.

A client decides before it begins, from what it knows itself, so no byte more travels. What it decides takes
the place of ``training`` in the hook of this dispatch: so it holds for whatever an algorithm trains by
``client.fit`` without ``epochs`` and ``steps`` of its own, and for ``client.usual_steps``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from fedsim.engine.training_config import TrainingConfig
from fedsim.errors import Fault
from fedsim.plugins import C, Plugin
from fedsim.rng import Key

Soonest = Callable[[int], Iterable[float]]
"""Gives for each client that can take part, those with the fastest devices first, the time in s that it needs
at least to do so many mini-batches (no more than ``training`` asks for) and to reply, were frames empty."""


class Work(Protocol):
    """What a client knows of its work for a dispatch before it begins."""

    @property
    def training(self) -> TrainingConfig:
        """How clients train, as the scenario says."""

    @property
    def usual_steps(self) -> int:
        """Mini-batches that this is for the client's own samples and architecture."""

    @property
    def key(self) -> Key:
        """Names the generators of this decision: those of the client and of its turn."""

    async def reply_after_s(self, training: TrainingConfig) -> float:
        """Return the time from the dispatch to the arrival of the reply if the client trains so, s.

        It is a prediction: the hook is gone through without learning, for the times of its jobs and the
        length of its reply. It takes jobs without variation and at the mean of the device's load, and frames
        that have the link to themselves; that the client stays, and begins at once; and that no fault comes.
        """


class Workload(Plugin[C]):
    """Decides how much a client does for a dispatch; by default what ``training`` says."""

    async def training(self, work: Work) -> TrainingConfig:
        """Return how the client trains for this dispatch."""
        return work.training

    @property
    def varies(self) -> bool:
        """Whether clients may do anything else than ``training`` says."""
        return type(self).training is not Workload.training

    @property
    def reply_by_s(self) -> float | None:
        """The time from a dispatch by which its reply is to arrive, s; None for whenever it does."""
        return None

    def misfits(self, training: TrainingConfig, soonest: Soonest) -> Iterator[Fault]:
        """Yield each thing for which this cannot work with how clients train, and on which devices."""
        yield from ()
