"""Selection of cohorts: the contract of a selector, and the candidates that it chooses from.

A selector that wants to know more of a client than its number of samples names what in ``wants``; the server
keeps that from the beginning of the run, and nothing else. One that chooses by loss says how clients
``measure`` it. They tell it with each reply, or when they are asked before a selection
(:mod:`fedsim.runtime.told_losses`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np

from fedsim.algorithms.base import Setting
from fedsim.errors import Fault
from fedsim.fleet import Readiness, sample_available
from fedsim.params import Array
from fedsim.plugins import C, Plugin
from fedsim.rng import Key

ONE_BY_ONE = 2048
"""With more eligible clients, availability is looked up for those drawn, not for all."""

Fact = Literal[
    "losses",
    "turnaround_s",
    "times_asked",
    "times_merged",
    "last_asked",
    "last_merged",
    "present_share",
    "present_since_s",
]
"""What a server can know of each client, by what it has seen (``runtime/server/known_clients.py``).

Dispatches count in the first exchange of a round that concerns the cohort.

- ``losses``: the loss that it has told last; NaN where none.
- ``turnaround_s``: how long it took to reply last, or how long a round that closed without it has waited; NaN
  where neither was seen. A lease that runs out tells nothing.
- ``times_asked``, ``times_merged``: its dispatches, and its replies that were merged.
- ``last_asked``, ``last_merged``: the round of the last one; 0 where there is none.
- ``present_share``: out of the selections at which it had no open dispatch, the share at which it was there,
  by Laplace's rule: one more of each kind is counted.
- ``present_since_s``: the first of the selections since which it was there at each that looked; NaN where it
  was away at the last.
"""


def unwanted(fact: Fact) -> Array:
    """Refuse to tell what nobody keeps.

    Raises:
        ValueError: Always.
    """
    raise ValueError(f"nobody keeps {fact!r} of clients: name it in the selector's wants")


@dataclass(frozen=True, eq=False)
class Candidates:
    """The clients that can be selected at an instant: eligible, without an open dispatch, and available.

    Attributes:
        eligible: Clients that can take part at all, ascending.
        busy: Clients with an open dispatch, in any order.
        availability: When clients are available, those with batteries also charged to their floors; None
            where all always are.
        at_s: The instant.
        sizes_of: Gives the training samples of clients.
        facts: Gives a fact about all clients, ``[K]``.
        round: The number of the round.
        memory: What the selector has put there in this run; empty at first.
    """

    eligible: Array
    busy: Array
    availability: Readiness | None
    at_s: float
    sizes_of: Callable[[Array], Array]
    facts: Callable[[Fact], Array] = unwanted
    round: int = 1
    memory: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def free(self) -> Array:
        """All that are eligible and have no open dispatch, available or not, ascending."""
        if not len(self.busy):
            return self.eligible
        return self.eligible[~self._is_busy[self.eligible]]

    @cached_property
    def _is_busy(self) -> Array:
        num_clients = 1 + int(max(self.eligible.max(initial=-1), self.busy.max(initial=-1)))
        flags = np.zeros(num_clients, np.bool_)
        flags[self.busy] = True
        return flags

    @cached_property
    def clients(self) -> Array:
        """All of them, ascending; on a large fleet better :meth:`sample` some."""
        if self.availability is None:
            return self.free
        return self.free[self.availability.available(self.free, self.at_s)]

    @property
    def sizes(self) -> Array:
        """The training samples of each, int64."""
        return self.sizes_of(self.clients)

    def known(self, fact: Fact) -> Array:
        """Return what the server knows of each.

        Raises:
            ValueError: The selector does not name it in ``wants``.
        """
        known: Array = self.facts(fact)[self.clients]
        return known

    def sample(self, count: int, key: Key) -> Array:
        """Draw ``count`` of them, or all if they are fewer: each at most once, all equally likely.

        On a large fleet availability is looked up for those drawn alone.
        """
        if self.availability is not None and len(self.eligible) > ONE_BY_ONE:
            return sample_available(self.eligible, count, self.includes, key)
        wanted = min(count, len(self.clients))
        return key.numpy().choice(self.clients, size=wanted, replace=False, shuffle=False)

    def sample_by_size(self, count: int, key: Key) -> Array:
        """Draw ``count`` of them, or all if they are fewer: each at most once, in proportion to size.

        One is drawn after the other, among those that are left.
        """
        clients, sizes = self.clients, self.sizes
        wanted = min(count, len(clients))
        if not wanted:
            return clients[:0]
        return key.numpy().choice(clients, size=wanted, replace=False, p=sizes / sizes.sum(), shuffle=False)

    def any(self, key: Key) -> bool:
        """Say whether there is one; ``key`` decides who is looked at first."""
        return len(self.sample(1, key)) > 0

    def includes(self, clients: Array) -> Array:
        """Say which of some eligible clients can be selected, booleans of their shape."""
        included: Array = ~self._is_busy[clients]
        if self.availability is not None:
            included &= self.availability.available(clients, self.at_s)
        return included

    def knows(self, clients: Array) -> Array:
        """Say which of any clients can be selected, booleans of their shape."""
        places = np.minimum(np.searchsorted(self.eligible, clients), max(len(self.eligible) - 1, 0))
        known: Array = self.eligible[places] == clients if len(self.eligible) else clients != clients
        known[known] = self.includes(clients[known])
        return known


@dataclass(frozen=True, slots=True)
class LossMeasure:
    """How a client measures the loss of its model on its own training samples, in a forward pass.

    Attributes:
        form: Over samples the mean, or the root of the mean square.
        samples: How many samples, drawn anew each time; None for all.
    """

    form: Literal["mean", "root_mean_square"] = "mean"
    samples: int | None = None


class Selector(Plugin[C], ABC):
    """Chooses a cohort.

    A selector has no state: what it remembers from one selection of a run to the next is in
    :attr:`Candidates.memory`.

    Attributes:
        wants: What it asks :meth:`Candidates.known` for.
        measure: How clients measure the loss that they tell the server; None: they tell none.
        asks: Whether some are asked for it before each selection, who then are the candidates if they have
            answered. Otherwise each tells it with its replies.
        answer_within_s: How long the server waits for answers, s; None: as long as their leases last.
    """

    @property
    def wants(self) -> tuple[Fact, ...]:
        """What it asks :meth:`Candidates.known` for."""
        return ()

    @property
    def measure(self) -> LossMeasure | None:
        """How clients measure their loss; None: they tell none."""
        return None

    @property
    def asks(self) -> bool:
        """Whether clients are asked for their loss before each selection."""
        return False

    @property
    def answer_within_s(self) -> float | None:
        """How long the server waits for answers, s; None: as long as their leases last."""
        return None

    def asked(self, candidates: Candidates, count: int, key: Key) -> Array:
        """Return which candidates are asked for their loss; by default all."""
        return candidates.clients

    def misfits(self, setting: Setting) -> Iterator[Fault]:
        """Yield each thing for which it cannot work in a setting."""
        yield from ()

    @abstractmethod
    def select(self, candidates: Candidates, count: int, key: Key) -> Array:
        """Return ``count`` of the candidates, or all if they are fewer, each at most once, in any order.

        Args:
            candidates: Clients that can be selected now.
            count: How many are wanted.
            key: Names this selection's generators.
        """
