"""Arrivals that are known beforehand are those of a run."""

from collections.abc import Sequence
from typing import cast

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fedsim import clock
from fedsim.clock import EventClass, VirtualTimeLoop, now_ns, running_loop, sleep_until
from fedsim.config import Config
from fedsim.network import Carrier, Links, Parcel, has_timetable
from fedsim.network.base import Departures
from fedsim.network.capacity_trace import Capacity
from fedsim.network.fluid import FluidCarrier
from fedsim.network.naive import PLUGIN as NAIVE
from fedsim.network.none import PLUGIN as NONE

S = 1_000_000_000
FAR_NS = 10**15

Starts = Sequence[tuple[int, int, int]]
"""Parcels in the order of their starts: start, ns; client; bytes."""
Events = list[tuple[int, list[int]]]
"""Arrivals by event: instant, ns, and the places of the parcels."""


class Diary:
    """Notes which parcels arrive in one event, and when."""

    def __init__(self) -> None:
        self.arrivals: Events = []
        self._together: list[int] = []

    def left(self) -> None:
        pass

    def arrived(self, parcel: Parcel) -> None:
        if not self._together:
            running_loop().call_soon(self._next, now_ns())
        self._together.append(parcel.payload)

    def _next(self, at_ns: int) -> None:
        self.arrivals.append((at_ns, self._together))
        self._together = []

    def lost(self, cause: str) -> None:
        raise AssertionError(cause)


def events(carrier: Carrier, starts: Starts, *, up: bool, all_at_once: bool, by_ns: int) -> Events:
    """Return the arrivals of parcels that are known beforehand."""
    assert has_timetable(carrier)
    at_ns, clients, num_bytes = np.array(starts, np.int64).reshape(-1, 3).T
    parcels = Departures(at_ns, clients, num_bytes, np.zeros(len(starts), np.int64))
    found: Events = []
    arrivals = carrier.arrivals(parcels, up=up, all_at_once=all_at_once, by_ns=by_ns)
    for at_ns, place, number in np.stack(arrivals, axis=1).tolist():
        if number == 0:
            found.append((at_ns, []))
        found[-1][1].append(place)
        assert found[-1][0] == at_ns
        assert len(found[-1][1]) == number + 1
    return found


def same(carrier: Carrier, parcels: Starts, *, up: bool, all_at_once: bool) -> Events:
    """Check that what is known beforehand comes to be, whatever was carried before; return it."""
    diary, first = Diary(), list[tuple[int, list[int]]]()

    def carry(place: int, client: int, num_bytes: int) -> None:
        ends = (client, -1) if up else (-1, client)
        carrier.carry(Parcel(*ends, num_bytes, place), diary)

    async def main() -> None:
        loop = cast(VirtualTimeLoop, running_loop())
        for base_ns in (0, FAR_NS):
            some = [(base_ns + start_ns, client, size) for start_ns, client, size in parcels]
            ends_ns = base_ns + FAR_NS - 1
            known = events(carrier, some, up=up, all_at_once=all_at_once, by_ns=ends_ns)
            if all_at_once:
                await sleep_until(some[0][0] / 1e9)
                for place, (_, client, size) in enumerate(some):
                    carry(place, client, size)
            else:
                for place, (start_ns, client, size) in enumerate(some):
                    loop.call_at_ns(start_ns, carry, place, client, size, event_class=EventClass.JOIN)
            await sleep_until(ends_ns / 1e9)
            assert diary.arrivals == known
            diary.arrivals = []
            first.extend([] if base_ns else known)

    clock.run(main())
    return first


