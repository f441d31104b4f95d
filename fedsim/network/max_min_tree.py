"""Links that groups of flows share below one link that all share: exact max-min rates at O(log n) an event.

A flow crosses its own cap, the link of its *cell* if it is in one, and the server's link. Max-min fairness
gives it ``min(cap, theta_cell, theta)``. Here ``theta_cell`` is the level of the cell alone, as in a
:class:`fedsim.network.max_min_star.MaxMinStar` of its own, and ``theta`` is such that what all cells move
adds up to the server's capacity. A cell whose own level is at most ``theta`` is *full*: to the server it is
one flow with a cap, and its flows move at its own level. The flows of every other cell, which is *open*, move
at ``theta`` unless their caps are lower.

So a cell is a star under a ceiling, ``theta``. Its virtual work is worked out when it is asked for: that of
an open cell grows as the server's, that of a full one at its own level. A cell is looked at only if its flows
change, or if ``theta`` leaves the range in which the same of its flows are at their caps and it stays open or
full. Heaps of cells tell which cell that is, and which cell has the next end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from heapq import heapify, heappop, heappush, heapreplace

from fedsim.network.max_min_star import BY_ORDER, FAR_BITS, UNITS, WHOLE_UNITS, Flow, MaxMinStar, noise_s

UNLIMITED_BPS = 1e30
"""Far above the sum of all caps, and finite, as a star's capacity has to be."""
_FEW_ENTRIES = 64


def _level_bps(spare_units: int, num_sharing: int) -> float:
    """Return the level of flows that share what others leave; a star has it inline, which is faster."""
    if num_sharing:
        return spare_units / (num_sharing * WHOLE_UNITS)
    return math.inf if spare_units >= 0 else -1.0


class _Cell(MaxMinStar):
    """The star of a cell, and how far its virtual work has come.

    Attributes:
        is_open: Whether its flows share at the server's level.
        taken_units: What it takes of the server's capacity, without what its flows share there.
        num_at_server: The flows that share at the server's level.
    """

    _few_moves = 64  # since there may be many cells

    def __init__(self, number: int, capacity_bps: float) -> None:
        super().__init__(capacity_bps)
        self.number = number
        self.is_open = True
        self.taken_units = self.num_at_server = 0
        self._capacity_units = self._spare_units
        self._own_bps = self._server_bps = math.inf  # levels of the cell alone, and of the server
        # What others leave of the server's capacity, less the cell's, and how many of their flows share it.
        self._beside_units = self._num_beside = 0
        self._floor_bps = -math.inf
        # Virtual work at a reading of the clock that moves it: the server's virtual work, or time.
        self._marked_bits = self._mark = 0.0

    def sync(self, now_s: float, server_bits: float, theta_bps: float) -> None:
        """Set time and virtual work to what they are now; it makes no difference how often."""
        self.now_s = now_s
        if self.is_open:
            self._theta_bps = theta_bps
            self._virtual_bits = self._marked_bits + (server_bits - self._mark)
        else:
            self._virtual_bits = self._marked_bits + self._theta_bps * (now_s - self._mark)

    def mark(self, server_bits: float) -> None:
        """Count virtual work from now on, and from 0 where it has come far."""
        if self._virtual_bits > FAR_BITS:
            self._tidy()
        self._marked_bits = self._virtual_bits
        self._mark = server_bits if self.is_open else self.now_s

    def move_mark(self, by_bits: float) -> None:
        """Follow a change of the server's virtual work."""
        if self.is_open:
            self._mark += by_bits

    def settle(self, spare_units: int, num_sharing: int, floor_bps: float, server_bits: float) -> float:
        """Find which of its flows are at their caps, and whether it is full; return the server's level.

        Args:
            spare_units: What other cells leave of the server's capacity to all flows that share there.
            num_sharing: The flows of other cells among these.
            floor_bps: A level of the server below which nothing is settled.
            server_bits: The server's virtual work.
        """
        self._beside_units, self._num_beside = spare_units - self._capacity_units, num_sharing
        self._floor_bps = floor_bps
        self._solve()
        self.is_open = not self._num_sharing or (
            self._own_bps > floor_bps and self._own_bps > self._server_bps
        )
        self.mark(server_bits)
        if self.is_open:
            self.taken_units = self._capacity_units - self._spare_units
            self.num_at_server = self._num_sharing
        else:
            self.taken_units, self.num_at_server = self._capacity_units, 0
        return self._server_bps

    def _fair_bps(self) -> float:
        spare_units, num_sharing = self._spare_units, self._num_sharing
        self._own_bps = own_bps = _level_bps(spare_units, num_sharing)
        self._server_bps = level_bps = _level_bps(
            self._beside_units + spare_units, self._num_beside + num_sharing
        )
        if level_bps < self._floor_bps:
            level_bps = self._floor_bps
        return own_bps if own_bps < level_bps else level_bps

    def set_capacity(self, capacity_bps: float) -> None:
        """Change the capacity of the cell's link."""
        super().set_capacity(capacity_bps)
        self._capacity_units = int(capacity_bps * UNITS)

    def bounds_bps(self) -> tuple[float, float]:
        """Return the least level of the server at which all stays as it is, and the one at which it does not.

        It is just settled.
        """
        if not self.is_open:
            return self._theta_bps, math.inf
        least_bps = -self._largest[0][0] if self._largest else -math.inf
        cap_bps = self._smallest[0][0] if self._smallest else math.inf
        return least_bps, cap_bps if cap_bps < self._own_bps else self._own_bps

    def first_s(self) -> float:
        """Return when its first flow ends."""
        end_s, reach_s = self._first_end_s(), self._first_reach_s()
        return end_s if end_s < reach_s else reach_s

    def first(self) -> tuple[float, float]:
        """Return an instant and a reading of the server's virtual work, at the first of which a flow ends."""
        end_s, reach_s = self._first_end_s(), self._first_reach_s()
        if not self.is_open:
            return min(end_s, reach_s), math.inf
        return end_s, self._targets[0][0] - self._marked_bits + self._mark if self._targets else math.inf


