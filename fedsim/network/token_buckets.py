"""Links of an emulation: bytes move piece by piece, as token buckets let them pass.

Nothing here knows the solver of the simulation (:mod:`fedsim.network.max_min_star`), with whose arrivals an
emulation is compared. Each link, of a client, of a cell or of the server, serves pieces at its rate, one
after the other: first the piece with the smallest start tag (start-time fair queueing, Goyal et al., 1996),
so that flows which want more than there is get equal shares. A piece has passed when all links on its way
have served it; no link is more than some pieces ahead of the others. Then its bytes are moved for real.

A link begins with the next piece when it *should* have served the one before. So a host that is a little
late with one piece is on time with the next, and the last piece shows how late it is in all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from math import ceil, inf
from typing import Any, Protocol, cast

from fedsim.clock import VirtualTimeLoop, now_ns, running_loop
from fedsim.network.base import Links, Listener, Parcel, Passage
from fedsim.network.capacity_trace import Capacity
from fedsim.network.cells import NO_CELL, Rate

PIECE_S = 0.005
"""How long a piece takes alone, in real seconds, within the limits below."""
MIN_PIECES, MAX_PIECES = 8, 256
"""The smallest and the largest number of pieces of a parcel."""
AHEAD = 4
"""Pieces by which a link may be ahead of the others."""
_SERVER = -1


class Mover(Protocol):
    """Moves the bytes of parcels for real."""

    def move(self, parcel: Parcel, share: tuple[float, float], arrived: Callable[[Any], object]) -> None:
        """Move a part of a parcel's payload now.

        Args:
            parcel: The parcel.
            share: The first and the last byte, as shares of all; the last part ends at 1.
            arrived: Called with the payload once all of it is there, if this is the last part.
        """


class LinkBucket:
    """One direction of one link.

    Args:
        rate: Its capacity, bit/s.
    """

    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        self._queue: list[tuple[float, int, int, int, PacedPassage]] = []
        self._served = 0.0  # the start tag of the piece that is served, in bytes
        self._free_ns = 0
        self._is_busy = False
        self._turns = 0

    def serve(self, passage: PacedPassage, num_bytes: int, from_ns: int) -> None:
        """Let the next piece of a transfer pass, as soon as it is its turn."""
        start = max(self._served, passage.tags.get(self, 0.0))
        passage.tags[self] = start + num_bytes
        self._turns += 1
        heappush(self._queue, (start, self._turns, num_bytes, passage.generation, passage))
        if not self._is_busy:
            self._serve_next(max(from_ns, self._free_ns))

    def alone_ns(self, num_bytes: float, from_ns: int) -> int:
        """Return how long some bytes take without others, ns."""
        if not isinstance(self._rate, Capacity):
            return 0 if self._rate == inf else ceil(8e9 * num_bytes / self._rate)
        at_ns, left = from_ns, num_bytes
        while True:
            until_ns = self._rate.next_change_ns(at_ns)
            rate_bps = self._rate.rate_at(at_ns)
            passing = inf if until_ns is None else rate_bps * (until_ns - at_ns) / 8e9
            if left <= passing:
                return at_ns - from_ns + (ceil(8e9 * left / rate_bps) if left else 0)
            left, at_ns = left - passing, until_ns or at_ns

    def _serve_next(self, from_ns: int) -> None:
        while self._queue:
            start, _, num_bytes, generation, passage = heappop(self._queue)
            if generation == passage.generation:  # else it was given up, or stands still
                self._is_busy, self._served = True, start
                self._free_ns = from_ns + self.alone_ns(num_bytes, from_ns)
                _at_ns(self._free_ns, self._has_served, generation, passage)
                return
        self._is_busy = False

    def _has_served(self, generation: int, passage: PacedPassage) -> None:
        passed_ns = self._free_ns
        self._serve_next(passed_ns)
        if generation == passage.generation:
            passage.has_passed(self, passed_ns)


class PacedPassage:
    """A transfer: a latency, then its pieces.

    Attributes:
        tags: The start tag of its next piece on each link, bytes.
        generation: How often it was paused or cancelled; pieces of an earlier generation are ignored.
    """

    def __init__(
        self,
        parcel: Parcel,
        listener: Listener,
        latency_ns: int,
        buckets: Sequence[LinkBucket],
        mover: Mover,
        late: Callable[[Parcel, int], object],
        speed_up: float,
    ) -> None:
        self.tags: dict[LinkBucket, float] = {}
        self.generation = 0
        self._parcel, self._listener, self._mover, self._late = parcel, listener, mover, late
        self._latency_ns, self._buckets, self._speed_up = latency_ns, buckets, speed_up
        self._moved = self._piece = self._planned_ns = 0
        self._is_paused = self._is_cancelled = False
        self._start()

    def _start(self) -> None:
        at_ns, num_bytes = now_ns(), self._parcel.num_bytes
        self._is_paused = False
        self._sent = dict.fromkeys(self._buckets, self._moved)  # bytes in the queue of each link, or served
        self._served = dict.fromkeys(self._buckets, self._moved)
        alone_s = max(bucket.alone_ns(num_bytes, at_ns) for bucket in self._buckets) / 1e9
        num_pieces = min(MAX_PIECES, max(MIN_PIECES, ceil(alone_s / (PIECE_S * self._speed_up))))
        self._piece = ceil(num_bytes / num_pieces)
        begins_ns = at_ns + self._latency_ns
        _at_ns(begins_ns, self._begin, self.generation, begins_ns)

    def _begin(self, generation: int, at_ns: int) -> None:
        if generation == self.generation:
            self._go_on(at_ns)

    def _go_on(self, from_ns: int) -> None:
        """Let links serve what they may."""
        end = min(self._parcel.num_bytes, self._moved + AHEAD * self._piece)
        for bucket, sent in self._sent.items():
            while sent < end:
                self._sent[bucket] = min(end, sent + self._piece)
                bucket.serve(self, self._sent[bucket] - sent, from_ns)
                sent = self._sent[bucket]

    def has_passed(self, bucket: LinkBucket, at_ns: int) -> None:
        """One link has served a piece."""
        whole, start = self._parcel.num_bytes, self._moved
        self._served[bucket] = min(whole, self._served[bucket] + self._piece)
        self._moved = min(self._served.values())
        if self._moved == start:
            return
        self._planned_ns = at_ns
        self._mover.move(self._parcel, (start / whole, self._moved / whole), self._arrived)
        self._go_on(at_ns)

    def _arrived(self, payload: Any) -> None:
        if self._is_cancelled:
            return
        self._late(self._parcel, now_ns() - self._planned_ns)
        self._listener.left()
        self._listener.arrived(self._parcel._replace(payload=payload))

    def cancel(self) -> None:
        """Cancel the transfer."""
        self.generation += 1
        self._is_paused, self._is_cancelled = False, True

    def pause(self) -> None:
        """Pause the transfer: the piece that is under way begins anew."""
        if self._moved < self._parcel.num_bytes and not (self._is_paused or self._is_cancelled):
            self.generation += 1
            self._is_paused = True

    def resume(self) -> None:
        """Continue after a pause: the latency, then the remaining bytes."""
        if self._is_paused:
            self.tags.clear()
            self._start()

    @property
    def remaining_bytes(self) -> float:
        """Bytes that have not crossed yet."""
        return self._parcel.num_bytes - self._moved


class PacedCarrier:
    """Carries parcels over the links of an emulation.

    Args:
        links: The links.
        server: Capacities out of the server and into it, bit/s.
        mover: Moves the bytes of parcels.
        late: Told of each parcel that arrives how much later than planned it does, ns.
        speed_up: Emulated seconds in a real one.
    """

    def __init__(
        self,
        links: Links,
        server: tuple[Rate, Rate],
        mover: Mover,
        late: Callable[[Parcel, int], object] = lambda parcel, late_ns: None,
        speed_up: float = 1.0,
    ) -> None:
        self._links, self._mover, self._late, self._speed_up = links, mover, late, speed_up
        self._server = [LinkBucket(rate) for rate in server]
        self._cells = [
            [] if shared is None else [LinkBucket(rate) for rate in shared.rates]
            for shared in (links.shared_down, links.shared_up)
        ]
        self._of_clients: dict[tuple[int, bool], LinkBucket] = {}

    def carry(self, parcel: Parcel, listener: Listener) -> Passage:
        """Start the transfer now."""
        latency_ns = round(self._links.between_s(parcel.sender, parcel.receiver) * 1e9)
        buckets = list(self._way(parcel.client, up=parcel.receiver == _SERVER))
        return PacedPassage(parcel, listener, latency_ns, buckets, self._mover, self._late, self._speed_up)

    def _way(self, client: int, *, up: bool) -> Sequence[LinkBucket]:
        links = self._links
        if (client, up) not in self._of_clients:
            trace_of = links.up_trace if up else links.down_trace
            trace = None if trace_of is None else trace_of(client)
            rate_bps = float((links.up_bps if up else links.down_bps)[client])
            self._of_clients[client, up] = LinkBucket(rate_bps if trace is None else trace)
        shared = links.shared_up if up else links.shared_down
        cell = NO_CELL if shared is None else shared.cell_of(client)
        of_cell = [] if cell == NO_CELL else [self._cells[up][cell]]
        return [self._of_clients[client, up], *of_cell, self._server[up]]


def _at_ns(when_ns: int, callback: Callable[..., object], *args: Any) -> None:
    cast(VirtualTimeLoop, running_loop()).call_at_ns(when_ns, callback, *args)
