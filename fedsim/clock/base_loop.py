"""The parts of asyncio's loop interface that do not concern time: tasks, errors, and refused methods.

Methods that would let the host decide *when* something happens raise an error that names the method and a way
that works in virtual time. Tasks without a name are numbered per loop, not per process, so a report names the
same tasks in every run. An error that reaches the loop is kept as well as logged.
"""

import asyncio
import logging
from collections.abc import Coroutine, Generator
from contextvars import Context
from typing import Any, Never, TypeVar

from fedsim.errors import VirtualTimeError

T = TypeVar("T")

_log = logging.getLogger(__name__)

_WIRE = "send over the in-memory bus, or run the aiohttp bus on a real asyncio loop (asyncio.run)"
_PROCESS = "start the process outside the run, or on a real asyncio loop (asyncio.run)"
_SIGNAL = "use signal.signal; Ctrl-C comes out of fedsim.clock.run as KeyboardInterrupt by itself"
_WORK = "submit a training job through the engine, which knows its virtual duration beforehand"
_FIXED = "the loop makes its tasks and reports its errors in one way, the same in every run"


class _Refused:
    """A method that raises an error with an alternative."""

    def __init__(self, instead: str) -> None:
        self._instead = instead
        self._name = "?"

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __call__(self, *args: object, **options: object) -> Never:
        raise VirtualTimeError(
            f"{self._name}() cannot work on the virtual-time loop, where nothing outside the run may decide "
            f"when something happens: {self._instead}"
        )


class BaseLoop(asyncio.AbstractEventLoop):
    """Tasks, futures and errors of a loop; ``unseen_errors`` are those that no code has handled."""

    run_in_executor: Any = _Refused(_WORK)
    set_default_executor: Any = _Refused(_WORK)

    add_reader: Any = _Refused(_WIRE)
    remove_reader: Any = _Refused(_WIRE)
    add_writer: Any = _Refused(_WIRE)
    remove_writer: Any = _Refused(_WIRE)
    getaddrinfo: Any = _Refused(_WIRE)
    getnameinfo: Any = _Refused(_WIRE)
    create_connection: Any = _Refused(_WIRE)
    create_server: Any = _Refused(_WIRE)
    create_unix_connection: Any = _Refused(_WIRE)
    create_unix_server: Any = _Refused(_WIRE)
    create_datagram_endpoint: Any = _Refused(_WIRE)
    connect_accepted_socket: Any = _Refused(_WIRE)
    start_tls: Any = _Refused(_WIRE)
    sendfile: Any = _Refused(_WIRE)
    sock_accept: Any = _Refused(_WIRE)
    sock_connect: Any = _Refused(_WIRE)
    sock_recv: Any = _Refused(_WIRE)
    sock_recv_into: Any = _Refused(_WIRE)
    sock_recvfrom: Any = _Refused(_WIRE)
    sock_recvfrom_into: Any = _Refused(_WIRE)
    sock_sendall: Any = _Refused(_WIRE)
    sock_sendto: Any = _Refused(_WIRE)
    sock_sendfile: Any = _Refused(_WIRE)

    connect_read_pipe: Any = _Refused(_PROCESS)
    connect_write_pipe: Any = _Refused(_PROCESS)
    subprocess_shell: Any = _Refused(_PROCESS)
    subprocess_exec: Any = _Refused(_PROCESS)

    add_signal_handler: Any = _Refused(_SIGNAL)
    remove_signal_handler: Any = _Refused(_SIGNAL)

    set_task_factory: Any = _Refused(_FIXED)
    get_task_factory: Any = _Refused(_FIXED)
    set_exception_handler: Any = _Refused(_FIXED)
    get_exception_handler: Any = _Refused(_FIXED)
    default_exception_handler: Any = _Refused(_FIXED)

    def __init__(self) -> None:
        self.unseen_errors: list[BaseException] = []
        self._debug = False
        self._tasks_made = 0

    def create_future(self) -> asyncio.Future[Any]:
        """Return a new future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        """Return a new task that starts as soon as its turn comes; without a name it is ``Task-<n>``."""
        if self.is_closed():
            raise RuntimeError("Event loop is closed")
        self._tasks_made += 1
        if name is None:
            name = f"Task-{self._tasks_made}"
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Log an error and keep its exception in :attr:`unseen_errors`."""
        error = context.get("exception")
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            return  # it was raised in a task, and ended run_forever then
        details = "".join(
            f"\n  {key}: {value!r}"
            for key, value in sorted(context.items())
            if key not in ("message", "exception")
        )
        message = context.get("message") or "unhandled error in the event loop"
        _log.error("%s%s", message, details, exc_info=error)
        if error is not None:
            self.unseen_errors.append(error)

    def get_debug(self) -> bool:
        """Whether asyncio's debug mode is on."""
        return self._debug

    def set_debug(self, enabled: bool) -> None:
        """Turn asyncio's debug mode on or off."""
        self._debug = enabled

    async def shutdown_asyncgens(self) -> None:
        """Do nothing: asynchronous generators are closed as other objects are."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Do nothing: there is no executor."""
