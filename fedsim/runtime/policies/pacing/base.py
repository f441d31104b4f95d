"""When a round or a merge closes: the contract of a pacing.

A pacing is straight-line asyncio over a :class:`Rounds`, which knows how to select, dispatch and merge, but
not when. An asynchronous one merges replies as they come, while other dispatches stay open; it says how many
merges are a round.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol

from fedsim.algorithms.base import Exchange
from fedsim.errors import Fault
from fedsim.plugins import C, Plugin
from fedsim.rng import Key
from fedsim.runtime.server.open_dispatches import OpenDispatch


class Rounds(Protocol):
    """What a pacing can do."""

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """The exchanges of a round, in order."""

    @property
    def num_rounds(self) -> int:
        """How many rounds the pacing has to hold."""

    @property
    def version(self) -> int:
        """How often the exchanges of rounds have been merged."""

    def begin_round(self) -> None:
        """Count a round; rounds do not overlap."""

    @property
    def cohort_size(self) -> int:
        """Replies wanted of a cohort."""

    async def wait_for_candidates(self, until: Sequence[asyncio.Future[Any]] = ()) -> None:
        """Wait until at least one client can be selected, or one of ``until`` is done.

        Where all clients have an open dispatch, there is nobody to wait for: it returns at once.
        """

    @property
    def clients(self) -> Sequence[int]:
        """The clients that can take part, ascending."""

    @property
    def key(self) -> Key:
        """The root of the pacing's own generators."""

    async def select(self, count: int, among: Sequence[int] | None = None) -> Sequence[int]:
        """Return so many clients that are free, or as many as there are; ascending.

        It takes time where the selector has clients asked before it chooses.

        Args:
            count: How many are wanted.
            among: Choose from these alone, which can take part, ascending.
        """

    async def dispatch(
        self, exchange: Exchange, cohort: Sequence[int], answered: Sequence[int]
    ) -> Sequence[OpenDispatch]:
        """Send an exchange's instructions to those it concerns; ascending by client."""

    async def merge(self, exchange: Exchange, dispatches: Sequence[OpenDispatch]) -> Sequence[int]:
        """Merge the replies that are there and close all dispatches; return who was merged, ascending.

        A client that has not replied by then counts as dropped. A dispatch is merged once.

        Raises:
            MergeError: The merge has left the finite range: it was refused, and the round has failed.
        """

    def release(self, dispatch: OpenDispatch) -> None:
        """Let a client that has replied be selected again, before its reply is merged."""

    def discard(self, dispatches: Sequence[OpenDispatch], cause: str) -> None:
        """Close dispatches and merge nothing of them; each counts as dropped."""

    def predicted_s(self, exchange: Exchange, clients: Sequence[int]) -> list[float]:
        """Return how long clients are predicted to take; nothing before the first dispatch."""

    async def accuracies(self) -> Mapping[int, float]:
        """Return what the observer finds of each client that it measures; the more, the better.

        It is the accuracy of the model that stands for the client, on its own samples; of a regression, minus
        the loss. Nothing where nothing is learned. It costs nothing, and no frame is sent.
        """

    async def end_round(self) -> None:
        """Measure and report."""


class Pacing(Plugin[C], ABC):
    """Drives the rounds of a run.

    Attributes:
        may_change: Whether its settings, the number of rounds and the size of a cohort may change at the end
            of a round, as they do in a fork. It then uses :func:`numbers`, and keeps no settings.
    """

    may_change: ClassVar[bool] = False

    @property
    def carries(self) -> bool:
        """Whether a merge may take replies to dispatches of earlier rounds."""
        return False

    @property
    def waits_for_all(self) -> bool:
        """Whether from each dispatch until all of the cohort have replied it does nothing.

        Then replies may be given to it all at once, with the last of them.
        """
        return False

    def merge_size(self, cohort_size: int) -> int | None:
        """Return how many replies a merge waits for, of any versions; None where it takes a cohort's.

        Args:
            cohort_size: Replies wanted in a round.
        """
        return None

    def discount(self, staleness: int) -> float:
        """Return how much a reply counts that is so many merges old, above 0; by default in full."""
        return 1.0

    def misfits(self, cohort_size: int, num_eligible: int) -> Iterator[Fault]:
        """Yield each setting that cannot be; by default there is none.

        Args:
            cohort_size: Replies wanted in a round.
            num_eligible: Clients that can take part.
        """
        yield from ()

    @abstractmethod
    async def run(self, rounds: Rounds) -> None:
        """Run all rounds."""


def numbers(rounds: Rounds) -> Iterator[int]:
    """Yield the numbers of the rounds, from 0 on, as long as the run has more."""
    number = 0
    while number < rounds.num_rounds:
        yield number
        number += 1


def is_reply(reply: asyncio.Future[Any]) -> bool:
    """Say whether a dispatch has its reply, and not only the end of its lease."""
    return reply.done() and reply.result() is not None
