"""One direction of the links of cells and of the server, and the parcels that flow over both."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

from fedsim.network.base import PerClient, TraceOf
from fedsim.network.capacity_audit import Link, LoadCheck
from fedsim.network.capacity_trace import Capacity
from fedsim.network.cells import NO_CELL, SharedLinks, mean_bps
from fedsim.network.fluid_server_link import FluidPassage, ServerLink
from fedsim.network.max_min_tree import MaxMinTree


def tree_of(capacity_bps: float, shared: SharedLinks) -> MaxMinTree:
    """Return the solver of the server's link and of cells; those that follow traces stand still at first."""
    return MaxMinTree(capacity_bps, [0.0 if isinstance(rate, Capacity) else rate for rate in shared.rates])


class CellServerLink(ServerLink):
    """A server's link below which clients share those of cells."""

    _star: MaxMinTree

    def __init__(
        self,
        capacity: float | Capacity,
        link_bps: PerClient,
        trace_of: TraceOf | None,
        check: LoadCheck | None,
        shared: SharedLinks,
    ) -> None:
        super().__init__(capacity, link_bps, trace_of, check)
        self._star = tree_of(self._star.capacity_bps, shared)
        self._shared = shared
        self._traces = {cell: rate for cell, rate in enumerate(shared.rates) if isinstance(rate, Capacity)}
        # Of cells that follow traces and have flows: how many, and when the trace steps.
        self._num_flows = Counter[int]()
        self._steps: dict[int, asyncio.TimerHandle] = {}

    def join(self, flow: FluidPassage, bits: float) -> None:
        """Start a flow."""
        flow.cell = cell = self._shared.cell_of(flow.client)
        super().join(flow, bits)
        if (trace := self._traces.get(cell)) is not None:
            self._num_flows[cell] += 1
            if self._num_flows[cell] == 1:
                self._follow_cell(cell, trace)

    def _follow_cell(self, cell: int, trace: Capacity) -> None:
        """Take the capacity of a busy cell from its trace, now and whenever that steps."""
        loop = self.loop
        self._advance(loop.now_ns)
        self._wake(loop.now_ns)
        self._star.set_cell_capacity(cell, trace.rate_at(loop.now_ns))
        if (change_ns := trace.next_change_ns(loop.now_ns)) is not None:
            self._steps[cell] = loop.call_at_ns(change_ns, self._follow_cell, cell, trace)

    def _forget(self, flow: FluidPassage) -> None:
        super()._forget(flow)
        if (cell := flow.cell) in self._traces:
            self._num_flows[cell] -= 1
            if not self._num_flows[cell] and (timer := self._steps.pop(cell, None)) is not None:
                timer.cancel()

    def _loads(self, flows: Sequence[FluidPassage], now_s: float, now_ns: int) -> list[Link]:
        in_cells: dict[int, list[FluidPassage]] = {}
        for flow in flows:
            if flow.cell != NO_CELL:
                in_cells.setdefault(flow.cell, []).append(flow)
        links = super()._loads(flows, now_s, now_ns)
        for cell, its in in_cells.items():
            trace, rate = self._traces.get(cell), self._shared.rates[cell]
            name = f"the link of cell {self._shared.names[cell]}"
            links.append(self._load(name, mean_bps(rate), trace, its, now_s, now_ns))
        return links


def server_link(
    capacity: float | Capacity,
    link_bps: PerClient,
    trace_of: TraceOf | None,
    check: LoadCheck | None,
    shared: SharedLinks | None,
) -> ServerLink:
    """Return one direction of the server's link, with those that cells have in this direction."""
    if shared is None:
        return ServerLink(capacity, link_bps, trace_of, check)
    return CellServerLink(capacity, link_bps, trace_of, check, shared)
