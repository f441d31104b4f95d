"""Which process hosts which client, dispatches that are not replied to, and questions without an answer."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from fedsim.bus.base import Header
from fedsim.bus.http.access import ClientRanges
from fedsim.bus.http.limits import HttpLimits
from fedsim.bus.http.messages import ProtocolError
from fedsim.bus.http.transfers import Incoming, Outgoing
from fedsim.quoting import shortened
from fedsim.wire import Frame, Packed


class Refused(ProtocolError):  # noqa: N818
    """What a process asks for is refused.

    Args:
        why: For the log, and for the process.
        cause: As what it is counted.
        status: Of the answer; 409 to who joins and shall not try again, 503 if it may be let in later.
    """

    def __init__(self, why: str = "", cause: str = "refused", status: int = 409) -> None:
        super().__init__(why or f"status {status}")
        self.cause, self.status = cause, status


Key = tuple[int, ...]
"""Client and dispatch, or the number of an observer's question."""


class Upload(Incoming):
    """A large reply or answer on its way up.

    Attributes:
        is_busy: Whether a request is at it.
        first_ns: When its first bytes came; negative before.
    """

    is_busy = False
    first_ns = -1


@dataclass(eq=False)
class Dispatch:
    """A dispatch to a client, until its reply is taken.

    Attributes:
        header: Its header.
        packed: Its message; None for a header alone, and for one that is settled.
        frame: Its frame, likewise.
        left: Done when the frame has left, or never will.
        at_s: When it was sent.
        is_small: Whether its frame goes with the outbox, or there is none.
        row: Its row in the ledger, until its end is there; -1 before and after, and for a header alone.
        began_ns: When it was last put on a connection; negative before.
        had_ns: When it was first known to have arrived; negative before.
        session: The process that it goes to; None while there is none.
        number: Its number in that process's outbox.
        outgoing: Its frame as it is fetched, whose SHA-256 is computed once; None before, and once settled.
        key: Client and dispatch.
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
    outgoing: Outgoing | None = None

    def __post_init__(self) -> None:
        self.key: Key = (self.header.client, self.header.dispatch)

    def released(self) -> None:
        """Note that the frame has left."""
        if not self.left.done():
            self.left.set_result(None)


@dataclass(slots=True, eq=False)
class Session:
    """A client process.

    Attributes:
        secret: Its name, known to nobody else.
        clients: The clients that it hosts.
        token: What it showed when it joined; every later request shows the same.
        limits: Its rates.
        heard_s: When it was last heard of.
        gone_s: Since when it has no outbox.
        last: The highest number given to a dispatch.
        queue: What the outbox has to write: dispatches, and entries.
        wake: Set when there is something.
        unconfirmed: Dispatches written and not known to have arrived, ascending.
        uploads: Large replies and answers on their way, by client and dispatch, or by question.
        abort: Breaks the connection of its outbox; None while it has none.
        is_ready: Whether it understands messages already.
        has_begun: Whether it has had an outbox, and so the answer to its join.
        has_left: Whether it has left, for good as far as it knows.
        num_requests: Requests under way, beside the outbox.
        num_waiting: Those of them that wait for somebody to receive.
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
    uploads: dict[Key, Upload] = field(default_factory=dict)
    abort: Callable[[], None] | None = None
    is_ready: bool = False
    has_begun: bool = False
    has_left: bool = False
    num_requests: int = 0
    num_waiting: int = 0
    _tokens: float = 0.0
    _at_s: float = float("-inf")

    @property
    def held_bytes(self) -> int:
        """Bytes held of its large replies and answers."""
        return sum(upload.held for upload in self.uploads.values())

    def put(self, dispatch: Dispatch) -> None:
        """Send a dispatch."""
        self.last += 1
        dispatch.session, dispatch.number = self, self.last
        self.say(dispatch)

    def say(self, one: Dispatch | bytes) -> None:
        """Write a dispatch or an entry, if there is an outbox."""
        if self.abort is not None:
            self.queue.append(one)
            self.wake.set()

    def begin(self, abort: Callable[[], None], after: int, dispatches: Iterable[Dispatch]) -> None:
        """Begin with an outbox; dispatches of a higher number than the process has read go (again)."""
        if self.abort is not None:  # it has come back before its old connection was known to be dead
            self.abort()
        self.abort, self.has_begun = abort, True
        self.queue = deque(one for one in dispatches if one.session is self and one.number > after)
        # What the process has not had is entered again when it goes out.
        self.unconfirmed = deque(one for one in self.unconfirmed if one.number <= after)
        self.wake.set()

    def confirmed(self, number: int) -> Iterator[Dispatch]:
        """Yield the dispatches up to a number that were not known to have arrived."""
        while self.unconfirmed and self.unconfirmed[0].number <= number:
            yield self.unconfirmed.popleft()

    def heard(self) -> None:
        """Note that the process lives."""
        self.heard_s = asyncio.get_running_loop().time()

    def idle(self) -> None:
        """Count a request that has brought nothing that was asked for.

        Raises:
            Refused: There were too many.
        """
        limits, now_s = self.limits, asyncio.get_running_loop().time()
        self._tokens = min(limits.idle_burst, self._tokens + (now_s - self._at_s) * limits.idle_rate)
        self._at_s = now_s
        if self._tokens < 1:
            raise Refused(f"more than {limits.idle_rate:g} idle requests per second", "rate", 429)
        self._tokens -= 1


