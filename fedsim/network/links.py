"""The links of a fleet: a star with the server in the middle."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

from fedsim.network.capacity import Capacity
from fedsim.params import Array

TraceOf = Callable[[int], Capacity | None]
"""Returns the trace of a client's link; None if it is constant."""


class PerClient(Protocol):
    """A number for each client, ``[K]``; an array is one."""

    def __getitem__(self, client: int, /) -> float:
        """Return a client's."""


class InGroups:
    """A number for each client, given by groups of consecutive clients: a count, and a number or array."""

    def __init__(self, groups: Sequence[tuple[int, float | Array]]) -> None:
        # A constant, or a function of the place in the group.
        self._columns = [column if isinstance(column, float) else column.item for _, column in groups]
        self._starts = list(accumulate((num for num, _ in groups), initial=0))

    def __getitem__(self, client: int) -> float:
        place = bisect_right(self._starts, client) - 1
        column = self._columns[place]
        return column if isinstance(column, float) else column(client - self._starts[place])


@dataclass(frozen=True, slots=True)
class Links:
    """Capacities and latencies of a star.

    Attributes:
        up_bps: Uplink of each client, bit/s, ``[K]``.
        down_bps: Downlink of each client, bit/s, ``[K]``.
        latency_s: One-way latency between each client and the server's door, s, ``[K]``.
        server_up_bps: The server's egress, bit/s.
        server_down_bps: The server's ingress, bit/s.
        server_latency_s: One-way latency inside the server's door, s.
        up_trace: Traces of clients' uplinks, instead of constant rates.
        down_trace: Traces of downlinks.
    """

    up_bps: PerClient
    down_bps: PerClient
    latency_s: PerClient
    server_up_bps: float
    server_down_bps: float
    server_latency_s: float
    up_trace: TraceOf | None = None
    down_trace: TraceOf | None = None

    def egress_bps(self, address: int) -> float:
        """Return the capacity out of a party (``-1`` is the server), bit/s."""
        return self.server_up_bps if address < 0 else float(self.up_bps[address])

    def ingress_bps(self, address: int) -> float:
        """Return the capacity into a party, bit/s."""
        return self.server_down_bps if address < 0 else float(self.down_bps[address])

    def between_s(self, sender: int, receiver: int) -> float:
        """Return the one-way latency from one party to another, s."""
        return self._to_middle_s(sender) + self._to_middle_s(receiver)

    def _to_middle_s(self, address: int) -> float:
        return self.server_latency_s if address < 0 else float(self.latency_s[address])
