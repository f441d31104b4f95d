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
from dataclasses import dataclass

import msgpack

from fedsim.params import Array
from fedsim.quoting import quoted
from fedsim.wire.binary_arrays import ALIGNMENT, Bins
from fedsim.wire.declare import Message, num_parameters, plan_of
from fedsim.wire.dtypes import PendingArray
from fedsim.wire.limits import DEFAULT
from fedsim.wire.unpack import fits

SERVER = -1
"""The server's address; clients are numbered from 0."""

_ROUTE = struct.Struct(">8si10si7si9s")
# d2 announces a signed integer of four bytes; each key is a short string.
_SENDER, _RECEIVER, _ROUND, _EXCHANGE = (
    b"\xa6sender\xd2",
    b"\xa8receiver\xd2",
    b"\xa5round\xd2",
    b"\xa8exchange",
)


@dataclass(slots=True, eq=False)
class Frame:
    """One message on its way to one receiver, in parts that need not be joined.

    A frame is a pure function of its message. Its length is always known; its bytes are made when somebody
    looks at them, which computes what is pending in the message (:class:`fedsim.params.PendingTree`).

    Attributes:
        head: The envelope with the first array's padding and header.
        bins: The arrays, shared by all frames of a message; None where all bytes are in the head.
    """

    head: bytes
    bins: Bins | None = None

    def __len__(self) -> int:
        return len(self.head) + (0 if self.bins is None else self.bins.num_bytes)

    @property
    def tail(self) -> tuple[bytes | memoryview, ...]:
        """The first array, the next padding and header, the next array, and so on, as read-only views."""
        return () if self.bins is None else self.bins.parts

    @property
    def parts(self) -> tuple[bytes | memoryview, ...]:
        """The frame's bytes, in order."""
        return (self.head, *self.tail)

    def join(self) -> bytes:
        """Return the frame as one string of bytes: the only copy of its arrays."""
        return b"".join(self.parts)


@dataclass(slots=True, eq=False)
class Packed:
    """A message ready for any number of receivers; made by :func:`pack`.

    Attributes:
        kind: The message's kind.
        is_data: Whether its bytes are training or public data.
        num_parameters: Its scalars that count as parameters communicated.
    """

    kind: str
    is_data: bool
    num_parameters: int
    _message: Message
    _prefix: bytes
    _suffix: bytes
    _bins: Bins
    # The last exchange asked for and what follows its key: a broadcast names the same one each time.
    _last: tuple[str | None, bytes] = (None, b"")
    _received: Message | None = None

    @property
    def received(self) -> Message:
        """The message as every receiver decodes it, made once and without its bytes."""
        if self._received is None:
            sent, plan = self._message, self._message.PLAN
            values = {name: kind.received(getattr(sent, name)) for name, _, kind in plan.fields}
            is_same = all(value is getattr(sent, name) for name, value in values.items())
            self._received = sent if is_same else plan.owner(**values)
        return self._received

    def frame(self, *, sender: int, receiver: int, round: int, exchange: str) -> Frame:  # noqa: A002
        """Return the frame for one receiver, which shares the arrays with all others.

        Args:
            sender: ``SERVER`` or the client that sends.
            receiver: ``SERVER`` or the client that it is for.
            round: Round or server version, from 0; -1 outside any.
            exchange: Name of the exchange that the message belongs to; may be empty.

        Raises:
            ValueError: A number that is no such address or round, or a name that is too long.
        """
        known, rest = self._last
        if exchange != known or not rest:
            rest = self._after(exchange)
            self._last = exchange, rest
        try:
            route = _ROUTE.pack(_SENDER, sender, _RECEIVER, receiver, _ROUND, round, _EXCHANGE)
        except struct.error:
            route = b""
        if not route or sender < SERVER or receiver < SERVER or round < -1:
            raise ValueError(
                f"sender {quoted(sender)}, receiver {quoted(receiver)}, round {quoted(round)}: addresses are "
                f"{SERVER} for the server or a client's number from 0, rounds integers from -1"
            )
        head = b"".join((self._prefix, route, rest))
        return Frame(head, self._bins)

    def _after(self, exchange: str) -> bytes:
        if type(exchange) is not str or len(exchange) > DEFAULT.name_characters:
            raise ValueError(
                f"the exchange {quoted(exchange)} is no name of at most {DEFAULT.name_characters} characters"
            )
        rest = bytes(msgpack.packb(exchange)) + self._suffix
        start = len(self._prefix) + _ROUTE.size + len(rest)
        return rest + self._bins.lead(start)


def pack(message: Message) -> Packed:
    """Check a message and encode it once, for any number of receivers.

    An array that is C-contiguous and little-endian is not copied: frames are views of it, so it must not be
    changed afterwards (trees are values, see :mod:`fedsim.params`).

    Raises:
        TypeError: A class that is no declared message, or a field of another type than declared.
        ValueError: More than a frame can hold.
    """
    plan = plan_of(type(message))
    arrays: list[Array | PendingArray] = []
    fields = {name: kind.encode(getattr(message, name), arrays, name) for name, _, kind in plan.fields}
    bins = Bins(arrays)
    suffix = b"".join((b"\xa6fields", msgpack.packb(fields), b"\xa6arrays", bins.packed_list))
    _check_size(message, plan.prefix + suffix, bins)
    return Packed(message.KIND, message.IS_DATA, num_parameters(message), message, plan.prefix, suffix, bins)


def same(left: Message, right: Message) -> bool:
    """Say whether two messages are of one class and are encoded as the same bytes.

    So the order of names counts, NaN equals a NaN of the same bits, 0.0 differs from -0.0, and neither byte
    order nor memory layout of an array matters.
    """
    return type(left) is type(right) and _bytes(left) == _bytes(right)


def _bytes(message: Message) -> bytes:
    return b"".join(pack(message).frame(sender=SERVER, receiver=SERVER, round=0, exchange="").parts)


def _check_size(message: Message, known: bytes, bins: Bins) -> None:
    kind, envelope, body, num_arrays = message.KIND, len(known), bins.num_bytes, len(bins)
    if num_arrays > DEFAULT.arrays:
        raise ValueError(f"a message {kind!r} of {num_arrays} arrays: a frame holds at most {DEFAULT.arrays}")
    # The longest name of an exchange takes four bytes a character.
    envelope += _ROUTE.size + 4 * DEFAULT.name_characters + 3
    if envelope > DEFAULT.envelope_bytes:
        raise ValueError(
            f"a message {kind!r} whose names and scalars take {envelope} bytes: an envelope holds at most "
            f"{DEFAULT.envelope_bytes}; use shorter names or one array instead of many scalars"
        )
    if not fits(known, len(known) + body):
        raise ValueError(
            f"a message {kind!r} of {num_arrays} arrays: its many small values would take more memory than a "
            "decoder allows; use fewer, larger arrays"
        )
    if envelope + body + 2 * ALIGNMENT > DEFAULT.frame_bytes:
        raise ValueError(f"a message {kind!r} of {body} bytes: a frame holds at most {DEFAULT.frame_bytes}")
