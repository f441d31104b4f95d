"""Crashes of clients, at instants that a scenario's faults give.

Whether a client crashes at an instant is drawn by the client and the instant. What it is at is
lost then, and with ``keeps_state = false`` what it holds too.
"""

from __future__ import annotations

from collections.abc import Sequence

from fedsim.network.faults import NEVER_NS, RunFault


class Crashes:
    """The crashes of a run.

    Args:
        faults: Those that are crashes.
    """

    def __init__(self, faults: Sequence[RunFault]) -> None:
        self._faults = faults

    def next_ns(self, client: int, after_ns: int) -> int:
        """Return when a client crashes next after an instant, ns; ``NEVER_NS`` if never."""
        return min(self._next_ns(one, client, after_ns) for one in self._faults)

    def forgets(self, client: int, since_ns: int, until_ns: int) -> bool:
        """Say whether a client loses its state after an instant, until another, ns."""
        return any(
            not one.config.keeps_state and self._next_ns(one, client, since_ns) <= until_ns
            for one in self._faults
        )

    @staticmethod
    def _next_ns(fault: RunFault, client: int, after_ns: int) -> int:
        if not fault.is_for(client) or fault.config.probability == 0:
            return NEVER_NS
        at_ns: int = fault.next_start_ns(after_ns)
        while at_ns < NEVER_NS and not fault.strikes_client(client, at_ns):
            at_ns = fault.next_start_ns(at_ns)
        return min(at_ns, NEVER_NS)
