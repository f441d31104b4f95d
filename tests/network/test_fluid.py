import asyncio
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim import clock
from fedsim.clock import VirtualTimeLoop, call_after, now_ns, sleep_for, sleep_until, wait
from fedsim.errors import DataError, DeadlockError
from fedsim.network import Links, NetworkPlugin, Parcel
from fedsim.network.base import Passage
from fedsim.network.capacity_trace import Capacity
from fedsim.network.fluid import PLUGIN as FLUID
from fedsim.network.fluid import FluidCarrier, FluidConfig
from fedsim.network.max_min_star import MaxMinStar
from fedsim.network.naive import PLUGIN as NAIVE
from fedsim.network.none import PLUGIN as NONE
from tests.network.progressive_filling import ProgressiveFilling

MS = 1_000_000
S = 1_000 * MS


def links(
    up: list[float], down: list[float], server_up: float, server_down: float, latency_s: float = 0.0
) -> Links:
    return Links(np.array(up), np.array(down), np.full(len(up), latency_s), server_up, server_down, 0.0)


ByClient = dict[int, Capacity]


def traced(over: Links, *, up: ByClient | None = None, down: ByClient | None = None) -> Links:
    """Return links of which some, by client, follow a trace from its start."""

    return replace(over, up_trace=(up or {}).get, down_trace=(down or {}).get)


class World:
    def __init__(self, over: Links, **traces: Any) -> None:
        self.carrier = FluidCarrier(over, **traces)
        self.arrivals: list[tuple[str, int]] = []

    def send(self, name: str, sender: int, receiver: int, num_bytes: int) -> Passage:
        return self.carrier.carry(Parcel(sender, receiver, num_bytes, name), Note(self))

    def down(self, name: str, client: int, num_bytes: int) -> Passage:
        return self.send(name, -1, client, num_bytes)

    def up(self, name: str, client: int, num_bytes: int) -> Passage:
        return self.send(name, client, -1, num_bytes)


class Note:
    def __init__(self, world: World) -> None:
        self.world = world
        self.left_at_ns: int | None = None

    def left(self) -> None:
        self.left_at_ns = now_ns()

    def arrived(self, parcel: Parcel) -> None:
        assert self.left_at_ns == now_ns()
        self.world.arrivals.append((parcel.payload, now_ns()))

    def lost(self, cause: str) -> None:
        raise AssertionError(cause)


# Sharing


async def test_uploads_share_the_servers_ingress_and_leave_downloads_alone() -> None:
    world = World(links([1e9] * 2, [8e6] * 2, 1e9, 8e6))
    world.up("up 0", 0, 1000)
    world.up("up 1", 1, 1000)
    world.down("down", 0, 1000)
    await sleep_for(1)
    assert world.arrivals == [("down", MS), ("up 0", 2 * MS), ("up 1", 2 * MS)]


async def test_latency_comes_first_and_loads_nothing() -> None:
    over = Links(np.full(2, 1e9), np.full(2, 1e9), np.array([0.002, 0.0]), 8e6, 1e9, 0.001)
    world = World(over)
    world.down("far", 0, 1000)  # flows from 3 ms
    world.down("near", 1, 2000)  # flows from 1 ms, alone until 3 ms, when it is done
    await sleep_for(1)
    assert world.arrivals == [("near", 3 * MS), ("far", 4 * MS)]


async def test_nothing_takes_latency_alone() -> None:
    world = World(links([8e6], [8e6], 8e6, 8e6, latency_s=0.01))
    world.down("nothing", 0, 0)
    world.down("something", 0, 1000)
    await sleep_for(1)
    assert world.arrivals == [("nothing", 10 * MS), ("something", 11 * MS)]


async def test_equal_ends_come_in_the_order_of_their_starts() -> None:
    world = World(links([1e9] * 4, [1e9, 1e6, 1e9, 1e6], 4e6, 1e9))
    for client, num_bytes in [(2, 1000), (1, 1000), (0, 1000), (3, 1000)]:
        world.down(f"to {client}", client, num_bytes)
    await sleep_for(1)
    assert world.arrivals == [(f"to {client}", 8 * MS) for client in (2, 1, 0, 3)]


async def test_what_ends_at_a_deadline_counts() -> None:
    world = World(links([8e6], [8e6], 8e6, 8e6))
    world.down("in time", 0, 1000)
    assert not await wait([asyncio.get_running_loop().create_future()], timeout=0.001)
    assert world.arrivals == [("in time", MS)]


