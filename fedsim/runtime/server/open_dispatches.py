"""Open dispatches: their numbers, their leases, and how each one ends.

A client that has not answered when its lease runs out counts as dropped, whatever the reason; an answer that
comes later is counted as late and merged by nobody. The server knows of no reason before; but where the trace
has one by then, because the client dropped out or left, the drop is counted by that.

A client costs an object while it owes an answer, and all clients four bytes for each number that is kept
beyond that.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedsim.algorithms.base import Exchange, Reply
from fedsim.bus import Delivery, Endpoint, Header
from fedsim.clock import EventClass, Trace, call_after, now_s, running_loop
from fedsim.errors import InvariantError
from fedsim.params import Array
from fedsim.runtime.records.trace_kinds import DISPATCH, DROP, LATE
from fedsim.wire import SERVER, Packed


@dataclass(slots=True, eq=False)
class OpenDispatch:
    """One dispatch to one client, seen from the server.

    Attributes:
        header: Of what was sent.
        version: The server's at that time: how often it had merged.
        at_s: When.
        answer: The reply, or None when the lease has run out.
        lease: Ends the waiting.
        abandoned: Why no answer will come, as the trace has it; empty where one may come.
    """

    header: Header
    version: int
    at_s: float
    answer: asyncio.Future[Reply | None]
    lease: asyncio.TimerHandle | None = None
    abandoned: str = ""

    @property
    def client(self) -> int:
        """Who was asked."""
        return self.header.receiver


class Newest(Mapping[int, int]):
    """The newest dispatch of each client whose reply was merged; holds those clients who have one.

    Args:
        num_clients: K.
    """

    def __init__(self, num_clients: int) -> None:
        self._num_clients = num_clients
        self._newest: array[int] | None = None  # until something is merged

    def of(self, client: int) -> int:
        """Return a client's; -1 where there is none."""
        return -1 if self._newest is None else self._newest[client]

    def note(self, client: int, dispatch: int) -> None:
        """A reply was merged."""
        if self._newest is None:
            self._newest = array("i", [-1]) * self._num_clients
        self._newest[client] = max(dispatch, self._newest[client])

    def __getitem__(self, client: int) -> int:
        dispatch = self.of(client)
        if dispatch < 0:
            raise KeyError(client)
        return dispatch

    def __iter__(self) -> Iterator[int]:
        return (client for client, dispatch in enumerate(self._newest or ()) if dispatch >= 0)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class OpenDispatches:
    """The server's open dispatches.

    Args:
        endpoint: Sends the frames.
        trace: Where they are recorded.
        num_clients: K.
        timeout_s: How long a lease is.
    """

    def __init__(self, endpoint: Endpoint, trace: Trace, num_clients: int, timeout_s: float) -> None:
        self._endpoint = endpoint
        self._trace = trace
        self._num_clients = num_clients
        self._timeout_s = timeout_s
        self._open: dict[tuple[int, int], OpenDispatch] = {}
        self._busy: dict[int, int] = {}
        self._turns: dict[str, array[int]] = {}  # by exchange: how often each client was asked
        self._took_s: dict[str, array[float]] = {}  # by exchange; negative where it is not known
        trace.listen({"abandon": self._abandoned})

    def busy(self) -> Array:
        """Return the clients that owe an answer, in no special order."""
        return np.fromiter(self._busy, np.int64, len(self._busy))

    def predicted_s(self, exchange: Exchange, clients: Sequence[int]) -> list[float]:
        """Return how long clients are predicted to take: as long as last, or as they were waited for.

        Times are noted from the first prediction on, which knows of none: not every run has a use for them.
        """
        took_s = self._took_s.get(exchange.name)
        if took_s is None:
            took_s = self._took_s[exchange.name] = array("d", [-1.0]) * self._num_clients
        every = np.frombuffer(took_s)
        known = every[every >= 0]
        if not len(known):
            return []
        usual = float(np.median(known))
        return [usual if took_s[client] < 0 else took_s[client] for client in clients]

    def ask(
        self,
        client: int,
        exchange: str,
        message: Packed | None,
        *,
        round: int,  # noqa: A002
        version: int,
        merged: int,
    ) -> OpenDispatch:
        """Ask a client, now.

        Args:
            client: Whom.
            exchange: The exchange's name.
            message: What is sent; None for no frame.
            round: The round's number.
            version: How often the server has merged.
            merged: The client's newest dispatch that was merged; -1 where there is none.
        """
        turns = self._turns.get(exchange)
        if turns is None:
            turns = self._turns[exchange] = array("i", [0]) * self._num_clients
        turn = dispatch = turns[client]
        if len(self._turns) > 1:
            dispatch = sum(of_exchange[client] for of_exchange in self._turns.values())
        turns[client] = turn + 1
        header = Header(SERVER, client, round, exchange, dispatch, turn, merged)
        asked = OpenDispatch(header, version, now_s(), running_loop().create_future())
        asked.lease = call_after(self._timeout_s, self._expire, asked, event_class=EventClass.DEADLINE)
        self._open[client, dispatch] = asked
        self._busy[client] = self._busy.get(client, 0) + 1
        self._trace.record(DISPATCH, client, dispatch, round, exchange, turn)
        self._endpoint.send(header, message)
        return asked

    def take(self, delivery: Delivery, version: int) -> None:
        """Hand an answer to whoever waits for it; one that nobody waits for any more is late."""
        header = delivery.header
        asked = self._open.get((header.client, header.dispatch))
        if asked is None or asked.answer.done():
            self._trace.record(LATE, header.client, header.dispatch)
            return
        reply = Reply(
            header.client,
            header.dispatch,
            header.exchange,
            asked.version,
            version - asked.version,
            1.0,
            delivery.message,
        )
        if asked.lease is not None:
            asked.lease.cancel()
        if (took_s := self._took_s.get(header.exchange)) is not None:
            took_s[header.client] = now_s() - asked.at_s
        asked.answer.set_result(reply)

    def close(self, asked: OpenDispatch, cause: str = "too late") -> None:
        """Forget a dispatch; who has not answered until now is not waited for.

        Raises:
            InvariantError: It was closed before.
        """
        client = asked.client
        if self._open.pop((client, asked.header.dispatch), None) is None:
            raise InvariantError(
                f"dispatch {asked.header.dispatch} of client {client} was merged before: "
                "a pacing merges each dispatch once"
            )
        self._busy[client] -= 1
        if not self._busy[client]:
            del self._busy[client]
        if asked.lease is not None:
            asked.lease.cancel()
        if not asked.answer.done():
            # It takes at least as long as it was waited for; were it forgotten, predictions would creep down.
            if (took_s := self._took_s.get(asked.header.exchange)) is not None:
                took_s[client] = max(took_s[client], now_s() - asked.at_s)
            self.drop(asked, cause)

    def discard(self, asked: OpenDispatch, cause: str) -> None:
        """Forget a dispatch whose answer, if it has come, is not wanted: it counts as dropped.

        Raises:
            InvariantError: It was closed before.
        """
        counted = asked.answer.done() and asked.answer.result() is None
        self.close(asked, cause)
        if asked.answer.done() and not counted:
            self.drop(asked, cause)

    def drop(self, asked: OpenDispatch, cause: str) -> None:
        """Record that a client has not answered in time, by what it was abandoned for if it was."""
        self._trace.record(DROP, asked.client, asked.header.dispatch, asked.abandoned or cause)

    def _expire(self, asked: OpenDispatch) -> None:
        if asked.answer.done():
            return
        self.drop(asked, "timeout")
        asked.answer.set_result(None)

    def _abandoned(self, at_ns: int, client: int, dispatch: int, cause: str) -> None:
        """Note what the trace says; nobody acts on it before the lease runs out."""
        asked = self._open.get((client, dispatch))
        if asked is not None:
            asked.abandoned = cause
