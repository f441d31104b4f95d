"""The bus in one process; faults are carriers around a carrier."""

import asyncio
import gc
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from fedsim.bus import Delivery, Header, Ledger, MemoryBus
from fedsim.bus.memory import MemoryEndpoint
from fedsim.clock import Trace, now_ns, sleep_for
from fedsim.config import Config
from fedsim.errors import InvariantError
from fedsim.network import Carrier, Links, Listener, OverheadConfig, Parcel
from fedsim.network.base import Passage
from fedsim.network.fluid import PLUGIN as FLUID
from fedsim.network.naive import PLUGIN as NAIVE
from fedsim.params import Array, Model
from fedsim.wire import COMMON, Frame, Kinds, Message, ModelBroadcast, ModelUpdate, decode, message, pack

K = 4
# 8 kbit/s everywhere and no latency: a byte takes a millisecond.
LINKS = Links(np.full(K, 8e3), np.full(K, 8e3), np.zeros(K), 8e3, 8e3, 0.0)
BYTE_NS = 1_000_000

MODEL = Model("mlp", {"w": np.arange(6, dtype=np.float32).reshape(2, 3)}, {"b": np.ones(3, np.float32)})
BROADCAST = ModelBroadcast.of(MODEL)
UPDATE = ModelUpdate.of(MODEL, num_samples=5)
DOWN = Header(-1, 2, 1, "train", 0, 0)
UP = DOWN.reply()


@message("raw_samples", data=True)
class RawSamples(Message):
    values: Array


KINDS = Kinds((*COMMON, RawSamples))


def naive() -> Carrier:
    return NAIVE(Config()).carrier(LINKS)


INBOXES: dict[MemoryEndpoint, asyncio.Queue[Delivery]] = {}
"""What each endpoint has received."""


def make_bus(carrier: Carrier | None = None, **options: Any) -> MemoryBus:
    bus = MemoryBus(carrier or naive(), KINDS, Ledger(), Trace(keep=True), **options)
    for endpoint in (bus.server, bus.clients):
        INBOXES[endpoint] = inbox = asyncio.Queue[Delivery]()
        endpoint.feed(inbox.put_nowait)
    return bus


def kinds_of(bus: MemoryBus) -> list[tuple[Any, ...]]:
    return [record[1:] for record in bus.trace.kept]


@dataclass
class Faulty:
    """A carrier that does to each parcel's listener what it is told to."""

    wrap: Callable[[Listener], Listener]
    inner: Carrier = field(default_factory=naive)

    def carry(self, parcel: Parcel, listener: Listener) -> Passage:
        return self.inner.carry(parcel, self.wrap(listener))


@dataclass
class Corrupting:
    listener: Listener
    spoil: Callable[[bytes], bytes | Frame]

    def left(self) -> None:
        self.listener.left()

    def arrived(self, parcel: Parcel) -> None:
        self.listener.arrived(parcel._replace(payload=self.spoil(parcel.payload.join())))

    def lost(self, cause: str) -> None:
        self.listener.lost(cause)


@dataclass
class Losing:
    listener: Listener
    leaves: bool

    def left(self) -> None:
        if self.leaves:
            self.listener.left()

    def arrived(self, parcel: Parcel) -> None:
        self.listener.lost("interference")

    def lost(self, cause: str) -> None:
        self.listener.lost(cause)


@dataclass
class Repeating:
    """Delivers several copies, each spoilt or not."""

    listener: Listener
    spoilt: tuple[bool, ...]

    def left(self) -> None:
        self.listener.left()

    def arrived(self, parcel: Parcel) -> None:
        for spoilt in self.spoilt:
            self.listener.arrived(parcel._replace(payload=b"\xc1") if spoilt else parcel)

    def lost(self, cause: str) -> None:
        self.listener.lost(cause)


