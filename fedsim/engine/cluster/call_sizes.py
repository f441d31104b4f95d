"""How many jobs go into one call of an actor: as many as pay, and no more than keep all actors at work.

How long jobs take is learned from those that were done. It decides where jobs are done, never their results.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

CALL_S = 0.05
"""Work of a call, s, at least: sending one takes a millisecond or two."""

CALLS_PER_ACTOR = 8
"""Calls into which the work of each actor is divided, about, where there is more work than that."""

FIRST_S = 0.01
"""Assumed duration of a job of an unknown kind, s."""


class Rates:
    """What jobs take for one of their amount, by kind."""

    def __init__(self) -> None:
        self._known_s: dict[Hashable, float] = {}

    def seconds(self, kind: Hashable, amount: float) -> float:
        """Return how long a job will take, s."""
        rate_s = self._known_s.get(kind)
        return FIRST_S if rate_s is None else rate_s * amount

    def learn(self, kind: Hashable, amount: float, took_s: float) -> None:
        """Note how long jobs took; what was found last counts most."""
        rate_s = took_s / max(amount, 1.0)
        before_s = self._known_s.get(kind)
        self._known_s[kind] = rate_s if before_s is None else (before_s + rate_s) / 2


def sizes(takes_s: Sequence[float], total_s: float, num_actors: int) -> list[int]:
    """Return how many jobs each call has.

    Jobs take ``takes_s`` in the order in which they are sent, and all that wait, of any kind, ``total_s``.
    """
    call_s = max(CALL_S, total_s / (CALLS_PER_ACTOR * num_actors))
    num_calls = min(len(takes_s), max(1, int(sum(takes_s) / call_s + 1e-9)))
    share_s, counts = sum(takes_s) / num_calls, list[int]()
    count, passed_s = 0, 0.0
    for number, one_s in enumerate(takes_s, start=1):
        count += 1
        passed_s += one_s
        left = len(takes_s) - number
        is_full = passed_s >= share_s * (len(counts) + 1) - 1e-12
        if left == 0 or (is_full and len(counts) + 1 < num_calls):
            counts.append(count)
            count = 0
    return counts
