"""Sessions of client processes, open dispatches, and the observer's open questions."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from fedsim.bus.base import Header
from fedsim.bus.http.access import ClientRanges
from fedsim.bus.http.limits import HttpLimits
from fedsim.bus.http.messages import ProtocolError
from fedsim.quoting import shortened
from fedsim.wire import Frame, Packed


class Refused(ProtocolError):  # noqa: N818
    """A request is refused: status 409 for good, 503 if the process may try again."""

    def __init__(self, why: str = "", cause: str = "refused", status: int = 409) -> None:
        super().__init__(why or f"status {status}")
        self.cause, self.status = cause, status


Key = tuple[int, ...]
"""Client and dispatch, or the number of an observer's question."""


@dataclass(eq=False)
class Dispatch:
    """A dispatch to a client until its reply is taken; ``packed`` and ``frame`` are None once it is settled.

    ``row`` is its open row in the ledger, ``began_ns`` when it was last sent, ``had_ns`` when it was
    confirmed (each negative where there is none); ``number`` is its number in the outbox of ``session``.
    """

    header: Header
    packed: Packed | None
    frame: Frame | None
    left: asyncio.Future[None]
    at_s: float
    is_small: bool = True
    row: int = -1
    began_ns: int = -1
    had_ns: int = -1
    session: Session | None = None
    number: int = 0

    def __post_init__(self) -> None:
        self.key: Key = (self.header.client, self.header.dispatch)

    def released(self) -> None:
        """Tell the sender that the frame has left."""
        if not self.left.done():
            self.left.set_result(None)


@dataclass(slots=True, eq=False)
class Session:
    """A client process.

    Attributes:
        secret: Its name, known to nobody else.
        token: What it showed when it joined; every later request shows the same.
        last: The highest number given to a dispatch.
        queue: Dispatches and entries for the outbox.
        unconfirmed: Dispatches written but not confirmed, in ascending order.
        upload_bytes: Bytes of large replies and answers that are read now.
        abort: Breaks the connection of the outbox; None while there is none.
        is_ready: Whether it understands messages already.
        has_begun: Whether it has had an outbox, and so the answer to its join.
        num_requests: Requests under way, beside the outbox.
        num_waiting: Those of them that wait for room in the inbox.
    """

    secret: str = field(repr=False)
    clients: ClientRanges
    token: str | None = field(repr=False)
    limits: HttpLimits
    heard_s: float
    gone_s: float
    last: int = 0
    queue: deque[Dispatch | bytes] = field(default_factory=deque)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    unconfirmed: deque[Dispatch] = field(default_factory=deque)
    upload_bytes: int = 0
    abort: Callable[[], None] | None = None
    is_ready: bool = False
    has_begun: bool = False
    has_left: bool = False
    num_requests: int = 0
    num_waiting: int = 0
    _tokens: float = 0.0
    _at_s: float = float("-inf")

    def put(self, dispatch: Dispatch) -> None:
        """Send a dispatch."""
        self.last += 1
        dispatch.session, dispatch.number = self, self.last
        self.say(dispatch)

    def say(self, item: Dispatch | bytes) -> None:
        """Write a dispatch or an entry, if there is an outbox."""
        if self.abort is not None:
            self.queue.append(item)
            self.wake.set()

    def begin(self, abort: Callable[[], None], after: int, dispatches: Iterable[Dispatch]) -> None:
        """Open an outbox; dispatches with a number above ``after`` are sent (again)."""
        if self.abort is not None:  # it has come back before its old connection was known to be dead
            self.abort()
        self.abort, self.has_begun = abort, True
        self.queue = deque(each for each in dispatches if each.session is self and each.number > after)
        # The others become unconfirmed again when they are written.
        self.unconfirmed = deque(each for each in self.unconfirmed if each.number <= after)
        self.wake.set()

    def confirmed(self, number: int) -> Iterator[Dispatch]:
        """Yield the unconfirmed dispatches up to a number."""
        while self.unconfirmed and self.unconfirmed[0].number <= number:
            yield self.unconfirmed.popleft()

    def heard(self) -> None:
        """Note that the process lives."""
        self.heard_s = asyncio.get_running_loop().time()

    def idle(self) -> None:
        """Count a request that brought nothing that was asked for; too many are refused."""
        limits, now_s = self.limits, asyncio.get_running_loop().time()
        self._tokens = min(limits.idle_burst, self._tokens + (now_s - self._at_s) * limits.idle_rate)
        self._at_s = now_s
        if self._tokens < 1:
            raise Refused(f"more than {limits.idle_rate:g} idle requests per second", "rate", 429)
        self._tokens -= 1


