"""Message to bytes.

A frame is a short sequence of plain msgpack objects, which any msgpack library can read:

- the envelope, a map: ``fedsim`` (version of this schema), ``kind``, ``sender``, ``receiver``, ``round``,
  ``exchange``, ``fields`` (a map) and ``arrays`` (a list of dtype, shape, length in bytes);
- the arrays, see :mod:`fedsim.wire.binary_arrays`.

The frames of a broadcast differ only in sender, receiver, round and exchange; the rest is encoded once. The
three numbers always take four bytes, so a frame's length does not depend on its receiver.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import msgpack

from fedsim.params import Array
from fedsim.quoting import quoted
from fedsim.wire.binary_arrays import ALIGNMENT, Bins, lead
from fedsim.wire.coded_messages import stands_for
from fedsim.wire.contents import DEFAULT, PendingArray
from fedsim.wire.declare import Message, Plan, num_parameters, plan_of

SERVER = -1
"""The server's address; clients are numbered from 0."""
HIGHEST = 2**31 - 1
"""The highest address or round."""
MAX_ENVELOPES = 1024
"""Envelopes that are remembered, of some hundred bytes each."""

_ROUTE = struct.Struct(">8si10si7si9s")
# d2 announces a signed integer of four bytes; each key is a short string.
_SENDER, _RECEIVER, _ROUND, _EXCHANGE = (
    b"\xa6sender\xd2",
    b"\xa8receiver\xd2",
    b"\xa5round\xd2",
    b"\xa8exchange",
)


class Frame:
    """One message on its way to one receiver, in parts that need not be joined.

    A frame is a pure function of its message. Its length is always known; its bytes are made when somebody
    looks at them, which computes what is pending in the message (:class:`fedsim.params.PendingTree`).

    Attributes:
        num_bytes: Length of all parts.
    """

    __slots__ = ("_head", "_packed", "num_bytes")

    def __init__(
        self, head: bytes | tuple[bytes, int, int, int, bytes], num_bytes: int, packed: Packed | None = None
    ) -> None:
        self._head = head
        self.num_bytes = num_bytes
        self._packed = packed

    def __len__(self) -> int:
        return self.num_bytes

    @property
    def head(self) -> bytes:
        """The envelope with the first array's padding and header."""
        if not isinstance(self._head, bytes):
            self._head = _head(*self._head)
        return self._head

    @property
    def tail(self) -> tuple[bytes | memoryview, ...]:
        """The first array, the next padding and header, the next array, and so on, as read-only views."""
        return () if self._packed is None else self._packed.bins.parts

    @property
    def parts(self) -> tuple[bytes | memoryview, ...]:
        """The frame's bytes, in order."""
        return (self.head, *self.tail)

    def join(self) -> bytes:
        """Return the frame as one string of bytes: the only copy of its arrays."""
        return b"".join(self.parts)


class _Envelope:
    """What envelopes have in common whose messages are equal but for the values of arrays.

    Attributes:
        prefix: What comes before the route.
        suffix: What comes behind it.
        bins_bytes: Length of all arrays with what is between them.
        num_parameters: Scalars that count as parameters communicated.
        plain: That of the messages for which coded ones stand; None where they are not coded.
    """

    __slots__ = ("_first", "_last", "bins_bytes", "num_parameters", "plain", "prefix", "suffix")

    def __init__(self, message: Message, fields: dict[str, Any], bins: Bins) -> None:
        self.prefix = message.PLAN.prefix
        self.suffix = b"".join((b"\xa6fields", msgpack.packb(fields), b"\xa6arrays", bins.packed_list))
        _check_size(message, len(self.prefix) + len(self.suffix), bins)
        self.bins_bytes = bins.num_bytes
        plain = stands_for(message) if message.ORIGINAL is not None else None
        self.plain: _Envelope | None = None if plain is None else _Envelope(plain, *_encoded(plain))
        self.num_parameters: int = num_parameters(plain or message)
        self._first = bins.first
        # The last exchange asked for, and what follows its key: a round names the same one each time.
        self._last: tuple[str | None, bytes] = (None, b"")

    def after(self, exchange: str) -> bytes:
        """Return what follows the key of the exchange, up to the first array."""
        known, rest = self._last
        if exchange != known:
            if type(exchange) is not str or len(exchange) > DEFAULT.name_characters:
                raise ValueError(
                    f"the exchange {quoted(exchange)} is no name of at most {DEFAULT.name_characters} "
                    "characters"
                )
            rest = bytes(msgpack.packb(exchange)) + self.suffix
            rest += lead(self._first, len(self.prefix) + _ROUTE.size + len(rest))
            self._last = exchange, rest
        return rest

    def num_bytes(self, exchange: str) -> int:
        """Return the length of a frame; addresses and rounds always take four bytes."""
        return len(self.prefix) + _ROUTE.size + len(self.after(exchange)) + self.bins_bytes


