"""Edge aggregators in a round of the server (HierFAVG).

The server sends an edge what it would send each of the edge's clients, once. The edge has them train on it,
takes the mean of their replies, and has the same clients train on that; so ``rounds`` times. Then it sends
the last mean up. A client that has not replied when its lease runs out is left out of that mean; an edge
without any reply in one of its rounds goes on from what it had, and without any at all it sends nothing.

The mean takes no time, as at the server, and no frame of an edge and the server is lost.

Liu, Zhang, Song, Letaief: Client-Edge-Cloud Hierarchical Federated Learning, ICC 2020 (arXiv 1905.06641).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fedsim.algorithms.base import Exchange, Reply
from fedsim.bus import Header, MemoryBus
from fedsim.clock import RecordKind, Trace, now_s, running_loop, wait
from fedsim.errors import InvariantError
from fedsim.network import Parcel
from fedsim.network.edges import NO_EDGE, Edges, address_of
from fedsim.runtime.server.open_dispatches import OpenDispatch
from fedsim.runtime.tasks import Tasks
from fedsim.wire import SERVER, Message, ModelBroadcast, ModelUpdate, Packed, pack

EDGE_START = RecordKind(
    "edge_start", ("edge", "round", "up", "message", "bytes", "parameters", "data", "overhead")
)
"""A frame between an edge and the server is put on its links."""
EDGE_END = RecordKind("edge_end", ("edge", "round", "up", "outcome"))
"""It is delivered, or lost where the run ends before."""
EDGE_MERGE = RecordKind("edge_merge", ("round", "exchange", "edge", "clients", "dispatches"))
"""An edge averages replies; its fields are those of a merge, with the edge for the version."""

_DOWN = "what the server sends to clients of one edge differs, and the edge is sent one message for all"


class Asking(Protocol):
    """What an edge needs of the server's actor, for it asks clients as that does."""

    @property
    def round(self) -> int:
        """The number of the round."""

    @property
    def version(self) -> int:
        """How often the exchanges of rounds have been merged."""

    def send(self, exchange: Exchange, messages: Mapping[int, Message | Packed | None]) -> list[OpenDispatch]:
        """Send each client its message; ascending by client."""

    def average(
        self, edge: int, exchange: Exchange, dispatches: Sequence[OpenDispatch]
    ) -> tuple[ModelUpdate, float] | None:
        """Close all dispatches; return the mean of the replies that are there, and its weight beside."""


@dataclass(eq=False)
class EdgeServers:
    """The edges of a run.

    Attributes:
        edges: What they are.
        bus: Where frames travel.
        trace: Where their frames and means are recorded.
        tasks: Where their rounds live.
    """

    edges: Edges
    bus: MemoryBus
    trace: Trace
    tasks: Tasks

    def __post_init__(self) -> None:
        self._of = self.edges.of()
        self._under_way: dict[int, asyncio.Task[Reply | None]] = {}

    def dispatch(
        self, server: Asking, exchange: Exchange, messages: Mapping[int, Message | Packed | None]
    ) -> list[OpenDispatch]:
        """Send clients without an edge their messages, and have edges ask theirs.

        The reply to an edge's dispatch is its mean; None where nobody has replied.

        Raises:
            InvariantError: Messages to clients of one edge differ.
        """
        clients: dict[int, list[int]] = {}
        for client in sorted(messages):
            clients.setdefault(self._of.item(client), []).append(client)
        alone = {client: messages[client] for client in clients.pop(NO_EDGE, [])}
        dispatches = server.send(exchange, alone) if alone else []
        for edge, its in sorted(clients.items()):
            message = messages[its[0]]
            if not isinstance(message, ModelBroadcast) or any(messages[one] is not message for one in its):
                raise InvariantError(f"{_DOWN}: set no_edges in the algorithm")
            header = Header(SERVER, address_of(edge), server.round, exchange.name, server.round, 0)
            work = self._hold(server, edge, exchange, its, message)
            self._under_way[edge] = task = self.tasks.start(work, name=f"edge {self.edges.names[edge]}")
            dispatches.append(OpenDispatch(header, server.version, now_s(), task))
        return dispatches

    def stop(self) -> None:
        """End all that edges are at."""
        for task in self._under_way.values():
            task.cancel()
        self._under_way.clear()

    async def _hold(
        self, server: Asking, edge: int, exchange: Exchange, clients: Sequence[int], message: ModelBroadcast
    ) -> Reply | None:
        """Hold an edge's rounds, and return its reply to the server."""
        message = await self._carry(edge, server.round, exchange, pack(message), up=False)
        mean = None
        for _ in range(self.edges.rounds[edge]):
            dispatches = server.send(exchange, dict.fromkeys(clients, message))
            await wait([dispatch.reply for dispatch in dispatches])
            if (newest := server.average(edge, exchange, dispatches)) is not None:
                mean = newest
                message = ModelBroadcast.of(newest[0].model)
        if mean is None:
            return None
        update, weight = mean
        update = await self._carry(edge, server.round, exchange, pack(update), up=True)
        return Reply(address_of(edge), server.round, exchange.name, server.version, 0, weight, update)

    async def _carry(self, edge: int, number: int, exchange: Exchange, packed: Packed, *, up: bool) -> Any:
        """Let a message cross the links of an edge and the server; return it as it arrives."""
        on_link, crossing = self.bus.on_link(packed, exchange.name, up=up), _Crossing()
        ends = (address_of(edge), SERVER) if up else (SERVER, address_of(edge))
        self.trace.record(EDGE_START, edge, number, up, *on_link.what)
        passage = self.bus.carrier.carry(Parcel(*ends, on_link.link_bytes, packed), crossing)
        outcome = "lost"
        try:
            await crossing.is_over
            outcome = "delivered"
        finally:
            passage.cancel()
            self.trace.record(EDGE_END, edge, number, up, outcome)
        if self.bus.verify:
            header = Header(SERVER, SERVER, number, exchange.name, 0, 0)  # edges have no address in a frame
            frame = packed.frame(sender=SERVER, receiver=SERVER, round=number, exchange=exchange.name)
            self.bus.read(header, frame)
        return packed.received


class _Crossing:
    """Listens to a frame of an edge.

    Attributes:
        is_over: Done once it has arrived.
    """

    def __init__(self) -> None:
        self.is_over: asyncio.Future[None] = running_loop().create_future()

    def left(self) -> None:
        """Nothing depends on when it leaves."""

    def arrived(self, parcel: Parcel) -> None:
        """It has arrived."""
        if not self.is_over.done():  # cancelled with the run
            self.is_over.set_result(None)

    def lost(self, cause: str) -> None:
        """Faults are for frames of clients."""
        raise InvariantError(f"a frame of an edge is lost: {cause}")
