"""The in-memory bus: real frames, simulated links, one process.

A message becomes a frame as it would for a socket. The carrier is given the frame's length, and when the last
byte has arrived, the message is delivered as decoding the frame would give it. Nothing is joined or copied on
the way, so a broadcast of a large model to a thousand clients holds one copy of its arrays; and a frame's
bytes are made only if somebody looks at them. ``verify`` takes the long way: it decodes every frame, once as
it is and once as contiguous bytes, and compares the messages.

The network may duplicate or corrupt a frame, but an actor receives each frame at most once and whole: further
copies are counted and dropped, and so are frames that cannot be decoded or name another route than their
header.
"""

from __future__ import annotations

import asyncio
from asyncio import TimerHandle
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from fedsim.bus.base import Delivery, Header, Presence
from fedsim.bus.ledger import OUTCOME_WORDS, Ledger, Outcome, Sent
from fedsim.clock import RecordKind, Trace, call_after, now_ns, running_loop
from fedsim.clock.record_columns import Column
from fedsim.errors import DecodeError, InvariantError
from fedsim.network import NO_OVERHEAD, Carrier, OverheadConfig, Parcel, Passage
from fedsim.network.fault_settings import FATAL, RetryConfig
from fedsim.network.faults import SPOILT, SPOILT_CAUSE
from fedsim.wire import SERVER, Envelope, Frame, Kinds, Message, Packed, decode, pack, same

TRANSFER_START = RecordKind(
    "transfer_start", ("client", "dispatch", "up", "message", "bytes", "parameters", "data", "overhead")
)
CODED = RecordKind("coded", ("client", "dispatch", "up", "bytes_plain"))
"""What a coded frame that is put on its link would be without codecs."""
TRANSFER_END = RecordKind("transfer_end", ("client", "dispatch", "up", "outcome", "cause"))
"""The first end of a frame; ``cause`` says why it was not delivered."""
RETRY = RecordKind("retry", ("client", "dispatch", "up"))
"""A frame that is about to end without an arrival will be sent again."""
TRANSFER_COPY = RecordKind("transfer_copy", ("client", "dispatch", "up", "outcome", "cause"))
"""What became of a further copy of a frame that had ended before."""


class OnLink(NamedTuple):
    """What a message's frames are on a link, whoever they are for.

    Attributes:
        what: As ledger and trace have it.
        link_bytes: Their length with the overhead.
        plain_bytes: Their length without codecs; None where they are not coded.
    """

    what: Sent
    link_bytes: int
    plain_bytes: int | None


def transfer_start_values(header: Header, up: bool, what: Sent | Sequence[Column]) -> tuple[Any, ...]:
    """Return the values of the record of a frame that is put on its link, or columns of such values.

    The header is that of the frame or of its dispatch.
    """
    return header.client, header.dispatch, up, *what


def coded_values(header: Header, up: bool, plain_bytes: Column | int) -> tuple[Any, ...]:
    """Return the values of the record that a frame is coded, likewise."""
    return header.client, header.dispatch, up, plain_bytes


def transfer_end_values(header: Header, up: bool, outcome: Outcome, cause: str = "") -> tuple[Any, ...]:
    """Return the values of the record of the end of a frame, whose header may be that of its dispatch."""
    return header.client, header.dispatch, up, OUTCOME_WORDS[outcome], cause


# To ask the class for a member takes longer than to read a name.
_DELIVERED, _UNDECODABLE = Outcome.DELIVERED, Outcome.UNDECODABLE


