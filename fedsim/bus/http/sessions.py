"""Which process hosts which client, and the dispatches that are not replied to."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from fedsim.bus.base import Header
from fedsim.bus.http.access import ClientRanges
from fedsim.bus.http.limits import HttpLimits
from fedsim.bus.http.transfers import Incoming, Outgoing
from fedsim.quoting import shortened
from fedsim.wire import Frame, Packed


class Refusal(Exception):  # noqa: N818
    """A process is told to go away for good; the text says why."""


class Busy(Exception):  # noqa: N818
    """A process may come back later."""


@dataclass(slots=True, eq=False)
class Upload:
    """A large reply on its way up.

    Attributes:
        incoming: Its bytes.
        is_busy: Whether a request is at it.
        first_ns: When its first bytes came; negative before.
        whole_ns: When it was whole; negative before.
    """

    incoming: Incoming
    is_busy: bool = False
    first_ns: int = -1
    whole_ns: int = -1


@dataclass(slots=True, eq=False)
class Dispatch:
    """A dispatch to a client, until its reply is taken.

    Attributes:
        header: Its header.
        packed: Its message; None for a header alone, and for one that is settled.
        frame: Its frame, likewise.
        left: Done when the frame has left, or never will.
        at_s: When it was sent.
        row: Its row in the ledger; -1 before it was put on a connection, and for a header alone.
        began_ns: When it was last put on a connection; negative before.
        had_ns: When it was first known to have arrived; negative before.
        has_ended: Whether its end is in the ledger.
        session: The process that it goes to; None while there is none.
        number: Its number in that process's outbox.
        upload: Its reply on the way, if that is large.
    """

    header: Header
    packed: Packed | None
    frame: Frame | None
    left: asyncio.Future[None]
    at_s: float
    row: int = -1
    began_ns: int = -1
    had_ns: int = -1
    has_ended: bool = False
    session: Session | None = None
    number: int = 0
    upload: Upload | None = None
    _outgoing: Outgoing | None = None

    def released(self) -> None:
        """Note that the frame has left."""
        if not self.left.done():
            self.left.set_result(None)

    def outgoing(self, frame: Frame) -> Outgoing:
        """Return the frame as it is fetched, whose SHA-256 is computed once."""
        if self._outgoing is None:
            self._outgoing = Outgoing(frame.parts)
        return self._outgoing


@dataclass(slots=True, eq=False)
class Session:
    """A client process.

    Attributes:
        secret: Its name, known to nobody else.
        clients: The clients that it hosts.
        token: What it showed when it joined; every later request shows the same.
        limits: Its rates.
        open: The dispatches to it that are not settled, by number, ascending.
        last: The highest number given.
        queue: What the outbox has to write: dispatches, and entries.
        wake: Set when there is something.
        unconfirmed: Dispatches written and not known to have arrived, ascending.
        abort: Breaks the connection of its outbox; None while it has none.
        is_ready: Whether it understands messages already.
        has_left: Whether it has left, for good as far as it knows.
        heard_s: When it was last heard of.
        gone_s: Since when it has no outbox.
        num_requests: Requests under way, beside the outbox.
        num_waiting: Those of them that wait for somebody to receive.
        answer_bytes: Bytes held of its answers to questions.
    """

    secret: str = field(repr=False)
    clients: ClientRanges
    token: str | None = field(repr=False)
    limits: HttpLimits
    heard_s: float
    gone_s: float
    open: dict[int, Dispatch] = field(default_factory=dict)
    last: int = 0
    queue: deque[Dispatch | bytes] = field(default_factory=deque)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    unconfirmed: deque[Dispatch] = field(default_factory=deque)
    abort: Callable[[], None] | None = None
    is_ready: bool = False
    has_left: bool = False
    num_requests: int = 0
    num_waiting: int = 0
    answer_bytes: int = 0
    _tokens: float = 0.0
    _at_s: float = float("-inf")

    @property
    def held_bytes(self) -> int:
        """Bytes held of its large replies and its answers."""
        uploads = (one.upload.incoming.held for one in self.open.values() if one.upload is not None)
        return sum(uploads) + self.answer_bytes

    def put(self, dispatch: Dispatch) -> None:
        """Send a dispatch."""
        self.last += 1
        dispatch.session, dispatch.number = self, self.last
        self.open[self.last] = dispatch
        self.say(dispatch)

    def say(self, one: Dispatch | bytes) -> None:
        """Write a dispatch or an entry, if there is an outbox."""
        if self.abort is not None:
            self.queue.append(one)
            self.wake.set()

    def begin(self, abort: Callable[[], None], after: int) -> None:
        """Begin with an outbox; what has a higher number than the process has read goes (again)."""
        if self.abort is not None:  # it has come back before its old connection was known to be dead
            self.abort()
        self.abort = abort
        self.queue = deque(one for number, one in self.open.items() if number > after)
        # What the process has not had is entered again when it goes out.
        self.unconfirmed = deque(one for one in self.unconfirmed if one.number <= after)
        self.wake.set()

    def confirmed(self, number: int) -> Iterator[Dispatch]:
        """Yield the dispatches up to a number that were not known to have arrived."""
        while self.unconfirmed and self.unconfirmed[0].number <= number:
            yield self.unconfirmed.popleft()

    def may_idle(self, now_s: float) -> bool:
        """Take one of the requests that may bring nothing; False where there were too many."""
        burst = self.limits.idle_burst
        self._tokens = min(burst, self._tokens + (now_s - self._at_s) * self.limits.idle_rate)
        self._at_s = now_s
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class Sessions:
    """Sessions by secret and by client.

    The clients of a session go to another one only once it has left, or has lost its connection and not come
    back for a while. Until then whoever wants them is refused or put off, unless it has the secret: then it
    is the same process, come back.

    Args:
        num_clients: Clients are numbered below it.
        limits: Most sessions, and the limits of each.
        retired: Is told of a session that is forgotten, and why.
    """

    def __init__(self, num_clients: int, limits: HttpLimits, retired: Callable[[Session, str], None]) -> None:
        self._num_clients = num_clients
        self._limits = limits
        self._retired = retired
        self._sessions: dict[str, Session] = {}
        self._owner: dict[int, Session] = {}
        self._homeless: dict[int, dict[int, Dispatch]] = {}

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._sessions.values()))

    def __len__(self) -> int:
        return len(self._sessions)

    def owner(self, client: int) -> Session | None:
        """Return the session that hosts a client."""
        return self._owner.get(client)

    def find(self, secret: str | None, token: str | None) -> Session | None:
        """Return the session of a secret; None where there is none, or it showed another token."""
        session = self._sessions.get(secret or "")
        return session if session is not None and session.token == token else None

    def put(self, dispatch: Dispatch) -> None:
        """Give a dispatch to the session that hosts its client, now or once there is one."""
        header = dispatch.header
        if (session := self._owner.get(header.client)) is not None:
            session.put(dispatch)
        else:
            dispatch.session = None
            self._homeless.setdefault(header.client, {})[header.dispatch] = dispatch

    def drop(self, dispatch: Dispatch) -> None:
        """Forget a dispatch."""
        header = dispatch.header
        if dispatch.session is not None:
            dispatch.session.open.pop(dispatch.number, None)
        elif (waiting := self._homeless.get(header.client)) is not None:
            waiting.pop(header.dispatch, None)
            if not waiting:
                del self._homeless[header.client]

    def admit(
        self, secret: str, clients: ClientRanges, granted: ClientRanges, token: str | None
    ) -> tuple[Session, bool]:
        """Return the session of a process that joins, and whether it existed before.

        Raises:
            Refusal: It may not have what it wants.
            Busy: There are too many sessions, or the process of its clients may come back.
        """
        if clients.highest >= self._num_clients:
            raise Refusal(
                f"client {clients.highest} does not exist: this run has {self._num_clients} clients, from 0"
            )
        if not granted.covers(clients):
            raise Refusal(
                f"the token grants the clients {shortened(granted)}, not all of {shortened(clients)}"
            )
        known = self._sessions.get(secret)
        if known is not None:
            if known.token != token or known.clients != clients:
                raise Refusal("this session belongs to another process: join anew")
            return known, True
        now_s = asyncio.get_running_loop().time()
        others = dict.fromkeys(self._owner[client] for client in clients if client in self._owner)
        for other in others:
            self._check_gone(other, now_s)
        if len(self._sessions) - len(others) >= self._limits.max_sessions:
            raise Busy(f"{len(self._sessions)} sessions are open, the limit is {self._limits.max_sessions}")
        for other in others:
            self.retire(other, "it was away, and another process has taken its clients over")
        session = Session(secret, clients, token, self._limits, now_s, now_s)
        self._sessions[secret] = session
        self._owner.update(dict.fromkeys(clients, session))
        homeless = self._homeless
        for client in clients if len(clients) < len(homeless) else list(homeless):
            if client in clients:
                for dispatch in homeless.pop(client, {}).values():
                    session.put(dispatch)
        return session, False

    def retire(self, session: Session, why: str) -> None:
        """Forget a session; its dispatches wait for whoever hosts their clients next."""
        del self._sessions[session.secret]
        for client in session.clients:
            del self._owner[client]
        for dispatch in session.open.values():
            dispatch.upload = None
            self.put(dispatch)
        self._retired(session, why)

    def lapse(self, before_s: float) -> Iterator[Dispatch]:
        """Forget sessions without a connection since an instant; yield dispatches that waited longer."""
        for session in self:
            if session.abort is None and session.gone_s < before_s:
                self.retire(session, "it was away for too long")
        late = [one for waiting in self._homeless.values() for one in waiting.values() if one.at_s < before_s]
        for dispatch in late:
            self.drop(dispatch)
            yield dispatch

    def _check_gone(self, other: Session, now_s: float) -> None:
        if other.abort is not None:
            raise Refusal(
                f"the clients {shortened(other.clients)} are hosted by another process, which is connected: "
                "end that one, or give this one other clients. If that one has died without a word, "
                f"the server notices after {self._limits.silence_s:g} s of silence: start this one again then"
            )
        if not other.has_left and now_s < other.gone_s + self._limits.hold_s:
            raise Busy(f"the process of the clients {shortened(other.clients)} may come back")


class HeldBytes:
    """What is held of large replies and answers, over all sessions.

    Args:
        limits: How much may be.
        sessions: Who holds it.
        reject: Counts what was let go.
    """

    def __init__(self, limits: HttpLimits, sessions: Sessions, reject: Callable[[str], None]) -> None:
        self._limits = limits
        self._sessions = sessions
        self._reject = reject
        self._most = 0  # never less than what is held: what is taken is subtracted when it matters

    def add(self, num_bytes: int) -> None:
        """Count bytes that have come."""
        self._most += num_bytes

    def has_room(self, session: Session) -> bool:
        """Say whether more may be held of a session; lets replies go that nobody is at."""
        limits = self._limits
        most = max(limits.session_upload_bytes, limits.frame.frame_bytes)
        if (held := session.held_bytes) >= most and self._let_go([session], held, most) >= most:
            return False
        most = limits.upload_bytes
        if self._most >= most:
            self._most = sum(one.held_bytes for one in self._sessions)
            self._most = self._let_go(self._sessions, self._most, most)
        return self._most < most

    def _let_go(self, sessions: Iterable[Session], held: int, most: int) -> int:
        """Let replies go that nobody is at until less than so much is held; return how much is."""
        for dispatch in [one for session in sessions for one in session.open.values()]:
            upload = dispatch.upload
            if held >= most and upload is not None and not upload.is_busy:
                held -= upload.incoming.held
                dispatch.upload = None
                self._reject("evicted")
        return held
