"""What every network model keeps to; a new file in the folder is tested by being there."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim import clock
from fedsim.network import Carrier, Links, Listener, NetworkPlugin, Parcel, Passage, has_timetable
from fedsim.network.naive import NaiveCarrier
from fedsim.plugins import available
from tests.network.listening import Ear

NETWORKS = [found.plugin for found in available("fedsim.network")]
LINKS = Links(np.array([1e6, 3e6]), np.array([2e6, 7e6]), np.array([0.01, 0.0]), 1e7, 2e7, 0.003)

each_network = pytest.mark.parametrize("plugin", NETWORKS, ids=lambda plugin: plugin.__name__)

Parcels = list[tuple[bool, int, int]]
parcels = st.lists(st.tuples(st.booleans(), st.integers(0, 1), st.integers(0, 10**6)), min_size=1, max_size=8)


def make(plugin: type[NetworkPlugin[Any]]) -> Carrier:
    return plugin(plugin.Config()).carrier(LINKS)


def parcel(up: bool, client: int, num_bytes: int) -> Parcel:
    sender, receiver = (client, -1) if up else (-1, client)
    return Parcel(sender, receiver, num_bytes, object())


@each_network
@given(parcels)
def test_every_parcel_leaves_and_then_arrives_once_as_it_was_sent(
    plugin: type[NetworkPlugin[Any]], described: Parcels
) -> None:
    async def main() -> list[tuple[Parcel, Ear]]:
        carrier = make(plugin)
        sent = [(parcel(*one), Ear()) for one in described]
        for one, ear in sent:
            carrier.carry(one, ear)
            assert not ear.heard  # never before carry returns
        await asyncio.sleep(3600)
        return sent

    for one, ear in clock.run(main()):
        (left, left_ns, _), (arrived, arrived_ns, what) = ear.heard
        assert (left, arrived) == ("left", "arrived")
        assert left_ns <= arrived_ns
        assert what is one


@each_network
async def test_nothing_is_heard_of_a_cancelled_parcel(plugin: type[NetworkPlugin[Any]]) -> None:
    carrier, cancelled, other = make(plugin), Ear(), Ear()
    passage = carrier.carry(parcel(True, 0, 1000), cancelled)
    carrier.carry(parcel(True, 0, 1000), other)
    passage.cancel()
    await asyncio.sleep(3600)
    assert cancelled.heard == []
    assert [what for what, _, _ in other.heard] == ["left", "arrived"]


@each_network
async def test_a_parcel_that_has_arrived_can_be_cancelled_in_vain(plugin: type[NetworkPlugin[Any]]) -> None:
    ear = Ear()
    passage = make(plugin).carry(parcel(False, 1, 10), ear)
    await asyncio.sleep(3600)
    passage.cancel()
    await asyncio.sleep(1)
    assert len(ear.heard) == 2


class Twice(NaiveCarrier):
    """Carries twice as much, and says nothing new of arrivals."""

    def carry(self, parcel: Parcel, listener: Listener) -> Passage:
        return super().carry(parcel._replace(num_bytes=2 * parcel.num_bytes), listener)


class Timed(Twice):
    arrivals = NaiveCarrier.arrivals


class Around:
    """Wrapped around a carrier, of which it passes everything on but ``carry``."""

    def __init__(self, inner: Carrier) -> None:
        self._inner = inner

    def carry(self, parcel: Parcel, listener: Listener) -> Passage:
        return self._inner.carry(parcel, listener)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def test_the_timetable_of_a_carrier_that_carries_otherwise_does_not_count() -> None:
    naive = NaiveCarrier(LINKS)
    assert has_timetable(naive)
    assert has_timetable(Timed(LINKS))
    assert not has_timetable(Twice(LINKS))
    assert not has_timetable(Around(naive))


def test_both_models_are_found() -> None:
    assert {"naive", "none"} <= {found.name for found in available("fedsim.network")}


@each_network
@given(st.booleans(), st.integers(0, 1), st.integers(0, 10**6))
def test_a_parcel_that_is_alone_takes_as_long_as_the_model_says(
    plugin: type[NetworkPlugin[Any]], up: bool, client: int, num_bytes: int
) -> None:
    async def main() -> Ear:
        make(plugin).carry(parcel(up, client, num_bytes), ear := Ear())
        await asyncio.sleep(3600)
        return ear

    one = parcel(up, client, num_bytes)
    alone_s = plugin(plugin.Config()).alone_s(LINKS, one.sender, one.receiver, num_bytes)
    assert clock.run(main()).heard[-1][1] == pytest.approx(1e9 * alone_s, rel=0, abs=1)


STAR = Links(np.array([1e6, 2e6]), np.array([5e6, 6e6]), np.array([0.01, 0.02]), 8e6, 9e6, 0.5)


def test_capacities_belong_to_the_party() -> None:
    assert [STAR.egress_bps(address) for address in (-1, 0, 1)] == [8e6, 1e6, 2e6]
    assert [STAR.ingress_bps(address) for address in (-1, 0, 1)] == [9e6, 5e6, 6e6]


def test_latency_is_the_sum_over_both_doors_whichever_way_it_goes() -> None:
    assert STAR.between_s(-1, 1) == STAR.between_s(1, -1) == 0.52
    assert STAR.between_s(0, 1) == 0.03


def test_what_comes_out_are_plain_floats() -> None:
    # Durations end up in the trace, which takes no NumPy scalars.
    assert type(STAR.egress_bps(0)) is type(STAR.ingress_bps(1)) is type(STAR.between_s(-1, 0)) is float