@given(
    st.lists(st.tuples(st.integers(0, 10**7), st.integers(10**3, 10**9)), min_size=1, max_size=5),
    st.integers(10**3, 10**9),
    st.integers(0, 10**6),
)
def test_a_parcel_that_is_alone_never_arrives_early_and_at_most_at_the_next_nanosecond(
    parcels: list[tuple[int, int]], server_bps: int, start_s: int
) -> None:
    async def main() -> None:
        world = World(
            links([1.0] * 5, [float(bps) for _, bps in parcels] + [1.0] * 5, float(server_bps), 1.0)
        )
        await sleep_until(start_s)
        for client, (num_bytes, bps) in enumerate(parcels):
            began_ns, world.arrivals = now_ns(), []
            world.down("alone", client, num_bytes)
            await sleep_for(1e6)
            took_ns = Fraction(8 * num_bytes * S, min(bps, server_bps))
            ((_, at_ns),) = world.arrivals
            error_ns = Fraction(1, 500) + took_ns * Fraction(1, 10**15)
            assert took_ns - error_ns <= at_ns - began_ns < took_ns + 1 + error_ns

    clock.run(main())


@given(
    st.lists(
        st.tuples(st.integers(0, 20), st.integers(0, 2), st.integers(0, 10**5)), min_size=1, max_size=15
    ),
    st.lists(st.integers(1, 40), min_size=3, max_size=3),
    st.integers(1, 60),
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 2), st.integers(0, 40)), max_size=5),
)
def test_equal_to_progressive_filling_over_client_and_server_links(
    parcels: list[tuple[int, int, int]],
    client_mbps: list[int],
    server_mbps: int,
    steps: list[tuple[int, int, int]],
) -> None:
    """Parcels as (start in ms, client, bytes), several of a client at once; steps as (ms, client, Mbit/s)."""
    steps += [(1000, client, 10) for client in range(3)]  # so that everything arrives
    steps.sort(key=lambda step: step[0])
    rates = [1e6 * mbps for mbps in client_mbps]
    traces = {}
    for client, rate in enumerate(rates):
        rate_at_ms = {0: rate} | {at_ms: 1e6 * mbps for at_ms, of, mbps in steps if of == client}
        traces[client] = Capacity([at_ms * MS for at_ms in rate_at_ms], list(rate_at_ms.values()), 10**5 * S)

    async def main() -> dict[int, int]:
        world = World(traced(links([1.0] * 3, rates, 1e6 * server_mbps, 1.0), down=traces))
        for number, (at_ms, client, num_bytes) in enumerate(parcels):
            call_after(at_ms / 1e3, world.down, str(number), client, num_bytes)
        await sleep_for(1e4)
        return {int(name): at_ns for name, at_ns in world.arrivals}

    filling, expected_s = ProgressiveFilling([*rates, 1e6 * server_mbps]), dict[int, float]()

    for number, (at_ms, client, value) in sorted(enumerate(parcels + steps), key=lambda pair: pair[1][0]):
        expected_s |= filling.pass_until(at_ms / 1e3)
        if number < len(parcels):
            filling.add(number, 8.0 * value, [client, 3])
        else:
            filling.set_capacity(client, 1e6 * value)
    expected_s |= filling.pass_until(1e4)
    arrived_ns = clock.run(main())
    assert arrived_ns.keys() == expected_s.keys()
    # Each end is rounded up, and keeps its share until then, so it may delay later ones by as much.
    for number, end_s in expected_s.items():
        assert (
            end_s * 1e9 * (1 - 1e-9) - 1e-3 <= arrived_ns[number] <= end_s * 1e9 * (1 + 1e-9) + len(parcels)
        )


# Leaving in the middle


async def test_a_cancelled_parcel_frees_its_share() -> None:
    world = World(links([1e9] * 2, [1e9] * 2, 8e6, 1e9))
    gone = world.down("gone", 0, 2000)
    world.down("stays", 1, 2000)
    await sleep_for(0.002)
    assert gone.remaining_bytes == pytest.approx(1000, rel=1e-12)
    gone.cancel()
    assert gone.remaining_bytes == pytest.approx(1000, rel=1e-12)
    gone.resume()  # in vain
    await sleep_for(1)
    assert world.arrivals == [("stays", 3 * MS)]


async def test_a_paused_parcel_goes_on_with_what_remains_after_its_latency() -> None:
    world = World(links([1e9] * 2, [1e9] * 2, 8e6, 1e9, latency_s=0.001))
    moved = world.down("moved", 0, 2000)
    world.down("stays", 1, 3000)
    await sleep_for(0.003)  # 1000 of each are across
    moved.pause()
    moved.pause()
    await sleep_for(0.001)  # another 1000 of the other
    assert moved.remaining_bytes == pytest.approx(1000, rel=1e-12)
    moved.resume()
    moved.resume()
    await sleep_for(1)
    # The other is across at 5 ms, when this one's latency is over.
    assert world.arrivals == [("stays", 5 * MS), ("moved", 6 * MS)]
    assert moved.remaining_bytes == 0.0


