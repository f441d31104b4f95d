"""The endpoint of a client process: one session with the server over any number of connections."""

from __future__ import annotations

import asyncio
import secrets
import ssl as tls
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

import aiohttp

from fedsim.bus.base import Delivery, Header
from fedsim.bus.http.access import ClientRanges
from fedsim.bus.http.limits import HttpLimits
from fedsim.bus.http.messages import (
    FROM_SERVER,
    Entry,
    ProtocolError,
    Reader,
    Reply,
    framed,
    header_of,
    sendable,
)
from fedsim.bus.http.pending import Arrival, Deliveries, Replies, settle
from fedsim.bus.http.requests import LOST, Backoff, Requests, SessionGone, jitter
from fedsim.bus.http.state_folder import StateFolder
from fedsim.bus.inbox import Inbox
from fedsim.bus.reply_report import Report, written
from fedsim.errors import DecodeError, RunError, UserError
from fedsim.quoting import MOST_SAID, printable, shortened
from fedsim.wire import SERVER, Frame, Kinds, Message, Packed

NOTICE_S = 3.0
"""The user is told of a lost connection after this time."""

Prober = Callable[[int, bytes], Awaitable[bytes]]
"""Answers the observer's question to a client."""
Reporter = Callable[[Header], Report]
"""Returns the report that goes with a reply, given its header."""


