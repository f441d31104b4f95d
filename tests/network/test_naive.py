import asyncio
from dataclasses import replace

import numpy as np
import pytest

from fedsim.config import Config
from fedsim.network import Links, Parcel
from fedsim.network.naive import PLUGIN as NAIVE
from fedsim.units import MAX_TIME_S
from tests.network.listening import Ear

MS = 1_000_000
LINKS = Links(
    up_bps=np.array([1e6, 8e6]),
    down_bps=np.array([5e5, 4e6]),
    latency_s=np.array([0.010, 0.0]),
    server_up_bps=2e6,
    server_down_bps=4e6,
    server_latency_s=0.005,
)


@pytest.mark.parametrize(
    ("sender", "receiver", "num_bytes", "expected_ms"),
    [
        (0, -1, 1000, 15 + 8),  # the client's uplink of 1 Mbit/s is the slower
        (-1, 0, 1000, 15 + 16),  # the client's downlink of 0.5 Mbit/s
        (1, -1, 1000, 5 + 2),  # the server's downlink of 4 Mbit/s
        (-1, 1, 1000, 5 + 4),  # the server's uplink of 2 Mbit/s
        (0, 1, 500, 10 + 4),  # between two clients, past the server
        (0, -1, 0, 15),  # latency alone
    ],
)
async def test_a_transfer_takes_latency_once_and_its_bits_over_the_slower_link(
    sender: int, receiver: int, num_bytes: int, expected_ms: int
) -> None:
    arrival = Ear()
    carrier = NAIVE(Config()).carrier(LINKS)
    carrier.carry(Parcel(sender, receiver, num_bytes, None), arrival)
    await asyncio.sleep(1)
    assert arrival.events == [("left", expected_ms * MS), ("arrived", expected_ms * MS)]


async def test_the_longest_latency_leaves_a_transfer_exact() -> None:
    # A float of so many seconds is good to 120 ns, and each of these parcels moves for 100 microseconds.
    far = replace(
        LINKS, latency_s=np.array([MAX_TIME_S]), down_bps=np.array([38_083_780.0]), server_up_bps=1e10
    )
    arrivals = {num_bytes: Ear() for num_bytes in range(500, 560)}
    carrier = NAIVE(Config()).carrier(far)
    for num_bytes, arrival in arrivals.items():
        carrier.carry(Parcel(-1, 0, num_bytes, None), arrival)
    await asyncio.sleep(MAX_TIME_S + 1)
    for num_bytes, arrival in arrivals.items():
        moving_s = far.between_s(-1, 0) - MAX_TIME_S + 8 * num_bytes / 38_083_780
        assert arrival.events[-1][1] == pytest.approx(1e9 * (MAX_TIME_S + moving_s), rel=0, abs=300)


async def test_transfers_do_not_see_each_other() -> None:
    arrivals = [Ear() for _ in range(50)]
    carrier = NAIVE(Config()).carrier(LINKS)
    for arrival in arrivals:
        carrier.carry(Parcel(0, -1, 1000, None), arrival)
    await asyncio.sleep(1)
    assert {arrival.events[-1] for arrival in arrivals} == {("arrived", 23 * MS)}
