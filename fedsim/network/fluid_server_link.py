"""One direction of the server's link, and the parcels that flow over it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

from fedsim.clock import VirtualTimeLoop
from fedsim.network.base import Listener, Parcel, PerClient, TraceOf
from fedsim.network.capacity_audit import Link, LoadCheck
from fedsim.network.capacity_trace import Capacity
from fedsim.network.max_min_star import Flow, MaxMinStar, noise_s
from fedsim.network.max_min_tree import MaxMinTree

_NEVER_S = 1e18  # an end this far away is not worth a timer
NEVER_NS = int(2 * _NEVER_S * 1e9)
"""Later than any end."""


def end_ns(origin_ns: int, end_s: float) -> int:
    """Return an instant of the solver, s after the origin, rounded up but for its rounding error."""
    if end_s < _NEVER_S:
        return origin_ns + math.ceil((end_s - noise_s(end_s)) * 1e9)
    return NEVER_NS


class FluidPassage(Flow):
    """A parcel on its way over the link of ``client``: waiting for its latency, flowing, paused, or over."""

    # It is the solver's flow itself, which saves a table from one to the other.
    __slots__ = ("_bits", "_latency_ns", "_link", "_listener", "_parcel", "_state", "_timer", "client")

    _bits: float  # that have not crossed, when it last stood still
    _timer: asyncio.TimerHandle | None
    # When the last bit is across, it arrives at that instant, unless it is stopped before.
    _state: Literal["waiting", "flowing", "across", "paused", "over"]

    def __init__(
        self, order: int, link: ServerLink, client: int, latency_ns: int, parcel: Parcel, listener: Listener
    ) -> None:
        self.order = order
        self._stamp = 0
        self._link = link
        self.client = client
        self._latency_ns = latency_ns
        self._parcel = parcel
        self._listener = listener
        self._bits = 8.0 * parcel.num_bytes
        self._start()

    def _start(self) -> None:
        latency_ns = self._latency_ns
        if latency_ns > 0:
            self._state = "waiting"
            loop = self._link.loop
            self._timer = loop.call_at_ns(loop.now_ns + latency_ns, self._flow)
        else:
            self._flow()

    def _flow(self) -> None:
        self._timer = None
        self._state = "flowing"
        self._link.join(self, self._bits)

    def arrive(self) -> None:
        """Tell the listener, unless the parcel was stopped at this instant."""
        if self._state == "across":
            listener, parcel = self._listener, self._parcel
            # First, so that what the listener begins meets a passage that is over.
            self._state = "over"
            del self._listener, self._parcel
            listener.left()
            listener.arrived(parcel)

    def pause(self) -> None:
        """Pause the transfer."""
        if self._state == "over":
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        elif self._state == "flowing":
            self._bits = self._link.leave(self)
        self._state = "paused"

    def resume(self) -> None:
        """Continue after a pause: the latency, then the remaining bytes."""
        if self._state == "paused":
            self._start()

    def cancel(self) -> None:
        """Cancel the transfer."""
        if self._state != "over":
            self.pause()
            self._state = "over"
            # The link's notes may hold this passage for a while; what it carried is free at once.
            del self._listener, self._parcel

    @property
    def remaining_bytes(self) -> float:
        """Bytes that have not crossed yet."""
        bits = self._link.remaining_bits(self) if self._state == "flowing" else self._bits
        return bits / 8


@dataclass(slots=True)
class _ClientLink:
    """The link of a client with flows; the timer is for the next step of its trace, if it follows one."""

    rate_bps: float
    flows: list[FluidPassage]
    trace: Capacity | None
    timer: asyncio.TimerHandle | None = None


class ServerLink:
    """One direction of the server's link with all that flows over it, and one timer for all of it.

    Times are integers outside and floats in the solver, counted from when the link was last idle. An end is
    rounded up to the next nanosecond, except where it lies above a whole one by no more than rounding error.
    A flow keeps its share until then, so each end takes from the others what that flow moves in less than a
    nanosecond: a later end comes later by up to a nanosecond times the ratio of that flow's rate to its own.

    Attributes:
        loop: The loop of the run; set before anything flows.
        name: What it is called where it carries too much.
    """

    loop: VirtualTimeLoop
    name = "the server's link"

    def __init__(
        self,
        capacity: float | Capacity,
        link_bps: PerClient,
        trace_of: TraceOf | None = None,
        check: LoadCheck | None = None,
    ) -> None:
        self._trace = capacity if isinstance(capacity, Capacity) else None
        self._star: MaxMinStar | MaxMinTree = MaxMinStar(
            capacity.rate_at(0) if isinstance(capacity, Capacity) else capacity
        )
        self._link_bps = link_bps
        self._trace_of = trace_of
        self._check = check
        self._busy: dict[int, _ClientLink] = {}  # by clients with a flow: an idle one costs nothing
        self._reshared: dict[int, None] = {}  # clients whose flows need new caps at this instant
        self._origin_ns = 0
        self._now_ns = 0  # the solver's instant; after months, its float seconds no longer say which
        self._timer: asyncio.TimerHandle | None = None
        self._tick_ns = NEVER_NS  # when the timer is due, or now while it runs

    def join(self, flow: FluidPassage, bits: float) -> None:
        """Start a flow."""
        now_ns = self.loop.now_ns
        star, client = self._star, flow.client
        if not self._busy:
            self._begin(now_ns)
        elif now_ns != self._now_ns:
            self._advance(now_ns)
        link = self._busy.get(client)
        if link is None:
            trace = None if self._trace_of is None else self._trace_of(client)
            link = self._busy[client] = _ClientLink(float(self._link_bps[client]), [], trace)
            if trace is not None:
                self._follow(client, trace)
        else:
            self._reshared[client] = None
        link.flows.append(flow)
        cap_bps = link.rate_bps / len(link.flows)
        star.add(flow, bits, cap_bps)
        if self._check is not None:
            self._check.begin(flow, bits)
        # A flow that comes only delays the others, so the timer stays early enough for them. This flow alone
        # may end before it, at the earliest as if nobody else were there: that is known without solving.
        fastest_bps = cap_bps if cap_bps < star.capacity_bps else star.capacity_bps
        if bits == 0:
            self._wake(now_ns)
        elif fastest_bps > 0:
            at_ns = end_ns(self._origin_ns, star.now_s + bits / fastest_bps)
            if at_ns < self._tick_ns:  # mostly others end before it
                self._wake(at_ns if at_ns > now_ns else now_ns)

    def leave(self, flow: FluidPassage) -> float:
        """Take a flow out before its end and return the bits that it has to go."""
        now_ns = self.loop.now_ns
        self._advance(now_ns)
        bits = self._star.remove(flow)
        if self._check is not None:
            self._check.end(flow, bits)
        self._forget(flow)
        # The others are faster from now on: a tick at this instant divides the links and finds the next end.
        self._wake(now_ns)
        return bits

    def remaining_bits(self, flow: FluidPassage) -> float:
        """Return the bits that a flow has to go now."""
        self._advance(self.loop.now_ns)
        return self._star.remaining_bits(flow)

    def _follow(self, client: int, trace: Capacity) -> None:
        """Take the capacity of a busy client from its trace, now and whenever that steps."""
        loop, link = self.loop, self._busy[client]
        self._advance(loop.now_ns)  # first, so that what has passed has passed at the old capacity
        self._reshared[client] = None
        self._wake(loop.now_ns)
        link.rate_bps = trace.rate_at(loop.now_ns)
        if (change_ns := trace.next_change_ns(loop.now_ns)) is not None:
            link.timer = loop.call_at_ns(change_ns, self._follow, client, trace)

    def _forget(self, flow: FluidPassage) -> None:
        """Free a flow's share of its client's link."""
        link = self._busy[flow.client]
        link.flows.remove(flow)
        if link.flows:
            self._reshared[flow.client] = None
        else:
            del self._busy[flow.client]
            if link.timer is not None:
                link.timer.cancel()

    def _begin(self, now_ns: int) -> None:
        """Start the clock of an idle link: near 0 the solver's floats are exact to less than a nanosecond."""
        self._origin_ns = self._now_ns = now_ns
        self._star.restart()
        if self._trace is not None:
            self._star.set_capacity(self._trace.rate_at(now_ns))
            self._wake(self._trace.next_change_ns(now_ns))

    def _advance(self, now_ns: int) -> None:
        """Let time pass in the solver, after what changed at the last instant has been made known to it."""
        now_s = (now_ns - self._origin_ns) / 1e9
        # In the solver's own seconds: an instant whose float is that of the last one changes nothing.
        if now_s != self._star.now_s:
            # Flows that come and go at one instant divide their clients' links once, when time passes.
            if self._reshared:
                self._share()
            if self._check is not None:
                self._account(self._check, now_s, now_ns)
            else:
                self._star.advance(now_s)
        self._now_ns = now_ns

    def _account(self, check: LoadCheck, now_s: float, now_ns: int) -> None:
        """Let time pass, and check what it moves; the solver does just what it does unchecked."""
        star, since_s = self._star, self._star.now_s
        under_way = self._under_way()
        links = self._loads(under_way, now_s, now_ns)
        check.span(since_s, now_s, {flow: star.rate_bps(flow) for flow in under_way}, links)
        star.advance(now_s)
        for flow in under_way:
            check.compare(flow, star.remaining_bits(flow))

    def _loads(self, flows: Sequence[FluidPassage], now_s: float, now_ns: int) -> list[Link]:
        """Return all links that flows cross, with what they let pass since the last instant."""
        links = [self._load(self.name, self._star.capacity_bps, self._trace, flows, now_s, now_ns)]
        for client, own in self._busy.items():
            name = f"the link of client {client}"
            links.append(self._load(name, own.rate_bps, own.trace, own.flows, now_s, now_ns))
        return links

    def _load(
        self,
        name: str,
        capacity_bps: float,
        trace: Capacity | None,
        flows: Sequence[FluidPassage],
        now_s: float,
        now_ns: int,
    ) -> Link:
        if trace is None:
            return Link(name, capacity_bps, capacity_bps * (now_s - self._star.now_s), flows)
        since_ns = self._now_ns
        return Link(name, trace.rate_at(since_ns), 8 * trace.bytes_between(since_ns, now_ns), flows)

    def _wake(self, at_ns: int | None) -> None:
        """Set the timer to an instant, unless it is due before it."""
        # A tick that comes early finds nothing to do and looks again: cheaper than to move the timer whenever
        # a new flow puts off the next end.
        if at_ns is not None and at_ns < self._tick_ns:
            if self._timer is not None:
                self._timer.cancel()
            self._tick_ns = at_ns
            self._timer = self.loop.call_at_ns(at_ns, self._tick)

    def _tick(self) -> None:
        """Bring everything up to this instant, deliver what has crossed, and look for the next event."""
        self._timer = None
        now_ns = self._tick_ns
        self._advance(now_ns)
        if self._trace is not None:
            self._star.set_capacity(self._trace.rate_at(now_ns))
        finished = self._finished()
        for flow in finished:
            self._forget(flow)
            flow._state = "across"
            flow._bits = 0.0
        # All of them are across before the first listener hears of it, which may stop another of them.
        for flow in finished:
            flow.arrive()
        # While listeners ran, _tick_ns was now, so what they began set no timer: it is looked for once, here.
        self._tick_ns = NEVER_NS
        if self._reshared:
            self._share()
        if self._busy:
            end_s, now_s = self._star.next_end_s(), self._star.now_s
            # What ends now because of what has ended just now is taken next, at this same instant.
            is_due = end_s <= now_s + noise_s(now_s)
            self._wake(now_ns if is_due else max(now_ns + 1, end_ns(self._origin_ns, end_s)))
            if self._trace is not None:
                self._wake(self._trace.next_change_ns(now_ns))

    def _finished(self) -> list[FluidPassage]:
        """Take out the flows that have ended, and check that they have."""
        star, check = self._star, self._check
        if check is None:
            return cast("list[FluidPassage]", star.finished())
        rates_bps = {flow: star.rate_bps(flow) for flow in self._under_way()}
        finished = cast("list[FluidPassage]", star.finished())
        for flow in finished:
            check.end(flow, noise_bits=rates_bps[flow] * noise_s(star.now_s))
        return finished

    def _under_way(self) -> list[FluidPassage]:
        return [flow for link in self._busy.values() for flow in link.flows]

    def _share(self) -> None:
        """Divide the links of clients on which flows came or went."""
        for client in self._reshared:
            if link := self._busy.get(client):
                cap_bps = link.rate_bps / len(link.flows)
                for flow in link.flows:
                    self._star.set_cap(flow, cap_bps)
        self._reshared.clear()