class _Least:
    """The least of one number for each cell; infinite ones count as none."""

    def __init__(self) -> None:
        self._values: dict[int, float] = {}
        # Each cell's entry is never above its number, and counts while it is the cell's: a number that rises,
        # or falls far from the least one, costs nothing.
        self._entries: dict[int, float] = {}
        self._heap: list[tuple[float, int]] = []

    def put(self, cell: int, value: float) -> None:
        self._values[cell] = value
        if value < self._entries.get(cell, math.inf):
            self._entries[cell] = value
            heappush(self._heap, (value, cell))
            if len(self._heap) > 4 * len(self._values) + _FEW_ENTRIES:
                self._heap = [(value, cell) for cell, value in self._entries.items()]
                heapify(self._heap)

    def top(self) -> tuple[float, int | None]:
        heap, values, entries = self._heap, self._values, self._entries
        while heap:
            entry, cell = heap[0]
            value = values[cell]
            if entry != entries.get(cell):
                heappop(heap)
            elif value == entry:
                return value, cell
            elif value < math.inf:
                entries[cell] = value
                heapreplace(heap, (value, cell))
            else:
                del entries[cell]
                heappop(heap)
        return math.inf, None


class MaxMinTree:
    """The solver, used like a :class:`MaxMinStar`; a flow's ``cell`` is its number, -1 for none."""

    def __init__(self, capacity_bps: float, cells_bps: Sequence[float]) -> None:
        self.capacity_bps = capacity_bps
        # The last one is number -1: flows that are in no cell are one without a limit.
        self._cells_bps = [*cells_bps, UNLIMITED_BPS]
        self.restart()

    def restart(self) -> None:
        """Set the clock of an idle tree to 0, and forget all former flows."""
        self.now_s = 0.0
        self._spare_units = int(self.capacity_bps * UNITS)
        self._virtual_bits = 0.0
        self._theta_bps = math.inf
        self._num_sharing = 0
        self._cells: dict[int, _Cell] = {}  # those that have had a flow
        self._is_solved = True
        self._changed: dict[int, None] = {}  # cells, since the last solving
        self._falls, self._rises = _Least(), _Least()  # cells by minus the least theta, and by the greatest
        self._ends, self._reaches = _Least(), _Least()  # by instant and by virtual work of the next end

    def advance(self, at_s: float) -> None:
        """Let time pass until an instant, s; flows that end meanwhile stay until :meth:`finished`."""
        passed_s = at_s - self.now_s
        if passed_s == 0:
            return
        if not passed_s > 0:
            raise ValueError(f"time goes forward: {at_s!r} s does not come after {self.now_s!r} s")
        if not self._is_solved:
            self._solve()
        if self._num_sharing:
            self._virtual_bits += self._theta_bps * passed_s
        self.now_s = at_s
        if self._virtual_bits > FAR_BITS:
            base_bits, self._virtual_bits = self._virtual_bits, 0.0
            for number, cell in self._cells.items():
                cell.move_mark(-base_bits)
                self._note_next(self._synced(number))

    def add(self, flow: Flow, size_bits: float, cap_bps: float = math.inf) -> None:
        """Start a flow that is in no solver now."""
        if flow.cell not in self._cells:
            self._cells[flow.cell] = _Cell(flow.cell, self._cells_bps[flow.cell])
        self._change(flow.cell).add(flow, size_bits, cap_bps)

    def remove(self, flow: Flow) -> float:
        """Take a flow out and return its remaining bits."""
        return self._change(flow.cell).remove(flow)

    def set_cap(self, flow: Flow, cap_bps: float) -> None:
        """Change a flow's cap."""
        self._change(flow.cell).set_cap(flow, cap_bps)

    def set_capacity(self, capacity_bps: float) -> None:
        """Change the capacity of the server's link."""
        if capacity_bps != self.capacity_bps:
            self._spare_units += int(capacity_bps * UNITS) - int(self.capacity_bps * UNITS)
            self.capacity_bps = capacity_bps
            self._is_solved = False

    def set_cell_capacity(self, cell: int, capacity_bps: float) -> None:
        """Change the capacity of a cell's link."""
        self._cells_bps[cell] = capacity_bps
        if cell in self._cells:
            self._change(cell).set_capacity(capacity_bps)

    def rate_bps(self, flow: Flow) -> float:
        """Return the rate at which a flow moves from now on."""
        if not self._is_solved:
            self._solve()
        return self._synced(flow.cell).rate_bps(flow)

    def remaining_bits(self, flow: Flow) -> float:
        """Return the remaining bits of a flow."""
        return self._synced(flow.cell).remaining_bits(flow)

    def next_end_s(self) -> float:
        """Return the instant of the next end if nothing changes before it; infinity without one."""
        if not self._is_solved:
            self._solve()
        return self._next()[0]

    def finished(self) -> list[Flow]:
        """Take out the flows that have ended by now, but for rounding error, and return them in order."""
        if not self._is_solved:
            self._solve()
        by_s, flows = self.now_s + noise_s(self.now_s), list[Flow]()
        while True:
            end_s, number = self._next()
            if number is None or end_s > by_s:
                break
            flows += self._change(number).take_ended(by_s)
            # Nothing else of it ends now, and when the next flow does is known once it is settled again.
            self._ends.put(number, math.inf)
            self._reaches.put(number, math.inf)
        if len(flows) > 1:
            flows.sort(key=BY_ORDER)
        return flows

    def _synced(self, number: int) -> _Cell:
        cell = self._cells[number]
        cell.sync(self.now_s, self._virtual_bits, self._theta_bps)
        return cell

    def _change(self, number: int) -> _Cell:
        """Return a cell that changes now."""
        cell = self._synced(number)
        cell.mark(self._virtual_bits)
        self._changed[number] = None
        self._is_solved = False
        return cell

    def _next(self) -> tuple[float, int | None]:
        """Return when the next flow ends, and its cell."""
        # The heaps say which cell it is. The instant is the one by which the cell takes its flows out.
        (end_s, first), (reach_bits, reaching) = self._ends.top(), self._reaches.top()
        missing_bits = reach_bits - self._virtual_bits
        if missing_bits <= 0 or missing_bits < (end_s - self.now_s) * self._theta_bps:
            first = reaching
        return (math.inf, None) if first is None else (self._synced(first).first_s(), first)

    # ---- the two kinds of cell

    def _solve(self) -> None:
        """Settle cells until theta suits all of them.

        What a cell moves is concave in theta, and what it is counted for is never less, however it is
        settled: so the theta that follows is never too large. First the cells that are settled for a larger
        theta, the largest first; each raises it. Then those for which it has risen too far, which raises it
        further. Rounding may not lower it meanwhile, so this ends.
        """
        for number in self._changed:
            self._settle_down(self._cells[number])
        self._changed.clear()
        theta_bps = _level_bps(self._spare_units, self._num_sharing)
        while (top := self._falls.top())[1] is not None and -top[0] > theta_bps:
            theta_bps = max(theta_bps, self._settle_down(self._synced(top[1])))
        while (top := self._rises.top())[1] is not None and top[0] <= theta_bps:
            theta_bps = max(theta_bps, self._settle(self._synced(top[1]), theta_bps))
        self._theta_bps = theta_bps if self._num_sharing else math.inf
        self._is_solved = True

    def _settle_down(self, cell: _Cell) -> float:
        """Settle a cell, but not below where another one would have to be settled first."""
        self._falls.put(cell.number, math.inf)
        least_bps = -self._falls.top()[0]
        return self._settle(cell, math.nextafter(least_bps, -math.inf))

    def _settle(self, cell: _Cell, floor_bps: float) -> float:
        """Settle a cell, count it anew, and return the server's level."""
        self._spare_units += cell.taken_units
        self._num_sharing -= cell.num_at_server
        server_bps = cell.settle(self._spare_units, self._num_sharing, floor_bps, self._virtual_bits)
        self._spare_units -= cell.taken_units
        self._num_sharing += cell.num_at_server
        least_bps, most_bps = cell.bounds_bps()
        self._falls.put(cell.number, -least_bps)
        self._rises.put(cell.number, most_bps)
        self._note_next(cell)
        if cell.is_open:
            return server_bps
        # They differ by rounding; the cell takes itself for full by the first.
        return max(server_bps, _level_bps(self._spare_units, self._num_sharing))

    def _note_next(self, cell: _Cell) -> None:
        end_s, reach_bits = cell.first()
        self._ends.put(cell.number, end_s)
        self._reaches.put(cell.number, reach_bits)