async def test_a_parcel_paused_during_its_latency_pays_it_again() -> None:
    world = World(links([1e9], [8e6], 1e9, 1e9, latency_s=0.010))
    passage = world.down("late", 0, 1000)
    await sleep_for(0.009)
    assert passage.remaining_bytes == 1000.0
    passage.pause()
    await sleep_for(0.011)
    passage.resume()
    await sleep_for(1)
    assert world.arrivals == [("late", 31 * MS)]


@pytest.mark.parametrize("stop", ["cancel", "pause"])
async def test_a_parcel_stopped_at_the_instant_of_its_end_by_another_that_ends_is_not_heard_of(
    stop: Literal["cancel", "pause"],
) -> None:
    world = World(links([1e9] * 2, [1e9] * 2, 8e6, 1e9))

    class Stopper(Note):
        def arrived(self, parcel: Parcel) -> None:
            super().arrived(parcel)
            getattr(second, stop)()

    world.carrier.carry(Parcel(-1, 0, 1000, "first"), Stopper(world))
    second = world.down("second", 1, 1000)
    await sleep_for(1)
    assert world.arrivals == [("first", 2 * MS)]
    assert second.remaining_bytes == 0.0
    second.resume()
    await sleep_for(1)
    assert [name for name, _ in world.arrivals] == ["first"] + ["second"] * (stop == "pause")


async def test_a_transfer_started_by_an_arrival_begins_at_that_instant() -> None:
    world = World(links([8e6], [8e6], 8e6, 8e6))

    class Answer(Note):
        def arrived(self, parcel: Parcel) -> None:
            super().arrived(parcel)
            world.up("answer", 0, 1000)
            world.down("more", 0, 0)

    world.carrier.carry(Parcel(-1, 0, 1000, "question"), Answer(world))
    await sleep_for(1)
    assert world.arrivals == [("question", MS), ("more", MS), ("answer", 2 * MS)]


# Capacities over time


async def test_the_servers_capacity_follows_its_trace_whether_or_not_anybody_is_there() -> None:
    # 8 Mbit/s for 1 ms, nothing for 2, and again.
    trace = Capacity([0, MS], [8e6, 0.0], 3 * MS)
    world = World(links([1e9] * 2, [1e9] * 2, 1.0, 8e6), server_up=trace)
    world.down("a", 0, 1500)  # at 3.5 ms
    world.up("not this way", 0, 1000)
    await sleep_until(0.0105)
    world.down("b", 0, 500)  # has to wait from 10.5 until 12
    await sleep_until(0.0200)
    world.down("c", 0, 500)
    world.down("d", 1, 500)
    await sleep_for(1)
    assert world.arrivals == [
        ("not this way", MS),
        ("a", 3_500_000),
        ("b", 12_500_000),
        ("c", 22 * MS),
        ("d", 22 * MS),
    ]


async def test_a_clients_capacity_can_follow_a_trace() -> None:
    trace = Capacity([0, MS], [8e6, 4e6], 2 * MS)
    world = World(traced(links([8e6] * 2, [8e6] * 2, 1e9, 1e9), up={0: trace}))
    world.up("a", 0, 3000)  # 1000, 500, 1000, 500
    world.up("b", 0, 0)
    await sleep_until(0.0105)
    world.up("c", 0, 1000)  # 500 until 11 ms, then 500 at half the rate
    await sleep_for(1)
    assert world.arrivals == [("b", 0), ("a", 4 * MS), ("c", 12 * MS)]


def test_an_idle_network_leaves_no_event_behind() -> None:
    # Otherwise a trace would go on for ever, and a program that waits for nothing would never be told so.
    async def main() -> None:
        trace = Capacity([0, MS], [8e6, 4e6], 2 * MS)
        world = World(traced(links([8e6], [8e6], 8e6, 8e6), down={0: trace}), server_up=trace)
        world.down("a", 0, 10_000)
        world.down("b", 0, 10_000).cancel()
        await asyncio.get_running_loop().create_future()

    with pytest.raises(DeadlockError):
        clock.run(main())


# Cost