class Packed:
    """A message ready for any number of receivers; made by :func:`pack`.

    Attributes:
        message: The message.
        kind: Its kind.
        is_data: Whether its bytes are training or public data.
        num_parameters: Its scalars that count as parameters communicated.
    """

    __slots__ = ("_bins", "_envelope", "_received", "is_data", "kind", "message", "num_parameters")

    def __init__(self, message: Message, envelope: _Envelope, bins: Bins | None) -> None:
        self.message = message
        self.kind, self.is_data = message.KIND, message.IS_DATA
        self.num_parameters = envelope.num_parameters
        self._envelope = envelope
        self._bins = bins
        # Pending arrays are received as they are sent, and so are scalars.
        self._received = message if bins is None else None

    @property
    def plan(self) -> Plan:
        """How messages of its kind are encoded."""
        return self.message.PLAN

    @property
    def bins(self) -> Bins:
        """Its arrays."""
        if self._bins is None:
            _, self._bins = _encoded(self.message)
        return self._bins

    @property
    def received(self) -> Message:
        """The message as every receiver decodes it, made once and without its bytes."""
        if self._received is None:
            sent, is_same, values = self.message, True, {}
            for name, _, kind in sent.PLAN.fields:
                value = getattr(sent, name)
                values[name] = received = kind.received(value)
                is_same &= received is value
            self._received = sent if is_same else sent.PLAN.owner(**values)
        return self._received

    def plain_bytes(self, exchange: str) -> int | None:
        """Return the length that its frame would have without codecs; None where it is not coded."""
        plain = self._envelope.plain
        return None if plain is None else plain.num_bytes(exchange)

    def frame(self, *, sender: int, receiver: int, round: int, exchange: str) -> Frame:  # noqa: A002
        """Return the frame for one receiver, which shares the arrays with all others."""
        envelope = self._envelope
        rest = envelope.after(exchange)
        if not (type(sender) is type(receiver) is type(round) is int) or not (
            -1 <= sender <= HIGHEST and -1 <= receiver <= HIGHEST and -1 <= round <= HIGHEST
        ):
            raise ValueError(
                f"sender {quoted(sender)}, receiver {quoted(receiver)}, round {quoted(round)}: addresses "
                f"are {SERVER} for the server or a client's number from 0, rounds integers from -1"
            )
        return Frame((envelope.prefix, sender, receiver, round, rest), envelope.num_bytes(exchange), self)


class FrameSize(NamedTuple):
    """What is known of the frames of a message whose values are not there.

    Attributes:
        kind: Kind of the message.
        num_bytes: Length of a frame.
        num_parameters: Scalars that count as parameters communicated.
        is_data: Whether the bytes are training or public data.
        plain_bytes: The length without codecs; None where the message is not coded.
    """

    kind: str
    num_bytes: int
    num_parameters: int
    is_data: bool
    plain_bytes: int | None = None


class SizedMessage(Message):
    """Stands for a message of which only the size of its frames is known.

    Attributes:
        packed: What travels.
    """

    KIND = "sized"

    def __init__(self, packed: SizedPacked) -> None:
        self.packed = packed


