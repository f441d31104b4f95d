"""Clients that are least likely to be there soon come first (the selector of REFL).

Those who are seldom there are asked while they are, and the others later, so more clients take part. How
likely a client is to be there is told by itself (section 4.1 of the paper), or goes by what the server has
seen:

- ``told``: the share of the slot from one mean duration of a round ahead to two, in which it will be there.
  The paper's clients predict that; here a client knows it, and tells it when it checks in, which costs
  nothing, as no check-in does. Over sockets all are equal.
- ``seen``: the share of selections at which it was there.

Equal ones are chosen at random. A client that was asked rests for some rounds; where the others are too few,
those who have rested longest come next. Under an asynchronous pacing a round is a merge: ``rest`` should grow
with the number of clients at work.

The mean duration is ``mu <- 0.75 d + 0.25 mu`` of the durations d of rounds, as in the authors' code. How
much late replies count is for the pacing to say.

Abdelmoniem, Sahu, Canini, Fahmy: REFL: Resource-Efficient Federated Learning, EuroSys 2023 (arXiv
2111.01108).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedsim.config import Config
from fedsim.params import Array
from fedsim.ranges import Interval
from fedsim.rng import Key
from fedsim.runtime.policies.selectors.base import Candidates, Fact, Selector

LOOKS = 16
"""Instants of a slot at which a client says whether it will be there."""
_OLD = 0.25
"""Weight of the mean before in a mean duration."""


class LeastAvailableConfig(Config):
    """Settings of the selection by availability."""

    predicted: Literal["told", "seen"] = "told"
    """By what: the client tells when it will be there, or the server goes by when it was."""
    rest: Interval = 5
    """Rounds for which a client is not asked again; 0: it may be asked in each."""


@dataclass(frozen=True)
class Durations:
    """The mean duration of rounds."""

    round: int
    began_at_s: float
    mean_s: float | None = None

    def begun(self, round: int, at_s: float) -> Durations:  # noqa: A002
        """Return it when a round has begun."""
        if round <= self.round:
            return self
        took_s = (at_s - self.began_at_s) / (round - self.round)
        mean_s = took_s if self.mean_s is None else (1 - _OLD) * took_s + _OLD * self.mean_s
        return Durations(round, at_s, mean_s)


class LeastAvailable(Selector[LeastAvailableConfig]):
    """Asks those first who are likely to be away soon."""

    @property
    def wants(self) -> tuple[Fact, ...]:
        """Who rests, and where nobody tells it, who was there."""
        return ("last_asked",) if self.config.predicted == "told" else ("last_asked", "present_share")

    def select(self, candidates: Candidates, count: int, key: Key) -> Array:
        """Take those who do not rest, the least available first; then those who rest, the longest first."""
        clients, asked = candidates.clients, candidates.known("last_asked")
        rests = (asked > 0) & (candidates.round - asked <= self.config.rest)
        presence = (
            self.expected_availability(candidates)
            if self.config.predicted == "told"
            else candidates.known("present_share")
        )
        order = np.lexsort(
            (key.child("ties").numpy().random(len(clients)), presence, np.where(rests, asked, 0))
        )
        return clients[order[:count]]

    def expected_availability(self, candidates: Candidates) -> Array:
        """Predicted availability of each client in the next slot, ``[n]``; 0 without a slot."""
        round_, at_s, availability = candidates.round, candidates.at_s, candidates.availability
        before: Durations = candidates.memory.get("durations", Durations(round_, at_s))
        candidates.memory["durations"] = durations = before.begun(round_, at_s)
        mean_s = durations.mean_s
        if mean_s is None or availability is None:
            return np.zeros(len(candidates.clients))
        ahead_s = mean_s * (1 + (np.arange(LOOKS) + 0.5) / LOOKS)
        there = [availability.available(candidates.clients, candidates.at_s + float(s)) for s in ahead_s]
        share: Array = np.mean(there, axis=0)
        return share


PLUGIN = LeastAvailable
