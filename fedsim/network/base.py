"""The interface of network models: carriers of parcels, and their listeners.

A carrier reports what happens to a parcel: its last byte has left, a copy has arrived, or it was lost. A
fault (loss, delay, duplication, corruption, partition) is a carrier around a carrier: it may delay a parcel,
replace its payload, or report something else. All reports are callbacks, since this is the hottest path of a
run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from asyncio import TimerHandle
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, ClassVar, NamedTuple, Protocol, TypeGuard

import numpy as np

from fedsim.clock import call_after, now_ns
from fedsim.network.capacity_trace import Capacity
from fedsim.network.cells import Rate, SharedLinks, mean_bps
from fedsim.network.edges import NO_EDGE, Edges
from fedsim.params import Array
from fedsim.plugins import C, Plugin

TraceOf = Callable[[int], Capacity | None]
"""Returns the trace of a client's link; None if it is constant."""


class PerClient(Protocol):
    """A number for each client, ``[K]``; an array is one."""

    def __getitem__(self, client: int, /) -> float:
        """Return the number of a client."""


_FEW = 32
"""Clients up to which one look-up for each is faster than array operations."""


class InGroups:
    """A number for each client, given by groups of consecutive clients: a count, and a number or array."""

    def __init__(self, groups: Sequence[tuple[int, float | Array]]) -> None:
        self._values = [column for _, column in groups]
        # A constant, or a function of the place in the group.
        self._columns = [column if isinstance(column, float) else column.item for _, column in groups]
        self._starts = list(accumulate((num for num, _ in groups), initial=0))

    def __getitem__(self, client: int) -> float:
        place = bisect_right(self._starts, client) - 1
        column = self._columns[place]
        return column if isinstance(column, float) else column(client - self._starts[place])

    def take(self, clients: Array) -> Array:
        """Return the numbers of clients, float64 ``[clients]``."""
        if len(clients) < _FEW:
            return np.array([self[client] for client in clients.tolist()])
        groups, numbers = np.searchsorted(self._starts, clients, "right") - 1, np.empty(len(clients))
        for group in np.unique(groups):
            its = groups == group
            values = self._values[group]
            numbers[its] = values if isinstance(values, float) else values[clients[its] - self._starts[group]]
        return numbers


def numbers_of(clients: Array, numbers: PerClient) -> Array:
    """Return the numbers of clients, float64 ``[clients]``."""
    if isinstance(numbers, np.ndarray):
        return numbers[clients].astype(float)
    if isinstance(numbers, InGroups):
        return numbers.take(clients)
    return np.asarray([numbers[client] for client in clients.tolist()], float)


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
        shared_up: Links towards the server that groups of clients share, if any.
        shared_down: Such links towards clients.
        edges: Who stands for the server towards the clients of some cells, if anybody.
    """

    up_bps: PerClient
    down_bps: PerClient
    latency_s: PerClient
    server_up_bps: float
    server_down_bps: float
    server_latency_s: float
    up_trace: TraceOf | None = None
    down_trace: TraceOf | None = None
    shared_up: SharedLinks | None = None
    shared_down: SharedLinks | None = None
    edges: Edges | None = None

    def egress_bps(self, address: int) -> float:
        """Return the capacity out of a party (``-1`` is the server), bit/s; a client's cell is on its way."""
        if address < 0:
            return self.server_up_bps
        return _narrowest_bps(self.up_bps, self.shared_up, address)

    def ingress_bps(self, address: int) -> float:
        """Return the capacity into a party, bit/s, likewise."""
        if address < 0:
            return self.server_down_bps
        return _narrowest_bps(self.down_bps, self.shared_down, address)

    def seen_by(self, client: int) -> Links:
        """Return the links with those of the client's edge, if it has one, in place of the server's."""
        if self.edges is None or (edge := self.edges.edge_of(client)) == NO_EDGE:
            return self
        down, up = (mean_bps(self.edges.rates(up=up)[edge]) for up in (False, True))
        return replace(self, server_up_bps=down, server_down_bps=up, server_latency_s=0.0)

    def between_s(self, sender: int, receiver: int) -> float:
        """Return the one-way latency from one party to another, s."""
        return self._to_middle_s(sender) + self._to_middle_s(receiver)

    def _to_middle_s(self, address: int) -> float:
        return self.server_latency_s if address < 0 else float(self.latency_s[address])


