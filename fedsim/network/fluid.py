"""Transfers share the server's link fairly, and each client's own link: flows with max-min rates.

A parcel pays its latency first, during which it loads no link, and then flows: a download through the
server's egress and the client's downlink, an upload through the client's uplink and the server's ingress.
Clients of a cell share its link as well, which lies between both. Parcels of one client and direction share
that client's link equally. Rates change the instant that a flow begins or ends, or a capacity steps; all
changes of one instant are solved together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np

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
    numbers_of,
)
from fedsim.network.capacity_audit import LoadCheck
from fedsim.network.capacity_trace import Capacity, read_capacity
from fedsim.network.cells import NO_CELL, Rate, SharedLinks, is_traced, mean_bps
from fedsim.network.fluid_cells import server_link, tree_of
from fedsim.network.fluid_edges import EdgeStars, with_edges
from fedsim.network.fluid_server_link import NEVER_NS, FluidPassage, end_ns
from fedsim.network.max_min_star import Flow, MaxMinStar, noise_s
from fedsim.network.max_min_tree import MaxMinTree
from fedsim.network.uncontended_flows import fit_into_cells, uncontended_arrivals

_NONE = -1  # in place of a parcel
_SERVER = -1  # its address


def contended_arrivals(
    parcels: Departures,
    *,
    capacity_bps: float,
    shared: SharedLinks | None = None,
    links_bps: Sequence[float],
    latencies_ns: Sequence[int],
    all_at_once: bool,
    by_ns: int,
) -> Arrivals:
    """Return when parcels of different clients arrive over one direction that nothing else uses.

    They may share the server's link, and those of cells. These are the instants of a
    :class:`fedsim.network.fluid_server_link.ServerLink`, to the nanosecond, without timers, listeners,
    pauses, traces and clients with several flows. Tests compare both.
    """
    star: MaxMinStar | MaxMinTree = MaxMinStar(capacity_bps)
    cells = [NO_CELL] * len(parcels.clients)
    if shared is not None:
        star, cells = tree_of(capacity_bps, shared), shared.of[parcels.clients].tolist()
    result = list[tuple[int, list[int]]]()
    starts_ns, sizes = parcels.at_ns.tolist(), parcels.num_bytes.tolist()
    begins_ns = (parcels.at_ns + np.asarray(latencies_ns, np.int64)).tolist()
    # The next one to begin last.
    waiting = sorted(range(len(sizes)), key=begins_ns.__getitem__)[::-1]
    add, advance = star.add, star.advance
    num_flowing = origin_ns = 0
    tick_ns, set_ns = NEVER_NS, 0  # when flows end, or might, and when that was found
    # The last parcel so far that began at the instant of its start; the same when tick_ns was set.
    last = set_after = _NONE
    while True:
        parcel = waiting[-1] if waiting else _NONE
        if parcel == _NONE or begins_ns[parcel] > tick_ns:
            is_tick = True
        elif begins_ns[parcel] < tick_ns:
            is_tick = False
        else:
            # At one instant what was set first comes first: a parcel's beginning is set when it starts. But
            # parcels start all at once before anything else at that instant.
            since_ns, starts_now = starts_ns[parcel] - set_ns, starts_ns[parcel] == tick_ns
            is_tick = since_ns > 0 or (since_ns == 0 and parcel > set_after)
            is_tick &= not (all_at_once and starts_now)
        if is_tick:
            now_ns = tick_ns
            if now_ns == NEVER_NS or now_ns > by_ns:
                return Arrivals.of(result)
            advance((now_ns - origin_ns) / 1e9)
            tick_ns = NEVER_NS
            if ended := star.finished():
                num_flowing -= len(ended)
                result.append((now_ns, [flow.order for flow in ended]))
            if not num_flowing:
                continue
            end_s, now_s = star.next_end_s(), star.now_s
            is_due = end_s <= now_s + noise_s(now_s)
            wake_ns = now_ns if is_due else max(now_ns + 1, end_ns(origin_ns, end_s))
        else:
            now_ns = begins_ns[waiting.pop()]
            last = parcel if starts_ns[parcel] == now_ns else last
            if num_flowing:
                advance((now_ns - origin_ns) / 1e9)
            else:
                origin_ns = now_ns
                star.restart()
            num_flowing += 1
            bits, cap_bps = 8.0 * sizes[parcel], links_bps[parcel]
            add(Flow(parcel, cells[parcel]), bits, cap_bps)
            # As if nobody else were there; what comes later only delays it.
            fastest_bps = cap_bps if cap_bps < capacity_bps else capacity_bps
            if bits == 0:
                wake_ns = now_ns
            elif fastest_bps > 0:
                wake_ns = max(now_ns, end_ns(origin_ns, star.now_s + bits / fastest_bps))
            else:
                continue
        if wake_ns < tick_ns:
            tick_ns, set_ns = wake_ns, now_ns
            set_after = len(sizes) if is_tick and all_at_once else last


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
        edges = links.edges
        self._at_edges = None if edges is None else EdgeStars(links, edges, is_checked=is_checked)
        links = links if edges is None else with_edges(links, edges)
        self._latency_s, self._server_latency_s = links.latency_s, links.server_latency_s
        down, up = (LoadCheck(), LoadCheck()) if is_checked else (None, None)
        self._shared = links.shared_down, links.shared_up
        self._down = server_link(
            server_up or links.server_up_bps, links.down_bps, links.down_trace, down, links.shared_down
        )
        self._up = server_link(
            server_down or links.server_down_bps, links.up_bps, links.up_trace, up, links.shared_up
        )
        # For timetables: the server's and the clients' links down, then up; None if any link changes.
        self._constant = (
            None
            if server_up or links.down_trace or is_traced(links.shared_down)
            else (links.server_up_bps, links.down_bps),
            None
            if server_down or links.up_trace or is_traced(links.shared_up)
            else (links.server_down_bps, links.up_bps),
        )
        self._carried = 0
        self._loop: VirtualTimeLoop | None = None

    def carry(self, parcel: Parcel, listener: Listener) -> Passage:
        """Start the transfer; its last byte leaves and arrives at one instant."""
        if self._loop is None:
            self._loop = cast(VirtualTimeLoop, running_loop())
            for each in (self._down, self._up, *(() if self._at_edges is None else self._at_edges.all())):
                each.loop = self._loop
        self._carried += 1
        up = parcel.receiver == _SERVER
        address, link = (parcel.sender, self._up) if up else (parcel.receiver, self._down)
        latency_s = float(self._latency_s[address]) + self._server_latency_s
        if self._at_edges is not None and (at_edge := self._at_edges.link(address, up=up)) is not None:
            link, latency_s = at_edge, float(self._latency_s[address])
        return FluidPassage(self._carried, link, address, round(latency_s * 1e9), parcel, listener)

    def arrivals(self, parcels: Departures, *, up: bool, all_at_once: bool, by_ns: int) -> Arrivals:
        """Return when parcels would arrive; see :class:`fedsim.network.base.TimetableCarrier`."""
        if (constant := self._constant[up]) is None:
            return Arrivals.of([])
        capacity_bps, link_bps = constant
        shared = self._shared[up]
        links_bps = numbers_of(parcels.clients, link_bps)
        latencies_s = numbers_of(parcels.clients, self._latency_s) + self._server_latency_s
        latencies_ns = np.rint(latencies_s * 1e9).astype(np.int64)
        begins_ns = parcels.at_ns + latencies_ns
        if not len(begins_ns):
            return Arrivals.of([])
        if shared is None or fit_into_cells(parcels.clients, links_bps, shared):
            known = uncontended_arrivals(begins_ns, parcels.num_bytes, links_bps, capacity_bps)
            if known is not None:
                return known.until(by_ns)
        return contended_arrivals(
            parcels,
            capacity_bps=capacity_bps,
            shared=shared,
            links_bps=links_bps.tolist(),
            latencies_ns=latencies_ns.tolist(),
            all_at_once=all_at_once,
            by_ns=by_ns,
        )


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
    follows_cells = True

    def __init__(self, config: FluidConfig) -> None:
        super().__init__(config)
        up, down = config.server_up_trace, config.server_down_trace
        self._server_up = None if up is None else read_capacity(up)
        self._server_down = None if down is None else read_capacity(down)

    def carrier(self, links: Links, *, verify: bool = False) -> Carrier:
        """Return a carrier in which transfers share the server's link."""
        return FluidCarrier(links, self._server_up, self._server_down, is_checked=verify)

    def server_rates(self, links: Links) -> tuple[Rate, Rate]:
        """Return the capacities out of the server and into it, which may follow traces."""
        return self._server_up or links.server_up_bps, self._server_down or links.server_down_bps

    def alone_s(self, links: Links, sender: int, receiver: int, num_bytes: int) -> float:
        """Return how long a parcel takes alone, s, with links at their mean."""
        up_bps, down_bps = map(mean_bps, self.server_rates(links))
        links = replace(links, server_up_bps=up_bps, server_down_bps=down_bps)
        return super().alone_s(links, sender, receiver, num_bytes)


PLUGIN = Fluid
