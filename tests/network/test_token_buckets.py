"""Token buckets in virtual time, where bytes are there as soon as they are moved, against fluid flows."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim import clock
from fedsim.clock import call_after, now_ns, sleep_for, sleep_until
from fedsim.errors import DeadlockError
from fedsim.network import Links, Parcel
from fedsim.network.base import Carrier, Passage
from fedsim.network.capacity_trace import Capacity
from fedsim.network.cells import Rate, SharedLinks
from fedsim.network.fluid import FluidCarrier
from fedsim.network.token_buckets import AHEAD, MAX_PIECES, MIN_PIECES, PIECE_S, LinkBucket, PacedCarrier
from tests.network.listening import Ear

MS = 1_000_000
S = 1_000 * MS
ROUNDED_NS = 2 * MAX_PIECES
"""Each piece ends at a whole nanosecond."""
Shares = list[tuple[float, float]]


class Hands:
    """Moves bytes at once, or ``after_s``, and notes which."""

    def __init__(self, after_s: float | None = None) -> None:
        self.after_s = after_s
        self.moved: dict[Any, Shares] = defaultdict(list)

    def move(self, parcel: Parcel, share: tuple[float, float], arrived: Callable[[Any], object]) -> None:
        self.moved[parcel.payload].append(share)
        if share[1] < 1:
            return
        if self.after_s is None:
            arrived(f"moved {parcel.payload}")
        else:
            call_after(self.after_s, arrived, f"moved {parcel.payload}")


class World:
    def __init__(
        self,
        over: Links,
        server: tuple[Rate, Rate] | None = None,
        after_s: float | None = None,
        speed_up: float = 1.0,
    ) -> None:
        self.hands, self.late = Hands(after_s), list[tuple[Any, int]]()
        self.ears: dict[str, Ear] = {}
        self.carrier = PacedCarrier(
            over,
            server or (over.server_up_bps, over.server_down_bps),
            self.hands,
            lambda parcel, late_ns: self.late.append((parcel.payload, late_ns)),
            speed_up,
        )

    def send(self, name: str, sender: int, receiver: int, num_bytes: int) -> Passage:
        self.ears[name] = ear = Ear()
        return self.carrier.carry(Parcel(sender, receiver, num_bytes, name), ear)

    def down(self, name: str, client: int, num_bytes: int) -> Passage:
        return self.send(name, -1, client, num_bytes)

    def up(self, name: str, client: int, num_bytes: int) -> Passage:
        return self.send(name, client, -1, num_bytes)

    @property
    def arrivals(self) -> dict[str, int]:
        found = {}
        for name, ear in self.ears.items():
            if not ear.heard:
                continue
            assert [what for what, _ in ear.events] == ["left", "arrived"]
            (_, left_ns, _), (_, at_ns, parcel) = ear.heard
            assert left_ns == at_ns
            assert parcel is not None
            assert parcel.payload == f"moved {name}"
            found[name] = at_ns
        return found


def links(down: Sequence[float], server: float, latency_s: float = 0.0, **changes: Any) -> Links:
    """Return links that are the same in both directions."""
    own = np.array(down, float)
    return replace(Links(own, own, np.full(len(own), latency_s), server, server, 0.0), **changes)


def in_cells(down: Sequence[float], server: float, of: Sequence[int], rates: Sequence[Rate]) -> Links:
    shared = SharedLinks(np.array(of, np.int32), rates, [str(number) for number in range(len(rates))])
    return links(down, server, shared_up=shared, shared_down=shared)


def about(at_ns: float) -> Any:
    """Return what is equal to an instant but for the rounding of pieces."""
    return pytest.approx(at_ns, abs=ROUNDED_NS)


def near(at_ns: float, share: float = 0.01) -> Any:
    """Return what is equal to an instant but for the length of some pieces."""
    return pytest.approx(at_ns, rel=share)


# By hand


@pytest.mark.parametrize(("own_bps", "server_bps"), [(8e6, 1e9), (1e9, 8e6), (8e6, 8e6), (8e6, inf)])
@pytest.mark.parametrize("num_bytes", [1, 7, 1000, 12_345, 3_000_000])
async def test_a_lone_parcel_takes_its_latency_and_the_time_of_its_bytes(
    own_bps: float, server_bps: float, num_bytes: int
) -> None:
    world = World(links([own_bps], server_bps, 0.01))
    world.down("down", 0, num_bytes)
    await sleep_for(100)
    began_ns = now_ns()
    world.up("up", 0, num_bytes)
    await sleep_for(100)
    takes_ns = 10 * MS + 1000 * num_bytes
    assert world.arrivals == {"down": about(takes_ns), "up": about(began_ns + takes_ns)}
    assert world.late == [("down", 0), ("up", 0)]


async def test_both_latencies_are_paid() -> None:
    world = World(links([8e6], 1e9, 0.002, server_latency_s=0.003))
    passage = world.up("it", 0, 1000)
    await sleep_for(0.005)
    assert (passage.remaining_bytes, world.arrivals) == (1000, {})
    await sleep_for(1)
    assert (passage.remaining_bytes, world.arrivals) == (0, {"it": about(6 * MS)})


async def test_a_link_without_a_limit_takes_no_time() -> None:
    world = World(links([inf], inf, 0.002))
    world.down("it", 0, 10**9)
    await sleep_for(1)
    assert world.arrivals == {"it": 2 * MS}


async def test_two_flows_share_the_servers_link_and_leave_the_other_direction_alone() -> None:
    world = World(links([1e9] * 3, 8e6))
    world.down("a", 0, 100_000)
    world.down("b", 1, 100_000)
    world.up("c", 2, 100_000)
    await sleep_for(1)
    assert world.arrivals == {"a": near(200 * MS, 0.05), "b": near(200 * MS, 0.05), "c": about(100 * MS)}
    assert max(world.arrivals.values()) == about(200 * MS)  # the link was never idle


async def test_a_flow_that_comes_later_has_its_share_from_then_on() -> None:
    world = World(links([1e9] * 2, 8e6))
    world.down("first", 0, 200_000)
    await sleep_for(0.1)
    world.down("second", 1, 50_000)  # at half the rate, from 100 ms on
    await sleep_for(1)
    assert world.arrivals == {"first": near(250 * MS, 0.05), "second": near(200 * MS, 0.05)}


async def test_two_parcels_of_one_client_share_its_link() -> None:
    world = World(links([8e6] * 2, 1e9))
    for name in ("a", "b"):
        world.down(name, 0, 100_000)
    world.down("other", 1, 100_000)
    await sleep_for(1)
    shared = near(200 * MS, 0.05)
    assert world.arrivals == {"a": shared, "b": shared, "other": about(100 * MS)}


async def test_a_slow_client_does_not_hold_fast_ones() -> None:
    # The slow one takes 0.8 of 24 Mbit/s, and the fast ones share the rest.
    world = World(links([8e5, 1e9, 1e9], 24e6))
    for name, client in (("slow", 0), ("a", 1), ("b", 2)):
        world.up(name, client, 290_000)
    await sleep_for(10)
    assert world.arrivals == {
        "slow": near(2900 * MS),
        "a": near(200 * MS, 0.05),
        "b": near(200 * MS, 0.05),
    }


async def test_a_cell_is_shared_on_the_way() -> None:
    world = World(in_cells([1e9] * 3, 1e9, [0, 0, -1], [8e6]))
    for client in range(3):
        world.up(str(client), client, 100_000)
    await sleep_for(1)
    assert world.arrivals["2"] < 3 * MS
    assert [world.arrivals[name] for name in "01"] == [near(200 * MS, 0.05)] * 2


async def test_each_direction_of_a_cell_has_its_own_rate() -> None:
    world = World(replace(in_cells([1e9], 1e9, [0], [8e6]), shared_down=None))
    world.up("up", 0, 100_000)
    world.down("down", 0, 100_000)
    await sleep_for(1)
    assert world.arrivals == {"up": about(100 * MS), "down": about(800_000)}


async def test_links_follow_their_traces() -> None:
    steps = Capacity([0, 100 * MS, 300 * MS], [8e6, 0.0, 4e6], 1000 * MS)
    of_client = World(links([1.0], 1e9, up_trace={0: steps}.get))
    of_cell = World(in_cells([1e9], 1e9, [0], [steps]))
    of_server = World(links([1e9], 1.0), (1.0, steps))
    worlds = of_client, of_cell, of_server
    for world in worlds:
        world.up("it", 0, 150_000)  # 100 kB by 100 ms, and the rest from 300 ms on
    await sleep_until(0.7)
    for world in worlds:
        assert world.arrivals == {"it": about(400 * MS)}
        world.up("in between", 0, 50_000)
    await sleep_until(3)
    for world in worlds:
        assert world.arrivals["in between"] == about(800 * MS)


@given(
    st.lists(st.tuples(st.integers(1, 40), st.sampled_from([0.0, 1e3, 4e6, 8e6])), min_size=1, max_size=6),
    st.integers(0, 10**9),
    st.floats(0, 1e6),
)
def test_the_time_that_bytes_take_alone_lets_just_these_pass(
    steps: list[tuple[int, float]], from_ns: int, num_bytes: float
) -> None:
    starts_ns = np.cumsum([0, *(ms * MS for ms, _ in steps)]).tolist()
    trace = Capacity(starts_ns, [*(rate for _, rate in steps), 1e6], starts_ns[-1] + 5 * MS)
    took_ns = LinkBucket(trace).alone_ns(num_bytes, from_ns)
    assert trace.bytes_between(from_ns, from_ns + took_ns) >= num_bytes * (1 - 1e-9) - 1e-6
    if took_ns > 1:
        assert trace.bytes_between(from_ns, from_ns + took_ns - 2) <= num_bytes * (1 + 1e-9) + 1e-6


# Pieces


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 10**6), st.integers(0, 50)), min_size=1, max_size=6),
    st.lists(st.integers(1, 40), min_size=4, max_size=4),
    st.integers(1, 60),
    st.sampled_from([0.01, 1.0, 100.0]),
)
def test_pieces_cover_a_parcel_in_order_without_gap_or_overlap(
    parcels: list[tuple[int, int, int]], client_mbps: list[int], server_mbps: int, speed_up: float
) -> None:
    """Parcels as (client, bytes, start in ms)."""

    async def main() -> World:
        world = World(links([1e6 * mbps for mbps in client_mbps], 1e6 * server_mbps), speed_up=speed_up)
        for number, (client, num_bytes, at_ms) in enumerate(parcels):
            call_after(at_ms / 1e3, world.up, str(number), client, num_bytes)
        await sleep_for(1000)
        return world

    world = clock.run(main())
    assert world.arrivals.keys() == world.hands.moved.keys() == {str(n) for n in range(len(parcels))}
    for name, shares in world.hands.moved.items():
        firsts, ends = zip(*shares, strict=True)
        assert firsts == (0, *ends[:-1])
        assert ends[-1] == 1
        assert all(first < end for first, end in shares)
        whole = parcels[int(name)][1]
        assert len(shares) <= MAX_PIECES
        assert all(round(end * whole) == pytest.approx(end * whole, abs=1e-6) for end in ends)


@pytest.mark.parametrize(
    ("num_bytes", "speed_up", "pieces"),
    [
        (1_000_000, 1.0, 200),  # of 5 ms
        (1_000_000, 4.0, 50),
        (1_000_000, 0.1, MAX_PIECES),
        (1000, 1.0, MIN_PIECES),
        (10**6, 1e6, MIN_PIECES),
        (5, 1.0, 5),
    ],
)
async def test_a_piece_takes_some_real_milliseconds(num_bytes: int, speed_up: float, pieces: int) -> None:
    world = World(links([8e6], 1e9), speed_up=speed_up)
    assert PIECE_S == 0.005
    world.down("it", 0, num_bytes)
    await sleep_for(10)
    assert len(world.hands.moved["it"]) == pytest.approx(pieces, rel=0.03)


async def test_bytes_move_while_the_parcel_is_on_its_way() -> None:
    world = World(links([8e6], 1e9, 0.1))
    passage = world.down("it", 0, 1_000_000)
    await sleep_for(0.1 + 0.25 + 0.001)
    assert passage.remaining_bytes == pytest.approx(750_000, abs=5001)
    assert world.hands.moved["it"][-1][1] == pytest.approx(0.25, abs=0.006)


async def test_a_fast_link_is_ahead_of_a_slow_one_by_some_pieces_and_no_more() -> None:
    # The fast client's link would have served all at once; the server's slow link does so piece by piece.
    world = World(links([1e9] * 2, 8e6))
    first = world.down("first", 0, 1_000_000)
    await sleep_for(0.5)
    first.pause()
    ahead = world.down("second", 0, 1_000_000)  # the link of client 0 is free for it
    await sleep_for(1.0 + AHEAD * PIECE_S)
    assert ahead.remaining_bytes == 0


async def test_who_moves_bytes_late_is_said_to() -> None:
    world = World(links([8e6], 1e9), after_s=0.025)
    world.down("it", 0, 1000)
    await sleep_for(1)
    assert world.arrivals == {"it": about(26 * MS)}
    assert world.late == [("it", 25 * MS)]


# Leaving in the middle


async def test_a_cancelled_parcel_frees_its_links_and_is_not_heard_of() -> None:
    world = World(links([1e9] * 2, 8e6))
    gone = world.down("gone", 0, 200_000)
    world.down("stays", 1, 200_000)
    await sleep_for(0.2)
    left = gone.remaining_bytes
    gone.cancel()
    for call in (gone.resume, gone.pause, gone.resume, gone.cancel):
        call()
    assert gone.remaining_bytes == left == pytest.approx(100_000, abs=5001)
    moved = len(world.hands.moved["gone"])
    await sleep_for(1)
    assert world.arrivals == {"stays": near(300 * MS, 0.05)}
    assert world.ears["gone"].heard == []
    assert len(world.hands.moved["gone"]) == moved


async def test_a_parcel_that_is_cancelled_during_its_latency_moves_nothing() -> None:
    world = World(links([8e6], 1e9, 0.1))
    passage = world.down("it", 0, 1000)
    await sleep_for(0.05)
    passage.cancel()
    await sleep_for(1)
    assert (world.hands.moved, world.ears["it"].heard, passage.remaining_bytes) == ({}, [], 1000)


async def test_a_parcel_that_is_cancelled_while_its_last_bytes_move_does_not_arrive() -> None:
    world = World(links([8e6], 1e9), after_s=0.5)
    passage = world.down("it", 0, 1000)
    await sleep_for(0.1)
    assert world.hands.moved["it"][-1][1] == 1
    passage.cancel()
    await sleep_for(1)
    assert (world.ears["it"].heard, world.late) == ([], [])


@pytest.mark.parametrize("stops", [("cancel",), ("pause", "cancel"), ("cancel", "pause")])
async def test_a_cancelled_parcel_is_not_resumed(stops: tuple[str, ...]) -> None:
    world = World(links([8e6], 8e6))
    passage = world.down("it", 0, 1000)
    for call in stops:
        getattr(passage, call)()
    passage.resume()
    await sleep_for(1)
    assert (world.arrivals, passage.remaining_bytes) == ({}, 1000)


async def test_a_parcel_that_has_arrived_stays_where_it_is() -> None:
    world = World(links([8e6], 8e6))
    passage = world.down("it", 0, 1000)
    await sleep_for(1)
    for call in (passage.pause, passage.resume, passage.cancel, passage.resume):
        call()
    await sleep_for(1)
    assert (world.arrivals, passage.remaining_bytes) == ({"it": about(MS)}, 0)


async def test_a_paused_parcel_goes_on_with_what_remains_after_its_latency() -> None:
    world = World(links([1e9] * 2, 8e6, 0.1))
    passage = world.down("it", 0, 1_000_000)
    await sleep_for(0.1 + 0.4025)
    passage.pause()
    passage.pause()
    left = passage.remaining_bytes
    assert left == pytest.approx(600_000, abs=5001)
    other = world.down("other", 1, 100_000)  # has the link for itself
    await sleep_for(0.4975)
    assert (passage.remaining_bytes, other.remaining_bytes) == (left, 0)
    assert world.arrivals == {"other": near(1002.5 * MS - 300 * MS, 0.02)}
    passage.resume()
    passage.resume()
    await sleep_for(10)
    assert world.arrivals["it"] == about(1000 * MS + 100 * MS + 1000 * left)
    shares = world.hands.moved["it"]
    assert [first for first, _ in shares] == [0, *(end for _, end in shares[:-1])]
    passage.pause()
    passage.resume()
    await sleep_for(10)
    assert len(world.arrivals) == 2


async def test_a_parcel_paused_during_its_latency_pays_it_again() -> None:
    world = World(links([8e6], 1e9, 0.010))
    passage = world.down("late", 0, 1000)
    await sleep_for(0.009)
    passage.pause()
    await sleep_for(0.011)
    passage.resume()
    await sleep_for(1)
    assert world.arrivals == {"late": about(31 * MS)}


async def test_a_parcel_that_has_passed_cannot_be_paused() -> None:
    world = World(links([8e6], 1e9), after_s=0.1)
    passage = world.down("it", 0, 1000)
    await sleep_for(0.05)
    passage.pause()
    await sleep_for(0.02)
    passage.resume()
    await sleep_for(1)
    assert world.arrivals == {"it": about(101 * MS)}


@given(st.lists(st.tuples(st.integers(0, 600), st.integers(0, 600)), max_size=5), st.integers(1, 10**6))
def test_pauses_lose_no_byte_and_cost_their_length_a_latency_and_less_than_some_pieces(
    pauses: list[tuple[int, int]], num_bytes: int
) -> None:
    """Pauses as (ms after the one before, ms that it lasts)."""

    async def main() -> World:
        world = World(links([8e6], 1e9, 0.01))
        passage = world.down("it", 0, num_bytes)
        for after_ms, lasts_ms in pauses:
            await sleep_for(after_ms / 1e3)
            passage.pause()
            await sleep_for(lasts_ms / 1e3)
            passage.resume()
        await sleep_for(100)
        return world

    world = clock.run(main())
    shares = world.hands.moved["it"]
    assert [first for first, _ in shares] == [0, *(end for _, end in shares[:-1])]
    paused_ns = sum((lasts_ms + 10) * MS for _, lasts_ms in pauses)
    whole_ns = 10 * MS + 1000 * num_bytes
    at_least = whole_ns - ROUNDED_NS
    piece_ns = 1000 * (num_bytes // MIN_PIECES + 1)
    at_most = whole_ns + paused_ns + len(pauses) * (piece_ns + 10 * MS) + ROUNDED_NS
    assert at_least <= world.arrivals["it"] <= at_most


def test_nothing_is_left_behind_when_all_has_arrived() -> None:
    async def main() -> None:
        world = World(links([8e6] * 2, 8e6))
        world.down("a", 0, 10_000)
        world.down("b", 1, 10_000).cancel()
        await asyncio.get_running_loop().create_future()

    with pytest.raises(DeadlockError):
        clock.run(main())


# Against the solver


def arrivals_of(carrier: Carrier, clients: Sequence[int], num_bytes: int, up: bool) -> dict[str, int]:
    """Return the instants at which equal parcels of clients arrive, all sent now, in virtual time."""

    async def main() -> dict[str, int]:
        ears = [Ear() for _ in clients]
        for number, client in enumerate(clients):
            way = (client, -1) if up else (-1, client)
            carrier.carry(Parcel(*way, num_bytes, str(number)), ears[number])
        await sleep_for(1e6)
        return {str(number): ear.events[-1][1] for number, ear in enumerate(ears)}

    return clock.run(main())


def paced_and_fluid(over: Links, clients: Sequence[int], num_bytes: int, up: bool) -> Any:
    """Return when equal parcels arrive: as token buckets have it, and as the solver of the simulation."""
    server = over.server_up_bps, over.server_down_bps
    speed_up = 1e-3  # pieces are small
    paced = PacedCarrier(over, server, Hands(), speed_up=speed_up)
    found = (
        arrivals_of(paced, clients, num_bytes, up),
        arrivals_of(FluidCarrier(over), clients, num_bytes, up),
    )
    assert found[0].keys() == found[1].keys()
    return [np.array([one[name] for name in found[1]], float) for one in found]


@given(
    st.lists(st.integers(1, 100), min_size=1, max_size=10),
    st.integers(1, 200),
    st.integers(10**4, 10**6),
    st.booleans(),
)
def test_equal_parcels_arrive_when_fluid_flows_do(
    client_mbps: list[int], server_mbps: int, num_bytes: int, up: bool
) -> None:
    over = links([1e6 * mbps for mbps in client_mbps], 1e6 * server_mbps, 0.001)
    paced, fluid = paced_and_fluid(over, range(len(client_mbps)), num_bytes, up)
    assert np.median(np.abs(paced / fluid - 1)) < 0.02
    assert paced.max() == near(fluid.max())


@given(
    st.lists(st.tuples(st.integers(1, 100), st.integers(-1, 1)), min_size=1, max_size=10),
    st.lists(st.integers(1, 200), min_size=2, max_size=2),
    st.integers(1, 400),
)
def test_equal_parcels_arrive_over_cells_when_fluid_flows_do(
    clients: list[tuple[int, int]], cell_mbps: list[int], server_mbps: int
) -> None:
    """Clients as (Mbit/s, cell)."""
    rates, of = zip(*((1e6 * mbps, cell) for mbps, cell in clients), strict=True)
    over = in_cells(rates, 1e6 * server_mbps, of, [1e6 * mbps for mbps in cell_mbps])
    paced, fluid = paced_and_fluid(over, range(len(clients)), 200_000, up=True)
    assert np.median(np.abs(paced / fluid - 1)) < 0.02
    assert paced.max() == near(fluid.max())


@given(
    st.lists(
        st.tuples(st.integers(0, 400), st.integers(0, 2), st.integers(1, 10**5)), min_size=1, max_size=10
    )
)
def test_a_link_is_never_idle_while_somebody_waits(parcels: list[tuple[int, int, int]]) -> None:
    """Parcels as (start in ms, client, bytes): the last arrives when the server's link has served all."""

    async def main() -> dict[str, int]:
        world = World(links([1e12] * 3, 8e6))
        for number, (at_ms, client, num_bytes) in enumerate(parcels):
            call_after(at_ms / 1e3, world.up, str(number), client, num_bytes)
        await sleep_for(1e4)
        return world.arrivals

    free_ns = 0
    for at_ms, _, num_bytes in sorted(parcels):
        free_ns = max(free_ns, at_ms * MS) + 1000 * num_bytes
    arrived = clock.run(main())
    assert len(arrived) == len(parcels)
    assert max(arrived.values()) == pytest.approx(free_ns, abs=len(parcels) * ROUNDED_NS + 1000)
