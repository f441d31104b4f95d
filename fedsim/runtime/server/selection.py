"""Selection at the server: who can be asked, what is known of them, and who is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from math import isfinite
from typing import Any

import numpy as np

from fedsim.algorithms.base import Exchange, Reply
from fedsim.clock import Trace, now_s, sleep_for, wait
from fedsim.errors import InvariantError, RunError
from fedsim.fleet import Readiness
from fedsim.params import Array
from fedsim.plugins import name_of
from fedsim.rng import Key
from fedsim.runtime import told_losses
from fedsim.runtime.parts import Parts
from fedsim.runtime.policies.selectors.base import Candidates
from fedsim.runtime.server.absences import Absences
from fedsim.runtime.server.known_clients import KnownClients
from fedsim.runtime.server.open_dispatches import OpenDispatches

MAX_WAITS = 100_000
"""Upper bound on waits in which no client becomes available; after that the run fails."""

ALSO_CHARGED = (
    " with its battery above the floor",
    ", or its batteries a lower floor, or charge_power and plugged",
)
"""What a message says beside absences of clients where there are batteries."""

Ask = Callable[[Exchange, Sequence[int]], Awaitable[Sequence[Reply]]]
"""Asks clients in an exchange; gives the replies that come in time, ascending by client."""


class Selection:
    """Chooses whom the server asks.

    Args:
        parts: What the run is made of.
        eligible: Clients that can take part at all, ascending.
        dispatches: The open ones; their clients cannot be selected.
        trace: Where dispatches are recorded.
        key: Names the generators.
        batteries: Who can be asked of clients with batteries; None where they play no part.

    Attributes:
        known: What the server knows of its clients.
    """

    def __init__(
        self,
        parts: Parts,
        eligible: Array,
        dispatches: OpenDispatches,
        trace: Trace,
        key: Key,
        batteries: Readiness | None = None,
    ) -> None:
        self._parts = parts
        self._eligible = eligible
        self._dispatches = dispatches
        self._key = key
        self._selections = 0
        self._readiness = batteries or parts.fleet.availability
        self._absences = Absences(self._readiness)
        self._memory: dict[str, Any] = {}  # of the selector
        # Among whom somebody was there: mostly asked for again at once, by a selection.
        self._found: Candidates | None = None
        self._question = told_losses.question(parts.algorithm, parts.selector)
        of_cohort = told_losses.exchange_of_cohort(parts.algorithm)
        exchange = "" if of_cohort is None else of_cohort.name
        self.known = KnownClients(
            parts.selector.wants, parts.data.num_clients, exchange, trace, dispatches.took_s
        )

    def remembered(self) -> dict[str, Any]:
        """Return how many selections there were, and what the selector and the server know: copies."""
        memory = dict(self._memory)
        return {"selections": self._selections, "memory": memory, "known": self.known.remembered()}

    def remember(self, selections: int, memory: Mapping[str, Any], known: Mapping[str, Array]) -> None:
        """Go on from what was remembered."""
        self._selections = selections
        self._memory.update(memory)
        self.known.remember(**known)

    async def wait_for_candidates(
        self,
        until: Sequence[asyncio.Future[Any]],
        round: int,  # noqa: A002
    ) -> None:
        """Wait until at least one client can be selected, or one of ``until`` is done.

        Where all clients have an open dispatch, there is nobody to wait for: it returns at once.

        Args:
            until: Ends the waiting.
            round: The round's number.

        Raises:
            RunError: No client will ever be available.
        """
        num_waits = 0
        while not self._readiness.is_constant:
            candidates = self._candidates(self._eligible, round)
            free, at_s = candidates.free, candidates.at_s
            is_unknown = len(self._absences.unknown(free, at_s)) > 0
            if not len(free) or (is_unknown and candidates.any(self._key.child("someone"))):
                self._found = candidates
                break
            next_s = self._absences.next_return_s(free, at_s)
            num_waits += 1
            if not (until or isfinite(next_s)) or num_waits > MAX_WAITS:
                charged, mend = ALSO_CHARGED if self._parts.fleet.has_batteries else ("", "")
                raise RunError(
                    f"no client can take part: at {at_s:.0f} s none of {len(free)} that could be asked is "
                    f"available{charged}, and none will be: give some of the fleet another availability{mend}"
                )
            wait_s = max(next_s - at_s, 1e-9) if isfinite(next_s) else None
            if not until and wait_s is not None:
                await sleep_for(wait_s)
            elif await wait(until, timeout=wait_s, wanted=1):
                break

    async def select(
        self,
        count: int,
        round: int,  # noqa: A002
        ask: Ask,
        among: Sequence[int] | None = None,
    ) -> list[int]:
        """Return so many of the clients that are there and have no open dispatch, or all; ascending.

        Args:
            count: How many are wanted.
            round: The round's number.
            ask: Asks clients what the selector wants to know.
            among: Choose from these alone, ascending; None for all that can take part.

        Raises:
            InvariantError: The selector chose somebody twice, or somebody who was no candidate.
        """
        selector = self._parts.selector
        eligible = self._eligible if among is None else np.array(among, self._eligible.dtype)
        candidates = self._candidates(eligible, round)
        self.known.look(candidates)
        key = self._key.child("select", self._selections)
        self._selections += 1
        if self._question is not None:
            asked = self._checked(candidates, selector.asked(candidates, count, key))
            replies = await ask(self._question, asked)
            answered = np.array([reply.client for reply in replies], np.int64)
            candidates = self._candidates(answered, round)
        return self._checked(candidates, selector.select(candidates, count, key))

    def _checked(self, candidates: Candidates, chosen: Array) -> list[int]:
        """Return what a selector chose, ascending, if it may choose that."""
        chosen = np.sort(chosen)
        if not candidates.knows(chosen).all() or (np.diff(chosen) == 0).any():
            raise InvariantError(
                f"selector {name_of(self._parts.selector)!r} chose {chosen.tolist()}: "
                "each of the candidates at most once, and nobody else"
            )
        return [int(client) for client in chosen]

    def _candidates(self, eligible: Array, round: int) -> Candidates:  # noqa: A002
        """Return which of some eligible clients can be selected now."""
        data = self._parts.data
        busy, at_s = self._dispatches.busy(), now_s()
        found, self._found = self._found, None  # held no longer: it may have numbers for each client
        if (
            found is not None
            and (found.eligible is eligible and found.at_s == at_s and found.round == round)
            and np.array_equal(found.busy, busy)
        ):
            return found
        return Candidates(
            eligible,
            busy,
            None if self._readiness.is_constant else self._readiness,
            at_s,
            lambda clients: data.sizes("train")[clients],
            self.known,
            round,
            self._memory,
        )
