"""When parcels arrive over one direction of the server's link that nobody else uses meanwhile.

The link itself works it out, event by event as in a run, in a time of its own: only the run's loop is left
out, and with it what happens between the events.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from fedsim.network.base import Arrivals, Departures
from fedsim.network.fluid_server_link import LinkFlow, ServerLink

_FIRST, _ORDINARY, _JOIN = -1, 0, 1
"""The places of events within an instant; those of the loop, and one before all."""


class _Event:
    """A callback that is to come."""

    __slots__ = ("args", "callback")

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.callback: Callable[..., object] | None = callback
        self.args = args

    def cancel(self) -> None:
        self.callback = None


class _Flow(LinkFlow):
    """A parcel that is one of many."""

    __slots__ = ("_arrived", "_number")

    def __init__(self, number: int, client: int, arrived: list[int]) -> None:
        self.order = self._number = number
        self._stamp = 0
        self.client = client
        self._arrived = arrived

    def arrive(self) -> None:
        self._arrived.append(self._number)


class LinkTimetable:
    """A time of its own for a link.

    Args:
        link: The link, which nothing else uses.

    Attributes:
        now_ns: That time.
    """

    def __init__(self, link: ServerLink) -> None:
        self._link = link
        link.loop = self
        self.now_ns = 0
        self._heap: list[tuple[int, int, int, _Event]] = []
        self._turn = 0

    def call_at_ns(self, when_ns: int, callback: Callable[..., object], *args: Any) -> _Event:
        """Schedule a callback."""
        event = _Event(callback, args)
        self._turn += 1
        heappush(self._heap, (when_ns, _ORDINARY, self._turn, event))
        return event

    def arrivals(
        self, parcels: Departures, latency_ns: Callable[[int], int], *, all_at_once: bool, by_ns: int
    ) -> Arrivals:
        """Return when each arrives; see :meth:`fedsim.network.base.TimetableCarrier.arrivals`."""
        heap, join = self._heap, self._link.join
        arrived, result = list[int](), list[tuple[int, list[int]]]()
        place = _FIRST if all_at_once else _JOIN
        next_number, num_parcels = 0, len(parcels)
        while True:
            if next_number < num_parcels and not (heap and heap[0] < (parcels[next_number][0], place)):
                self.now_ns, client, num_bytes = parcels[next_number]
                flow = _Flow(next_number, client, arrived)
                next_number += 1
                if (wait_ns := latency_ns(client)) > 0:
                    self.call_at_ns(self.now_ns + wait_ns, join, flow, 8.0 * num_bytes)
                else:
                    join(flow, 8.0 * num_bytes)
            elif heap:
                self.now_ns, _, _, event = heappop(heap)
                if event.callback is None:
                    continue
                if self.now_ns > by_ns:
                    return result
                event.callback(*event.args)
                if arrived:
                    result.append((self.now_ns, arrived.copy()))
                    arrived.clear()
            else:
                return result
