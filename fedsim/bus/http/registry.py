"""Which process hosts which client, and where deliveries wait that nobody can take yet."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator

from fedsim.bus.http.access import ClientRanges
from fedsim.bus.http.control import PROTOCOL, Control
from fedsim.bus.http.limits import HttpLimits
from fedsim.bus.http.peer import Ask, Peer
from fedsim.bus.http.session import Inbox, SessionError, encode
from fedsim.errors import UserError
from fedsim.quoting import shortened


class Refusal(Exception):  # noqa: N818
    """A process is told to go away for good; the text says why."""


class Busy(Exception):  # noqa: N818
    """A process may come back later."""


class Registry:
    """Sessions by name and by client.

    The clients of a session go to another one only once it has said goodbye, or has lost its connection and
    not come back for a while. Until then whoever wants them is refused or put off, unless it names the
    session, which nobody else knows: then it is the same process, come back.

    Args:
        num_clients: Clients are numbered below it.
        limits: Most sessions, and the limits of each.
        retired: Is told of a session that is forgotten, and why.
    """

    def __init__(self, num_clients: int, limits: HttpLimits, retired: Callable[[Peer, str], None]) -> None:
        self._num_clients = num_clients
        self._limits = limits
        self._retired = retired
        self._peers: dict[str, Peer] = {}
        self._owner: dict[int, Peer] = {}
        self._homeless: dict[int, deque[Ask]] = {}

    def __iter__(self) -> Iterator[Peer]:
        return iter(list(self._peers.values()))

    def __len__(self) -> int:
        return len(self._peers)

    def owner(self, client: int) -> Peer | None:
        """Return the session that hosts a client."""
        return self._owner.get(client)

    def find(self, session: str | None, token: str | None) -> Peer | None:
        """Return the session of a name; None where there is none, or it showed another token."""
        peer = self._peers.get(session or "")
        return peer if peer is not None and peer.token == token else None

    def put(self, ask: Ask) -> None:
        """Give a delivery to the session that hosts its client, now or once there is one."""
        peer = self._owner.get(ask.header.client)
        if peer is not None:
            peer.put(ask)
            return
        ask.peer, ask.number = None, 0
        self._homeless.setdefault(ask.header.client, deque()).append(ask)

    def drop(self, ask: Ask) -> None:
        """Forget a delivery."""
        if ask.peer is not None:
            ask.peer.settle(ask)
        elif (waiting := self._homeless.get(ask.header.client)) is not None and ask in waiting:
            waiting.remove(ask)
            if not waiting:
                del self._homeless[ask.header.client]

    def admit(self, hello: Control, granted: ClientRanges, token: str | None) -> tuple[Peer, bool]:
        """Return the session of a process that says hello, and whether it existed before.

        Raises:
            SessionError: What it says cannot be so.
            Refusal: It may not have what it wants.
            Busy: There are too many sessions, or the process of its clients may come back.
        """
        values = hello.values
        if values["proto"] != PROTOCOL:
            raise Refusal(
                f"the process speaks protocol {values['proto']}, this server {PROTOCOL}: "
                "install the same version of fedsim at both sides"
            )
        try:
            clients = ClientRanges.parse(values["clients"])
        except UserError as error:
            raise SessionError(f"hello.clients: {error}") from None
        if clients.highest >= self._num_clients:
            raise Refusal(
                f"client {clients.highest} does not exist: this run has {self._num_clients} clients, from 0"
            )
        if not granted.covers(clients):
            raise Refusal(
                f"the token grants the clients {shortened(granted)}, not all of {shortened(clients)}"
            )
        known = self._peers.get(values["session"])
        if known is not None:
            if known.token != token or known.clients != clients:
                raise Refusal("this session belongs to another process: join anew")
            return known, True
        return self._new(values["session"], clients, token, values["base"]), False

    def retire(self, peer: Peer, why: str) -> None:
        """Forget a session; its deliveries wait for whoever hosts their clients next."""
        self._forget(peer)
        for ask in peer.asks():
            self.put(ask)
        self._retired(peer, why)

    def dismiss(self, since: float) -> bool:
        """Say goodbye to all that are connected; say whether to go on waiting.

        That is as long as one is connected, or has lost its connection since an instant and may come back.
        """
        for peer in self:
            if peer.link is not None and not peer.link.is_finishing:
                peer.link.finish(encode("bye"))
        return any(peer.link is not None or (peer.gone_at >= since and not peer.has_left) for peer in self)

    def lapse(self, before_s: float) -> Iterator[Ask]:
        """Forget sessions without a connection since an instant; yield deliveries that waited longer."""
        for peer in self:
            if peer.link is None and peer.gone_at < before_s:
                self.retire(peer, "it was away for too long")
        late = [ask for asks in self._homeless.values() for ask in asks if ask.at_s < before_s]
        for ask in late:
            self.drop(ask)
            yield ask

    def _new(self, session: str, clients: ClientRanges, token: str | None, base: int) -> Peer:
        others = self._owners(clients)
        for other in others:
            if other.link is None and not other.has_left:
                if asyncio.get_running_loop().time() < other.gone_at + self._limits.hold_s:
                    raise Busy(f"the process of the clients {shortened(other.clients)} may come back")
            elif other.link is not None:
                silence_s = self._limits.heartbeat_s * self._limits.heartbeat_misses
                raise Refusal(
                    f"the clients {shortened(other.clients)} are hosted by another process, which is "
                    "connected: end that one, or give this one other clients. If that one has died without "
                    f"a word, the server notices after {silence_s:g} s of silence: start this one again then"
                )
        if len(self._peers) - len(others) >= self._limits.max_sessions:
            raise Busy(f"{len(self._peers)} sessions are open, the limit is {self._limits.max_sessions}")
        for other in others:
            self.retire(other, "it was away, and another process has taken its clients over")
        peer = self._peers[session] = Peer(session, clients, token, self._limits, Inbox(base))
        for client in clients:
            self._owner[client] = peer
        homeless = self._homeless
        for client in clients if len(clients) < len(homeless) else list(homeless):
            if client in clients:
                for ask in homeless.pop(client, ()):
                    peer.put(ask)
        return peer

    def _owners(self, clients: ClientRanges) -> list[Peer]:
        return list(dict.fromkeys(self._owner[client] for client in clients if client in self._owner))

    def _forget(self, peer: Peer) -> None:
        self._peers.pop(peer.session, None)
        for client in peer.clients:
            if self._owner.get(client) is peer:
                del self._owner[client]
