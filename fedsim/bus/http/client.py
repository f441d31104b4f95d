"""The endpoint of a client process: one session with the server over any number of connections."""

from __future__ import annotations

import asyncio
import os
import secrets
import ssl as tls
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import aiohttp

from fedsim.bus.base import Delivery, Header
from fedsim.bus.http.access import ClientRanges
from fedsim.bus.http.channel import Channel
from fedsim.bus.http.connecting import connected
from fedsim.bus.http.limits import HttpLimits
from fedsim.bus.http.messages import (
    FROM_SERVER,
    Entry,
    Key,
    Parts,
    ProtocolError,
    Spent,
    decode_frame,
    entry,
    framed,
    keys_entry,
    nobody_emulates,
    read_keys,
    sendable,
)
from fedsim.bus.http.state_folder import StateFolder
from fedsim.bus.http.state_versions import Marks
from fedsim.bus.reply_report import Report, written
from fedsim.errors import DecodeError, RunError, UserError
from fedsim.quoting import MAX_SHOWN, printable, shortened
from fedsim.wire import SERVER, Frame, Kinds, Message, Packed

NOTICE_S = 3.0
"""The user is told of a lost connection after this time."""
LOST = (aiohttp.ClientError, OSError, ProtocolError)
"""Errors after which trying again may help."""


class States(Protocol):
    """What the clients of a process hold after dispatches."""

    def go_back(self, firsts: Mapping[int, int]) -> None:
        """Be as before these dispatches of clients, and before the first of all others; give up all work."""

    def forget(self, marks: Marks) -> None:
        """Forget states to which no server goes back."""


Prober = Callable[[int, bytes], Awaitable[bytes]]
"""Answers the observer's question to a client."""
Reporter = Callable[[Header], Report]
"""Returns the report that goes with a reply, given its header."""


def jitter() -> float:
    """Return a random number from 0 to 1; no result depends on it."""
    return int.from_bytes(os.urandom(4), "big") / 2**32


@dataclass(slots=True, eq=False)
class Reply:
    """A reply, or why the frame of a dispatch cannot be used, until the server has taken it.

    ``spent`` are the seconds for which the dispatch was held until ``at_s``, and for which its jobs ran, the
    number of jobs, and their operations.
    """

    header: Header
    frame: Frame | None
    spent: Spent
    notes: str | None
    fault: str
    at_s: float
    taken: asyncio.Future[None]

    def entry(self, now_s: float) -> Parts:
        """Return its entry as it leaves now; time in which it waited counts as held."""
        key = self.header.client, self.header.dispatch
        if self.fault:
            return entry("u", *key, self.fault)
        held_s, *work = self.spent
        return entry(
            "r",
            *key,
            (held_s + now_s - self.at_s, *work),
            self.notes,
            body=None if self.frame is None else self.frame.parts,
        )

    def settle(self) -> None:
        """Let its sender go on."""
        if not self.taken.done():
            self.taken.set_result(None)


def _marks(found: Entry) -> Marks:
    marks = defaultdict[int, list[int]](list)
    for client, dispatch in read_keys(found, "b"):
        marks[client].append(dispatch)
    return marks