class SizedPacked(Packed):
    """A message of which only the size of its frames is known, ready for any number of receivers.

    Args:
        size: What is known.
        plan: How messages of its kind are encoded.
        received: What arrives; a :class:`SizedMessage` if left out.
    """

    __slots__ = ("_num_bytes", "_plain_bytes", "_plan")

    def __init__(self, size: FrameSize, plan: Plan, received: Message | None = None) -> None:
        self.message = SizedMessage(self)
        self._received = self.message if received is None else received
        self.kind, self._num_bytes, self.num_parameters, self.is_data, self._plain_bytes = size
        self._plan = plan

    @property
    def plan(self) -> Plan:
        """How messages of its kind are encoded."""
        return self._plan

    def plain_bytes(self, exchange: str) -> int | None:
        """Return the length that its frame would have without codecs; None where it is not coded."""
        return self._plain_bytes

    def frame(self, *, sender: int, receiver: int, round: int, exchange: str) -> Frame:  # noqa: A002
        """Return a frame, which has no bytes."""
        return Frame(b"", self._num_bytes, self)


def _head(prefix: bytes, sender: int, receiver: int, round: int, rest: bytes) -> bytes:  # noqa: A002
    route = _ROUTE.pack(_SENDER, sender, _RECEIVER, receiver, _ROUND, round, _EXCHANGE)
    return b"".join((prefix, route, rest))


_envelopes: dict[tuple[Any, ...], _Envelope] = {}
"""Of messages whose arrays are all pending, by what they depend on: the replies of a cohort share a few."""


def pack(message: Message) -> Packed:
    """Check a message and encode it once, for any number of receivers.

    An array that is C-contiguous and little-endian is not copied: frames are views of it, so it must not be
    changed afterwards (trees are values, see :mod:`fedsim.params`).
    """
    if type(message) is SizedMessage:
        return message.packed
    plan = plan_of(type(message))
    keys: list[Any] = [plan.owner]
    for name, _, kind in plan.fields:
        if (key := kind.encoding_key(getattr(message, name))) is None:
            fields, bins = _encoded(message)
            return Packed(message, _Envelope(message, fields, bins), bins)
        keys.append(key)
    whole = tuple(keys)
    envelope = _envelopes.get(whole)
    if envelope is None:
        if len(_envelopes) >= MAX_ENVELOPES:
            _envelopes.clear()
        envelope = _envelopes[whole] = _Envelope(message, *_encoded(message))
    return Packed(message, envelope, None)


def _encoded(message: Message) -> tuple[dict[str, Any], Bins]:
    """Return the fields of a message as plain msgpack, and its arrays."""
    arrays: list[Array | PendingArray] = []
    fields = {
        name: kind.encode(getattr(message, name), arrays, name) for name, _, kind in message.PLAN.fields
    }
    return fields, Bins(arrays)


def same(left: Message, right: Message) -> bool:
    """Say whether two messages are of one class and are encoded as the same bytes.

    So the order of names counts, NaN equals a NaN of the same bits, 0.0 differs from -0.0, and neither byte
    order nor memory layout of an array matters.
    """
    return type(left) is type(right) and _bytes(left) == _bytes(right)


def _bytes(message: Message) -> bytes:
    return b"".join(pack(message).frame(sender=SERVER, receiver=SERVER, round=0, exchange="").parts)


def _check_size(message: Message, known_bytes: int, bins: Bins) -> None:
    kind, body, num_arrays = message.KIND, bins.num_bytes, len(bins)
    if num_arrays > DEFAULT.arrays:
        raise ValueError(f"a message {kind!r} of {num_arrays} arrays: a frame holds at most {DEFAULT.arrays}")
    # The longest name of an exchange takes four bytes a character.
    envelope = known_bytes + _ROUTE.size + 4 * DEFAULT.name_characters + 3
    if envelope > DEFAULT.envelope_bytes:
        raise ValueError(
            f"a message {kind!r} whose names and scalars take {envelope} bytes: an envelope holds at most "
            f"{DEFAULT.envelope_bytes}; use shorter names or one array instead of many scalars"
        )
    if envelope + body + 2 * ALIGNMENT > DEFAULT.frame_bytes:
        raise ValueError(f"a message {kind!r} of {body} bytes: a frame holds at most {DEFAULT.frame_bytes}")