def count_solvings(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    count, solve = 0, MaxMinStar._solve

    def counted(self: MaxMinStar) -> None:
        nonlocal count
        count += 1
        solve(self)

    monkeypatch.setattr(MaxMinStar, "_solve", counted)
    return lambda: count


@pytest.mark.parametrize("latency_s", [0.0, 0.01])
async def test_all_that_happens_at_one_instant_is_solved_once(
    latency_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    solvings, loop = count_solvings(monkeypatch), asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    world = World(links([1e9] * 1000, [8e6] * 1000, 1e9, 1e9, latency_s))
    for client in range(1000):
        world.down(str(client), client, 1000)
    for client in range(100):
        world.down(f"again {client}", 0, 1000)
    before = loop.events_run
    await sleep_for(1)
    assert len(world.arrivals) == 1100
    assert solvings() < 10
    assert loop.events_run - before < 20 + (1100 if latency_s else 0)


# The plugin


async def test_traces_come_from_files(tmp_path: Path) -> None:
    up, down = tmp_path / "up.csv", tmp_path / "down.mahimahi"
    up.write_text("at_ms,Mbps\n0,8\n2,4\n")
    down.write_text("1\n")
    config = FluidConfig(server_up_trace=str(up), server_down_trace=str(down))
    world = World(links([1e9], [1e9], 1.0, 1.0))
    carrier = FLUID(config).carrier(links([1e9], [1e9], 1.0, 1.0))
    assert isinstance(carrier, FluidCarrier)
    world.carrier = carrier
    world.down("down", 0, 2500)  # 2000 in 2 ms, then 500 at half the rate
    world.up("up", 0, 15_000)  # 12 Mbit/s
    await sleep_for(1)
    assert world.arrivals == [("down", 3 * MS), ("up", 10 * MS)]


def test_a_trace_that_cannot_be_read_is_found_before_the_run(tmp_path: Path) -> None:
    missing = tmp_path / "missing.csv"
    with pytest.raises(DataError, match=r"there is no .*/missing\.csv"):
        FLUID(FluidConfig(server_down_trace=str(missing)))


# Alone on its links, a parcel of the naive network is held up and stopped in the same way


@pytest.mark.parametrize("plugin", [NAIVE, FLUID])
async def test_a_lone_parcel_is_paused_and_goes_on(plugin: type[NetworkPlugin[Any]]) -> None:
    world = World(links([8e6], [8e6], 1e9, 1e9))
    carrier = plugin(plugin.Config()).carrier(links([8e6], [8e6], 8e6, 1e9, latency_s=0.002))
    passage = carrier.carry(Parcel(-1, 0, 1000, "it"), Note(world))
    await sleep_for(0.001)
    assert passage.remaining_bytes == 1000
    await sleep_for(0.00125)
    assert passage.remaining_bytes == pytest.approx(750, rel=1e-12)
    passage.pause()
    passage.pause()
    await sleep_for(1)
    assert passage.remaining_bytes == pytest.approx(750, rel=1e-12)
    passage.resume()
    passage.resume()
    await sleep_for(1)
    assert world.arrivals == [("it", 1_002_250_000 + 2_750_000)]
    assert passage.remaining_bytes == 0
    passage.pause()
    passage.resume()
    await sleep_for(1)
    assert len(world.arrivals) == 1


@pytest.mark.parametrize("plugin", [NAIVE, NONE, FLUID])
async def test_a_cancelled_parcel_is_not_resumed(plugin: type[NetworkPlugin[Any]]) -> None:
    world = World(links([8e6], [8e6], 1e9, 1e9))
    carrier = plugin(plugin.Config()).carrier(links([8e6], [8e6], 8e6, 1e9))
    for stop in (("cancel",), ("pause", "cancel"), ("cancel", "pause")):
        passage = carrier.carry(Parcel(-1, 0, 1000, "it"), Note(world))
        for call in stop:
            getattr(passage, call)()
        passage.resume()
        await sleep_for(1)
        assert (world.arrivals, passage.remaining_bytes) == ([], 1000)


def test_a_server_that_follows_a_trace_is_predicted_at_its_mean(tmp_path: Path) -> None:
    path = tmp_path / "server.csv"
    path.write_text("at_s,Mbps\n0,6\n1,2\n2,0\n3,0\n")  # a mean of 2 Mbit/s
    over = links([8e6], [8e6], 1e9, 1e9, latency_s=0.5)
    both = FLUID(FluidConfig(server_up_trace=str(path), server_down_trace=str(path)))
    assert [both.alone_s(over, *way, 1_000_000) for way in ((-1, 0), (0, -1))] == [4.5, 4.5]
    assert FLUID(FluidConfig()).alone_s(over, -1, 0, 1_000_000) == 1.5