class HttpClient:
    """The endpoint on the HTTP bus of all clients of one process; a :class:`fedsim.bus.Endpoint`.

    Dispatches are received in the order of sending, each once. With a state folder, a reply is sent once it
    is durable. ``kinds`` may be set after the greeting; until then nothing is received, and the process is
    not ready. ``tell`` takes a line for the user when the server is away, and when it is back.
    """

    def __init__(
        self,
        url: str,
        *,
        clients: ClientRanges,
        kinds: Kinds | None = None,
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
        self._state = state
        self._jitter = jitter
        self._tell = tell
        secret = secrets.token_hex(16) if state is None else state.session
        self._requests = Requests(self._url, secret, token, ssl, self.limits, jitter, self._gone)
        self._run = "" if state is None else state.run
        self._inbox = Inbox(self.limits.inbox_bytes)
        self._deliveries = Deliveries(self.limits, self._inbox, self._unusable)
        self._deliveries.kinds = kinds
        self._wake = asyncio.Event()
        given, wake = self._deliveries.replied, self._wake.set
        self._replies = Replies(self.limits, state, given, self._upload, wake)
        self._prober: Prober | None = None
        self._answering: dict[int, None] = {}
        self._reporter: Reporter = lambda header: Report()
        slots = (asyncio.Semaphore(self.limits.transfers_at_once) for _ in range(3))
        self._slots_down, self._slots_up, self._slots_asked = slots
        self._greeting: bytes | None = None
        self._change = asyncio.Event()
        self._report_at_s = 0.0
        self._is_over = self._is_away = False
        self._talked_s = 0.0
        self._lost_s: float | None = None
        self._failure: Exception | None = None
        self._outbox: aiohttp.ClientResponse | None = None
        self._tasks: dict[asyncio.Task[None], asyncio.Future[None] | None] = {}

    # For the runtime

    @property
    def kinds(self) -> Kinds | None:
        """The kinds of messages; setting them tells the server that this process is ready."""
        return self._deliveries.kinds

    @kinds.setter
    def kinds(self, kinds: Kinds) -> None:
        self._deliveries.kinds = kinds
        self._deliveries.hand_over()
        self._report()

    async def connect(self) -> bytes:
        """Join the server's run; return its greeting. From then on the session is kept up."""
        if self._tasks:
            raise RuntimeError("connect() was called before: it is called once")
        self._requests.open()
        self._talked_s = self._lost_s = asyncio.get_running_loop().time()
        for reply in () if self._state is None else self._state.replies():
            self._give(reply)
        self._start(self._stay())
        self._start(self._post())
        try:
            await self._until(lambda: self._greeting is not None)
        except BaseException:
            await self.close(0)
            raise
        return self._greeting or b""

    async def close(self, grace_s: float = 5.0, *, why: str = "it was stopped") -> None:
        """Tell the server why this process leaves, and close everything."""
        if self._tasks and grace_s > 0 and self._requests.joined.is_set():
            with suppress(*LOST, SessionGone, UserError):
                async with asyncio.timeout(grace_s):
                    if not self._is_over:
                        await self._leave(why)
                    while self._is_over and self._failure is None:
                        await self._change.wait()  # it is leaving already; the server then ends the outbox
        while self._tasks:  # one that ends may start another
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._requests.close()
        self._fail(ConnectionError("this process has closed its connection"))

    def send(self, header: Header, message: Message | Packed | None) -> Awaitable[None]:
        """Start replying now; awaiting the result waits until the server has the reply."""
        if header.sender not in self._clients or header.receiver != SERVER:
            raise ValueError(f"{header}: this process replies to the server for the clients {self._clients}")
        _, frame = framed(header, message, self.limits.frame)
        key, report = (header.client, header.dispatch), self._reporter(header)
        spent_s = self._deliveries.held_s(key), report.compute_ns / 1e9
        state = None if self._state is None else self._state.pending(header.client)
        return self._give(Reply(key, frame, spent_s, written(report.notes, report.left_out), state=state))

    async def receive(self) -> Delivery:
        """Wait for the next dispatch; a ConnectionError, RunError or UserError once none will come."""
        return await self._inbox.receive()

    def on_probe(self, handler: Prober) -> None:
        """Set what answers the observer's questions; its errors go to the server."""
        self._prober = handler

    def on_reply(self, reporter: Reporter) -> None:
        """Set what returns the report of each reply, when that is sent."""
        self._reporter = reporter

    async def over(self) -> None:
        """Wait until the server says that the run is over; errors as of :meth:`receive`."""
        await self._until(lambda: self._is_over)

    # Down

    async def _stay(self) -> None:
        """Hold an outbox until the run or ``patience_s`` is over; both are an error."""
        limits, loop = self.limits, asyncio.get_running_loop()
        backoff = Backoff(limits, self._jitter)
        while True:
            began_s, why = loop.time(), "the connection has ended"
            try:
                await self._join()
                await self._listen()
            except (*LOST, SessionGone) as error:
                why = printable(error) or type(error).__name__
            if self._is_over:
                raise ConnectionError("the run is over")
            if loop.time() - self._talked_s > limits.patience_s:
                raise ConnectionError(f"no connection to {self._url} for {limits.patience_s:g} s: {why}")
            if self._lost_s is None:
                self._lost_s = loop.time()
            elif loop.time() - self._lost_s > NOTICE_S and not self._is_away:
                self._is_away = True
                line = f"no connection to {self._url} ({shortened(why, MOST_SAID)}): trying again, for "
                self._tell(f"{line}{limits.patience_s:g} s at most")
            await backoff.pause(anew=self._talked_s > began_s)

    async def _join(self) -> None:
        run, resumed, greeting = await self._requests.join(self._clients, is_first=self._greeting is None)
        if self._run and run != self._run:
            folder = self._state and self._state.path
            how = f", with an empty state folder in place of {folder}" if folder else ""
            raise UserError(f"the server has begun another run: join it anew{how}")
        self._run = run
        if self._state is not None:
            self._state.begin(run)
        if not resumed:
            self._deliveries.begin_anew()
        if self._greeting is None:
            self._greeting = greeting
        self._requests.joined.set()
        self._changed()

    async def _listen(self) -> None:
        """Read the outbox until it ends."""
        limits, loop = self.limits, asyncio.get_running_loop()
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=limits.handshake_timeout_s, sock_read=limits.silence_s
        )
        reader = Reader(FROM_SERVER, limits.small_frame_bytes)
        path = f"/outbox?after={self._deliveries.last}&ready={int(self.kinds is not None)}"
        async with self._requests.send("GET", path, 200, timeout=timeout) as self._outbox:
            if self._is_away:
                self._tell(f"connected to {self._url}")
            self._lost_s, self._is_away = None, False
            if not self._requests.joined.is_set():
                raise SessionGone  # as another request has found out meanwhile
            self._report()
            async for data in self._outbox.content.iter_any():
                self._talked_s = loop.time()
                for entry in reader.feed(data):
                    self._take(entry)

    def _take(self, entry: Entry) -> None:
        letter, values, body = entry
        if letter == "d":
            number, *_, size = values
            header = header_of(values)
            if header.receiver not in self._clients or (size or 0) > self.limits.frame.frame_bytes:
                raise ProtocolError(f"{header} of {size} bytes came to the host of {self._clients}")
            arrival = Arrival(header, number, body or None, is_coming=bool(size and not body))
            if self._deliveries.announced(arrival):
                self._start(self._fetch(arrival, size))
            self._report(self.limits.report_delay_s)
        elif letter == "q" and values[0] not in self._answering:
            self._answering[values[0]] = None
            self._start(self._answer(values[0], values[1], bytes(body)))
        elif letter == "e":
            is_well, why = values
            if not is_well:
                raise RunError(f"the server has ended the run: {why}")
            if not self._is_over:
                self._start(self._requests.persist(lambda: self._leave(why)))
            self._is_over = True
            self._changed()

    async def _leave(self, why: str) -> None:
        async with self._requests.send("POST", "/leave", 204, data=sendable(why).encode()):
            pass

    async def _fetch(self, arrival: Arrival, num_bytes: int) -> None:
        async with self._slots_down:
            await self._deliveries.room()
            path, frame = f"/dispatch/{arrival.header.client}/{arrival.header.dispatch}", None
            try:
                frame = await self._requests.download(path, num_bytes)
            except DecodeError as error:
                self._unusable(arrival.header, str(error))
        self._deliveries.fetched(arrival, frame)
        self._report(self.limits.report_delay_s)

    # Up

    async def _post(self) -> None:
        """Send small replies, all that are ready at a time, and signs of life, for ever."""
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            batch, data = self._replies.batch()
            if not batch and loop.time() < self._report_at_s:
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(self._report_at_s):
                        await self._wake.wait()
                continue
            self._report_at_s = loop.time() + self.limits.heartbeat_s

            async def attempt(data: bytes = data) -> None:
                path = f"/replies?had={self._deliveries.had}&ready={int(self.kinds is not None)}"
                async with self._requests.send("POST", path, 204, data=data):
                    pass

            await self._requests.persist(attempt)
            self._replies.taken(batch)

    async def _upload(self, reply: Reply) -> None:
        async with self._slots_up:
            await self._requests.upload(reply.path, reply.parts())

    async def _answer(self, number: int, client: int, question: bytes) -> None:
        """Answer a question, or send why that is impossible."""
        async with self._slots_asked:  # few answers are here at a time
            fault, limit = None, self.limits.frame.frame_bytes
            try:
                if self._prober is None:
                    raise RuntimeError("nobody answers probes here")
                answer = await self._prober(client, question)
                if len(answer) > limit:
                    raise ValueError(f"an answer of {len(answer)} bytes: the limit is {limit}")
            except Exception as error:
                fault = sendable(f"{type(error).__name__}: {error}")
                answer = fault.encode()
            await self._give(Reply((number,), Frame(answer, len(answer)), fault=fault))
        del self._answering[number]

    # Internals

    def _gone(self) -> None:
        """Join again, as the server does not know the session."""
        if self._outbox is not None:
            self._outbox.close()

    def _give(self, reply: Reply) -> asyncio.Future[None]:
        """Start to bring a reply to the server; the result is done once it is taken or lost."""
        loop = asyncio.get_running_loop()
        reply.at_s, left = loop.time(), loop.create_future()
        if self._failure is not None:
            left.set_result(None)  # it is lost, and a sender learns of no loss
        else:
            self._start(self._replies.bring(reply), left)
        return left

    def _start(self, work: Coroutine[Any, Any, None], left: asyncio.Future[None] | None = None) -> None:
        """Run a task; its failure is that of the endpoint."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = left
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        settle(self._tasks.pop(task))
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self._fail(error)

    def _unusable(self, header: Header, why: str) -> None:
        self._give(Reply((header.client, header.dispatch), fault=sendable(why)))

    def _report(self, within_s: float = 0.0) -> None:
        """Confirm dispatches, and whether this process is ready, within this time."""
        at_s = asyncio.get_running_loop().time() + within_s
        if at_s < self._report_at_s:
            self._report_at_s = at_s
            self._wake.set()

    def _fail(self, error: Exception) -> None:
        if self._failure is None:
            self._failure = error
            self._inbox.fail(error)
            for left in self._tasks.values():
                settle(left)
            self._changed()

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            if self._failure is not None:
                raise self._failure
            await self._change.wait()

    def _changed(self) -> None:
        """Wake those that wait for the greeting or the end."""
        self._change.set()
        self._change = asyncio.Event()