class Sessions:
    """Sessions by secret and by client.

    The clients of a session go to another one only once it has left, or has lost its connection and not come
    back for a while. Until then whoever wants them is refused or put off, unless it has the secret: then it
    is the same process, come back.

    Args:
        num_clients: Clients are numbered below it.
        limits: Most sessions, and the limits of each.
        retired: Is told of a session that is forgotten, and why.
        evicted: Is told that a reply was let go, for others.

    Attributes:
        dispatches: Those whose reply is not taken, by client and dispatch, in the order of sending.
    """

    def __init__(
        self,
        num_clients: int,
        limits: HttpLimits,
        retired: Callable[[Session, str], None],
        evicted: Callable[[], None] = lambda: None,
    ) -> None:
        self._num_clients = num_clients
        self._limits = limits
        self._retired = retired
        self._evicted = evicted
        self._sessions: dict[str, Session] = {}
        self._owner: dict[int, Session] = {}
        self.dispatches: dict[Key, Dispatch] = {}

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._sessions.values()))

    def __len__(self) -> int:
        return len(self._sessions)

    def owner(self, client: int) -> Session | None:
        """Return the session that hosts a client."""
        return self._owner.get(client)

    def find(self, secret: str, token: str | None) -> Session | None:
        """Return the session of a secret; None where there is none, or it showed another token."""
        session = self._sessions.get(secret)
        return session if session is not None and session.token == token else None

    def put(self, dispatch: Dispatch) -> None:
        """Give a dispatch to the session that hosts its client, now or once there is one."""
        self.dispatches[dispatch.key] = dispatch
        if (session := self._owner.get(dispatch.header.client)) is not None:
            session.put(dispatch)

    def drop(self, dispatch: Dispatch) -> None:
        """Forget a dispatch, and what has come of its reply."""
        self.dispatches.pop(dispatch.key, None)
        if dispatch.session is not None:
            dispatch.session.uploads.pop(dispatch.key, None)

    def admit(
        self, secret: str, clients: ClientRanges, granted: ClientRanges, token: str | None
    ) -> tuple[Session, bool]:
        """Return the session of a process that joins, and whether the process knows that it exists.

        Raises:
            Refused: It may not have what it wants, or not yet: there are too many sessions, or the process of
                its clients may come back.
        """
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
        """Forget a session; its dispatches wait for whoever hosts their clients next."""
        del self._sessions[session.secret]
        for client in session.clients:
            del self._owner[client]
        for dispatch in self.dispatches.values():
            if dispatch.session is session:
                dispatch.session = None
        self._retired(session, why)

    def lapse(self, before_s: float) -> list[Dispatch]:
        """Forget sessions without a connection since an instant; return dispatches that waited longer."""
        for session in self:
            if session.abort is None and session.gone_s < before_s:
                self.retire(session, "it was away for too long")
        return [one for one in self.dispatches.values() if one.session is None and one.at_s < before_s]

    def make_room(self, session: Session) -> bool:
        """Say whether more may be held of large replies and answers of a session.

        Those that no request is at are let go where there is no room: they are sent anew.
        """
        limits = self._limits
        most = max(limits.session_upload_bytes, limits.frame.frame_bytes)
        return self._is_below(most, [session]) and self._is_below(limits.upload_bytes, list(self))

    def _check_gone(self, other: Session, now_s: float) -> None:
        if other.abort is not None:
            raise Refused(
                f"the clients {shortened(other.clients)} are hosted by another process, which is connected: "
                "end that one, or give this one other clients. If that one has died without a word, "
                f"the server notices after {self._limits.silence_s:g} s of silence: start this one again then"
            )
        if not other.has_left and now_s < other.gone_s + self._limits.hold_s:
            raise Refused(f"the process of the clients {shortened(other.clients)} may come back", "busy", 503)

    def _is_below(self, most: int, sessions: list[Session]) -> bool:
        held = sum(session.held_bytes for session in sessions)
        for session in sessions if held >= most else ():
            for key, upload in list(session.uploads.items()):
                if held >= most and not upload.is_busy:
                    held -= upload.held
                    del session.uploads[key]
                    self._evicted()
        return held < most


@dataclass(slots=True, eq=False)
class Question:
    """An observer's question to a client, as it travels, and its answer."""

    client: int
    entry: bytes
    answer: asyncio.Future[bytes]

    def awaits(self, session: Session) -> bool:
        """Say whether a session is to answer it."""
        return self.client in session.clients and not self.answer.done()