async def inbox_after(bus: MemoryBus, seconds: float) -> list[Delivery]:
    """Return what has reached the server by then."""
    await asyncio.sleep(seconds)
    inbox = INBOXES[bus.server]
    return [inbox.get_nowait() for _ in range(inbox.qsize())]


@pytest.mark.parametrize("verify", [False, True])
async def test_a_message_travels_as_a_real_frame(verify: bool) -> None:
    bus = make_bus(verify=verify)
    frame = pack(BROADCAST).frame(sender=-1, receiver=2, round=1, exchange="train")
    num_bytes = len(frame.join())
    left = bus.server.send(DOWN, BROADCAST)
    delivery = await INBOXES[bus.clients].get()

    assert now_ns() == num_bytes * BYTE_NS
    await left
    assert now_ns() == num_bytes * BYTE_NS
    assert delivery.header == DOWN
    assert isinstance(delivery.message, ModelBroadcast)
    np.testing.assert_array_equal(delivery.message.params["w"], MODEL.params["w"])
    assert bus.ledger.totals().bytes_down == num_bytes
    assert bus.ledger.totals().parameters_down == 6  # buffers and scalars count nothing
    assert kinds_of(bus) == [
        ("transfer_start", 2, 0, False, "model", num_bytes, 6, False, 0),
        ("transfer_end", 2, 0, False, "delivered", ""),
    ]
    bus.ledger.check()


async def test_protocols_add_to_what_is_on_the_link_and_not_to_the_frame() -> None:
    overhead = OverheadConfig(protocol="http", tls=True)
    bus = make_bus(overhead=overhead)
    bus.server.send(DOWN, BROADCAST)
    await INBOXES[bus.clients].get()
    num_bytes = len(pack(BROADCAST).frame(sender=-1, receiver=2, round=1, exchange="train"))
    wire_bytes = overhead.wire_bytes(num_bytes, "down")
    assert wire_bytes == num_bytes + 157 + 22 + 52  # headers of HTTP, one TLS record, one TCP segment
    assert now_ns() == wire_bytes * BYTE_NS
    assert bus.ledger.totals().bytes_down == num_bytes
    assert bus.ledger.totals().overhead_down == wire_bytes - num_bytes
    bus.ledger.check()


async def test_a_broadcast_shares_its_arrays_which_nobody_can_write() -> None:
    bus = make_bus()
    packed = pack(BROADCAST)
    for client in range(K):
        bus.server.send(replace(DOWN, receiver=client), packed)
    messages = [(await INBOXES[bus.clients].get()).message for _ in range(K)]
    arrays = [m.params["w"] for m in messages if isinstance(m, ModelBroadcast)]
    assert len(arrays) == K
    for array in arrays:
        assert np.shares_memory(array, MODEL.params["w"])
        assert not array.flags.writeable
    assert bus.ledger.totals().frames_down == K


async def test_no_message_is_a_header_alone_at_once_and_free() -> None:
    bus = make_bus()
    bus.clients.send(UP, UPDATE)
    left = bus.clients.send(UP, None)
    await left
    assert await INBOXES[bus.server].get() == Delivery(UP, None)
    assert now_ns() == 0
    assert len(bus.ledger) == 1
    assert len(bus.trace.kept) == 1


async def test_the_two_ways_do_not_mix() -> None:
    bus = make_bus()
    bus.server.send(DOWN, None)
    bus.clients.send(UP, None)
    assert (await INBOXES[bus.server].get()).header == UP
    assert (await INBOXES[bus.clients].get()).header == DOWN


async def test_deliveries_come_in_the_order_of_arrival() -> None:
    bus = make_bus()
    big = ModelUpdate.of(replace(MODEL, params={"w": np.zeros(100, np.float32)}), num_samples=1)
    for client, update in enumerate((big, UPDATE, UPDATE)):
        bus.clients.send(replace(UP, sender=client), update)
    order = [(await INBOXES[bus.server].get()).header.sender for _ in range(3)]
    assert order == [1, 2, 0]  # equal lengths arrive in the order of sending


