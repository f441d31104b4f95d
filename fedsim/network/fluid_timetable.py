"""Arrivals of parcels over one direction of the server's link that nothing else uses.

They equal those of :class:`fedsim.network.fluid_server_link.ServerLink` to the nanosecond, without timers,
listeners, pauses, traces and clients with several flows. Tests compare both.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from fedsim.network.base import Arrivals, Departures
from fedsim.network.fluid_server_link import NEVER_NS, end_ns
from fedsim.network.links import PerClient
from fedsim.network.max_min_star import Flow, MaxMinStar, noise_s

_TICK = -1  # in place of a parcel: flows end, or might


def arrivals(
    parcels: Departures,
    *,
    capacity_bps: float,
    link_bps: PerClient,
    latency_ns: Callable[[int], int],
    all_at_once: bool,
    by_ns: int,
) -> Arrivals:
    """Return when parcels of different clients arrive; see :class:`fedsim.network.base.TimetableCarrier`."""
    star, result = MaxMinStar(capacity_bps), list[tuple[int, list[int]]]()
    add, advance = star.add, star.advance
    # Instants at which something happens, in the order in which they were set, and to which parcel.
    heap: list[tuple[int, int, int]] = []
    turn = tick_turn = next_parcel = num_flowing = origin_ns = 0
    tick_ns = NEVER_NS
    # Parcels that begin all at once do so before what else is due at their instant, others after it.
    first_after_ns = 0 if all_at_once else 1
    while True:
        if next_parcel < len(parcels) and not (
            heap and heap[0][0] < parcels[next_parcel][0] + first_after_ns
        ):
            parcel = next_parcel
            next_parcel += 1
            now_ns, client, num_bytes = parcels[parcel]
            if (wait_ns := latency_ns(client)) > 0:
                turn += 1
                heappush(heap, (now_ns + wait_ns, turn, parcel))
                continue
        elif heap:
            now_ns, its_turn, parcel = heappop(heap)
            if parcel != _TICK:
                _, client, num_bytes = parcels[parcel]
        else:
            return result
        if parcel == _TICK:
            if its_turn != tick_turn:
                continue  # an earlier one has taken its place
            if now_ns > by_ns:
                return result
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
            if num_flowing:
                advance((now_ns - origin_ns) / 1e9)
            else:
                origin_ns = now_ns
                star.restart()
            num_flowing += 1
            bits, cap_bps = 8.0 * num_bytes, float(link_bps[client])
            add(Flow(parcel), bits, cap_bps)
            # As if nobody else were there; what comes later only delays it.
            fastest_bps = cap_bps if cap_bps < capacity_bps else capacity_bps
            if bits == 0:
                wake_ns = now_ns
            elif fastest_bps > 0:
                wake_ns = max(now_ns, end_ns(origin_ns, star.now_s + bits / fastest_bps))
            else:
                continue
        if wake_ns < tick_ns:
            tick_ns = wake_ns
            turn += 1
            tick_turn = turn
            heappush(heap, (wake_ns, turn, _TICK))
