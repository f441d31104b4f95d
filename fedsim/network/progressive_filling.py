"""Any number of shared links: max-min rates by progressive filling, and flows that move at them.

All flows start at rate 0 and rise together, each in proportion to its weight, until a link is full: its
flows stay at what they have, and the others rise further. The cost of a change grows with all flows, so a
star of one shared link has a faster solver (``max_min_star.py``); this one takes any topology, such as
edge aggregators between clients and server, and is what the faster one is tested against.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from fedsim.network.max_min_star import noise_s


def max_min_bps(
    capacities_bps: Sequence[float], routes: Sequence[Sequence[int]], weights: Sequence[float] | None = None
) -> list[float]:
    """Return the weighted max-min fair rate of each flow, bit/s.

    Args:
        capacities_bps: Capacity of each link, 0 or more.
        routes: For each flow the links that it crosses, each once; infinite rate where there are none.
        weights: For each flow its share beside others where they compete, above 0; by default all equal.

    Raises:
        ValueError: A weight that is not above 0, or one for each flow is not given.
    """
    if weights is None:
        weights = [1.0] * len(routes)
    if len(weights) != len(routes) or not all(0 < weight < math.inf for weight in weights):
        raise ValueError(f"{len(routes)} flows need as many finite weights above 0, not {list(weights)!r}")
    spare_bps = [float(capacity_bps) for capacity_bps in capacities_bps]
    rising: list[list[int]] = [[] for _ in spare_bps]  # flows of each link whose rate is not known yet
    for flow, route in enumerate(routes):
        for link in route:
            rising[link].append(flow)
    rates_bps = [math.inf] * len(routes)
    is_known = [False] * len(routes)

    def level(link: int) -> float:
        return spare_bps[link] / math.fsum(weights[flow] for flow in rising[link])

    heap = [(level(link), link) for link, flows in enumerate(rising) if flows]
    heapify(heap)
    while heap:
        old_level, link = heappop(heap)
        rising[link] = [flow for flow in rising[link] if not is_known[flow]]
        if not rising[link]:
            continue
        # A link's level only rises, as flows held up elsewhere leave it more: the top is stale, or it.
        if (now_level := level(link)) > old_level:
            heappush(heap, (now_level, link))
            continue
        for flow in rising[link]:
            is_known[flow] = True
            rates_bps[flow] = weights[flow] * now_level
            for crossed in routes[flow]:
                spare_bps[crossed] = max(0.0, spare_bps[crossed] - rates_bps[flow])
    return rates_bps


class ProgressiveFilling:
    """Flows over any links through time; in use like ``max_min_star.MaxMinStar``, at O(flows) an event.

    Args:
        capacities_bps: Capacity of each link, bit/s.
    """

    def __init__(self, capacities_bps: Sequence[float]) -> None:
        self._capacities_bps = list(capacities_bps)
        self._now_s = 0.0
        self._remaining_bits: dict[int, float] = {}
        self._routes: dict[int, tuple[Sequence[int], float]] = {}
        self._rates_bps: dict[int, float] | None = {}

    def __len__(self) -> int:
        return len(self._routes)

    def advance(self, at_s: float) -> None:
        """Let time pass until an instant; flows that end on the way stay until :meth:`finished` is asked.

        Raises:
            ValueError: The instant is past.
        """
        passed_s = at_s - self._now_s
        if passed_s < 0:
            raise ValueError(f"time goes forward: {at_s!r} s comes before {self._now_s!r} s")
        if passed_s:
            for name, rate_bps in self.rates_bps().items():
                self._remaining_bits[name] = max(0.0, self._remaining_bits[name] - rate_bps * passed_s)
        self._now_s = at_s

    def add(self, name: int, size_bits: float, route: Sequence[int], weight: float = 1.0) -> None:
        """Start a flow now, with so many bits to go over these links.

        Raises:
            ValueError: A flow of that name is under way.
        """
        if name in self._routes:
            raise ValueError(f"flow {name} is under way already")
        self._remaining_bits[name] = size_bits
        self._routes[name] = (tuple(route), weight)
        self._rates_bps = None

    def remove(self, name: int) -> float:
        """Take a flow out and return the bits that it still had to go.

        Raises:
            KeyError: There is no such flow.
        """
        del self._routes[name]
        self._rates_bps = None
        return self._remaining_bits.pop(name)

    def set_capacity(self, link: int, capacity_bps: float) -> None:
        """Change the capacity of a link."""
        self._capacities_bps[link] = capacity_bps
        self._rates_bps = None

    def rates_bps(self) -> dict[int, float]:
        """Return the rate of each flow from now on."""
        if self._rates_bps is None:
            routes = [route for route, _ in self._routes.values()]
            weights = [weight for _, weight in self._routes.values()]
            rates_bps = max_min_bps(self._capacities_bps, routes, weights)
            self._rates_bps = dict(zip(self._routes, rates_bps, strict=True))
        return self._rates_bps

    def remaining_bits(self, name: int) -> float:
        """Return what a flow has to go now.

        Raises:
            KeyError: There is no such flow.
        """
        return self._remaining_bits[name]

    def next_end_s(self) -> float:
        """Return the instant of the next end, if nothing changes before it; infinity when there is none."""
        return self._now_s + min(map(self._left_s, self._routes), default=math.inf)

    def finished(self) -> list[int]:
        """Take out the flows that have ended by now, but for rounding error, and return them by name."""
        slack_s = noise_s(self._now_s)
        names = sorted(name for name in self._routes if self._left_s(name) <= slack_s)
        for name in names:
            self.remove(name)
        return names

    def _left_s(self, name: int) -> float:
        bits, rate_bps = self._remaining_bits[name], self.rates_bps()[name]
        if bits == 0:
            return 0.0
        return bits / rate_bps if rate_bps else math.inf