async def test_data_stands_apart() -> None:
    bus = make_bus()
    bus.clients.send(UP, RawSamples(np.zeros(10, np.float32)))
    await INBOXES[bus.server].get()
    totals = bus.ledger.totals()
    assert totals.data_up == bus.ledger.columns()["bytes"][0] > 40
    assert (totals.bytes_up, totals.parameters_up, totals.frames_up) == (0, 0, 1)
    assert bus.ledger.columns()["data"].tolist() == [True]


def _other_exchange(payload: bytes) -> bytes:
    return payload.replace(b"train", b"trick")


@pytest.mark.parametrize(
    ("spoil", "cause"),
    [
        (lambda payload: payload[:-1], "frame"),
        (lambda payload: b"", "envelope"),
        (lambda payload: b"\xc1" + payload[1:], "envelope"),
        (_other_exchange, "exchange='trick'"),
    ],
)
async def test_what_cannot_be_decoded_is_dropped_and_counted(
    spoil: Callable[[bytes], bytes], cause: str
) -> None:
    bus = make_bus(Faulty(lambda listener: Corrupting(listener, spoil)), verify=True)
    left = bus.clients.send(UP, UPDATE)
    assert await inbox_after(bus, 10) == []
    await left
    assert bus.ledger.outcomes() == {"in_flight": 0, "lost": 0, "undecodable": 1, "delivered": 0}
    *_, outcome, why = bus.trace.kept[-1]
    assert outcome == "undecodable"
    assert cause in why
    assert bus.ledger.totals().bytes_up > 0  # it was sent all the same
    bus.ledger.check()


async def test_a_frame_spoilt_within_its_values_arrives_as_it_is() -> None:
    # Values are not the decoder's business; the merge refuses what is not finite.
    bus = make_bus(Faulty(lambda listener: Corrupting(listener, lambda payload: payload[:-1] + b"\xff")))
    bus.clients.send(UP, UPDATE)
    (delivery,) = await inbox_after(bus, 10)
    assert isinstance(delivery.message, ModelUpdate)
    assert delivery.message.buffers["b"].tolist() != [1, 1, 1]


@pytest.mark.parametrize("leaves", [True, False])
async def test_a_lost_frame_is_counted_and_nobody_waits_for_it(leaves: bool) -> None:
    bus = make_bus(Faulty(lambda listener: Losing(listener, leaves)))
    await bus.clients.send(UP, UPDATE)
    assert await inbox_after(bus, 10) == []
    assert bus.ledger.outcomes()["lost"] == 1
    assert kinds_of(bus)[-1] == ("transfer_end", 2, 0, True, "lost", "interference")


@pytest.mark.parametrize(
    ("spoilt", "kinds"),
    [
        ((False, False), [("transfer_end", "delivered"), ("transfer_copy", "delivered")]),
        ((True, False), [("transfer_end", "undecodable"), ("transfer_copy", "delivered")]),
        ((False, True), [("transfer_end", "delivered"), ("transfer_copy", "undecodable")]),
    ],
)
async def test_of_several_copies_one_is_delivered(
    spoilt: tuple[bool, ...], kinds: list[tuple[str, str]]
) -> None:
    bus = make_bus(Faulty(lambda listener: Repeating(listener, spoilt)))
    bus.clients.send(UP, UPDATE)
    (delivery,) = await inbox_after(bus, 10)
    assert delivery.header == UP
    assert bus.ledger.columns()["arrivals"].tolist() == [2]
    assert bus.ledger.outcomes()["delivered"] == 1
    assert [(record[1], record[5]) for record in bus.trace.kept[1:]] == kinds