@dataclass(eq=False)
class MemoryBus:
    """Connects the server's endpoint with the one endpoint that hosts all clients.

    Attributes:
        carrier: Moves frames through simulated time.
        kinds: The kinds of message that may travel.
        ledger: Where every frame is entered.
        trace: Where transfers start and end.
        overhead: What protocols add to a frame on the link; by default nothing.
        verify: Also decode every frame from contiguous bytes, and compare.
        retry: How frames are sent again that a fault has kept from arriving; None where they are not.
        presence: Watches clients that may go away; None where none ever does.
    """

    carrier: Carrier
    kinds: Kinds
    ledger: Ledger
    trace: Trace
    overhead: OverheadConfig = NO_OVERHEAD
    verify: bool = False
    retry: RetryConfig | None = None
    presence: Presence | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._under_way: dict[int, dict[int, _Transfer]] = {}
        self._retries: dict[_Transfer, TimerHandle] = {}
        self._away: set[int] = set()  # asked for membership only: a set has no order
        self.change(self.carrier, self.overhead, self.retry)
        self.server = MemoryEndpoint(self)
        self.clients = MemoryEndpoint(self)

    def change(self, carrier: Carrier, overhead: OverheadConfig, retry: RetryConfig | None) -> None:
        """Carry frames that are sent from now on in another way; those under way end as they were begun."""
        self.carrier, self.overhead, self.retry = carrier, overhead, retry
        self._wire_bytes = lru_cache(maxsize=1024)(overhead.wire_bytes)  # a round has few lengths

    def send(self, header: Header, message: Message | Packed | None) -> Departure:
        """Put a message on its way; see :class:`fedsim.bus.base.Endpoint`."""
        if (
            self.presence is not None
            and header.sender == SERVER
            and not self.presence.expect(header.receiver, header.dispatch)
        ):
            return HAS_LEFT  # nobody is there to take it: no frame is put on a link
        if message is None:
            self.deliver(Delivery(header, None))
            return HAS_LEFT
        transfer = _Transfer(self, header, message if isinstance(message, Packed) else pack(message))
        self._launch(transfer)
        return transfer

    def pause(self, client: int) -> None:
        """Hold all transfers from and to a client, also those that begin later."""
        self._away.add(client)
        for transfer in self._of(client):
            transfer.passage.pause()

    def resume(self, client: int, *, restart: bool) -> None:
        """Let a client's transfers go on, or restart them; what a restarted one has sent is lost."""
        self._away.discard(client)
        for transfer in self._of(client):
            passage = transfer.passage
            if restart:
                passage.cancel()
                self.ended(transfer, Outcome.LOST, "restarted")
                self._launch(transfer)
            else:
                passage.resume()

    def cancel(self, client: int, cause: str) -> None:
        """Cancel all transfers from and to a client; their frames are lost."""
        for transfer in self._of(client):
            transfer.passage.cancel()
            transfer.lost(cause)
        for transfer in [one for one in self._retries if one.client == client]:
            self._retries.pop(transfer).cancel()
            self.dismiss(transfer.header)

    def failed(self, transfer: _Transfer, outcome: Outcome, cause: str, why: str) -> None:
        """Take note of a frame that does not arrive whole; perhaps it is sent again.

        ``cause`` is what the trace says, ``why`` the fault that it was, if it was one.
        """
        header, retry = transfer.header, transfer.retry
        if transfer in self._retries:  # a copy, and the frame is sent again already
            self.ended(transfer, outcome, cause)
            return
        if retry is None or why not in FATAL or transfer.num_failed >= retry.times:
            self.ended(transfer, outcome, cause)
            self.dismiss(header)
            return
        transfer.num_failed += 1
        self.trace.record(RETRY, header.client, header.dispatch, transfer.up)
        self.ended(transfer, outcome, cause)
        left_ns = now_ns() if transfer.left_ns is None else transfer.left_ns
        wait_s = retry.after - (now_ns() - left_ns) / 1e9
        self._retries[transfer] = call_after(max(0.0, wait_s), self._send_again, transfer)

    def _send_again(self, transfer: _Transfer) -> None:
        del self._retries[transfer]
        self._launch(transfer)

    def _of(self, client: int) -> list[_Transfer]:
        return list(self._under_way.get(client, {}).values())

    def _launch(self, transfer: _Transfer) -> None:
        """Put a frame on its link, as one more row of the ledger."""
        header, frame, client, up = transfer.header, transfer.frame, transfer.client, transfer.up
        on_link = self._on_link(transfer.packed, frame.num_bytes, header.exchange, up)
        transfer.row = row = self.ledger.sent(now_ns(), header, up, on_link.what, on_link.plain_bytes)
        self.trace.record(TRANSFER_START, *transfer_start_values(header, up, on_link.what))
        if on_link.plain_bytes is not None:
            self.trace.record(CODED, *coded_values(header, up, on_link.plain_bytes))
        link_bytes, attempt = on_link.link_bytes, transfer.num_sent
        parcel = Parcel(header.sender, header.receiver, link_bytes, frame, header.dispatch, attempt)
        transfer.num_sent, transfer.left_ns = attempt + 1, None
        transfer.passage = passage = self.carrier.carry(parcel, transfer)
        self._under_way.setdefault(client, {})[row] = transfer
        if client in self._away:
            passage.pause()

    def record_end(self, header: Header, row: int, outcome: Outcome, cause: str = "") -> None:
        """Enter the end of a frame, or of a further copy of it, in ledger and trace."""
        is_first = self.ledger.ended(now_ns(), row, outcome)
        kind = TRANSFER_END if is_first else TRANSFER_COPY
        self.trace.record(kind, *transfer_end_values(header, header.sender >= 0, outcome, cause))

    def on_link(self, packed: Packed, exchange: str, *, up: bool) -> OnLink:
        """Return what the frames of a message of an exchange are on a link."""
        # Addresses and rounds always take four bytes.
        frame = packed.frame(sender=SERVER, receiver=SERVER, round=0, exchange=exchange)
        return self._on_link(packed, frame.num_bytes, exchange, up)

    def _on_link(self, packed: Packed, num_bytes: int, exchange: str, up: bool) -> OnLink:
        link_bytes = self._wire_bytes(num_bytes, "up" if up else "down")
        what = packed.kind, num_bytes, packed.num_parameters, packed.is_data, link_bytes - num_bytes
        return OnLink(what, link_bytes, packed.plain_bytes(exchange))

    def under_way(self) -> Iterator[tuple[Header, Message]]:
        """Yield the messages that are on their way or wait in an inbox, each with its header."""
        for transfers in self._under_way.values():
            for transfer in transfers.values():
                yield transfer.header, transfer.packed.received
        for transfer in self._retries:
            yield transfer.header, transfer.packed.received
        for endpoint in (self.server, self.clients):
            for delivery in endpoint.waiting():
                if delivery.message is not None:
                    yield delivery.header, delivery.message

    @property
    def is_idle(self) -> bool:
        """Whether nothing is on its way or waits in an inbox."""
        return not (self._under_way or self._retries or self.server.has_any or self.clients.has_any)

    def knows(self, packed: Packed) -> bool:
        """Say whether a message is of a kind that may travel."""
        return self.kinds.get(packed.kind) is packed.plan

    def read(self, header: Header, frame: Frame | bytes) -> Message:
        """Return the message of a frame that has arrived."""
        envelope, message = decode(frame, self.kinds)
        route = Envelope(envelope.kind, header.sender, header.receiver, header.round, header.exchange)
        if envelope != route:
            raise DecodeError(f"envelope: {envelope} came where {route} belongs")
        if self.verify and isinstance(frame, Frame):
            again_envelope, again = decode(frame.join(), self.kinds)
            if again_envelope != envelope or not same(again, message):
                raise InvariantError(f"a frame of kind {message.KIND!r} decodes differently once joined")
        return message

    def ended(self, transfer: _Transfer, outcome: Outcome, cause: str = "") -> None:
        """Take note of the end of a transfer, or of a further copy."""
        row, client = transfer.row, transfer.client
        of_client = self._under_way.get(client)
        if of_client is not None and of_client.pop(row, None) is not None:
            # The two hold each other, and the frame: without this it would wait for the cyclic collector.
            del transfer.passage
            if not of_client:
                del self._under_way[client]
        self.record_end(transfer.header, row, outcome, cause)

    def deliver(self, delivery: Delivery) -> None:
        """Put a delivery into the inbox of its receiver."""
        if delivery.header.receiver == SERVER:
            self.dismiss(delivery.header)
            self.server.put(delivery)
        else:
            self.clients.put(delivery)

    def dismiss(self, header: Header) -> None:
        """Note that nothing more is to come of a dispatch."""
        if self.presence is not None:
            self.presence.dismiss(header.client, header.dispatch)


