"""Transfers share the server's link fairly, and each client's own link: flows with max-min rates.

A parcel pays its latency first, during which it loads no link, and then flows: a download through the
server's egress and the client's downlink, an upload through the client's uplink and the server's ingress.
Parcels of one client and direction share that client's link equally. Rates change the instant that a flow
begins or ends, or a capacity steps; all changes of one instant are solved together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from heapq import heappop, heappush
from typing import Any, cast

from fedsim.clock import VirtualTimeLoop, running_loop
from fedsim.config import Config
from fedsim.input_paths import InputPath
from fedsim.network.base import (
    Arrivals,
    Carrier,
    Departures,
    Links,
    Listener,
    NetworkPlugin,
    Parcel,
    Passage,
)
from fedsim.network.capacity import Capacity, read_capacity
from fedsim.network.capacity_audit import LoadCheck
from fedsim.network.fluid_server_link import FluidPassage, ServerLink


class _Timetable:
    """Stands in for the loop and for listeners where a link's events are all that happens."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.arrived_now: list[int] = []
        self._events: list[tuple[int, int, int, _Event]] = []
        self._turn = 0

    def call_at_ns(self, at_ns: int, call: Callable[..., object], *args: Any, event_class: int = 1) -> _Event:
        """Schedule a call; of one instant, those of a lesser class come first."""
        event, self._turn = _Event(call, args), self._turn + 1
        heappush(self._events, (at_ns, event_class, self._turn, event))
        return event

    def left(self) -> None:
        """Note nothing of a parcel that has left."""

    def arrived(self, parcel: Parcel) -> None:
        """Note that a parcel has arrived."""
        self.arrived_now.append(parcel.payload)

    def run(self, by_ns: int) -> Arrivals:
        """Let time pass, and return the arrivals."""
        result: Arrivals = []
        while self._events and self._events[0][0] <= by_ns:
            self.now_ns, _, _, event = heappop(self._events)
            event.call(*event.args)
            if self.arrived_now:
                result.append((self.now_ns, self.arrived_now))
                self.arrived_now = []
        return result


class _Event:
    """A call to come."""

    __slots__ = ("args", "call")

    def __init__(self, call: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.call, self.args = call, args

    def cancel(self) -> None:
        self.call, self.args = int, ()  # which does nothing


class FluidCarrier:
    """Carries parcels as flows; ``server_up`` and ``server_down`` replace the server's capacities."""

    def __init__(
        self,
        links: Links,
        server_up: Capacity | None = None,
        server_down: Capacity | None = None,
        *,
        is_checked: bool = False,
    ) -> None:
        self._latency_s, self._server_latency_s = links.latency_s, links.server_latency_s
        down, up = (LoadCheck(), LoadCheck()) if is_checked else (None, None)
        self._down = ServerLink(server_up or links.server_up_bps, links.down_bps, links.down_trace, down)
        self._up = ServerLink(server_down or links.server_down_bps, links.up_bps, links.up_trace, up)
        # For timetables: the server's and the clients' links down, then up; None if they change.
        self._constant = (
            None if server_up or links.down_trace else (links.server_up_bps, links.down_bps),
            None if server_down or links.up_trace else (links.server_down_bps, links.up_bps),
        )
        self._carried = 0
        self._loop: VirtualTimeLoop | None = None

    def carry(self, parcel: Parcel, listener: Listener) -> Passage:
        """Start the transfer; its last byte leaves and arrives at one instant."""
        if self._loop is None:
            self._loop = self._down.loop = self._up.loop = cast(VirtualTimeLoop, running_loop())
        self._carried += 1
        up = parcel.receiver < 0
        client, link = (parcel.sender, self._up) if up else (parcel.receiver, self._down)
        return FluidPassage(self._carried, link, client, self._latency_ns(client), parcel, listener)

    def arrivals(self, parcels: Departures, *, up: bool, all_at_once: bool, by_ns: int) -> Arrivals:
        """Return when parcels would arrive; see :class:`fedsim.network.base.TimetableCarrier`."""
        if (constant := self._constant[up]) is None:
            return []
        timetable, link = _Timetable(), ServerLink(*constant)
        link.loop = cast(VirtualTimeLoop, timetable)
        # Parcels that begin all at once do so before what else is due at their instant, others after it.
        event_class = 0 if all_at_once else 2
        for place, (start_ns, client, num_bytes) in enumerate(parcels):
            parcel = Parcel(client, client, num_bytes, place)
            passage = place, link, client, self._latency_ns(client), parcel, timetable
            timetable.call_at_ns(start_ns, FluidPassage, *passage, event_class=event_class)
        return timetable.run(by_ns)

    def _latency_ns(self, client: int) -> int:
        return round((float(self._latency_s[client]) + self._server_latency_s) * 1e9)


class FluidConfig(Config):
    """Settings of shared links."""

    server_up_trace: InputPath | None = None
    """File of the server's egress over time, which takes the place of the constant one: CSV with a header
    such as at_s,bps, or Mahimahi's format, read in bins of 100 ms. Steps are at least 1 ms long. It starts
    again at its end."""
    server_down_trace: InputPath | None = None
    """File of the server's ingress over time, likewise."""


class Fluid(NetworkPlugin[FluidConfig]):
    """Links shared fairly."""

    follows_traces = True

    def __init__(self, config: FluidConfig) -> None:
        super().__init__(config)
        up, down = config.server_up_trace, config.server_down_trace
        self._server_up = None if up is None else read_capacity(up)
        self._server_down = None if down is None else read_capacity(down)

    def carrier(self, links: Links, *, verify: bool = False) -> Carrier:
        """Return a carrier in which transfers share the server's link."""
        return FluidCarrier(links, self._server_up, self._server_down, is_checked=verify)

    def alone_s(self, links: Links, sender: int, receiver: int, num_bytes: int) -> float:
        """Return how long a parcel takes alone, s, with links at their mean."""
        up, down = self._server_up, self._server_down
        if up is not None:
            links = replace(links, server_up_bps=up.mean_bps)
        if down is not None:
            links = replace(links, server_down_bps=down.mean_bps)
        return super().alone_s(links, sender, receiver, num_bytes)


PLUGIN = Fluid
