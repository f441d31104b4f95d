"""What the loop refuses, and what it says then."""

import asyncio
from collections.abc import Callable

import pytest

from fedsim.clock import VirtualTimeLoop
from fedsim.errors import VirtualTimeError


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda loop: loop.run_in_executor(None, int), "engine"),
        (lambda loop: loop.add_reader(0, int), "bus"),
        (lambda loop: loop.create_server(int, port=0), "bus"),
        (lambda loop: loop.sock_recv(None, 1), "bus"),
        (lambda loop: loop.getaddrinfo("localhost", 1), "bus"),
        (lambda loop: loop.connect_read_pipe(int, None), "real asyncio loop"),
        (lambda loop: loop.subprocess_exec(int, "true"), "outside the run"),
        (lambda loop: loop.add_signal_handler(2, int), "signal.signal"),
    ],
)
def test_refusals_name_themselves_and_say_what_to_use(
    loop: VirtualTimeLoop, call: Callable[[VirtualTimeLoop], object], hint: str
) -> None:
    name = call.__code__.co_names[0]
    with pytest.raises(VirtualTimeError, match=rf"^{name}\(\) cannot work on the virtual-time loop.*{hint}"):
        call(loop)


def test_nothing_of_asyncios_interface_is_left_unimplemented() -> None:
    bare = {
        name
        for name, member in vars(asyncio.AbstractEventLoop).items()
        if callable(member) and getattr(VirtualTimeLoop, name, None) is member
    }
    assert bare <= {"_timer_handle_cancelled"}


async def test_to_thread_and_streams_are_refused() -> None:
    with pytest.raises(VirtualTimeError, match="run_in_executor"):
        await asyncio.to_thread(int)
    with pytest.raises(VirtualTimeError, match="create_connection"):
        await asyncio.open_connection("localhost", 1)