class MemoryEndpoint:
    """The inbox of one party, and what it sends by."""

    def __init__(self, bus: MemoryBus) -> None:
        self._bus = bus
        self._inbox: deque[Delivery] = deque()
        self._take: Callable[[Delivery], object] | None = None

    def send(self, header: Header, message: Message | Packed | None) -> Departure:
        """Start sending now; awaiting the result waits until the frame has left."""
        return self._bus.send(header, message)

    @property
    def has_any(self) -> bool:
        """Whether a delivery waits."""
        return bool(self._inbox)

    def waiting(self) -> Sequence[Delivery]:
        """Return the deliveries that wait, in order."""
        return tuple(self._inbox)

    def put(self, delivery: Delivery) -> None:
        """Add a delivery."""
        self._inbox.append(delivery)
        if self._take is not None and len(self._inbox) == 1:
            running_loop().call_soon(self._feed, self._take)

    def feed(self, take: Callable[[Delivery], object]) -> None:
        """Give all deliveries to a function from now on, in order of arrival."""
        self._take = take

    def _feed(self, take: Callable[[Delivery], object]) -> None:
        while self._inbox:
            take(self._inbox.popleft())


class Departure:
    """Whether a frame has left; a future is made only where somebody waits for it.

    Attributes:
        has_left: Whether it has.
    """

    __slots__ = ("_future", "_tell", "has_left")

    def __init__(self, has_left: bool) -> None:
        self.has_left = has_left
        self._tell: Callable[[], object] | None = None
        self._future: asyncio.Future[None] | None = None

    def then(self, tell: Callable[[], object]) -> None:
        """Call a function when the frame has left; the one function that is told."""
        if self.has_left:
            tell()
        else:
            self._tell = tell

    def left(self) -> None:
        """Note that the frame has left."""
        if self._tell is not None and not self.has_left:
            self._tell()
        self.has_left = True
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    def __await__(self) -> Generator[Any, None, None]:
        if not self.has_left:
            if self._future is None:
                self._future = running_loop().create_future()
            yield from self._future