class HttpClient:
    """The endpoint on the HTTP bus of all clients of one process; a :class:`fedsim.bus.Endpoint`.

    Dispatches are handed over in the order of sending, each once. ``tell`` takes a line for the user when the
    server is away, and when it is back. With a state folder the session outlives the process. ``prober``
    answers the observer's questions; its errors go to the server. ``reporter`` returns the report of a reply
    when that is sent. ``heard`` is told what the server says of an emulation.

    A server that was started again goes on from its last checkpoint. Then this process goes back as far:
    dispatches, replies and states from after the checkpoint are forgotten.
    """

    def __init__(
        self,
        url: str,
        *,
        clients: ClientRanges,
        token: str | None = None,
        ssl: tls.SSLContext | None = None,
        limits: HttpLimits | None = None,
        state: StateFolder | None = None,
        jitter: Callable[[], float] = jitter,
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.limits = limits or HttpLimits()
        self._url = url.rstrip("/")
        self._clients = clients
        self._token = token
        self._tls = ssl
        self._state = state
        self._jitter = jitter
        self._tell = tell
        self._secret = secrets.token_hex(16) if state is None else state.session
        self._run, self._server = ("", "") if state is None else (state.run, state.server)
        self._states: States | None = None if state is None else state.versions
        self._take_over: Callable[[Delivery], object] | None = None
        self._read: Callable[[Message], Message | None] | None = None
        self._kinds = Kinds(())
        self._early: list[tuple[Header, memoryview | None]] = []  # what came before somebody took it
        self._since_s: dict[Key, float] = {}  # when each dispatch at hand was received
        self._replies: dict[Key, Reply] = {}  # those that the server may not have, in order
        self.prober: Prober | None = None
        self.heard: Callable[[Entry], object] = nobody_emulates
        self.reporter: Reporter = lambda header: Report()
        self._http: aiohttp.ClientSession | None = None
        self._channel: Channel | None = None
        self._greeting: bytes | None = None
        self._change = asyncio.Event()
        self._is_over = self._is_leaving = self._is_away = False
        self._talked_s = 0.0
        self._lost_s: float | None = None
        self._failure: Exception | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    # For the runtime

    def feed(
        self,
        take: Callable[[Delivery], object],
        kinds: Kinds,
        read: Callable[[Message], Message | None] | None = None,
        states: States | None = None,
    ) -> None:
        """Give all dispatches to a function from now on, messages of these kinds; this process is ready.

        ``read`` decodes messages for which coded ones stand; what it cannot decode is an unusable frame.
        ``states`` goes back with the server; the state folder does until then.
        """
        self._take_over, self._kinds, self._read = take, kinds, read
        self._states = states or self._states
        for header, body in self._early:
            self._hand_over(header, body, take)
        self._early.clear()
        self._say(entry("k"))

    async def connect(self) -> bytes:
        """Join the server's run; return its greeting. From then on the session is kept up."""
        self._http = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self.limits.handshake_timeout_s)
        )
        self._talked_s = self._lost_s = asyncio.get_running_loop().time()
        self._start(self._stay(self._http))
        try:
            await self._until(lambda: self._greeting is not None)
        except BaseException:
            await self.close(0)
            raise
        return self._greeting or b""

    async def close(self, grace_s: float = 5.0, *, why: str = "it was stopped") -> None:
        """Tell the server why this process leaves, and close everything."""
        if self._channel is not None and grace_s > 0:
            self._leave(why)
            with suppress(TimeoutError):
                async with asyncio.timeout(grace_s):
                    while self._channel is not None:  # the server closes the connection
                        await self._change.wait()
        while self._tasks:  # one that ends may start another
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._http is not None:
            await self._http.close()
        self._fail(ConnectionError("this process has closed its connection"))

    def send(self, header: Header, message: Message | Packed | None) -> Awaitable[None]:
        """Start replying now; awaiting the result waits until the server has the reply."""
        if header.sender not in self._clients or header.receiver != SERVER:
            raise ValueError(f"{header}: this process replies to the server for the clients {self._clients}")
        _, frame = framed(header, message, self.limits.frame)
        report, now_s = self.reporter(header), asyncio.get_running_loop().time()
        held_s = now_s - self._since_s.pop((header.client, header.dispatch), now_s)
        notes = written(report.notes, report.left_out)
        spent = held_s, report.compute_ns / 1e9, float(report.num_jobs), float(report.flops)
        return self._give(header, frame, spent=spent, notes=notes)

    def tell(self, what: str, client: int, dispatch: int, *numbers: int, body: Parts | None = None) -> None:
        """Send the server something of an emulation."""
        self._say(entry("m", what, client, dispatch, *numbers, body=body))

    async def over(self) -> None:
        """Wait until the server says that the run is over; a ConnectionError, RunError or UserError else."""
        await self._until(lambda: self._is_over)

    # The connection

    async def _stay(self, http: aiohttp.ClientSession) -> None:
        """Hold a connection until the run or ``patience_s`` is over; both are an error."""
        limits, loop = self.limits, asyncio.get_running_loop()
        bound_s = 0.0  # pauses are uniform up to a bound that doubles
        while True:
            began_s = loop.time()
            try:
                await self._talk(http)
            except LOST as error:
                why = printable(error) or type(error).__name__
            if self._is_over or self._is_leaving:
                raise ConnectionError("the run is over" if self._is_over else "this process has left")
            if loop.time() - self._talked_s > limits.patience_s:
                raise ConnectionError(f"no connection to {self._url} for {limits.patience_s:g} s: {why}")
            if self._lost_s is None:
                self._lost_s = loop.time()
            elif loop.time() - self._lost_s > NOTICE_S and not self._is_away:
                self._is_away = True
                line = f"no connection to {self._url} ({shortened(why, MAX_SHOWN)}): trying again, for "
                self._tell(f"{line}{limits.patience_s:g} s at most")
            has_talked = self._talked_s > began_s
            bound_s = 2 * limits.backoff_first_s if has_talked or not bound_s else 2 * bound_s
            bound_s = min(limits.backoff_cap_s, bound_s)
            await asyncio.sleep(bound_s * self._jitter())

    async def _talk(self, http: aiohttp.ClientSession) -> None:
        """Connect, and read until the connection ends, which is an error of :data:`LOST`."""
        limits, loop = self.limits, asyncio.get_running_loop()
        is_first = self._greeting is None
        socket = await connected(http, self._url, self._token, self._tls, limits, is_first=is_first)
        channel = Channel(socket, FROM_SERVER, limits, limits.frame.frame_bytes, self._encoded)
        writing = self._start(channel.write())
        try:
            channel.put(entry("j", self._secret, self._server, body=(str(self._clients).encode(),)))
            early = [(header.client, header.dispatch) for header, _ in self._early]
            channel.put(keys_entry([*early, *self._since_s, *self._replies]))
            server = self._welcomed(await channel.read())
            self._talked_s = loop.time()
            self._meet(server, _marks(await channel.read()))
            waiting = read_keys(await channel.read())
            self._channel = channel
            self._changed()
            if self._take_over is not None:
                channel.put(entry("k"))
            for key, reply in list(self._replies.items()):
                if key in waiting:
                    channel.put(reply)
                else:
                    self._taken(key)
            while True:
                found = await channel.read()
                self._talked_s = loop.time()
                self._take(found)
        finally:
            self._channel = None
            self._changed()
            writing.cancel()
            with suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await socket.close()

    def _welcomed(self, found: Entry) -> str:
        """Take the first entry of a connection; return which server it is."""
        if found.letter == "x":
            raise UserError(f"the server refuses this process: {found.values[0]}")
        if found.letter != "h":
            raise ProtocolError(f"{found.letter} came before the greeting")
        run, server = found.values
        if self._run and run != self._run:
            folder = self._state and self._state.path
            how = f", with an empty state folder in place of {folder}" if folder else ""
            raise UserError(f"the server has begun another run: join it anew{how}")
        self._run = run
        if self._is_away:
            self._tell(f"connected to {self._url}")
        self._lost_s, self._is_away = None, False
        if self._greeting is None:
            self._greeting = bytes(found.body or b"")
        return str(server)

    def _meet(self, server: str, marks: Marks) -> None:
        """Go back with a server that was started again, told the next dispatches at its checkpoint."""
        if self._server not in ("", server):
            self._tell(f"{self._url} was started again, and the clients here go back as far as it does")
            for reply in self._replies.values():
                reply.settle()
            for forgotten in (self._replies, self._since_s, self._early):
                forgotten.clear()
            if self._states is not None:
                self._states.go_back({client: min(its) for client, its in marks.items()})
        elif self._server and self._states is not None:
            self._states.forget(marks)
        self._server = server
        if self._state is not None:
            self._state.bind(self._run, server)

    def _encoded(self, item: Reply | Parts) -> Parts:
        return item.entry(asyncio.get_running_loop().time()) if isinstance(item, Reply) else item

    def _take(self, found: Entry) -> None:
        letter, values, body, _ = found
        match letter:
            case "d":
                client, dispatch, round_, exchange, turn, merged = values
                header = Header(SERVER, client, round_, exchange, dispatch, turn, merged)
                self._take_dispatch(header, body)
            case "t":
                self._taken(values)
            case "q":
                number, client = values
                self._start(self._answer(number, client, bytes(body or b"")))
            case "e":
                is_well, why = values
                if not is_well:
                    raise RunError(f"the server has ended the run: {why}")
                self._is_over = True
                self._leave(why)
                self._changed()
            case "b":
                if self._states is not None:
                    self._states.forget(_marks(found))
            case "m":
                self.heard(found)
            case "h" | "x" | "o":
                raise ProtocolError(f"{letter} came after the greeting")

    def _taken(self, key: Key) -> None:
        """Forget a reply that the server has taken, or does not want any more."""
        if (reply := self._replies.pop(key, None)) is not None:
            reply.settle()

    def _take_dispatch(self, header: Header, body: memoryview | None) -> None:
        client, number = header.client, header.dispatch
        if client not in self._clients:
            raise ProtocolError(f"{header} came to the host of {self._clients}")
        if body is not None:
            self._say(entry("c", client, number))
        if self._take_over is None:
            self._early.append((header, body))
        else:
            self._hand_over(header, body, self._take_over)

    def _hand_over(self, header: Header, body: memoryview | None, take: Callable[[Delivery], object]) -> None:
        try:
            message = None if body is None else decode_frame(header, body, self._kinds, self.limits.frame)
            if message is not None and self._read is not None:
                message = self._read(message)
        except DecodeError as error:
            self._give(header.reply(), None, fault=sendable(error))
        else:
            self._since_s[header.client, header.dispatch] = asyncio.get_running_loop().time()
            take(Delivery(header, message))

    async def _answer(self, number: int, client: int, question: bytes) -> None:
        """Answer a question, or send why that is impossible; it is asked again on the next connection."""
        limit = self.limits.frame.frame_bytes
        try:
            if self.prober is None:
                raise RuntimeError("nobody answers probes here")
            answer = await self.prober(client, question)
            if len(answer) > limit:
                raise ValueError(f"an answer of {len(answer)} bytes: the limit is {limit}")
            self._say(entry("s", number, True, body=(answer,)))
        except Exception as error:
            why = sendable(f"{type(error).__name__}: {error}").encode()
            self._say(entry("s", number, False, body=(why,)))

    # Internals

    def _say(self, parts: Parts) -> None:
        """Send an entry, if there is a connection."""
        if self._channel is not None:
            self._channel.put(parts)

    def _leave(self, why: str) -> None:
        self._is_leaving = True
        self._say(entry("l", sendable(why)))

    def _give(
        self,
        header: Header,
        frame: Frame | None,
        *,
        spent: Spent = (0.0, 0.0, 0.0, 0.0),
        notes: str | None = None,
        fault: str = "",
    ) -> asyncio.Future[None]:
        """Start to bring a reply to the server; the result is done once it is taken or lost."""
        loop = asyncio.get_running_loop()
        reply = Reply(header, frame, spent, notes, fault, loop.time(), loop.create_future())
        if self._failure is not None:
            reply.settle()  # it is lost, and a sender learns of no loss
        else:
            self._replies[header.client, header.dispatch] = reply
            if self._channel is not None:
                self._channel.put(reply)
        return reply.taken

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a task; its failure is that of the endpoint."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if self._failure is None:
            self._failure = error
            for reply in self._replies.values():
                reply.settle()
            self._changed()

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            if self._failure is not None:
                raise self._failure
            await self._change.wait()

    def _changed(self) -> None:
        """Wake those that wait for the greeting, the end, or the end of the connection."""
        self._change.set()
        self._change = asyncio.Event()
