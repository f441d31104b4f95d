"""How long devices are held to their jobs, and what client processes hear of an emulation."""

import asyncio
from dataclasses import replace
from itertools import pairwise
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.bus import Header
from fedsim.bus.http.limits import HttpLimits
from fedsim.bus.http.messages import Entry
from fedsim.bus.reply_report import Report
from fedsim.clock import now_ns
from fedsim.engine.cost import Effort, duration_s
from fedsim.fleet import Device
from fedsim.models.flops import Operations
from fedsim.runtime.sockets.held_clients import MAX_FRAMES, HeldClients, held_s
from fedsim.wire import COMMON, SERVER, Kinds, ModelBroadcast, ModelUpdate, pack
from tests.bus.http.conftest import World

DEVICES = st.tuples(st.floats(1e3, 1e15), st.floats(0, 100), st.floats(1e-6, 1), st.floats(1e3, 1e13)).map(
    lambda drawn: Device(
        drawn[0],
        1e9,
        *(1e6, 1e6, 0.0, drawn[1]),
        efficiency=drawn[2],
        memory_bandwidth_bytes_per_s=drawn[3],
    )
)
STEPS = st.tuples(
    st.integers(0, 1000),
    st.builds(Operations, st.integers(0, 10**12), st.floats(0, 1e12)),
)


@given(DEVICES, st.lists(STEPS, max_size=5), st.floats(1e-3, 1e3))
def test_a_job_is_held_as_long_as_the_cost_model_says(
    device: Device, steps: list[tuple[int, Operations]], load: float
) -> None:
    effort = Effort.of(steps)
    assert held_s(device, effort, load) == pytest.approx(duration_s(device, effort, load), rel=1e-9)


def test_steps_wait_for_memory_one_by_one() -> None:
    device = Device(10.0, 1.0, 1.0, 1.0, 0.0, 0.5, efficiency=0.5, memory_bandwidth_bytes_per_s=2.0)
    effort = Effort.of([(2, Operations(10, 1.0)), (3, Operations(5, 8.0))])
    assert held_s(device, effort, 1.0) == 0.5 + 2 * 2.0 + 3 * 4.0
    assert held_s(device, effort, 2.0) == 0.5 + 2 * (2 * 2.0 + 3 * 4.0)
    assert held_s(device, Effort.of([]), 2.0) == 0.5


class Told:
    """In place of a connection and of the host of clients: notes what is said and done."""

    limits = HttpLimits()

    def __init__(self) -> None:
        self.said: list[tuple[Any, ...]] = []
        self.taken: list[Any] = []
        self.given_up: list[int] = []

    def tell(self, what: str, client: int, dispatch: int, *numbers: int, body: Any = None) -> None:
        self.said.append((what, client, dispatch, *numbers, None if body is None else b"".join(body)))

    def take(self, delivery: Any) -> None:
        self.taken.append(delivery)

    def abandon(self, client: int) -> None:
        self.given_up.append(client)


def held() -> tuple[Told, HeldClients]:
    told: Any = Told()
    return told, HeldClients(told, Kinds(COMMON), told, lambda header: Report())


def says(*values: Any, body: bytes | None = None) -> Entry:
    return Entry("m", values, None if body is None else memoryview(body))


def frame_to(client: int) -> bytes:
    message = ModelBroadcast.of(World.model(1000, 2.5))
    return pack(message).frame(sender=SERVER, receiver=client, round=4, exchange="train").join()


BEGINS = msgpack.packb((4, "train", 7, -1))


async def test_a_frame_comes_in_pieces_and_its_client_begins_when_told() -> None:
    told, clients = held()
    frame = frame_to(3)
    cuts = [0, 100, 101, len(frame)]
    for start, end in pairwise(cuts):
        assert told.said == []
        clients.hear(says("piece", 3, 5, start, len(frame), body=frame[start:end]))
    assert told.said == [("had", 3, 5, 0, 0, None)]
    assert told.taken == []
    clients.hear(says("begin", 3, 5, 60 * 10**9, 1, body=BEGINS))
    (taken,) = told.taken
    header, message = taken.header, taken.message
    assert header == Header(SERVER, 3, 4, "train", 5, 7, -1)
    np.testing.assert_array_equal(message.model.params["w"], np.full(1000, 2.5, np.float32))
    assert 60 <= now_ns() / 1e9 < 3600  # the server's clock


