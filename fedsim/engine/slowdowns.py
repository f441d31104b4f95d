"""Devices that slow down for a while, as a scenario's faults of the kind ``slow`` say.

While such a fault is on, a device works at 1/``factor`` of its speed; the factors of several faults multiply.
So a job that is under way when a fault begins or ends is slowed only for its part. Which clients a fault with
a ``probability`` slows down is drawn by the client and the instant at which it begins.

Work is counted in nanoseconds at full speed, with fractions, so it makes no difference where it is
interrupted. A job ends at the first whole nanosecond at which its work is done.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import ceil

import numpy as np

from fedsim.network.faults import NEVER_NS, RunFault
from fedsim.params import Array

_FOREVER_NS = 2**99
"""After the end of all work, ns."""


class Slowdowns:
    """The slow devices of a run.

    Args:
        faults: Those that slow devices down.
    """

    def __init__(self, faults: Sequence[RunFault]) -> None:
        self._faults = faults

    def end_ns(self, client: int, began_ns: int, work: int | Fraction) -> int:
        """Return when a client has done some work that it begins at an instant, ns."""
        left = Fraction(work)
        for from_ns, until_ns, factor in self._spans(client, began_ns):
            if left * factor <= until_ns - from_ns:
                return from_ns + ceil(left * factor)
            left -= (until_ns - from_ns) / factor
        raise AssertionError  # the last span has no end

    def work(self, client: int, began_ns: int, ended_ns: int) -> Fraction:
        """Return the work that a client does between two instants, ns."""
        done = Fraction(0)
        for from_ns, until_ns, factor in self._spans(client, began_ns):
            done += max(min(until_ns, ended_ns) - from_ns, 0) / factor
            if until_ns >= ended_ns:
                break
        return done

    def strike_any(self, clients: Array, began_ns: Array, ended_ns: Array) -> bool:
        """Say whether any of some clients is slow at work between two instants, ns; of each ``[clients]``."""
        may_be_slow = np.zeros(len(clients), bool)
        for one in self._faults:
            if one.config.probability != 0:
                meets = one.is_on(began_ns) | (one.next_start_ns(began_ns) < ended_ns)
                may_be_slow |= meets if one.members is None else meets & one.members[clients]
        (places,) = np.nonzero(may_be_slow)
        times = (each[places].tolist() for each in (clients, began_ns, ended_ns))
        return any(
            self.work(client, from_ns, until_ns) < until_ns - from_ns
            for client, from_ns, until_ns in zip(*times, strict=True)
        )

    def _spans(self, client: int, at_ns: int) -> Iterator[tuple[int, int, Fraction]]:
        """Yield spans from an instant on: begin and end, ns, and the factor on the time of work."""
        faults = [one for one in self._faults if one.is_for(client)]
        while True:
            factor, until_ns = Fraction(1), NEVER_NS
            for one in faults:
                began_ns, changes_ns = one.phase(at_ns)
                until_ns = min(until_ns, changes_ns)
                if began_ns is not None and one.strikes_client(client, began_ns):
                    factor *= Fraction(one.config.factor or 1)
            until_ns = until_ns if until_ns < NEVER_NS else _FOREVER_NS
            yield at_ns, until_ns, factor
            at_ns = until_ns