def _narrowest_bps(own_bps: PerClient, shared: SharedLinks | None, client: int) -> float:
    rate_bps = float(own_bps[client])
    return rate_bps if shared is None else min(rate_bps, shared.mean_bps(client))


class Parcel(NamedTuple):
    """A frame, as the network carries it.

    Attributes:
        sender: Address; ``-1`` is the server, clients count from 0.
        receiver: Address.
        num_bytes: Length on the link.
        payload: What arrives; the network does not look inside.
        dispatch: Number of the dispatch to its client.
        attempt: How often the frame was sent before.
    """

    sender: int
    receiver: int
    num_bytes: int
    payload: Any
    dispatch: int = 0
    attempt: int = 0

    @property
    def client(self) -> int:
        """The client that it comes from or goes to."""
        return self.sender if self.sender >= 0 else self.receiver


class Listener(Protocol):
    """Is told what happens to one parcel."""

    def left(self) -> None:
        """The last byte has left the sender; called at most once, and before any copy arrives."""

    def arrived(self, parcel: Parcel) -> None:
        """A copy has arrived, perhaps with another payload; called once for each copy."""

    def lost(self, cause: str) -> None:
        """No copy will arrive, whether or not the last byte has left; called at most once."""


class Passage(Protocol):
    """A transfer under way. After its arrival or cancellation the methods have no effect."""

    def cancel(self) -> None:
        """Cancel the transfer: no callback is called, and its bandwidth is free."""

    def pause(self) -> None:
        """Pause the transfer: its links are free, and the bytes that have crossed count."""

    def resume(self) -> None:
        """Continue after a pause: the latency once more, then the remaining bytes."""

    @property
    def remaining_bytes(self) -> float:
        """Bytes that have not crossed yet, perhaps fractional; 0 after the arrival."""


class Carrier(Protocol):
    """Carries parcels; made by a network model, or wrapped around another carrier."""

    def carry(self, parcel: Parcel, listener: Listener) -> Passage:
        """Start the transfer now; the listener is called later, perhaps at this instant."""


class Departures(NamedTuple):
    """Parcels in one direction, in the order of their starts.

    Attributes:
        at_ns: When each starts, int64 ``[n]``.
        clients: Who receives or sends it, int64 ``[n]``.
        num_bytes: Its length on the link, int64 ``[n]``.
        dispatches: Number of the dispatch to its client, int64 ``[n]``.
    """

    at_ns: Array
    clients: Array
    num_bytes: Array
    dispatches: Array


class Arrivals(NamedTuple):
    """Arrivals in order.

    Attributes:
        at_ns: The instant of each, int64 ``[n]``.
        place: The place of its parcel among the departures.
        number: Its number, from 0, among those of one event.
    """

    at_ns: Array
    place: Array
    number: Array

    @classmethod
    def of(cls, events: Sequence[tuple[int, Sequence[int]]]) -> Arrivals:
        """Return the arrivals of events: the instant of each, and the places of its parcels."""
        at_ns = np.array([at_ns for at_ns, places in events for _ in places], np.int64)
        place = np.array([place for _, places in events for place in places], np.int64)
        number = np.array([number for _, places in events for number in range(len(places))], np.int64)
        return cls(at_ns, place, number)

    def until(self, by_ns: int) -> Arrivals:
        """Return those up to an instant."""
        end = int(self.at_ns.searchsorted(by_ns, "right"))
        return Arrivals(self.at_ns[:end], self.place[:end], self.number[:end])