async def test_a_dispatch_without_a_frame_begins_at_once() -> None:
    told, clients = held()
    clients.hear(says("begin", 1, 0, 0, 0, body=BEGINS))
    (taken,) = told.taken
    header, message = taken.header, taken.message
    assert (header.client, message) == (1, None)


async def test_the_server_counts_the_time_of_jobs() -> None:
    told, clients = held()
    asking = told_time(clients, 1, 2)
    await turn()
    assert not asking.done()
    ((what, client, dispatch, late_ns, _, body),) = told.said
    assert (what, client, dispatch, late_ns) == ("jobs", 1, 2, 0)
    assert msgpack.unpackb(body) == [["fit", 10.0, 0.5]]
    clients.hear(says("go", 2, 2, 0, 0))  # another one's
    await turn()
    assert not asking.done()
    clients.hear(says("go", 1, 2, 0, 0))
    await asking
    clients.hear(says("go", 1, 2, 0, 0))  # once more is nothing


def told_time(clients: HeldClients, client: int, dispatch: int) -> Any:
    return asyncio.ensure_future(clients.ask_time(client, dispatch, [("fit", 10.0, 0.5)]))


async def turn() -> None:
    await asyncio.sleep(0)


async def test_a_reply_leaves_in_the_pieces_for_which_the_server_asks() -> None:
    told, clients = held()
    header = Header(3, SERVER, 4, "train", 5, 7, -1)
    left = clients.send(header, ModelUpdate.of(World.model(1000, 1.0), num_samples=1))
    ((what, *key, late_ns, num_bytes, body),) = told.said
    assert (what, key, late_ns) == ("reply", [3, 5], 0)
    assert msgpack.unpackb(body) == [["update", 1000, False, None], None]
    told.said.clear()
    for start, end in ((0, 10), (10, num_bytes)):
        clients.hear(says("pull", 3, 5, start, end))
    assert [one[:5] for one in told.said] == [("piece", 3, 5, start, num_bytes) for start in (0, 10)]
    frame = b"".join(one[5] for one in told.said)
    update = ModelUpdate.of(World.model(1000, 1.0), num_samples=1)
    assert frame == pack(update).frame(sender=3, receiver=SERVER, round=4, exchange="train").join()
    assert not left.done()
    clients.hear(says("left", 3, 5, 0, 0))
    assert left.done()
    clients.hear(says("pull", 3, 5, 0, 10))  # it was lost on its way
    assert told.said[-1][-1] == frame[:10]
    clients.hear(says("done", 3, 5, 0, 0))
    told.said.clear()
    clients.hear(says("pull", 3, 5, 0, 10))  # the server has it
    assert told.said == []
    left = clients.send(header, ModelUpdate.of(World.model(1000, 1.0), num_samples=1))
    later = clients.send(replace(header, dispatch=6 + MAX_FRAMES), None)
    clients.hear(says("left", 3, 6 + MAX_FRAMES, 0, 0))
    assert later.done()
    told.said.clear()
    clients.hear(says("pull", 3, 5, 0, 10))  # now it is gone
    clients.hear(says("stop", 3, 0, 0, 0))
    clients.hear(says("left", 3, 6, 0, 0))  # as the server gives its transfer up
    assert told.said == []


async def test_a_header_alone_has_no_bytes() -> None:
    told, clients = held()
    clients.send(Header(3, SERVER, 4, "train", 5, 7, -1), None)
    ((*_, num_bytes, body),) = told.said
    assert (num_bytes, msgpack.unpackb(body)) == (0, [None, None])


async def test_a_client_that_is_stopped_forgets_what_it_was_at() -> None:
    told, clients = held()
    frame = frame_to(3)
    clients.hear(says("piece", 3, 5, 0, len(frame), body=frame[:10]))
    clients.hear(says("piece", 4, 1, 0, len(frame), body=frame[:10]))
    asking, other = told_time(clients, 3, 5), told_time(clients, 4, 1)
    await turn()
    clients.hear(says("stop", 3, 0, 0, 0))
    assert told.given_up == [3]
    clients.hear(says("go", 3, 5, 0, 0))
    clients.hear(says("go", 4, 1, 0, 0))
    await other
    assert not asking.done()
    with pytest.raises(KeyError):
        clients.hear(says("piece", 3, 5, 10, len(frame), body=frame[10:]))
    asking.cancel()
