"""Edge aggregators: each stands for the server at the door of a cell, and has links of its own to the server.

Frames of the cell's clients begin and end at their edge, so they load the client's link and the cell's, and
no other. Frames between an edge and the server load the edge's links and the server's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedsim.network.cells import Cells, Rate

NO_EDGE = -1
"""In place of an edge's number."""

_FIRST = -2  # the address of edge 0; that of the server is -1, and clients count from 0


def address_of(edge: int) -> int:
    """Return the address of an edge."""
    return _FIRST - edge


def edge_at(address: int) -> int:
    """Return the number of the edge with an address; negative for the address of another party."""
    return _FIRST - address


@dataclass(frozen=True, slots=True, eq=False)
class Edges:
    """The edges of a run.

    Attributes:
        cells: The cells of the run.
        cell: The number of each edge's cell, ``[edges]``.
        rounds: How often each averages its clients' replies in a round of the server.
        up_bps: Its uplink to the server, bit/s.
        down_bps: Its downlink, bit/s.
        latency_s: The one-way latency between it and the server's door, s.
    """

    cells: Cells
    cell: Sequence[int]
    rounds: Sequence[int]
    up_bps: Sequence[float]
    down_bps: Sequence[float]
    latency_s: Sequence[float]

    @property
    def names(self) -> list[str]:
        """The names of their cells."""
        return [self.cells.names[cell] for cell in self.cell]

    def of(self) -> NDArray[np.int32]:
        """Return the number of each client's edge, int32 ``[K]``; -1 for none."""
        numbers = np.full(len(self.cells.names) + 1, NO_EDGE, np.int32)  # the last is that of no cell
        numbers[list(self.cell)] = range(len(self.cell))
        return numbers[self.cells.of]

    def edge_of(self, client: int) -> int:
        """Return the number of one client's edge; -1 for none."""
        cell = self.cells.of.item(client)
        return self.cell.index(cell) if cell in self.cell else NO_EDGE

    def rates(self, *, up: bool) -> list[Rate]:
        """Return the capacity of each one's cell towards it, or towards clients."""
        rates = self.cells.up if up else self.cells.down
        return [rates[cell] for cell in self.cell]

    def without_traces(self) -> Edges:
        """Return edges whose cells are constant at the mean of their traces."""
        return replace(self, cells=self.cells.without_traces())
