"""Transfers share the server's link fairly, and each client's own link: flows with max-min rates.

A parcel pays its latency first, during which it loads no link, and then flows: a download through the
server's egress and the client's downlink, an upload through the client's uplink and the server's ingress.
Parcels of one client and direction share that client's link equally. Rates change the instant that a flow
begins or ends, or a capacity steps; all changes of one instant are solved together.
"""

from __future__ import annotations

import asyncio
import math
from array import array
from collections import deque
from pathlib import Path
from typing import Literal, cast

import numpy as np
from pydantic import Field

from fedsim.clock import VirtualTimeLoop
from fedsim.config import Config
from fedsim.errors import VirtualTimeError
from fedsim.network.base import Carrier, Listener, NetworkPlugin, Parcel, Passage
from fedsim.network.capacity import Capacity, read_capacity
from fedsim.network.links import Links
from fedsim.network.star import Flow, Star, noise_s
from fedsim.params import Array

Direction = Literal["up", "down"]
"""Which way a client's traffic goes: from it, or to it."""

_NEVER_S = 1e18  # an end this far away is not worth a timer
_NEVER_NS = int(2 * _NEVER_S * 1e9)


class FluidPassage(Flow):
    """A parcel on its way: waiting for its latency, flowing, paused, or over."""

    __slots__ = ("_bits", "_latency_ns", "_link", "_listener", "_parcel", "_state", "_timer", "client")

    _timer: asyncio.TimerHandle | None
    _state: Literal["waiting", "flowing", "across", "paused", "over"]

    def __init__(
        self, link: SharedLink, client: int, latency_ns: int, order: int, parcel: Parcel, listener: Listener
    ) -> None:
        super().__init__(order)
        self.client = client
        self._link = link
        self._latency_ns = latency_ns
        self._parcel = parcel
        self._listener = listener
        self._bits = 8.0 * parcel.num_bytes
        self._start()

    def _start(self) -> None:
        if self._latency_ns > 0:
            self._state = "waiting"
            loop = self._link.loop
            self._timer = loop.call_at_ns(loop.now_ns + self._latency_ns, self._flow)
        else:
            self._flow()

    def _flow(self) -> None:
        self._timer = None
        self._state = "flowing"
        self._link.join(self, self._bits)

    def cross(self) -> None:
        """Note that the last bit is across; :meth:`arrive` follows at this instant, unless it is stopped."""
        self._state = "across"
        self._bits = 0.0

    def arrive(self) -> None:
        """Tell the listener, unless the parcel was stopped at this very instant."""
        if self._state == "across":
            listener, parcel = self._listener, self._parcel
            self._finish()
            listener.left()
            listener.arrived(parcel)

    def pause(self) -> None:
        """Hold it where it is."""
        if self._state == "over":
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        elif self._state == "flowing":
            self._bits = self._link.leave(self)
        self._state = "paused"

    def resume(self) -> None:
        """Go on with the bytes that remain, after the latency."""
        if self._state == "paused":
            self._start()

    def cancel(self) -> None:
        """Stop it for good."""
        if self._state != "over":
            self.pause()
            self._finish()

    def _finish(self) -> None:
        self._state = "over"
        # The link's notes may hold this passage for a while; what it carried is free at once.
        del self._listener, self._parcel

    @property
    def remaining_bytes(self) -> float:
        """Bytes that have not crossed yet."""
        bits = self._link.remaining_bits(self) if self._state == "flowing" else self._bits
        return bits / 8


