"""Open dispatches: their numbers, their leases, and how each one ends.

A client that has not replied when its lease runs out counts as dropped, whatever the reason; a reply that
comes later is counted as late and merged by nobody. The server knows of no reason before; but where the trace
has one by then, because the client dropped out or left, the drop is counted by that.

A client costs an object while a dispatch to it is open, and all clients four bytes for each number that is
kept beyond that.
"""

from __future__ import annotations

import asyncio
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from fedsim.algorithms.base import Exchange, Reply
from fedsim.bus import Delivery, Endpoint, Header
from fedsim.clock import RecordKind, Timeout, Timeouts, Trace, now_s, running_loop
from fedsim.errors import InvariantError
from fedsim.network.fault_settings import FATAL
from fedsim.params import Array
from fedsim.wire import SERVER, Message, Packed

DISPATCH = RecordKind("dispatch", ("client", "dispatch", "round", "exchange", "turn"))
DROP = RecordKind("drop", ("client", "dispatch", "cause"))
LATE = RecordKind("late", ("client", "dispatch"))


def dispatch_values(header: Header) -> tuple[Any, ...]:
    """Return the values of the record of a dispatch that is sent."""
    return header.receiver, header.dispatch, header.round, header.exchange, header.turn


RUN_ENDED = "the run ended"
"""Why a dispatch is dropped that is open when the run ends."""


class Alike(Protocol):
    """What replies have in common that differ in trained values alone."""

    @property
    def are_in_range(self) -> bool:
        """Whether no trained scalar of any of them is known to be out of range."""


@dataclass(slots=True, eq=False)
class OpenDispatch:
    """One dispatch to one client, seen from the server.

    Attributes:
        header: Of what was sent.
        version: The server's at that time.
        sent_at_s: When.
        reply: The reply, or None when the lease has run out.
        lease: Ends the waiting; None where the reply is known to come before.
        released: Whether its client may be asked again before the reply is merged.
        abandoned: Why no reply will come, as the trace has it; empty where one may come.
        like: What its reply has in common with others; None where it has nothing.
        sent: What was sent, where replies may be coded as differences from it.
    """

    header: Header
    version: int
    sent_at_s: float
    reply: asyncio.Future[Reply | None]
    lease: Timeout[OpenDispatch] | None = None
    released: bool = False
    abandoned: str = ""
    like: Alike | None = None
    sent: Packed | None = None

    @property
    def client(self) -> int:
        """The client that it went to."""
        return self.header.receiver


class Arrival(NamedTuple):
    """A reply of a driven cohort.

    Attributes:
        place: That of its dispatch.
        at_ns: When it arrives.
        message: The reply.
        like: What it has in common with others; None where it has nothing.
    """

    place: int
    at_ns: int
    message: Message | None
    like: Alike | None = None


class DrivenCohort(Protocol):
    """A cohort whose replies are known to come, all before a lease ends."""

    @property
    def headers(self) -> Sequence[Header]:
        """Those of the dispatches, in the order of sending."""

    def finish_with(self, take: Callable[[Iterable[Arrival]], object]) -> None:
        """Record all in its time; call a function with the replies when the last has come."""


class CohortDrivers(Protocol):
    """Drives cohorts without the loop."""

    def drive(
        self, headers: Sequence[Header], sent: Sequence[Packed | None], num_runnable: int
    ) -> DrivenCohort | None:
        """Return the cohort of dispatches that are sent now; None where the loop has to drive it.

        Args:
            headers: Those of the dispatches, in the order of sending.
            sent: What each carries.
            num_runnable: Tasks of the server that have not started yet.
        """


