"""No link carries more than its capacity: sound models pass, and every way to break it is caught."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim import clock
from fedsim.config import Config
from fedsim.errors import InvariantError
from fedsim.network import Carrier, Links, Parcel, fluid_server_link
from fedsim.network.capacity_audit import Link, LoadCheck
from fedsim.network.capacity_trace import Capacity
from fedsim.network.fluid import PLUGIN as FLUID
from fedsim.network.fluid import FluidCarrier, FluidConfig
from fedsim.network.fluid_server_link import ServerLink
from fedsim.network.max_min_star import Flow, MaxMinStar
from fedsim.network.naive import PLUGIN as NAIVE
from fedsim.network.none import PLUGIN as NONE

MS = 1_000_000
LINKS = Links(np.array([8e6, 2e6, 5e6]), np.array([8e6, 2e6, 5e6]), np.array([0, 0.001, 0]), 9e6, 9e6, 0.0)
TRACE = Capacity([0, 2 * MS, 5 * MS], [8e6, 0.0, 3e6], 7 * MS)
TRACED = replace(LINKS, down_trace={0: TRACE, 2: TRACE.ahead(7 * MS // 2)}.get)


class Diary:
    def __init__(self) -> None:
        self.arrivals: list[tuple[Any, int]] = []

    def left(self) -> None:
        pass

    def arrived(self, parcel: Parcel) -> None:
        self.arrivals.append((parcel.payload, clock.now_ns()))

    def lost(self, cause: str) -> None:
        raise AssertionError(cause)


Events = list[tuple[int, int, int, bool]]
"""When, which client, how many bytes, and whether it pauses for a while."""


def play(carrier: Carrier, events: Events, after_s: float = 10) -> list[tuple[Any, int]]:
    """Send down and up at given instants; return what arrives when."""
    diary = Diary()

    async def main() -> None:
        for number, (at_ns, client, num_bytes, pauses) in enumerate(sorted(events)):
            await clock.sleep_until(at_ns / 1e9)
            for sender, receiver in ((-1, client), (client, -1)):
                passage = carrier.carry(Parcel(sender, receiver, num_bytes, (number, sender)), diary)
                if pauses:
                    clock.call_after(0.0007, passage.pause)
                    clock.call_after(0.0019, passage.resume)
        await clock.sleep_for(after_s)

    clock.run(main())
    return diary.arrivals


EVENTS: Events = [
    (0, 0, 3000, False),
    (0, 1, 900, True),
    (MS, 0, 500, False),
    (MS, 2, 2500, True),
    (9 * MS, 1, 0, False),
]
MODELS: dict[str, Callable[[], Any]] = {
    "fluid": lambda: FLUID(FluidConfig()),
    "naive": lambda: NAIVE(Config()),
    "none": lambda: NONE(Config()),
}


@pytest.mark.parametrize("model", MODELS)
def test_a_checked_run_is_the_same(model: str) -> None:
    plain, checked = (play(MODELS[model]().carrier(LINKS, verify=verify), EVENTS) for verify in (False, True))
    assert plain == checked
    assert len(plain) == 2 * len(EVENTS)


def test_with_traces_too() -> None:
    server = Capacity([0, MS], [9e6, 1e6], 4 * MS)
    plain, checked = (
        play(FluidCarrier(TRACED, server, server, is_checked=on), EVENTS) for on in (False, True)
    )
    assert plain == checked
    assert len(plain) == 2 * len(EVENTS)


def test_a_lap_that_ends_with_nothing_is_sound() -> None:
    # What a difference of two sums once made of it: -2.98e-08 bits in a span in which nothing can pass.
    server = Capacity([0, 492_076_000, 1_458_142_000], [1.3991e6, 6.3729e6, 0.0], 2_424_208_000)
    slow = np.full(23, 2e6)
    links = Links(slow, slow, np.zeros(23), 1e9, 1e9, 0.0)
    sent = [(271 * MS * client, client, 600_123, False) for client in range(23)]
    assert len(play(FluidCarrier(links, server, server, is_checked=True), sent, 400)) == 46


_rates = st.floats(1e-3, 1e15) | st.floats(1e3, 1e9)


@st.composite
def capacities(draw: st.DrawFn) -> Capacity:
    lengths_ns = draw(st.lists(st.integers(MS, 5000 * MS) | st.just(MS), min_size=1, max_size=5))
    num = len(lengths_ns)
    rates_bps = draw(st.lists(st.just(0.0) | _rates, min_size=num, max_size=num))
    starts_ns = [0, *accumulate(lengths_ns)]
    return Capacity(starts_ns[:-1], [*rates_bps[:-1], rates_bps[-1] or 1e6], starts_ns[-1])


any_events = st.lists(
    st.tuples(
        st.integers(0, 20 * MS),
        st.integers(0, 2),
        st.integers(0, 5000) | st.integers(0, 2**31),
        st.booleans(),
    ),
    max_size=8,
)


@given(
    st.lists(_rates, min_size=3, max_size=3),
    st.none() | capacities(),
    st.lists(capacities(), min_size=1, max_size=2),
    st.lists(st.floats(0, 1), min_size=2, max_size=2),
    any_events,
    st.sampled_from([0, 10**17]),  # 3 years
)
def test_what_is_sound_is_never_blamed(
    rates_bps: list[float],
    server: Capacity | None,
    traces: list[Capacity],
    ahead: list[float],
    sent: Events,
    late_ns: int,
) -> None:
    sent = [(late_ns + at_ns, client, size, pauses) for at_ns, client, size, pauses in sent]
    first, last = (
        trace.ahead(int(share * trace.period_ns))
        for trace, share in zip((traces[0], traces[-1]), ahead, strict=True)
    )
    each = np.array(rates_bps)
    links = Links(each, each, np.array([0, 0.001, 0]), rates_bps[0], 9e6, 0.0, None, {0: first, 2: last}.get)
    play(FluidCarrier(links, server, server, is_checked=True), sent, 0.05)


@given(capacities(), st.integers(0, 10**17), st.integers(1, 5000 * MS))
def test_a_millionth_too_much_is_caught(capacity: Capacity, from_ns: int, lasts_ns: int) -> None:
    change_ns = capacity.next_change_ns(from_ns)
    to_ns = from_ns + lasts_ns if change_ns is None else min(change_ns, from_ns + lasts_ns)
    rate_bps = capacity.rate_at(from_ns)
    if not rate_bps or to_ns - from_ns < MS // 100:
        return
    lasts_s, bits = (to_ns - from_ns) / 1e9, 8 * capacity.bytes_between(from_ns, to_ns)
    for extra, caught in ((1.0, False), (1 + 1e-6, True)):
        check = LoadCheck()
        check.begin("a", 1e30)
        with pytest.raises(InvariantError, match="carries") if caught else nullcontext():
            check.span(0.0, lasts_s, {"a": extra * rate_bps}, [Link("uplink", rate_bps, bits, ["a"])])
    # At its capacity, but for longer than there was.
    check = LoadCheck()
    check.begin("b", 1e30)
    with pytest.raises(InvariantError, match="carried"):
        check.span(0.0, 1.0, {"b": rate_bps}, [Link("uplink", rate_bps, rate_bps / 1.000001, ["b"])])


class TooFast(MaxMinStar):
    """Gives flows that share twice what there is."""

    def _fair_bps(self) -> float:
        return 2 * super()._fair_bps()


class Impatient(MaxMinStar):
    def advance(self, at_s: float) -> None:
        before_s, shared = self.now_s, self._virtual_bits
        super().advance(at_s)
        if at_s > before_s:
            self._virtual_bits += 0.1 * (self._virtual_bits - shared)


class Early(MaxMinStar):
    """Ends whatever there is."""

    def finished(self) -> list[Flow]:
        flows = super().finished()
        left = [entry[2] for entry in self._targets if entry[2]._stamp]
        for flow in left[:1]:
            self.remove(flow)
        return [*flows, *left[:1]]


class Greedy(MaxMinStar):
    def add(self, flow: Flow, size_bits: float, cap_bps: float = np.inf) -> None:
        super().add(flow, size_bits)


@pytest.mark.parametrize(
    ("solver", "message"),
    [
        (TooFast, r"the server's link carries 10000000.0 bit/s at 0.001 s, its capacity is 9000000.0"),
        (Impatient, r"a flow of \d+.* bits has .* to go, by its rates"),
        (Early, r"a flow of \d+.* bits has 0.0 to go, by its rates"),
        (Greedy, r"the link of client 0 carries 9000000.0 bit/s at 0.0 s, its capacity is 8000000.0"),
    ],
)
def test_a_broken_solver_is_caught(
    solver: type[MaxMinStar], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fluid_server_link, "MaxMinStar", solver)
    with pytest.raises(InvariantError, match=message):
        play(FluidCarrier(LINKS, is_checked=True), EVENTS)


def test_a_link_that_is_not_divided_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ServerLink, "_share", lambda self: self._reshared.clear())
    with pytest.raises(InvariantError, match=r"the link of client 0 carries 12000000.0 bit/s"):
        play(FluidCarrier(replace(LINKS, server_up_bps=1e9), is_checked=True), EVENTS)


def test_a_step_of_a_trace_that_is_missed_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    follow = ServerLink._follow

    def once(self: ServerLink, client: int, trace: Capacity) -> None:
        if self._busy[client].timer is None:
            follow(self, client, trace)

    monkeypatch.setattr(ServerLink, "_follow", once)
    with pytest.raises(InvariantError, match=r"the link of client 0 carrie"):
        play(FluidCarrier(TRACED, is_checked=True), [(0, 0, 9000, False), (3 * MS, 1, 100, False)])


def test_flows_that_the_solver_does_not_move_are_missed() -> None:
    check = LoadCheck()
    check.begin("a", 10.0)
    with pytest.raises(InvariantError, match="1 flows are under way, the solver moves 0"):
        check.span(0.0, 1.0, {}, [Link("uplink", 1.0, 1.0, [])])


def test_bits_beyond_what_a_link_lets_pass_are_caught() -> None:
    check = LoadCheck()
    check.begin("a", 100.0)
    with pytest.raises(
        InvariantError, match=r"uplink carried 20.0 bits from 0.0 to 2.0 s, and can carry 15.0"
    ):
        check.span(0.0, 2.0, {"a": 10.0}, [Link("uplink", 10.0, 15.0, ["a"])])