class SharedLink:
    """One direction of the server's link with all that flows over it, and one timer for all of it.

    Times are integers outside and floats in the solver, counted from when the link was last idle. An end is
    rounded up to the next nanosecond, except where it lies above a whole one by no more than rounding error.
    A flow keeps its share until then, so an end may delay later ones by a nanosecond at most.

    Args:
        capacity: Of the server's link, bit/s, or over time.
        caps_bps: Of the clients' links, bit/s, ``[K]``; copied.

    Attributes:
        loop: The loop of the run; set before anything flows.
    """

    loop: VirtualTimeLoop

    def __init__(self, capacity: float | Capacity, caps_bps: Array) -> None:
        self._trace = capacity if isinstance(capacity, Capacity) else None
        self._star = Star(capacity.rate_at(0) if isinstance(capacity, Capacity) else capacity)
        # Read one by one, which Python's arrays do at a third of NumPy's cost.
        self._caps_bps = array("d", np.asarray(caps_bps, dtype=np.float64).tobytes())
        self._client_traces: dict[int, Capacity] = {}
        self._client_timers: dict[int, asyncio.TimerHandle] = {}  # of traces of clients with a flow
        self._flows: dict[int, list[FluidPassage]] = {}  # by client
        self._reshared: dict[int, None] = {}  # clients whose flows need new caps at this instant
        self._origin_ns = 0
        self._timer: asyncio.TimerHandle | None = None
        self._tick_ns = _NEVER_NS  # when the timer is due, or now while it runs

    def join(self, flow: FluidPassage, bits: float) -> None:
        """Start a flow."""
        now_ns = self.loop.now_ns
        star, client = self._star, flow.client
        if len(star):
            self._advance(now_ns)
        else:
            self._begin(now_ns)
        flows = self._flows.get(client)
        if flows is None:
            flows = self._flows[client] = []
            if client in self._client_traces:
                self._follow(client)
        else:
            self._reshared[client] = None
        flows.append(flow)
        cap_bps = self._caps_bps[client] / len(flows)
        star.add(flow, bits, cap_bps)
        # A flow that comes delays the others, so nothing ends before the timer, unless it is this flow.
        fastest_bps = min(cap_bps, star.capacity_bps)
        if bits == 0:
            self._wake(now_ns)
        elif fastest_bps > 0:
            self._wake(max(now_ns, self._end_ns(star.now_s + bits / fastest_bps)))

    def leave(self, flow: FluidPassage) -> float:
        """Take a flow out before its end and return the bits that it has to go."""
        now_ns = self.loop.now_ns
        self._advance(now_ns)
        bits = self._star.remove(flow)
        self._forget(flow)
        self._wake(now_ns)
        return bits

    def remaining_bits(self, flow: FluidPassage) -> float:
        """Return the bits that a flow has to go now."""
        self._advance(self.loop.now_ns)
        return self._star.remaining_bits(flow)

    def set_cap(self, client: int, bps: float) -> None:
        """Change the capacity of a client's link from now on."""
        if client in self._flows:
            self._advance(self.loop.now_ns)
            self._reshared[client] = None
            self._wake(self.loop.now_ns)
        self._caps_bps[client] = bps

    def set_trace(self, client: int, capacity: Capacity) -> None:
        """Let the capacity of a client's link follow a trace from now on."""
        self._client_traces[client] = capacity
        if client in self._flows:
            if client in self._client_timers:
                self._client_timers.pop(client).cancel()
            self._follow(client)

    def _follow(self, client: int) -> None:
        """Take the capacity of a busy client from its trace, now and whenever that steps."""
        loop, trace = self.loop, self._client_traces[client]
        self.set_cap(client, trace.rate_at(loop.now_ns))
        if (change_ns := trace.next_change_ns(loop.now_ns)) is not None:
            self._client_timers[client] = loop.call_at_ns(change_ns, self._follow, client)

    def _forget(self, flow: FluidPassage) -> None:
        """Free a flow's share of its client's link."""
        client = flow.client
        flows = self._flows[client]
        flows.remove(flow)
        if flows:
            self._reshared[client] = None
        else:
            del self._flows[client]
            if client in self._client_timers:
                self._client_timers.pop(client).cancel()

    def _begin(self, now_ns: int) -> None:
        """Start the clock of an idle link."""
        self._origin_ns = now_ns
        self._star.restart()
        if self._trace is not None:
            self._star.set_capacity(self._trace.rate_at(now_ns))
            self._wake(self._trace.next_change_ns(now_ns))

    def _advance(self, now_ns: int) -> None:
        """Let time pass in the solver, after what changed at the last instant has been made known to it."""
        now_s = (now_ns - self._origin_ns) / 1e9
        if now_s != self._star.now_s:
            if self._reshared:
                self._share()
            self._star.advance(now_s)

    def _wake(self, at_ns: int | None) -> None:
        """See that there is a tick at an instant or before it."""
        if at_ns is not None and at_ns < self._tick_ns:
            if self._timer is not None:
                self._timer.cancel()
            self._tick_ns = at_ns
            self._timer = self.loop.call_at_ns(at_ns, self._tick)

    def _end_ns(self, end_s: float) -> int:
        """Return the first nanosecond that is not before an instant of the solver, but for rounding error."""
        if end_s < _NEVER_S:
            return self._origin_ns + math.ceil((end_s - noise_s(end_s)) * 1e9)
        return _NEVER_NS

    def _tick(self) -> None:
        """Bring everything up to this instant, deliver what has crossed, and look for the next event."""
        self._timer = None
        now_ns = self._tick_ns
        self._advance(now_ns)
        if self._trace is not None:
            self._star.set_capacity(self._trace.rate_at(now_ns))
        finished = cast("list[FluidPassage]", self._star.finished())
        try:
            for flow in finished:
                self._forget(flow)
                flow.cross()
            if len(finished) == 1:
                finished[0].arrive()
            elif finished:
                self._deliver(deque(finished))
        finally:
            self._tick_ns = _NEVER_NS
            if self._reshared:
                self._share()
            if len(self._star):
                end_s = self._star.next_end_s()
                # What ends now because of what has ended just now is taken next, at this same instant.
                is_due = end_s <= self._star.now_s + noise_s(self._star.now_s)
                self._wake(now_ns if is_due else max(now_ns + 1, self._end_ns(end_s)))
                if self._trace is not None:
                    self._wake(self._trace.next_change_ns(now_ns))

    def _deliver(self, finished: deque[FluidPassage]) -> None:
        try:
            while finished:
                finished.popleft().arrive()
        finally:
            if finished:  # one listener failed; that is no reason for the others not to hear
                self.loop.call_soon(self._deliver, finished)

    def _share(self) -> None:
        """Divide the links of clients on which flows came or went."""
        for client in self._reshared:
            if flows := self._flows.get(client):
                cap_bps = self._caps_bps[client] / len(flows)
                for flow in flows:
                    self._star.set_cap(flow, cap_bps)
        self._reshared.clear()


