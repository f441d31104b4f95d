"""What a loop without a selector cannot do, and what to use instead.

Whatever would let the host decide *when* something happens raises an error that names the method and a way
that works in virtual time. asyncio's bare ``NotImplementedError`` would say neither.
"""

import asyncio
from typing import Any, Never

from fedsim.errors import VirtualTimeError

_WIRE = "send over the in-memory bus, or run the aiohttp bus on a real asyncio loop (asyncio.run)"
_PROCESS = "start the process outside the run, or on a real asyncio loop (asyncio.run)"
_SIGNAL = "use signal.signal; Ctrl-C comes out of fedsim.clock.run as KeyboardInterrupt by itself"
_WORK = "submit a training job through the engine, which knows its virtual duration beforehand"
_FIXED = "the loop makes its tasks and reports its errors in one way, the same in every run"


class _Refused:
    """A method that only says why it is not there."""

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


class RefusingLoop(asyncio.AbstractEventLoop):
    """The part of asyncio's loop interface that virtual time refuses with :class:`VirtualTimeError`."""

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