async def test_verify_finds_a_frame_that_reads_differently_once_joined(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bus = make_bus(verify=True)
    other = pack(UPDATE).frame(sender=2, receiver=-1, round=1, exchange="").join()
    monkeypatch.setattr(Frame, "join", lambda frame: other)
    frame = pack(UPDATE).frame(sender=2, receiver=-1, round=1, exchange="train")
    with pytest.raises(InvariantError, match="'update' decodes differently once joined"):
        bus.read(UP, frame)


async def test_the_frame_on_the_link_is_what_any_decoder_reads() -> None:
    seen: list[Parcel] = []

    @dataclass
    class Tapped:
        inner: Carrier

        def carry(self, parcel: Parcel, listener: Listener) -> Passage:
            seen.append(parcel)
            return self.inner.carry(parcel, listener)

    bus = make_bus(Tapped(naive()))
    bus.clients.send(UP, UPDATE)
    (parcel,) = seen
    joined = parcel.payload.join()
    envelope, read = decode(joined, KINDS)
    assert (envelope.sender, envelope.receiver, envelope.round, envelope.exchange) == (2, -1, 1, "train")
    assert isinstance(read, ModelUpdate)
    assert len(joined) == parcel.num_bytes == bus.ledger.columns()["bytes"][0]


async def test_deliveries_are_handed_over_together_behind_what_goes_on() -> None:
    order = list[Any]()
    bus, loop = make_bus(), asyncio.get_running_loop()
    bus.server.feed(lambda delivery: order.append(delivery.header.sender))
    for client in (1, 0):
        loop.call_soon(order.append, f"before {client}")
        bus.clients.send(replace(UP, sender=client), None)
        loop.call_soon(order.append, f"behind {client}")
    for _ in range(2):
        await asyncio.sleep(0)
    bus.clients.send(replace(UP, sender=3), None)
    await asyncio.sleep(1)
    assert order == ["before 1", 1, 0, "behind 1", "before 0", "behind 0", 3]


async def test_a_broadcast_is_decoded_once_and_a_changed_frame_always() -> None:
    bus = make_bus()
    packed = pack(BROADCAST)
    for client in range(2):
        bus.server.send(replace(DOWN, receiver=client), packed)
    first, second = [(await INBOXES[bus.clients].get()).message for _ in range(2)]
    assert first is second
    other = make_bus(verify=True)
    other.server.send(DOWN, packed)
    assert (await INBOXES[other.clients].get()).message is not first


@pytest.mark.parametrize("network", [NAIVE, FLUID])
async def test_a_frame_that_has_arrived_does_not_wait_for_the_cyclic_collector(network: Any) -> None:
    bus = make_bus(network(network.Config()).carrier(LINKS))
    array = np.zeros(1000, np.float32)
    sent = weakref.ref(array)
    gc.disable()
    try:
        await bus.clients.send(UP, ModelUpdate("mlp", {"w": array}, {}, 5))
        delivery = await INBOXES[bus.server].get()
        del array, delivery
        await sleep_for(1.0)  # the loop holds the last event until the next
        assert sent() is None
    finally:
        gc.enable()


class Watch:
    """Says whether a client's work lives, and notes what it is told."""

    def __init__(self, lives: bool) -> None:
        self.lives = lives
        self.told: list[tuple[str, int, int]] = []

    def expect(self, client: int, dispatch: int) -> bool:
        self.told.append(("expect", client, dispatch))
        return self.lives

    def dismiss(self, client: int, dispatch: int) -> None:
        self.told.append(("dismiss", client, dispatch))


@pytest.mark.parametrize("message", [BROADCAST, None], ids=["a frame", "no frame"])
async def test_nothing_is_sent_to_whom_it_would_not_reach(message: Message | None) -> None:
    bus = make_bus()
    bus.presence = watch = Watch(lives=False)
    await bus.server.send(DOWN, message)  # it counts as having left
    bus.presence = Watch(lives=True)
    other = replace(DOWN, dispatch=1)
    await bus.server.send(other, None)
    assert (await INBOXES[bus.clients].get()).header == other
    assert watch.told == [("expect", 2, 0)]
    assert (len(bus.ledger), bus.trace.kept) == (0, [])
