"""A server and client processes within one process, over real sockets, in time that skips."""

import asyncio
import selectors
import ssl as tls
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from fedsim.bus import Delivery, Header, Ledger
from fedsim.bus.http.access import Access, ClientRanges
from fedsim.bus.http.client import HttpClient
from fedsim.bus.http.limits import HttpLimits
from fedsim.bus.http.messages import Names
from fedsim.bus.http.server import HttpServer
from fedsim.clock import Trace
from fedsim.params import Model
from fedsim.wire import COMMON, Kinds, ModelBroadcast, ModelUpdate
from tests.bus.http.proxy import Proxy

GRACE_S = 0.0005
"""More than this machine takes to bring bytes from one of its sockets to another."""
TIMEOUT_S = 10_000.0
"""More than anything takes that a test waits for, in the time of :class:`SkippingLoop`."""


class SkippingLoop(asyncio.SelectorEventLoop):
    """Waits for sockets and threads; skips the time to the next timer where nothing comes for ``GRACE_S``."""

    def __init__(self) -> None:
        selector = selectors.DefaultSelector()
        super().__init__(selector)
        self.num_busy = 0
        self._skipped_s = 0.0
        self.awaited: dict[asyncio.Future[None], Callable[[], Any]] = {}
        self._real_select = selector.select
        selector.select = self._select  # type: ignore[method-assign, assignment]

    def time(self) -> float:
        return super().time() + self._skipped_s

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        # Without the limit of 5 minutes that Python 3.12 and later have for it, which would be skipped.
        await super().shutdown_default_executor()

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        future = super().run_in_executor(executor, func, *args)
        self.num_busy += 1
        future.add_done_callback(self._ended)
        return future

    def _ended(self, _: asyncio.Future[Any]) -> None:
        self.num_busy -= 1

    def _select(self, timeout: float | None) -> Any:
        for future, condition in self.awaited.items():
            if not future.done() and condition():
                future.set_result(None)
                timeout = 0
        if timeout is None or timeout <= GRACE_S or self.num_busy:
            return self._real_select(timeout)
        if not (found := self._real_select(GRACE_S)):
            self._skipped_s += timeout - GRACE_S
        return found


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], SkippingLoop]]:
    return {"skipping": SkippingLoop}