class FluidCarrier:
    """Carries parcels as flows between the server and its clients.

    Args:
        links: Capacities and latencies.
        server_up: Of the server's egress over time, in place of that of the links.
        server_down: Of its ingress.
    """

    def __init__(
        self, links: Links, server_up: Capacity | None = None, server_down: Capacity | None = None
    ) -> None:
        latency_ns = np.rint((links.latency_s + links.server_latency_s) * 1e9)
        self._latency_ns = array("q", latency_ns.astype(np.int64).tobytes())
        self._down = SharedLink(server_up or links.server_up_bps, links.down_bps)
        self._up = SharedLink(server_down or links.server_down_bps, links.up_bps)
        self._carried = 0

    def carry(self, parcel: Parcel, listener: Listener) -> Passage:
        """Start the transfer; it leaves and arrives at one instant, when the last byte has crossed.

        Raises:
            ValueError: The parcel does not go between the server and a client.
        """
        sender, receiver = parcel.sender, parcel.receiver
        if (sender < 0) == (receiver < 0):
            raise ValueError(
                f"a parcel from {sender} to {receiver}: the fluid network joins the server (-1) with clients"
            )
        self._carried += 1
        client, link = (sender, self._up) if receiver < 0 else (receiver, self._down)
        link.loop = _loop()
        return FluidPassage(link, client, self._latency_ns[client], self._carried, parcel, listener)

    def set_client_capacity(self, client: int, direction: Direction, bps: float) -> None:
        """Change the capacity of a client's link from now on, or until a trace that it follows steps.

        Raises:
            ValueError: The capacity is negative, infinite or NaN.
        """
        if not 0 <= bps < math.inf:
            raise ValueError(f"capacity {bps!r} bit/s must be finite and 0 or more")
        self._side(direction).set_cap(client, bps)

    def set_client_trace(self, client: int, direction: Direction, capacity: Capacity) -> None:
        """Let the capacity of a client's link follow a trace, whose time is the run's."""
        self._side(direction).set_trace(client, capacity)

    def _side(self, direction: Direction) -> SharedLink:
        return self._up if direction == "up" else self._down


class FluidConfig(Config):
    """Settings of shared links."""

    server_up_trace: str | None = Field(default=None, min_length=1)
    """File of the server's egress over time, which takes the place of the constant one: CSV with a header
    such as at_s,bps, or Mahimahi's format, read in bins of 100 ms. It starts again at its end."""
    server_down_trace: str | None = Field(default=None, min_length=1)
    """File of the server's ingress over time, likewise."""


class Fluid(NetworkPlugin[FluidConfig]):
    """Links shared fairly.

    Raises:
        DataError: A trace cannot be read.
    """

    Config = FluidConfig

    def __init__(self, config: FluidConfig) -> None:
        super().__init__(config)
        self._server_up = _read(config.server_up_trace)
        self._server_down = _read(config.server_down_trace)

    def carrier(self, links: Links) -> Carrier:
        """Return a carrier in which transfers share the server's link."""
        return FluidCarrier(links, self._server_up, self._server_down)


def _read(path: str | None) -> Capacity | None:
    return read_capacity(Path(path).expanduser()) if path is not None else None


def _loop() -> VirtualTimeLoop:
    loop = asyncio.get_running_loop()
    if not isinstance(loop, VirtualTimeLoop):
        raise VirtualTimeError("the fluid network moves simulated bytes through virtual time: use clock.run")
    return loop


PLUGIN = Fluid
