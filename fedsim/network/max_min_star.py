"""One shared link, each flow also with a cap of its own: exact max-min rates at O(log n) for an event.

Max-min fairness gives every flow ``min(cap, theta)``, where ``theta`` is such that the rates add up to the
capacity (or infinite, when the caps alone stay below it). Flows at their cap end at an instant that is known.
The others all move at ``theta``, so a clock of *virtual work*, ``dV/dt = theta``, orders them: one that has
``b`` bits left at ``V`` ends when the clock shows ``V + b``, however ``theta`` changes meanwhile. Only a flow
that passes from one kind to the other is touched.

Instants are float seconds from an origin of the caller's choice. Whoever rounds them to nanoseconds does it
upwards, so that no flow ends early; :func:`noise_s` says how much of an instant is rounding error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace
from operator import attrgetter
from typing import TypeVar

from fedsim.params import Array

FAR_BITS = 2.0**43
"""Beyond this, virtual work is counted from 0 again: up to it, a sum is good to a thousandth of a bit."""

# Units in a bit/s. Caps are summed as whole numbers of them: as flows come and go by the million, a float sum
# that is added to and taken from would drift, and one made anew each time would cost O(n).
UNITS = 2.0**60
WHOLE_UNITS = 2**60
Seconds = TypeVar("Seconds", float, Array)
BY_ORDER = attrgetter("order")
"""The key by which flows that end at one instant are sorted."""


def noise_s(at_s: Seconds) -> Seconds:
    """Return the rounding error of an instant, s: a picosecond, or a few of its last digits."""
    return 1e-12 + 5e-16 * at_s


@dataclass(slots=True, eq=False, repr=False)
class Flow:
    """A transfer through one :class:`MaxMinStar`, with the star's notes.

    Flows that end at one instant are returned in the order of ``order``. The ``cell``, which it
    never leaves, is for :class:`fedsim.network.max_min_tree.MaxMinTree`.
    """

    order: int
    cell: int = -1
    _stamp: int = field(default=0, init=False)  # of its heap entries that count; 0 when it is in no star
    _cap_bps: float = field(init=False)
    _cap_units: int = field(init=False)  # 0 for no cap
    _is_capped: bool = field(init=False)
    _work_bits: float = field(init=False)  # to go at _since_s if capped, else what V shows at its end
    _since_s: float = field(init=False)  # of a capped flow
    _end_s: float = field(init=False)  # of a capped flow
    _in_ends: bool = field(init=False)  # whether the heap of ends holds it, at its end or before


Heap = list[tuple[float, int, Flow]]


class MaxMinStar:
    """The solver. Changes take effect together, at ``now_s``, the instant of the last :meth:`advance`."""

    _few_moves = 1024  # below this, stale entries are not worth a tidying

    def __init__(self, capacity_bps: float) -> None:
        self.capacity_bps = capacity_bps
        self._spare_units = int(capacity_bps * UNITS)  # what capped flows leave; negative before solving
        self.now_s = 0.0
        self._virtual_bits = 0.0
        self._theta_bps = math.inf
        self._num_capped = 0
        self._num_sharing = 0
        self._is_solved = True
        self._stamp = 0
        self._moves = 0  # since the last tidying
        # Nothing is taken out of the middle of a heap, which would cost O(n): an entry whose stamp is not its
        # flow's is stale, and skipped when it surfaces. Every flow with a finite cap has one that counts in
        # either of the first two, and one or more in the other two.
        self._largest: Heap = []  # capped flows by -cap
        self._smallest: Heap = []  # sharing flows by cap
        self._ends: Heap = []  # flows by an instant that is not after their end
        self._targets: Heap = []  # sharing flows by V at their end; stale if that is not the flow's any more

    def __len__(self) -> int:
        return self._num_capped + self._num_sharing

    def restart(self) -> None:
        """Set the clock of an idle star to 0, and forget all former flows."""
        self.now_s = 0.0
        self._virtual_bits = 0.0
        self._theta_bps = math.inf
        self._moves = 0
        for heap in (self._largest, self._smallest, self._ends, self._targets):
            heap.clear()

    def advance(self, at_s: float) -> None:
        """Let time pass until an instant, s; flows that end meanwhile stay until :meth:`finished`."""
        passed_s = at_s - self.now_s
        if passed_s == 0:  # many changes fall on one instant, and are solved together once time passes
            return
        if not passed_s > 0:
            raise ValueError(f"time goes forward: {at_s!r} s does not come after {self.now_s!r} s")
        if not self._is_solved:
            self._solve()
        # All that time does: V moves the flows that share, and capped ones are worked out when asked.
        if self._num_sharing:
            self._virtual_bits += self._theta_bps * passed_s
        self.now_s = at_s
        if self._virtual_bits > FAR_BITS:
            self._tidy()

    def add(self, flow: Flow, size_bits: float, cap_bps: float = math.inf) -> None:
        """Start a flow that is in no star now."""
        self._stamp = flow._stamp = self._stamp + 1
        flow._cap_bps = cap_bps
        flow._cap_units = int(cap_bps * UNITS) if cap_bps != math.inf else 0
        flow._in_ends = False
        self._is_solved = False
        # To the kind that theta of the last solving suggests: mostly it stays there, which saves moves
        # between heaps; solving corrects the rest.
        if cap_bps <= self._theta_bps and cap_bps != math.inf:
            self._put_capped(flow, size_bits)
        else:
            self._put_sharing(flow, size_bits)

    def remove(self, flow: Flow) -> float:
        """Take a flow out and return its remaining bits."""
        remaining_bits = self.remaining_bits(flow)
        self._take(flow)
        flow._stamp = 0
        return remaining_bits

    def set_cap(self, flow: Flow, cap_bps: float) -> None:
        """Change a flow's cap."""
        if cap_bps != flow._cap_bps:
            # Its new stamp makes all of its old entries stale at once.
            self.add(flow, self.remove(flow), cap_bps)

    def set_capacity(self, capacity_bps: float) -> None:
        """Change the capacity of the shared link; it stays finite."""
        if capacity_bps != self.capacity_bps:
            # As whole units, so that steps up and down cancel exactly.
            self._spare_units += int(capacity_bps * UNITS) - int(self.capacity_bps * UNITS)
            self.capacity_bps = capacity_bps
            self._is_solved = False

    def rate_bps(self, flow: Flow) -> float:
        """Return the rate at which a flow moves from now on."""
        if not self._is_solved:
            self._solve()
        return flow._cap_bps if flow._is_capped else self._theta_bps

    def remaining_bits(self, flow: Flow) -> float:
        """Return the remaining bits of a flow."""
        # Worked out when asked, from what was noted when it last changed kind: time costs no look at flows.
        if flow._is_capped:
            bits = flow._work_bits - (self.now_s - flow._since_s) * flow._cap_bps
        else:
            bits = flow._work_bits - self._virtual_bits
        return bits if bits > 0 else 0.0

    def next_end_s(self) -> float:
        """Return the instant of the next end if nothing changes before it; infinity without one."""
        if not self._is_solved:
            self._solve()
        end_s, reach_s = self._first_end_s(), self._first_reach_s()
        return end_s if end_s < reach_s else reach_s

    def finished(self) -> list[Flow]:
        """Take out the flows that have ended by now, but for rounding error, and return them in order."""
        if not self._is_solved:
            self._solve()
        flows = self.take_ended(self.now_s + noise_s(self.now_s))
        if len(flows) > 1:  # heaps order ties by stamp, which a change of a cap renews
            flows.sort(key=BY_ORDER)
        return flows

    def take_ended(self, by_s: float) -> list[Flow]:
        """Take out the flows that have ended by an instant, at the rates of the last solving."""
        flows = list[Flow]()
        # Taking one out stirs neither heap, nor theta before the next solving.
        while self._ends and self._first_end_s() <= by_s:
            flows.append(self._pop(self._ends))
        while self._targets and self._first_reach_s() <= by_s:
            flows.append(self._pop(self._targets))
        return flows

    def _pop(self, heap: Heap) -> Flow:
        """Take out the flow at the top of a heap for good: its entries elsewhere are stale from now on."""
        flow = heappop(heap)[2]
        self._take(flow)
        flow._stamp = 0
        return flow

    def _first_end_s(self) -> float:
        """Bring the first end of a capped flow to the top of the heap and return it."""
        ends = self._ends
        while ends:
            early_s, stamp, flow = ends[0]
            if stamp != flow._stamp:
                heappop(ends)
            elif not flow._is_capped:  # put off until now, so a flow that changes kind often is moved once
                heappop(ends)
                flow._in_ends = False
                heappush(self._targets, (flow._work_bits, stamp, flow))
            elif flow._end_s > early_s:  # it shared for a while, which put its end off
                heapreplace(ends, (flow._end_s, stamp, flow))
            else:
                return early_s
        return math.inf

    def _first_reach_s(self) -> float:
        """Bring the first reading of V at which a sharing flow ends to the top, and return its instant."""
        targets = self._targets
        while targets:
            target_bits, stamp, flow = targets[0]
            if stamp == flow._stamp and target_bits == flow._work_bits and not flow._is_capped:
                missing_bits = target_bits - self._virtual_bits
                if missing_bits <= 0:  # also where theta is 0: nothing is left to wait for
                    return self.now_s
                return self.now_s + missing_bits / self._theta_bps if self._theta_bps else math.inf
            heappop(targets)  # stale, or capped now: sharing again makes a new entry
        return math.inf

    # ---- the two kinds of flow

    def _put_capped(self, flow: Flow, bits: float) -> None:
        flow._is_capped = True
        flow._work_bits = bits
        flow._since_s = end_s = self.now_s
        if bits:
            end_s = end_s + bits / flow._cap_bps if flow._cap_bps else math.inf
        flow._end_s = end_s
        self._moves += 1
        self._num_capped += 1
        self._spare_units -= flow._cap_units
        heappush(self._largest, (-flow._cap_bps, flow._stamp, flow))
        # Sharing only ever delays an end, so an entry that it had before it shared is early enough.
        if not flow._in_ends:
            flow._in_ends = True
            heappush(self._ends, (flow._end_s, flow._stamp, flow))

    def _put_sharing(self, flow: Flow, bits: float) -> None:
        flow._is_capped = False
        flow._work_bits = target_bits = self._virtual_bits + bits
        self._moves += 1
        self._num_sharing += 1
        if flow._cap_bps != math.inf:
            heappush(self._smallest, (flow._cap_bps, flow._stamp, flow))
        # Its end when it was capped will surface first, and then it is early enough for this.
        if not flow._in_ends:
            heappush(self._targets, (target_bits, flow._stamp, flow))

    def _take(self, flow: Flow) -> None:
        self._is_solved = False
        if flow._is_capped:
            self._num_capped -= 1
            self._spare_units += flow._cap_units
        else:
            self._num_sharing -= 1

    def _solve(self) -> None:
        """Move flows between the two kinds until exactly those whose cap is at most theta are capped.

        First out of the capped, largest cap first: each move raises theta, but not above that cap. Then into
        them, smallest first, which raises it further, so nobody has to come out again: this ends, whatever
        rounding does.
        """
        # Each move leaves a stale entry in some heap; beyond a few per flow they are worth one pass over all.
        if self._moves > 4 * (self._num_capped + self._num_sharing) + self._few_moves:
            self._tidy()
        theta_bps = self._fair_bps()
        largest, smallest = self._largest, self._smallest
        while largest:
            negative_bps, stamp, flow = largest[0]
            if stamp == flow._stamp:
                if -negative_bps <= theta_bps:
                    break
                bits = self.remaining_bits(flow)
                self._num_capped -= 1
                self._spare_units += flow._cap_units
                self._put_sharing(flow, bits)
                theta_bps = self._fair_bps()
            heappop(largest)
        while smallest:
            cap_bps, stamp, flow = smallest[0]
            if stamp == flow._stamp:
                if cap_bps > theta_bps:
                    break
                bits = self.remaining_bits(flow)
                self._num_sharing -= 1
                self._put_capped(flow, bits)
                theta_bps = self._fair_bps()
            heappop(smallest)
        self._theta_bps = theta_bps if self._num_sharing else math.inf
        self._is_solved = True

    def _fair_bps(self) -> float:
        if self._num_sharing:
            return self._spare_units / (self._num_sharing * WHOLE_UNITS)
        # With all flows at their caps and too little for them, some must share: the largest first.
        return math.inf if self._spare_units >= 0 else -1.0

    def _tidy(self) -> None:
        """Drop stale entries and count V from 0, against growth of both.

        Done once in as many moves as there are a few times flows, it costs a constant for each move; and V is
        far only once that many bits have crossed in each flow that shared.
        """
        self._moves = 0
        base_bits, self._virtual_bits = self._virtual_bits, 0.0
        for heap in (self._largest, self._smallest, self._ends):
            heap[:] = [entry for entry in heap if entry[1] == entry[2]._stamp]
            heapify(heap)
        targets = [
            flow
            for target_bits, stamp, flow in self._targets
            if stamp == flow._stamp and target_bits == flow._work_bits and not flow._is_capped
        ]
        # Each sharing flow once: those with a finite cap lie once in this heap, the others once in targets.
        for _, _, flow in self._smallest:
            flow._work_bits -= base_bits
        for flow in targets:
            if flow._cap_bps == math.inf:
                flow._work_bits -= base_bits
        # A flow that was capped between may be here twice, which does no harm.
        self._targets[:] = [(flow._work_bits, flow._stamp, flow) for flow in targets]
        heapify(self._targets)
