"""Client processes of the operating system that are killed, without any warning, and started again."""

from __future__ import annotations

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
LARGE = 500_000  # floats: 2 MB
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


async def kill(process: asyncio.subprocess.Process) -> None:
    process.send_signal(signal.SIGKILL)
    await process.communicate()
    assert process.returncode == -signal.SIGKILL


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.1, 1.5, 2.8])
async def test_answers_come_once_and_states_go_with_them(make_world: Any, start: Start, share: float) -> None:
    world = await make_world(num_clients=4)
    proxy = await world.proxy(slice_bytes=1 << 14)
    first = await start(proxy.url)
    before = proxy.up
    for dispatch in range(2):
        for number in range(4):
            world.ask(number, dispatch, LARGE if number % 2 else 10)
    # In the middle of the first, second or third of the large answers, or wherever the disk is by then.
    await world.until(lambda: proxy.up - before > share * LARGE_BYTES)
    await kill(first)
    await start(proxy.url)
    answers = [await within(world.server.receive()) for _ in range(8)]
    for number in range(4):
        mine = [answer for answer in answers if answer.header.sender == number]
        assert [answer.header.dispatch for answer in mine] == [0, 1]
        # Of a state that was ahead of its answer, or behind it, the second answer would tell.
        assert [answer.message.num_samples for answer in mine] == [1, 2]
    assert not world.num_open
    assert world.ledger.outcomes()["delivered"] == len(world.ledger) == 16


@pytest.mark.slow
async def test_an_upload_goes_on_in_the_next_process(make_world: Any, start: Start) -> None:
    world = await make_world(num_clients=4, chunk_bytes=1 << 16)
    proxy = await world.proxy(slice_bytes=1 << 14)
    first = await start(proxy.url)
    before = proxy.up
    world.ask(0, num=4 * LARGE)
    await world.until(lambda: proxy.up - before > 3 * LARGE_BYTES)
    await kill(first)
    (session,) = world.server._sessions
    await world.until(lambda: not session.uploads[0, 0].is_busy)
    held = world.held_bytes
    assert held > 2 * LARGE_BYTES
    at_kill = proxy.up
    await start(proxy.url)
    answer = await within(world.server.receive())
    assert len(answer.message.params["w"]) == 4 * LARGE
    # What was held was not sent again: what was sent is the rest, and a few requests.
    assert proxy.up - at_kill < 4 * LARGE_BYTES - held + 20_000
    assert world.server.rejected["checksum"] == 0
