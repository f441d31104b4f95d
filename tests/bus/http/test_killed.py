"""Client processes of the operating system that are killed, without any warning, and started again."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.bus.http.conftest import SkippingLoop, within

ECHOING = Path(__file__).parent / "echoing.py"
LARGE = 2_000_000  # floats: 8 MB, more than is on its way between two processes
LARGE_BYTES = 4 * LARGE

Start = Callable[[str], Awaitable[asyncio.subprocess.Process]]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Return what starts a process for the clients 0-3, with the state folder that all of them share."""
    started: list[asyncio.subprocess.Process] = []
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SkippingLoop)
    loop.num_busy += 1  # with what the processes do
    paths = os.pathsep.join(place for place in sys.path if place)

    async def start(url: str) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(ECHOING), url, "0-3", str(tmp_path / "state")),
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": paths},
        )
        started.append(process)
        assert process.stdout is not None
        assert await within(process.stdout.readline()) == b"joined\n"
        return process

    yield start
    for process in started:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.5, 1.5, 2.8])
async def test_replies_come_once_and_states_go_with_them(make_world: Any, start: Start, share: float) -> None:
    world = await make_world(num_clients=4)
    proxy = await world.proxy(slice_bytes=1 << 14)
    first = await start(proxy.url)
    before = proxy.up
    for dispatch in range(2):
        for number in range(4):
            world.ask(number, dispatch, LARGE if number % 2 else 10)
    # In the middle of the first, second or third of the large replies, or wherever the disk is by then.
    await world.until(lambda: proxy.up - before > share * LARGE_BYTES)
    first.send_signal(signal.SIGKILL)
    proxy.reset_all()  # or the system passes on what it holds of a dead process
    await first.communicate()
    assert first.returncode == -signal.SIGKILL
    assert world.num_open
    await start(proxy.url)
    replies = [await within(world.inbox.get()) for _ in range(8)]
    for number in range(4):
        mine = [reply for reply in replies if reply.header.sender == number]
        assert [reply.header.dispatch for reply in mine] == [0, 1]
        # Of a state that was ahead of its reply, or behind it, the second reply would tell.
        assert [reply.message.num_samples for reply in mine] == [1, 2]
    assert not world.num_open
    assert world.ledger.outcomes()["delivered"] == len(world.ledger) == 16