async def until(condition: Callable[[], Any]) -> None:
    """Wait until something is so, which is looked at whenever anything has happened."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SkippingLoop)
    future: asyncio.Future[None] = loop.create_future()
    loop.awaited[future] = condition
    try:
        await within(future)
    finally:
        del loop.awaited[future]


class Log:
    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []
        self.warned: list[str] = []

    def info(self, event: str, **values: Any) -> None:
        self.lines.append((event, values))

    def warning(self, event: str, **values: Any) -> None:
        self.info(event, **values)
        self.warned.append(event)

    def of(self, event: str) -> list[dict[str, Any]]:
        return [values for name, values in self.lines if name == event]


async def within(awaitable: Any, seconds: float = TIMEOUT_S) -> Any:
    async with asyncio.timeout(seconds):
        return await awaitable


class World:
    """A server and whoever joins it; closed at the end of a test, with nothing left over."""

    url: str
    port: int

    def __init__(
        self,
        *,
        access: Access | None = None,
        num_clients: int = 10,
        greeting: bytes = b"the scenario",
        kinds: Kinds | None = None,
        port: int = 0,
        names: Names | None = None,
        firsts: Mapping[int, int] = MappingProxyType({}),
        **limits: Any,
    ) -> None:
        self.port = port
        self.ledger, self.trace, self.log = Ledger(), Trace(keep=True), Log()
        self.limits, self.kinds = HttpLimits(**limits), kinds or Kinds(COMMON)
        self.server = HttpServer(
            kinds=self.kinds,
            ledger=self.ledger,
            trace=self.trace,
            access=access or Access.open(),
            limits=self.limits,
            greeting=greeting,
            num_clients=num_clients,
            log=self.log,
            names=names,
            firsts=firsts,
        )
        self.inbox = asyncio.Queue[Delivery]()
        self.server.feed(self.inbox.put_nowait)
        self._inboxes: dict[HttpClient, asyncio.Queue[Delivery]] = {}
        self._ends: list[Callable[[], Awaitable[None]]] = []

    async def start(self, encrypt: tls.SSLContext | None) -> None:
        self.port = await self.server.start("127.0.0.1", self.port, encrypt)
        self.url = f"{'http' if encrypt is None else 'https'}://127.0.0.1:{self.port}"

    def client(
        self, clients: str = "0-9", url: str | None = None, *, is_ready: bool = True, **options: Any
    ) -> HttpClient:
        options = {"limits": self.limits, **options}
        made = HttpClient(url or self.url, clients=ClientRanges.parse(clients), **options)
        self._inboxes[made] = asyncio.Queue()
        if is_ready:
            self.make_ready(made)
        self._ends.append(lambda: made.close(0.2))
        return made

    async def join(self, clients: str = "0-9", url: str | None = None, **options: Any) -> HttpClient:
        made = self.client(clients, url, **options)
        await within(made.connect())
        return made

    def inbox_of(self, client: HttpClient) -> asyncio.Queue[Delivery]:
        return self._inboxes[client]

    def make_ready(self, client: HttpClient) -> None:
        client.feed(self._inboxes[client].put_nowait, self.kinds)

    async def proxy(self, **harm: Any) -> Proxy:
        made = await Proxy(self.port, **harm).start()
        self._ends.append(made.close)
        return made

    until = staticmethod(until)
    within = staticmethod(within)

    @staticmethod
    def model(num: int, value: float = 0.0) -> Model:
        return Model("mlp", {"w": np.full(num, value, np.float32)}, {})

    @staticmethod
    def down(client: int, dispatch: int = 0) -> Header:
        return Header(-1, client, 1, "train", dispatch, dispatch)

    def ask(self, client: int, dispatch: int = 0, num: int = 10) -> None:
        """Send a model of so many floats, whose value tells client and dispatch; for 0 a header alone."""
        message = ModelBroadcast.of(self.model(num, client + dispatch / 8)) if num else None
        self.server.send(self.down(client, dispatch), message)

    @staticmethod
    def reply(client: HttpClient, delivery: Delivery) -> Awaitable[None]:
        message: Any = delivery.message
        update = None if message is None else ModelUpdate.of(message.model, num_samples=1)
        return client.send(delivery.header.reply(), update)

    async def got(self, client: HttpClient) -> Delivery:
        found: Delivery = await within(self._inboxes[client].get())
        return found

    async def asked(self, client: HttpClient, number: int = 0, dispatch: int = 0, num: int = 10) -> Delivery:
        """Send as :meth:`ask` does; return the next dispatch of the process."""
        self.ask(number, dispatch, num)
        return await self.got(client)

    async def echo(self, client: HttpClient, count: int = 1) -> None:
        """Reply to the next dispatches of a process with what came."""
        for _ in range(count):
            self.reply(client, await self.got(client))

    @asynccontextmanager
    async def echoing(self, client: HttpClient) -> AsyncIterator[None]:
        """Reply to all dispatches of a process with what came, meanwhile."""

        async def echo() -> None:
            while True:
                self.reply(client, await self._inboxes[client].get())

        task = asyncio.ensure_future(echo())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def taken(self) -> Delivery:
        """Return the next reply at the server, which must be what :meth:`ask` has sent."""
        found: Any = await within(self.inbox.get())
        if found.message is not None:
            values = found.message.params["w"]
            assert set(values.tolist()) == {found.header.sender + found.header.dispatch / 8}
        return found  # type: ignore[no-any-return]

    async def senders(self, count: int) -> list[int]:
        return sorted([(await self.taken()).header.sender for _ in range(count)])

    async def still_works(self, client: int = 5) -> None:
        """Exchange something large with an honest process, which is new."""
        honest = await self.join(f"{client}")
        delivery = await self.asked(honest, client, 1000, num=40_000)
        while delivery.header.dispatch != 1000:
            delivery = await self.got(honest)
        self.reply(honest, delivery)
        assert (await self.taken()).header.dispatch == 1000

    # What tests look at from inside, and nowhere else

    @property
    def num_open(self) -> int:
        """Dispatches whose replies are not taken."""
        return len(self.server._dispatches)

    async def close(self) -> None:
        for end in reversed(self._ends):
            await end()
        await self.server.close(0.2)


async def new_world(encrypt: tls.SSLContext | None = None, **options: Any) -> World:
    """Start a server; whoever asks for it closes it."""
    world = World(**options)
    await world.start(encrypt)
    return world


@pytest.fixture
async def make_world() -> AsyncIterator[Callable[..., Awaitable[World]]]:
    made: list[World] = []

    async def make(**options: Any) -> World:
        made.append(await new_world(**options))
        return made[-1]

    before = asyncio.all_tasks()
    yield make
    before.add(asyncio.current_task())  # type: ignore[arg-type]  # there is one
    for world in made:
        await within(world.close())
    with suppress(TimeoutError):
        await until(lambda: asyncio.all_tasks() <= before)
    assert asyncio.all_tasks() <= before, "tasks are left behind"
    for world in made:
        world.ledger.check()
        assert world.server.rejected["fault"] == 0, world.log.lines


@pytest.fixture
async def world(make_world: Callable[..., Awaitable[World]]) -> World:
    return await make_world()
