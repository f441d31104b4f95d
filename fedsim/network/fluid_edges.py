"""Links below edges: each edge's cell is a star of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from fedsim.network.base import Links, PerClient, TraceOf
from fedsim.network.capacity_audit import LoadCheck
from fedsim.network.cells import Rate
from fedsim.network.edges import NO_EDGE, Edges, edge_at
from fedsim.network.fluid_server_link import ServerLink
from fedsim.network.max_min_tree import UNLIMITED_BPS


@dataclass(frozen=True, slots=True)
class _WithEdges:
    """A number for each client and edge, by address."""

    clients: PerClient
    edges: Sequence[float]

    def __getitem__(self, address: int) -> float:
        return self.clients[address] if address >= 0 else self.edges[edge_at(address)]


def _of_clients(trace_of: TraceOf | None) -> TraceOf | None:
    """Return the traces by address; those of edges are None."""
    return trace_of and (lambda address: trace_of(address) if address >= 0 else None)


def with_edges(links: Links, edges: Edges) -> Links:
    """Return links by address: those of edges are beside those of clients."""
    return replace(
        links,
        up_bps=_WithEdges(links.up_bps, edges.up_bps),
        down_bps=_WithEdges(links.down_bps, edges.down_bps),
        latency_s=_WithEdges(links.latency_s, edges.latency_s),
        up_trace=_of_clients(links.up_trace),
        down_trace=_of_clients(links.down_trace),
    )


class EdgeStars:
    """The links of edges' cells, and the links of their clients."""

    def __init__(self, links: Links, edges: Edges, *, is_checked: bool) -> None:
        self._of = edges.of()

        def star(way: str, name: str, rate: Rate, own: tuple[PerClient, TraceOf | None]) -> ServerLink:
            check = LoadCheck() if is_checked else None
            link = ServerLink(UNLIMITED_BPS if rate == inf else rate, *own, check)
            link.name = f"the link of cell {name} {way}"
            return link

        ways = {
            True: ("up", (links.up_bps, links.up_trace)),
            False: ("down", (links.down_bps, links.down_trace)),
        }
        self._stars = {
            up: [
                star(way, name, rate, own) for name, rate in zip(edges.names, edges.rates(up=up), strict=True)
            ]
            for up, (way, own) in ways.items()
        }

    def all(self) -> list[ServerLink]:
        """Return all of the links."""
        return [*self._stars[False], *self._stars[True]]

    def link(self, address: int, *, up: bool) -> ServerLink | None:
        """Return the link of a client's cell at its edge; None for edges, and for clients without one."""
        edge = NO_EDGE if address < 0 else self._of.item(address)
        return None if edge == NO_EDGE else self._stars[up][edge]
