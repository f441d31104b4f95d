"""What every bus offers: endpoints that send and receive messages.

An endpoint belongs to a *party*: the server, or a host of any number of clients (a million idle clients are
one endpoint, not a million). What concerns one delivery and not the message travels in a :class:`Header`
beside the frame, so the frame of a run is the same, byte for byte, on every bus.

A message of ``None`` means "no frame": the header alone reaches the other side, at once, free and uncounted.
The exchange still takes place: a client that is told nothing trains all the same, and a server that is sent
nothing knows when its client has finished. Over sockets this is a control message of the session, outside the
ledger.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass, replace
from typing import Protocol

from fedsim.wire import Message, Packed


@dataclass(frozen=True, slots=True)
class Header:
    """What belongs to one delivery.

    Attributes:
        sender: Address; ``-1`` is the server, clients count from 0.
        receiver: Address.
        round: The round in which the server asked; 0 before the first, one more than the last after it.
        exchange: Name of the algorithm's exchange.
        dispatch: Number of the dispatch to this client, over the whole run, from 0.
        turn: Number of the dispatch to this client *in this exchange*, from 0; names the client's generators.
        merged: The newest dispatch of this client whose reply was merged; ``-1`` where there is none. It
            settles what the client holds in mirrored fields (specification 3.4).
    """

    sender: int
    receiver: int
    round: int
    exchange: str
    dispatch: int
    turn: int
    merged: int = -1

    @property
    def client(self) -> int:
        """The client of this delivery, whichever way it goes."""
        return self.sender if self.sender >= 0 else self.receiver

    def reply(self) -> Header:
        """Return the header of the answer."""
        return replace(self, sender=self.receiver, receiver=self.sender)


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message that has arrived, its arrays read-only; or ``None`` for a header alone."""

    header: Header
    message: Message | None


class Presence(Protocol):
    """Is told by a simulated bus from when to when it matters whether a client is there."""

    def expect(self, client: int, dispatch: int) -> bool:
        """Something sets out for the client: it is at work on this dispatch from now on.

        Say whether it is: where the work of a client that is away is lost, nothing sets out.
        """

    def dismiss(self, client: int, dispatch: int) -> None:
        """Nothing more is to come of this dispatch."""


class Endpoint(Protocol):
    """A party's place on the bus."""

    def send(self, header: Header, message: Message | Packed | None) -> Awaitable[None]:
        """Start sending now; awaiting the result, which is optional, waits until the frame has left.

        A frame that is lost on the way out counts as having left: a sender learns of no loss. A message for
        many is packed once by the caller (:func:`fedsim.wire.pack`), so its arrays are encoded once.
        """

    async def receive(self) -> Delivery:
        """Wait for the next delivery to this party, in order of arrival.

        Each frame is delivered at most once.

        Raises:
            RuntimeError: Another task is waiting already; a party has one reader.
        """