class TimetableCarrier(Carrier, Protocol):
    """A carrier that can compute arrivals beforehand."""

    def arrivals(self, parcels: Departures, *, up: bool, all_at_once: bool, by_ns: int) -> Arrivals:
        """Return the arrivals of parcels if nothing else is carried until the last arrival.

        Carried parcels arrive at these instants, to the nanosecond, and in this order.

        Args:
            parcels: The parcels.
            up: Whether they go to the server.
            all_at_once: Whether they begin in one event; else each begins in an event of the class JOIN.
            by_ns: Later arrivals are left out.
        """


def has_timetable(carrier: Carrier) -> TypeGuard[TimetableCarrier]:
    """Whether a carrier has ``arrivals`` that belong to its ``carry``, not to that of a base class."""
    for cls in type(carrier).__mro__:
        if "arrivals" in vars(cls):
            return True
        if "carry" in vars(cls):
            return False
    return False


class NetworkPlugin(Plugin[C], ABC):
    """A network model: makes a carrier of the fleet's links.

    Attributes:
        follows_traces: Whether clients' links may follow traces.
        follows_cells: Whether groups of clients may share links.
    """

    follows_traces: ClassVar[bool] = False
    follows_cells: ClassVar[bool] = False

    @abstractmethod
    def carrier(self, links: Links, *, verify: bool = False) -> Carrier:
        """Return a carrier over these links for one run.

        Args:
            links: Of all clients and the server.
            verify: Whether the carrier also checks, if it can, that no link carries more than its capacity.
                It raises :exc:`fedsim.errors.InvariantError` otherwise.
        """

    def server_rates(self, links: Links) -> tuple[Rate, Rate]:
        """Return the capacities out of the server and into it."""
        return links.server_up_bps, links.server_down_bps

    def alone_s(self, links: Links, sender: int, receiver: int, num_bytes: int) -> float:
        """Return how long a parcel takes alone, s, with links at their mean."""
        links = links.seen_by(max(sender, receiver))
        rate_bps = min(links.egress_bps(sender), links.ingress_bps(receiver))
        return links.between_s(sender, receiver) + 8 * num_bytes / rate_bps


class LonePassage:
    """A transfer that shares nothing with others: its latency, then its bytes at one rate.

    Args:
        parcel: The parcel, carried from now on.
        listener: Told that it has left and, at the same instant, arrived.
        latency_s: Before the first byte, and again after each pause.
        bps: The rate, bit/s; infinity means no time.
    """

    __slots__ = ("_bps", "_bytes", "_is_paused", "_latency_s", "_listener", "_parcel", "_since_ns", "_timer")

    _timer: TimerHandle | None

    def __init__(self, parcel: Parcel, listener: Listener, latency_s: float, bps: float) -> None:
        self._parcel = parcel
        self._listener = listener
        self._latency_s = latency_s
        self._bps = bps
        self._bytes: float = parcel.num_bytes
        self._start()

    def _start(self) -> None:
        self._is_paused = False
        self._since_ns = now_ns()
        self._timer = call_after(self._latency_s + 8 * self._bytes / self._bps, self._end)

    def _end(self) -> None:
        self._bytes = 0.0
        self._timer = None
        self._listener.left()
        self._listener.arrived(self._parcel)

    def cancel(self) -> None:
        """Cancel the transfer."""
        self.pause()
        self._is_paused = False

    def pause(self) -> None:
        """Pause the transfer."""
        self._bytes = self.remaining_bytes
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._is_paused = True

    def resume(self) -> None:
        """Continue after a pause: the latency, then the remaining bytes."""
        if self._is_paused:
            self._start()

    @property
    def remaining_bytes(self) -> float:
        """Bytes that have not crossed yet."""
        moving_s = (now_ns() - self._since_ns) / 1e9 - self._latency_s
        if self._timer is None or moving_s <= 0:
            return self._bytes
        return max(0.0, self._bytes - moving_s * self._bps / 8)
