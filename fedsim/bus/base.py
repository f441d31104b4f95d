"""What every bus offers: endpoints that send messages, and hand over each that arrives once, in order.

An endpoint belongs to a *party*: the server, or a host of any number of clients (a million idle clients are
one endpoint). What concerns one delivery and not the message is in a :class:`Header` beside the frame, so the
frames of a run are the same, byte for byte, on every bus.

A message of ``None`` sends no frame: the header alone reaches the other side, at once, and no traffic is
counted. The exchange still takes place: a client that is sent nothing trains, and a server that is sent
nothing knows when its client has finished. Over sockets this is a control message of the session, outside the
ledger.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from fedsim.frozen import made_fast
from fedsim.wire import Message, Packed


@made_fast
@dataclass(frozen=True, slots=True)
class Header:
    """What concerns one delivery.

    Attributes:
        sender: Address; ``-1`` is the server, clients count from 0.
        receiver: Address.
        round: The round of the dispatch; 0 before the first, one more than the last after it.
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
        """Return the header of the reply."""
        # Not dataclasses.replace, which takes five times as long, once per dispatch.
        return Header(
            self.receiver, self.sender, self.round, self.exchange, self.dispatch, self.turn, self.merged
        )


@made_fast
@dataclass(frozen=True, slots=True)
class Delivery:
    """A message that has arrived, its arrays read-only; or ``None`` for a header alone."""

    header: Header
    message: Message | None


class Presence(Protocol):
    """Watches, for a simulated bus, whether clients are there while they work."""

    def expect(self, client: int, dispatch: int) -> bool:
        """Watch the client from now on, for a dispatch; return whether it is sent.

        It is not where the client is away and the work of clients that are away is lost.
        """

    def dismiss(self, client: int, dispatch: int) -> None:
        """Stop watching for this dispatch, of which nothing more is to come."""


class Endpoint(Protocol):
    """A party's place on the bus."""

    def send(self, header: Header, message: Message | Packed | None) -> object:
        """Start sending now; that of clients returns what can be awaited until the frame has left.

        A frame that is lost counts as having left: the sender does not learn of the loss. A message for many
        receivers is packed once by the caller (:func:`fedsim.wire.pack`), so its arrays are encoded once.
        """


class Log(Protocol):
    """A log of structured events; their stamps and their writing are decided above."""

    def info(self, event: str, **values: Any) -> Any:
        """Note something ordinary."""

    def warning(self, event: str, **values: Any) -> Any:
        """Note something that a reader may have to know."""
