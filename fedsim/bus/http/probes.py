"""The observer's questions to clients, from the server's side: apart from ledger, numbering and replay."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from itertools import count

from fedsim.bus.http.limits import HttpLimits
from fedsim.bus.http.peer import Peer
from fedsim.bus.http.session import Control, SessionError, encode
from fedsim.errors import RunError


@dataclass(slots=True, eq=False)
class _Probe:
    """A question to a client, as it travels; its answer, or why there is none; what has arrived of it."""

    client: int
    message: bytes
    answer: asyncio.Future[bytes]
    pieces: bytearray = field(default_factory=bytearray)


class Probes:
    """Questions that are not answered; each is asked again on a new connection, until its asker gives up."""

    def __init__(self, limits: HttpLimits) -> None:
        self._limits = limits
        self._probes: dict[int, _Probe] = {}
        self._numbers = count(1)

    async def ask(self, client: int, question: bytes, timeout_s: float, host: Peer | None) -> bytes:
        """Ask a client, whose host is given if there is one; see :meth:`HttpServer.probe`.

        Raises:
            TimeoutError: No answer in time.
            RunError: The process could not answer, and says why.
            ConnectionError: The server has closed.
            ValueError: A question that is too long for one message.
        """
        if len(question) > self._limits.small_frame_bytes:
            raise ValueError(
                f"a question of {len(question)} bytes: at most {self._limits.small_frame_bytes} fit"
            )
        number = next(self._numbers)
        message = encode("ask", id=number, client=client) + question
        probe = _Probe(client, message, asyncio.get_running_loop().create_future())
        self._probes[number] = probe
        if host is not None and host.link is not None and host.is_ready:
            host.link.say(message)
        try:
            async with asyncio.timeout(timeout_s):
                return await probe.answer
        finally:
            del self._probes[number]

    def ask_again(self, host: Peer) -> None:
        """Ask what is still to be asked of a process that has come (back)."""
        if host.link is not None:
            for probe in self._probes.values():
                if probe.client in host.clients and not probe.answer.done():
                    host.link.say(probe.message)

    def told(self, host: Peer, said: Control) -> bool:
        """Take a piece of an answer, or why there is none; say whether there was such a question.

        Raises:
            SessionError: The piece is not the next, or the answer is too long.
        """
        probe = self._probes.get(said.values["id"])
        if probe is None or probe.answer.done() or probe.client not in host.clients:
            return False
        if said.word == "fault":
            why = said.values["why"]
            probe.answer.set_exception(RunError(f"the process of client {probe.client} cannot answer: {why}"))
            return True
        at, total = said.values["at"], said.values["of"]
        if at == 0:
            probe.pieces.clear()
        if at != len(probe.pieces) or total > self._limits.probe_bytes or at + len(said.body) > total:
            raise SessionError(f"an answer of {total} bytes goes on at {at}, {len(probe.pieces)} are here")
        probe.pieces += said.body
        if len(probe.pieces) == total:
            probe.answer.set_result(bytes(probe.pieces))
        elif not said.body:
            raise SessionError("a piece of an answer is empty")
        return True

    def close(self) -> None:
        """Let nobody wait any more."""
        for probe in self._probes.values():
            if not probe.answer.done():
                probe.answer.set_exception(ConnectionError("the server has closed"))