HAS_LEFT = Departure(True)
"""Of what puts no frame on a link."""


class _Transfer(Departure):
    """One frame on its way; listens to its passage and tells the bus.

    Attributes:
        header: Of the delivery.
        packed: The message.
        frame: The frame.
        client: Of the delivery.
        up: Whether it goes to the server.
        row: Its row in the ledger; a frame that is restarted gets another one.
        num_sent: How often it was sent.
        num_failed: How often it did not arrive, and was sent again.
        left_ns: When it left last, where it may be sent again; None before.
        retry: How it is sent again if a fault keeps it from arriving; None where it is not.
        passage: Through the network, while it is under way.
    """

    __slots__ = (
        *("_bus", "_is_delivered", "client", "frame", "header", "left_ns"),
        *("num_failed", "num_sent", "packed", "passage", "retry", "row", "up"),
    )

    row: int
    passage: Passage

    def __init__(self, bus: MemoryBus, header: Header, packed: Packed) -> None:
        self.has_left = False
        self._tell = None
        self._future = None
        self._bus = bus
        self._is_delivered = False
        self.retry = bus.retry
        self.num_sent = self.num_failed = 0
        self.left_ns: int | None = None
        self.header = header
        self.packed = packed
        sender, receiver = header.sender, header.receiver
        self.up = sender >= 0
        self.client = sender if self.up else receiver
        self.frame = packed.frame(
            sender=sender, receiver=receiver, round=header.round, exchange=header.exchange
        )

    def left(self) -> None:
        """Note that the frame has left, and when if it may be sent again."""
        if self.retry is not None and self.left_ns is None:
            self.left_ns = now_ns()
        super().left()

    def arrived(self, parcel: Parcel) -> None:
        """Take a copy of the frame."""
        bus, header, packed = self._bus, self.header, self.packed
        if not bus.verify and parcel.payload is self.frame and bus.knows(packed):
            message = packed.received  # the frame as it was sent, so its bytes need not be made
        else:
            try:
                message = self._read(parcel.payload)
            except DecodeError as error:
                why = "corrupt" if parcel.payload is SPOILT else ""
                bus.failed(self, _UNDECODABLE, str(error), why)
                return
        bus.ended(self, _DELIVERED)
        if not self._is_delivered:
            self._is_delivered = True
            bus.deliver(Delivery(header, message))

    def _read(self, payload: Any) -> Message:
        """Return the message of the bytes that have arrived."""
        bus, packed = self._bus, self.packed
        if payload is SPOILT:
            raise DecodeError(SPOILT_CAUSE)
        message = bus.read(self.header, payload)
        if payload is self.frame and bus.knows(packed) and not same(message, packed.received):
            raise InvariantError(f"a frame of kind {packed.kind!r} decodes to another message than was sent")
        return message

    def lost(self, cause: str) -> None:
        """Give the frame up."""
        self.left()  # or the sender would wait for ever
        self._bus.failed(self, Outcome.LOST, cause, cause)
