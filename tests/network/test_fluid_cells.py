"""Parcels over cells: equal to progressive filling, known beforehand, audited, and a star without limits."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fedsim import clock
from fedsim.clock import call_after, sleep_for
from fedsim.errors import InvariantError
from fedsim.network import Links
from fedsim.network.capacity_trace import Capacity
from fedsim.network.cells import Rate, SharedLinks
from fedsim.network.fluid import FluidCarrier
from fedsim.network.max_min_tree import MaxMinTree
from tests.network.progressive_filling import ProgressiveFilling
from tests.network.test_fluid import World
from tests.network.test_fluid_timetable import BYTES, LATENCIES, RATES, STARTS_NS, events, same

MS, S = 1_000_000, 1_000_000_000


def links(clients: Sequence[float], server_bps: float, of: Sequence[int], rates: Sequence[Rate]) -> Links:
    own = np.array(clients, float)
    cells = SharedLinks(np.array(of, np.int32), rates, [str(number) for number in range(len(rates))])
    return Links(own, own, np.zeros(len(own)), server_bps, server_bps, 0.0, None, None, cells, cells)


# By hand


async def test_a_cell_is_shared_on_the_way_to_the_server() -> None:
    # A cell of 8 Mbit/s with two clients, and one client without a cell.
    world = World(links([1e9] * 3, 24e6, [0, 0, -1], [8e6]))
    for client in range(3):
        world.up(f"up {client}", client, 2000)
    await sleep_for(1)
    assert world.arrivals == [("up 2", MS), ("up 0", 4 * MS), ("up 1", 4 * MS)]


async def test_each_direction_has_a_capacity_of_its_own() -> None:
    over = replace(links([1e9] * 2, 1e9, [0, 0], [8e6]), shared_down=None)
    world = World(over)
    world.up("up", 0, 1000)
    world.down("down", 1, 1000)
    await sleep_for(1)
    assert world.arrivals == [("down", 8_000), ("up", MS)]


async def test_a_cell_follows_its_trace_while_it_is_busy() -> None:
    steps = Capacity([0, 2 * MS], [8e6, 4e6], 1000 * S)
    world = World(links([1e9], 1e9, [0], [steps]))
    world.up("first", 0, 3000)  # 2000 bytes by 2 ms, and the rest at half the speed
    await sleep_for(0.003)
    paused = world.up("second", 0, 1000)
    await sleep_for(0.0005)
    paused.pause()
    await sleep_for(1)
    assert world.arrivals == [("first", 4 * MS + MS // 4)]
    paused.resume()
    await sleep_for(1)
    assert world.arrivals[1] == ("second", 1_003_500_000 + 3 * MS // 2 + MS // 4)


# Against progressive filling


@given(
    st.lists(
        st.tuples(st.integers(0, 20), st.integers(0, 4), st.integers(0, 10**5)), min_size=1, max_size=15
    ),
    st.lists(st.integers(1, 40), min_size=5, max_size=5),
    st.lists(st.integers(-1, 1), min_size=5, max_size=5),
    st.integers(1, 60),
    st.lists(st.integers(1, 40), min_size=2, max_size=2),
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 1), st.integers(0, 40)), max_size=5),
)
def test_equal_to_progressive_filling_over_three_links(
    parcels: list[tuple[int, int, int]],
    client_mbps: list[int],
    of: list[int],
    server_mbps: int,
    cell_mbps: list[int],
    steps: list[tuple[int, int, int]],
) -> None:
    """Parcels as (start in ms, client, bytes); steps of cells as (ms, cell, Mbit/s)."""
    steps = sorted([*steps, (1000, 0, 10), (1000, 1, 10)])  # so that everything arrives
    rates = list[Rate]()
    for cell, mbps in enumerate(cell_mbps):
        rate_at = {0: 1e6 * mbps} | {at_ms: 1e6 * rate for at_ms, its, rate in steps if its == cell}
        rates.append(Capacity([at_ms * MS for at_ms in rate_at], list(rate_at.values()), 10**5 * S))

    async def main() -> dict[int, int]:
        world = World(links([1e6 * mbps for mbps in client_mbps], 1e6 * server_mbps, of, rates))
        for number, (at_ms, client, num_bytes) in enumerate(parcels):
            call_after(at_ms / 1e3, world.down, str(number), client, num_bytes)
        await sleep_for(1e4)
        return {int(name): at_ns for name, at_ns in world.arrivals}

    capacities = [1e6 * mbps for mbps in (server_mbps, *cell_mbps, *client_mbps)]
    filling, expected_s = ProgressiveFilling(capacities), dict[int, float]()

    for number, (at_ms, place, value) in sorted(enumerate(parcels + steps), key=lambda pair: pair[1][0]):
        expected_s |= filling.pass_until(at_ms / 1e3)
        if number < len(parcels):
            route = [0, 3 + place] if of[place] < 0 else [0, 1 + of[place], 3 + place]
            filling.add(number, 8.0 * value, route)
        else:
            filling.set_capacity(1 + place, 1e6 * value)
    expected_s |= filling.pass_until(1e4)
    # An end that rounding puts off to after a step would come as late as the step lets it.
    steps_s = [at_ms / 1e3 for at_ms, _, _ in steps]
    assume(all(abs(end_s - at_s) > 1e-6 for end_s in expected_s.values() for at_s in steps_s))
    arrived_ns = clock.run(main())
    assert arrived_ns.keys() == expected_s.keys()
    # Each end is rounded up, and keeps its share until then, so it may delay later ones by as much.
    for number, end_s in expected_s.items():
        least_ns, most_ns = end_s * 1e9 * (1 - 1e-9) - 1e-3, end_s * 1e9 * (1 + 1e-9) + len(parcels)
        assert least_ns <= arrived_ns[number] <= most_ns


# Arrivals that are known beforehand

CLIENTS = st.lists(st.tuples(RATES, LATENCIES, BYTES, STARTS_NS, st.integers(-1, 2)), min_size=1, max_size=9)


@given(CLIENTS, RATES, st.lists(RATES, min_size=3, max_size=3), st.booleans())
def test_cohorts_in_cells_are_known_beforehand(
    clients: list[tuple[float, float, int, int, int]], server_bps: float, cells: list[float], is_cohort: bool
) -> None:
    own, latencies_s, sizes, starts_ns, of = zip(*clients, strict=True)
    over = replace(links(own, server_bps, of, cells), latency_s=np.array(latencies_s))
    parcels = [
        (starts_ns[0] if is_cohort else starts_ns[client], client, size) for client, size in enumerate(sizes)
    ]
    parcels.sort()
    known = same(FluidCarrier(over), parcels, up=not is_cohort, all_at_once=is_cohort)
    assert sorted(place for _, places in known for place in places) == list(range(len(parcels)))


def test_cells_that_follow_traces_have_no_timetable() -> None:
    carrier = FluidCarrier(links([8e3], 8e3, [0], [Capacity([0, S], [8e3, 4e3], 2 * S)]))
    assert events(carrier, [(0, 0, 1000)], up=False, all_at_once=True, by_ns=10**15) == []


# Checks


def play(over: Links, *, is_checked: bool) -> list[tuple[str, int]]:
    async def main() -> list[tuple[str, int]]:
        world = World(over, is_checked=is_checked)
        for number in range(60):
            send = world.up if number % 2 else world.down
            call_after(number * 0.0007, send, str(number), number * 7 % 10, 1000 + 97 * number)
        await sleep_for(0.02)
        paused = world.up("paused", 1, 3000)
        await sleep_for(0.0003)
        paused.pause()
        await sleep_for(0.001)
        paused.resume()
        await sleep_for(10)
        return world.arrivals

    return clock.run(main())


TRACE = Capacity([0, 2 * MS, 5 * MS], [8e6, 0.0, 3e6], 7 * MS)


@pytest.mark.parametrize("rates", [[3e6, 5e6], [3e6, TRACE]])
def test_checks_change_nothing(rates: list[Rate]) -> None:
    over = links([2e6, 9e6] * 5, 9e6, [-1, 0, 1, 0, 1] * 2, rates)
    arrivals = play(over, is_checked=False)
    assert arrivals == play(over, is_checked=True)
    assert len(arrivals) == 61


def test_a_cell_that_carries_too_much_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    over = links([2e6, 9e6] * 5, 9e6, [-1, 0, 1, 0, 1] * 2, [3e6, 5e6])
    first = MaxMinTree.__init__

    def wider(self: MaxMinTree, capacity_bps: float, cells_bps: Sequence[float]) -> None:
        first(self, capacity_bps, [1.01 * bps for bps in cells_bps])

    monkeypatch.setattr(MaxMinTree, "__init__", wider)
    with pytest.raises(InvariantError, match=r"the link of cell 1 carries 5050000.0 bit/s"):
        play(over, is_checked=True)