class OpenDispatches:
    """The server's open dispatches.

    Args:
        endpoint: Sends the frames.
        trace: Where they are recorded.
        num_clients: K.
        timeout_s: How long a lease is.
        read: Decodes the reply to a dispatch; None where replies are not coded.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        trace: Trace,
        num_clients: int,
        timeout_s: float,
        read: Callable[[OpenDispatch, Message], Message] | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._trace = trace
        self._num_clients = num_clients
        self._read = read
        self.set_timeout(timeout_s)
        self._open: dict[tuple[int, int], OpenDispatch] = {}
        self._busy = array("h", [0]) * num_clients  # open dispatches of each client that are not released
        # By exchange: how many dispatches each client has had.
        self._turns: dict[str, array[int]] = defaultdict(lambda: array("i", [0]) * num_clients)
        self._took_s: dict[str, array[float]] = {}  # by exchange; negative where it is not known
        trace.listen({"abandon": self._abandoned, "fault": self._struck, "retry": self._tried_again})

    def set_timeout(self, timeout_s: float) -> None:
        """Let leases that begin from now on last so long, s."""
        self._leases = Timeouts(timeout_s, self._expire)

    def busy(self) -> Array:
        """Return the clients with an open dispatch that is not released, ascending."""
        return np.flatnonzero(np.frombuffer(self._busy, np.int16))

    def predicted_s(self, exchange: Exchange, clients: Sequence[int]) -> list[float]:
        """Return how long clients are predicted to take: as long as last, or as they were waited for.

        Times are noted from the first prediction on, which knows of none: not every run has a use for them.
        """
        took_s = self.took_s(exchange.name)
        known = took_s[took_s >= 0]
        if not len(known):
            return []
        usual = float(np.median(known))
        return [usual if took_s[client] < 0 else float(took_s[client]) for client in clients]

    def took_s(self, exchange: str) -> Array:
        """Return how long each client took last in an exchange, or was waited for, ``[K]``, s: a view.

        Negative where it is not known. Times are noted from the first call on.
        """
        if exchange not in self._took_s:
            self._took_s[exchange] = array("d", [-1.0]) * self._num_clients
        return np.frombuffer(self._took_s[exchange])

    def remembered(self) -> dict[str, dict[str, Array]]:
        """Return the numbers of dispatches, and how long clients took, by exchange: copies."""
        took_s = {exchange: np.array(values) for exchange, values in self._took_s.items()}
        return {"turns": {name: np.array(counts) for name, counts in self._turns.items()}, "took_s": took_s}

    def remember(self, turns: Mapping[str, Array], took_s: Mapping[str, Array]) -> None:
        """Go on from what was remembered."""
        self._turns.update({exchange: array("i", counts) for exchange, counts in turns.items()})
        self._took_s.update({exchange: array("d", values) for exchange, values in took_s.items()})

    def next_numbers(self) -> dict[int, int]:
        """Return the number of the next dispatch of each client that has had one."""
        counts = sum((np.array(turns) for turns in self._turns.values()), np.zeros(self._num_clients, int))
        return {client: int(counts[client]) for client in np.flatnonzero(counts).tolist()}

    def header(self, client: int, exchange: str, round: int, merged: int) -> Header:  # noqa: A002
        """Return the header of a client's next dispatch, which is now taken.

        Args:
            client: The client.
            exchange: The exchange's name.
            round: The round's number.
            merged: The client's newest dispatch that was merged; -1 where there is none.
        """
        turns = self._turns[exchange]
        turn = turns[client]
        number = self.next_number(client)
        turns[client] = turn + 1
        return Header(SERVER, client, round, exchange, number, turn, merged)

    def next_number(self, client: int) -> int:
        """Return the number of a client's next dispatch."""
        return sum([counts[client] for counts in self._turns.values()])

    def send(self, header: Header, message: Packed | None, version: int) -> OpenDispatch:
        """Send a dispatch to a client, now.

        Args:
            header: From :meth:`header`.
            message: What is sent; None for no frame.
            version: The server's.
        """
        dispatch = self._opened(header, message, version)
        self._trace.record(DISPATCH, *dispatch_values(header))
        dispatch.lease = self._leases.start(dispatch)
        self._endpoint.send(header, message)
        return dispatch

    def _opened(self, header: Header, message: Packed | None, version: int) -> OpenDispatch:
        client, number = header.receiver, header.dispatch
        dispatch = OpenDispatch(header, version, now_s(), asyncio.Future(loop=running_loop()))
        if self._read is not None:
            dispatch.sent = message
        self._open[client, number] = dispatch
        self._busy[client] += 1
        return dispatch

    def send_together(
        self, cohort: DrivenCohort, sent: Sequence[Packed | None], version: int
    ) -> list[OpenDispatch]:
        """Send dispatches to a cohort whose replies all come before a lease ends."""
        dispatches = [
            self._opened(header, message, version)
            for header, message in zip(cohort.headers, sent, strict=True)
        ]
        cohort.finish_with(partial(self._take_all, dispatches))
        return dispatches

    def _take_all(self, dispatches: Sequence[OpenDispatch], replies: Iterable[Arrival]) -> None:
        for place, at_ns, message, like in replies:
            dispatches[place].like = like
            self._settle(dispatches[place], message, at_ns / 1e9)

    def take(self, delivery: Delivery) -> None:
        """Settle the dispatch that a reply belongs to; one that nobody waits for any more is late."""
        header = delivery.header
        client, number = header.sender, header.dispatch
        dispatch = self._open.get((client, number))
        if dispatch is None or dispatch.reply.done():
            self._trace.record(LATE, client, number)
            return
        self._settle(dispatch, delivery.message, now_s())

    def _settle(self, dispatch: OpenDispatch, message: Message | None, at_s: float) -> None:
        header, lease = dispatch.header, dispatch.lease
        client, exchange = header.receiver, header.exchange
        if message is not None and self._read is not None:
            message, dispatch.sent = self._read(dispatch, message), None
        if lease is not None:
            lease.cancel()
        if (took_s := self._took_s.get(exchange)) is not None:
            took_s[client] = at_s - dispatch.sent_at_s
        dispatch.reply.set_result(Reply(client, header.dispatch, exchange, dispatch.version, 0, 1.0, message))

    def release(self, dispatch: OpenDispatch) -> None:
        """Count its client as busy with it no longer."""
        if dispatch.released:
            return
        dispatch.released = True
        self._busy[dispatch.header.receiver] -= 1

    def close(self, dispatch: OpenDispatch, cause: str = "too late", *, discarded: bool = False) -> None:
        """Forget a dispatch; without a reply until now, or if that is ``discarded``, it counts as dropped.

        Raises:
            InvariantError: It was closed before, or before its reply, which was known to come.
        """
        header = dispatch.header
        client, number = header.receiver, header.dispatch
        if self._open.pop((client, number), None) is None:
            raise InvariantError(
                f"dispatch {number} of client {client} was merged before: a pacing merges each dispatch once"
            )
        self.release(dispatch)
        reply = dispatch.reply
        if not reply.done():
            if dispatch.lease is None:
                raise InvariantError(
                    f"dispatch {number} of client {client} was closed before its reply came: a pacing that "
                    "does not always wait for all replies says so in waits_for_all"
                )
            dispatch.lease.cancel()
            # It takes at least as long as it was waited for; were it forgotten, predictions would creep down.
            if (took_s := self._took_s.get(header.exchange)) is not None:
                took_s[client] = max(took_s[client], now_s() - dispatch.sent_at_s)
            self._drop(dispatch, cause)
        elif discarded and reply.result() is not None:
            self._drop(dispatch, cause)

    def all_open(self) -> Sequence[OpenDispatch]:
        """Return the dispatches that are not closed, in the order in which they were sent."""
        return list(self._open.values())

    def discard_all(self, cause: str) -> None:
        """Close all that are open; each counts as dropped, also one whose reply was not merged yet."""
        for dispatch in self.all_open():
            self.close(dispatch, cause, discarded=True)

    def _drop(self, dispatch: OpenDispatch, cause: str) -> None:
        """Record that a client has not replied in time, by what it was abandoned for if it was."""
        self._trace.record(DROP, dispatch.client, dispatch.header.dispatch, dispatch.abandoned or cause)

    def _expire(self, dispatch: OpenDispatch) -> None:
        if not dispatch.reply.done():
            self._drop(dispatch, "timeout")
            dispatch.reply.set_result(None)

    def _abandoned(self, at_ns: int, client: int, number: int, cause: str) -> None:
        """Note what the trace says; nobody acts on it before the lease runs out."""
        if (dispatch := self._open.get((client, number))) is not None:
            dispatch.abandoned = cause

    def _struck(self, at_ns: int, client: int, number: int, up: bool, kind: str) -> None:
        """Note a fault of the network, likewise."""
        if kind in FATAL:
            self._abandoned(at_ns, client, number, kind)

    def _tried_again(self, at_ns: int, client: int, number: int, up: bool) -> None:
        """Note that a frame with a fault is sent again."""
        self._abandoned(at_ns, client, number, "")
