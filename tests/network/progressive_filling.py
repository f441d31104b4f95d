"""A reference solver for any links: max-min rates by progressive filling, at O(flows) an event."""

import math
from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from fedsim.network.max_min_star import noise_s


def max_min_bps(capacities_bps: Sequence[float], routes: Sequence[Sequence[int]]) -> list[float]:
    """Return the rate of each flow, bit/s, given the links that it crosses."""
    spare_bps = [float(capacity_bps) for capacity_bps in capacities_bps]
    rates_bps = [math.inf] * len(routes)
    rising: list[set[int]] = [set() for _ in spare_bps]  # flows of each link whose rate is not known yet
    for flow, route in enumerate(routes):
        for link in route:
            rising[link].add(flow)
    heap = [(spare_bps[link] / len(flows), link) for link, flows in enumerate(rising) if flows]
    heapify(heap)
    while heap:
        old_level, link = heappop(heap)
        if not rising[link]:
            continue
        # A link's level only rises, as flows held up elsewhere leave it more: the top is stale, or it.
        if (level := spare_bps[link] / len(rising[link])) > old_level:
            heappush(heap, (level, link))
            continue
        for flow in sorted(rising[link]):
            rates_bps[flow] = level
            for crossed in routes[flow]:
                spare_bps[crossed] = max(0.0, spare_bps[crossed] - level)
                rising[crossed].remove(flow)
    return rates_bps


class ProgressiveFilling:
    """Flows over any links through time; used like ``max_min_star.MaxMinStar``."""

    def __init__(self, capacities_bps: Sequence[float]) -> None:
        self._capacities_bps = list(capacities_bps)
        self._now_s = 0.0
        self._remaining_bits: dict[int, float] = {}
        self._routes: dict[int, Sequence[int]] = {}
        self._rates_bps: dict[int, float] | None = {}

    def __len__(self) -> int:
        return len(self._routes)

    def advance(self, at_s: float) -> None:
        passed_s = at_s - self._now_s
        assert passed_s >= 0
        if passed_s:
            for name, rate_bps in self.rates_bps().items():
                self._remaining_bits[name] = max(0.0, self._remaining_bits[name] - rate_bps * passed_s)
        self._now_s = at_s

    def pass_until(self, at_s: float) -> dict[int, float]:
        """Let time pass, take out the flows that end meanwhile, and return when each of them does."""
        ended_s = dict[int, float]()
        while self.next_end_s() <= at_s:
            self.advance(end_s := self.next_end_s())
            ended_s |= dict.fromkeys(self.finished(), end_s)
        self.advance(at_s)
        return ended_s | dict.fromkeys(self.finished(), at_s)

    def add(self, name: int, size_bits: float, route: Sequence[int]) -> None:
        assert name not in self._routes
        self._remaining_bits[name] = size_bits
        self._routes[name] = tuple(route)
        self._rates_bps = None

    def remove(self, name: int) -> float:
        del self._routes[name]
        self._rates_bps = None
        return self._remaining_bits.pop(name)

    def set_capacity(self, link: int, capacity_bps: float) -> None:
        self._capacities_bps[link] = capacity_bps
        self._rates_bps = None

    def rates_bps(self) -> dict[int, float]:
        if self._rates_bps is None:
            rates_bps = max_min_bps(self._capacities_bps, list(self._routes.values()))
            self._rates_bps = dict(zip(self._routes, rates_bps, strict=True))
        return self._rates_bps

    def remaining_bits(self, name: int) -> float:
        return self._remaining_bits[name]

    def next_end_s(self) -> float:
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
