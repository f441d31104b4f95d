"""What carries a parcel from one party to another, and the contract that wrappers share.

A carrier is told to carry a parcel and reports what becomes of it: the last byte has left, a copy has
arrived, it was lost. A fault (loss, delay, duplication, corruption, partition) is a carrier around a carrier
with the same signature: it may hold a parcel back, replace its payload, or report what it likes. All of these
are callbacks: this is the hottest path of a run, and no task is needed for it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from asyncio import TimerHandle
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias, TypeGuard

from fedsim.clock import call_after, now_ns
from fedsim.clock.loop import to_ns
from fedsim.network.links import Links
from fedsim.plugins import C, Plugin


class Parcel(NamedTuple):
    """Something to be carried.

    Attributes:
        sender: Address; ``-1`` is the server, clients count from 0.
        receiver: Address.
        num_bytes: Length on the link.
        payload: What arrives; the network does not look inside.
    """

    sender: int
    receiver: int
    num_bytes: int
    payload: Any


class Listener(Protocol):
    """Hears what becomes of one parcel."""

    def left(self) -> None:
        """The last byte has left the sender; called at most once, and before any copy arrives."""

    def arrived(self, parcel: Parcel) -> None:
        """A copy has arrived, its payload perhaps not as it was sent; called once for each copy."""

    def lost(self, cause: str) -> None:
        """No copy will arrive, whether or not the last byte has left; called at most once."""


class Passage(Protocol):
    """A transfer under way. Once it has arrived or was cancelled, none of this has an effect."""

    def cancel(self) -> None:
        """Cancel the transfer: no callback is called, and its bandwidth is free."""

    def pause(self) -> None:
        """Hold it where it is: its links are free, and what has crossed stays across."""

    def resume(self) -> None:
        """Go on after a pause: the latency once more, then the bytes that remain."""

    @property
    def remaining_bytes(self) -> float:
        """Bytes that have not crossed yet, perhaps with a fraction; 0 once it has arrived."""


class Carrier(Protocol):
    """Carries parcels; made by a network model, or wrapped around another carrier."""

    def carry(self, parcel: Parcel, listener: Listener) -> Passage:
        """Start the transfer now; the listener hears of it at later instants, or later in this one."""


Departures: TypeAlias = Sequence[tuple[int, int, int]]
"""Parcels in the order in which they begin: when, ns; the client whose link each crosses; its bytes."""

Arrivals: TypeAlias = list[tuple[int, list[int]]]
"""The events in which parcels arrive, in order: when, ns, and the places of parcels among the departures."""


class TimetableCarrier(Carrier, Protocol):
    """A carrier that can say beforehand when parcels arrive."""

    def arrivals(self, parcels: Departures, *, up: bool, all_at_once: bool, by_ns: int) -> Arrivals:
        """Return when parcels would arrive, if nothing else were carried until the last has arrived.

        That is when they do arrive, to the nanosecond and in that order, where they are carried. Nothing is
        carried by this.

        Args:
            parcels: All of them, either up or down.
            up: Whether they go to the server.
            all_at_once: Whether they begin in one event; else each begins in an event of its own, of the
                class JOIN.
            by_ns: Those that arrive later are left out.
        """


def has_timetable(carrier: Carrier) -> TypeGuard[TimetableCarrier]:
    """Say whether a carrier can say beforehand when parcels arrive.

    Where a class replaces ``carry``, the ``arrivals`` of the class that it is derived from, or of the carrier
    that it is wrapped around, do not count.
    """
    for cls in type(carrier).__mro__:
        if "arrivals" in vars(cls):
            return True
        if "carry" in vars(cls):
            return False
    return False


class NetworkPlugin(Plugin[C], ABC):
    """A network model: turns the fleet's links into a carrier.

    Attributes:
        follows_traces: Whether clients' links may change over time as a trace says.
    """

    follows_traces: ClassVar[bool] = False

    @abstractmethod
    def carrier(self, links: Links, *, verify: bool = False) -> Carrier:
        """Return a carrier over these links for one run.

        Args:
            links: Of all clients and the server.
            verify: Whether the carrier also checks that no link carries more than its capacity, if the model
                can. It then raises :exc:`fedsim.errors.InvariantError` in the middle of the run, and changes
                nothing else.
        """

    def alone_s(self, links: Links, sender: int, receiver: int, num_bytes: int) -> float:
        """Return how long a parcel takes that shares its links with no other, s; links at their mean."""
        rate_bps = min(links.egress_bps(sender), links.ingress_bps(receiver))
        return links.between_s(sender, receiver) + 8 * num_bytes / rate_bps


def lone_s(latency_s: float, num_bytes: float, bps: float) -> float:
    """Return how long a parcel takes that shares nothing, s."""
    return latency_s + 8 * num_bytes / bps


def lone_arrivals(parcels: Departures, takes_s: Callable[[int, int], float], by_ns: int) -> Arrivals:
    """Return when parcels arrive that share nothing; see :meth:`TimetableCarrier.arrivals`.

    Args:
        parcels: The parcels.
        takes_s: Gives how long one takes, s, by its client and its bytes.
        by_ns: Those that arrive later are left out.
    """
    ends_ns = [start_ns + to_ns(takes_s(client, num_bytes)) for start_ns, client, num_bytes in parcels]
    order = sorted(range(len(ends_ns)), key=ends_ns.__getitem__)
    return [(ends_ns[place], [place]) for place in order if ends_ns[place] <= by_ns]


class LonePassage:
    """A transfer that shares nothing with others: its latency, then its bytes at one rate.

    Args:
        parcel: What to carry, from now on.
        listener: Hears that it has left and, at the same instant, arrived.
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
        self._timer = call_after(lone_s(self._latency_s, self._bytes, self._bps), self._end)

    def _stop(self, is_paused: bool) -> None:
        self._bytes = self.remaining_bytes
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._is_paused = is_paused

    def _end(self) -> None:
        self._bytes = 0.0
        self._timer = None
        self._listener.left()
        self._listener.arrived(self._parcel)

    def cancel(self) -> None:
        """Stop it for good."""
        self._stop(False)
        self._is_paused = False

    def pause(self) -> None:
        """Hold it where it is."""
        self._stop(True)

    def resume(self) -> None:
        """Go on with the bytes that remain, after the latency."""
        if self._is_paused:
            self._start()

    @property
    def remaining_bytes(self) -> float:
        """Bytes that have not crossed yet."""
        moving_s = (now_ns() - self._since_ns) / 1e9 - self._latency_s
        if self._timer is None or moving_s <= 0:
            return self._bytes
        return max(0.0, self._bytes - moving_s * self._bps / 8)
