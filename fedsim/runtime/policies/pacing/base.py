"""When a round or a merge closes: the contract of a pacing.

A pacing is straight-line asyncio over a :class:`Rounds`, which knows how to select, ask and merge, but not
when.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

from fedsim.algorithms.base import Exchange, Reply
from fedsim.plugins import C, Plugin


class Dispatch(Protocol):
    """One dispatch to one client, seen from the server."""

    @property
    def client(self) -> int:
        """Who was asked."""

    @property
    def answer(self) -> asyncio.Future[Reply | None]:
        """The reply; None when the lease has run out."""


class Rounds(Protocol):
    """What a pacing can do."""

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """The exchanges of a round, in order."""

    @property
    def num_rounds(self) -> int:
        """How many rounds the run has."""

    def begin_round(self) -> None:
        """Count a round; rounds do not overlap."""

    @property
    def wanted(self) -> int:
        """Replies wanted of a cohort, ``participation.clients_per_round``."""

    async def someone(self, carried: Sequence[Dispatch] = ()) -> None:
        """Wait until at least one client that owes no answer is there, or one of ``carried`` has ended.

        Where all clients owe an answer, there is nobody to wait for: it returns at once.
        """

    def select(self, over_selection: float) -> Sequence[int]:
        """Return a cohort of so many clients for each one wanted, if there are as many; ascending."""

    async def ask(
        self, exchange: Exchange, cohort: Sequence[int], answered: Sequence[int]
    ) -> Sequence[Dispatch]:
        """Send an exchange's instructions to those it concerns; ascending by client."""

    async def merge(self, exchange: Exchange, dispatches: Sequence[Dispatch]) -> Sequence[int]:
        """Merge the answers that are there and close all dispatches; return who was merged, ascending.

        Who has not answered by then counts as dropped. A dispatch is merged once.

        Raises:
            MergeError: The merge has left the finite range: it was refused, and the round has failed.
        """

    def discard(self, dispatches: Sequence[Dispatch], cause: str) -> None:
        """Close dispatches and merge nothing of them; each counts as dropped."""

    def predicted_s(self, exchange: Exchange, clients: Sequence[int]) -> list[float]:
        """Return how long clients are predicted to take; nothing where nobody was ever asked."""

    async def end_round(self) -> None:
        """Measure and report."""


class Pacing(Plugin[C], ABC):
    """Drives the rounds of a run."""

    @abstractmethod
    async def run(self, rounds: Rounds) -> None:
        """Run all rounds."""
