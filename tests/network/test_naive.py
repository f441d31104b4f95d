import asyncio

import numpy as np
import pytest

from fedsim.clock import now_ns
from fedsim.config import Config
from fedsim.network import Links, Parcel
from fedsim.network.naive import PLUGIN as NAIVE

MS = 1_000_000
LINKS = Links(
    up_bps=np.array([1e6, 8e6]),
    down_bps=np.array([5e5, 4e6]),
    latency_s=np.array([0.010, 0.0]),
    server_up_bps=2e6,
    server_down_bps=4e6,
    server_latency_s=0.005,
)


class Arrival:
    """Notes when a parcel arrives."""

    def __init__(self) -> None:
        self.at_ns = -1
        self.left_at_ns = -1

    def left(self) -> None:
        self.left_at_ns = now_ns()

    def arrived(self, parcel: Parcel) -> None:
        self.at_ns = now_ns()

    def lost(self, cause: str) -> None:
        raise AssertionError(cause)


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
    arrival = Arrival()
    carrier = NAIVE(Config()).carrier(LINKS)
    carrier.carry(Parcel(sender, receiver, num_bytes, None), arrival)
    await asyncio.sleep(1)
    assert arrival.at_ns == arrival.left_at_ns == expected_ms * MS


async def test_transfers_do_not_see_each_other() -> None:
    arrivals = [Arrival() for _ in range(50)]
    carrier = NAIVE(Config()).carrier(LINKS)
    for arrival in arrivals:
        carrier.carry(Parcel(0, -1, 1000, None), arrival)
    await asyncio.sleep(1)
    assert {arrival.at_ns for arrival in arrivals} == {23 * MS}