class Sessions:
    """Sessions by secret and by client.

    The clients of a session go to another one only once it has left, or has been without a connection for a
    while. Until then other processes are refused or put off. A process with the same secret is the same one.
    ``dispatches`` are the open ones, in the order of sending.
    """

    def __init__(
        self,
        num_clients: int,
        limits: HttpLimits,
        retired: Callable[[Session, str], None],
    ) -> None:
        self._num_clients = num_clients
        self._limits = limits
        self._retired = retired
        self._sessions: dict[str, Session] = {}
        self._owner: dict[int, Session] = {}
        self._upload_bytes = 0
        self.dispatches: dict[Key, Dispatch] = {}

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._sessions.values()))

    def __len__(self) -> int:
        return len(self._sessions)

    def owner(self, client: int) -> Session | None:
        """Return the session that hosts a client."""
        return self._owner.get(client)

    def find(self, secret: str, token: str | None) -> Session | None:
        """Return the session of a secret; None without one, or if its token was another."""
        session = self._sessions.get(secret)
        return session if session is not None and session.token == token else None

    def put(self, dispatch: Dispatch) -> None:
        """Give a dispatch to the session that hosts its client, now or once there is one."""
        self.dispatches[dispatch.key] = dispatch
        if (session := self._owner.get(dispatch.header.client)) is not None:
            session.put(dispatch)

    def admit(
        self, secret: str, clients: ClientRanges, granted: ClientRanges, token: str | None
    ) -> tuple[Session, bool]:
        """Return the session of a process that joins, and whether the process knows it; or refuse it."""
        if clients.highest >= self._num_clients:
            raise Refused(
                f"client {clients.highest} does not exist: this run has {self._num_clients} clients, from 0"
            )
        if not granted.covers(clients):
            raise Refused(
                f"the token grants the clients {shortened(granted)}, not all of {shortened(clients)}"
            )
        known = self._sessions.get(secret)
        if known is not None:
            if known.token != token or known.clients != clients:
                raise Refused("this session belongs to another process: join anew")
            return known, known.has_begun
        now_s = asyncio.get_running_loop().time()
        others = dict.fromkeys(self._owner[client] for client in clients if client in self._owner)
        for other in others:
            self._check_gone(other, now_s)
        if len(self._sessions) - len(others) >= self._limits.max_sessions:
            most = self._limits.max_sessions
            raise Refused(f"{len(self._sessions)} sessions are open, the limit is {most}", "busy", 503)
        for other in others:
            self.retire(other, "it was away, and another process has taken its clients over")
        session = Session(secret, clients, token, self._limits, now_s, now_s)
        self._sessions[secret] = session
        self._owner.update(dict.fromkeys(clients, session))
        for dispatch in self.dispatches.values():
            if dispatch.header.client in clients:
                session.put(dispatch)
        return session, False

    def retire(self, session: Session, why: str) -> None:
        """Forget a session; its dispatches wait for the next one of their clients."""
        del self._sessions[session.secret]
        for client in session.clients:
            del self._owner[client]
        for dispatch in self.dispatches.values():
            if dispatch.session is session:
                dispatch.session = None
        self._retired(session, why)

    def lapse(self, before_s: float) -> list[Dispatch]:
        """Forget sessions without a connection since then; return dispatches without a session since then."""
        for session in self:
            if session.abort is None and session.gone_s < before_s:
                self.retire(session, "it was away for too long")
        return [each for each in self.dispatches.values() if each.session is None and each.at_s < before_s]

    @contextmanager
    def room(self, session: Session, num_bytes: int) -> Iterator[None]:
        """Reserve memory for a large reply or answer; refuse it for now where there is none."""
        limits = self._limits
        # One of the longest length fits, whatever the limits say.
        for used, limit in (
            (session.upload_bytes, limits.session_upload_bytes),
            (self._upload_bytes, limits.upload_bytes),
        ):
            if used and used + num_bytes > limit:
                raise Refused(cause="full", status=503)
        session.upload_bytes += num_bytes
        self._upload_bytes += num_bytes
        try:
            yield
        finally:
            session.upload_bytes -= num_bytes
            self._upload_bytes -= num_bytes

    def _check_gone(self, other: Session, now_s: float) -> None:
        if other.abort is not None:
            raise Refused(
                f"the clients {shortened(other.clients)} are hosted by another process, which is connected: "
                "end that one, or give this one other clients. If that one has died without a word, "
                f"the server notices after {self._limits.silence_s:g} s of silence: start this one again then"
            )
        if not other.has_left and now_s < other.gone_s + self._limits.hold_s:
            raise Refused(f"the process of the clients {shortened(other.clients)} may come back", "busy", 503)


@dataclass(slots=True, eq=False)
class Question:
    """An observer's question to a client, and its answer."""

    client: int
    entry: bytes
    answer: asyncio.Future[bytes]

    def awaits(self, session: Session) -> bool:
        """Whether this session is to answer it."""
        return self.client in session.clients and not self.answer.done()
