"""Clients' states from afar, for the observer at the server; whoever sends them may lie."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedsim.algorithms.contexts import Initial
from fedsim.bus import Log
from fedsim.clock import Trace
from fedsim.errors import DecodeError, RunError
from fedsim.models import Architectures
from fedsim.params import Model, Tree
from fedsim.quoting import MOST_SAID, quoted, shortened
from fedsim.runtime.clients.contexts import Contexts
from fedsim.runtime.clients.host import Held
from fedsim.runtime.parts import Parts
from fedsim.runtime.sockets import state_encoding
from fedsim.walk import instances

if TYPE_CHECKING:
    from fedsim.bus.http.server import HttpServer

QUESTION = b"held"
"""What the observer asks a client's process: the bytes of what the client holds, or none if nothing."""

PATIENCE_S = 30.0
"""So long the observer waits for a client that was there before and is not now."""

AT_ONCE = 64
"""Clients of whom the observer asks at once."""


class RemoteStates:
    """Fetches the states of clients from their processes; apart from the run, so no ledger has a row of it.

    A client that was never asked, or whose process has not been seen, has the state that it joins with. So,
    with a warning, has one whose process does not answer, or with what is no state of this algorithm.
    """

    def __init__(
        self, parts: Parts, bus: HttpServer, contexts: Contexts, initial: Initial, trace: Trace, log: Log
    ) -> None:
        self._bus = bus
        self._contexts = contexts
        self._initial = initial
        self._architectures = Architectures(parts.architectures)
        self._classes = state_encoding.classes_of(parts.algorithm)
        self._log = log
        # Both are asked for membership only: a set has no order.
        self._asked = set[int]()
        self._seen = {client for client in range(parts.data.num_clients) if bus.attended(client)}
        trace.listen({"dispatch": lambda at_ns, client, *_: self._asked.add(client)})
        self._gate = asyncio.Semaphore(AT_ONCE)

    async def __call__(self, clients: Mapping[int, int]) -> Sequence[Any]:
        """Return the states of clients, told the newest merged dispatch of each."""
        patient_until_s = asyncio.get_running_loop().time() + PATIENCE_S
        return await asyncio.gather(
            *(self._one(client, merged, patient_until_s) for client, merged in clients.items())
        )

    async def _one(self, client: int, merged: int, patient_until_s: float) -> Any:
        if self._bus.attended(client):
            self._seen.add(client)
        if client not in self._asked or client not in self._seen:
            return self._contexts.joined(client)
        try:
            async with self._gate, asyncio.timeout_at(patient_until_s):
                await self._bus.attendance([client])
                data = await self._bus.probe(client, QUESTION, PATIENCE_S)
            if data:
                return self._checked(data).settled(merged)
        except (TimeoutError, DecodeError, RunError) as error:
            reason = str(error) or "its process does not answer"
            self._log.warning("evaluated as it joined", client=client, reason=shortened(reason, MOST_SAID))
        return self._contexts.joined(client)

    def _checked(self, data: bytes) -> Held:
        held = state_encoding.decode_held(data, self._classes)
        for model in instances(held, Model):
            label = model.architecture
            like = self._architectures.start(label, self._initial)
            if like is None or not (
                _alike(model.params, like.params) and _alike(model.buffers, like.buffers)
            ):
                raise DecodeError(f"a model that calls itself {quoted(label)} and is not one")
        return held


def _alike(left: Tree, right: Tree) -> bool:
    return list(left) == list(right) and all(
        (array.dtype, array.shape) == (right[name].dtype, right[name].shape) for name, array in left.items()
    )