RATES = st.sampled_from([800.0, 1e4, 1e4 / 3, 3e4, 1e6, 1e12]) | st.floats(100, 1e7)
LATENCIES = st.sampled_from([0.0, 0.0, 1e-9, 0.1, 0.25]) | st.floats(0, 1)
BYTES = st.sampled_from([1, 100, 1000]) | st.integers(1, 5000)
STARTS_NS = st.sampled_from([0, S // 10, S]) | st.integers(0, 3 * S)

CLIENTS = st.lists(st.tuples(RATES, LATENCIES, BYTES, STARTS_NS), min_size=1, max_size=9)


def links_of(clients: list[tuple[float, float, int, int]], server_bps: float, server_s: float) -> Links:
    link_bps, latency_s, _, _ = zip(*clients, strict=True)
    rates = np.array(link_bps)
    return Links(rates, rates, np.array(latency_s), server_bps, server_bps, server_s)


@given(CLIENTS, RATES, LATENCIES)
@example([(1e4, 0.0, 100, 0)] * 4, 2e4, 0.0)
@example([(1e4, 0.1, 1000, 0)] * 4, 4e4, 0.0)
def test_a_cohort_that_is_sent_at_once(
    clients: list[tuple[float, float, int, int]], server_bps: float, server_s: float
) -> None:
    links = links_of(clients, server_bps, server_s)
    start_ns = clients[0][3]
    parcels = [(start_ns, client, num_bytes) for client, (_, _, num_bytes, _) in enumerate(clients)]
    for carrier in (FluidCarrier(links), NAIVE(Config()).carrier(links)):
        known = same(carrier, parcels, up=False, all_at_once=True)
        assert sorted(place for _, places in known for place in places) == list(range(len(parcels)))


@given(CLIENTS, RATES, LATENCIES)
@example([(1e4, 0.0, 100, 0)] * 4, 2e4, 0.0)
@example([(1e4, 0.1, 1000, S // 10), (1e4, 0.2, 1000, 0), (3e4, 0.0, 1, S // 5)], 1e4, 0.0)
def test_replies_that_come_one_by_one(
    clients: list[tuple[float, float, int, int]], server_bps: float, server_s: float
) -> None:
    links = links_of(clients, server_bps, server_s)
    parcels = sorted(
        (start_ns, client, num_bytes) for client, (_, _, num_bytes, start_ns) in enumerate(clients)
    )
    for carrier in (FluidCarrier(links), NAIVE(Config()).carrier(links)):
        known = same(carrier, parcels, up=True, all_at_once=False)
        assert sorted(place for _, places in known for place in places) == list(range(len(parcels)))


def test_what_comes_too_late_is_left_out() -> None:
    links = links_of([(8e3, 0.0, 0, 0), (4e3, 0.0, 0, 0), (0.0, 0.0, 0, 0)], 1e9, 0.0)
    parcels = [(0, 0, 1000), (0, 1, 1000), (0, 2, 1000)]
    carrier = FluidCarrier(links)
    for by_ns, places in ((S - 1, []), (S, [0]), (2 * S - 1, [0]), (2 * S, [0, 1]), (FAR_NS, [0, 1])):
        known = events(carrier, parcels, up=False, all_at_once=True, by_ns=by_ns)
        assert [place for _, some in known for place in some] == places


@pytest.mark.parametrize("side", ["server", "client"])
def test_links_that_change_have_no_timetable(side: str) -> None:
    constant = links_of([(8e3, 0.0, 0, 0)], 8e3, 0.0)
    steps = Capacity([0, S], [8e3, 4e3], 2 * S)
    if side == "server":
        carrier = FluidCarrier(constant, server_up=steps)
    else:
        carrier = FluidCarrier(
            Links(constant.up_bps, constant.down_bps, constant.latency_s, 8e3, 8e3, 0.0, None, {0: steps}.get)
        )
    assert events(carrier, [(0, 0, 1000)], up=False, all_at_once=True, by_ns=FAR_NS) == []
    assert same(carrier, [(0, 0, 1000)], up=True, all_at_once=True) == [(S, [0])]


def test_without_a_network_there_is_no_timetable() -> None:
    assert not has_timetable(NONE(Config()).carrier(links_of([(1.0, 0.0, 0, 0)], 1.0, 0.0)))
