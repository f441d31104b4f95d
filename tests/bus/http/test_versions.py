"""Two sides that do not fit: the process that joins is told plainly, and the server goes on."""

from __future__ import annotations

import asyncio
import tomllib
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import Any

import pytest
from aiohttp import web

from fedsim import __version__
from fedsim.bus.http.access import ClientRanges
from fedsim.data.fingerprints import fingerprint
from fedsim.errors import UserError
from fedsim.processes.client import ClientProcess
from fedsim.runtime.sockets.handshake import FORMAT, Greeting
from fedsim.scenario import Scenario, build

TINY = """
[run]
rounds = 2
[data]
name = "digits"
limit = 200
[models.linear]
[[fleet]]
count = 4
device = "high"
"""


SEVEN = b'{"protocol": 7, "clients": ""}'


async def join(url: str) -> None:
    """Join as ``fedsim join`` does."""
    process = ClientProcess(
        url=url,
        clients=ClientRanges.parse("0-1"),
        workers=1,
        patience_s=60.0,
    )
    async with asyncio.timeout(60):
        await process.run()


def greeting(scenario: str = TINY, **changes: Any) -> bytes:
    return Greeting(scenario, "fedavg", **changes).encode()


@cache
def here() -> Mapping[str, str]:
    """Return the fingerprint of what the scenario gives here."""
    return fingerprint(build(Scenario.model_validate(tomllib.loads(TINY))).data)


@pytest.mark.parametrize(
    ("said", "match"),
    [
        (greeting(fedsim="99.1"), rf"runs fedsim 99.1 .* this is fedsim {__version__} .* the same version"),
        (greeting(format=FORMAT + 1), rf"\(format {FORMAT + 1}\).* the same version on both sides"),
        (b"hello", "no fedsim server: check the address and the port"),
        (b'{"fedsim": 1}', "no fedsim server"),
        (
            greeting("[data]\nname = 'lab.secret'\n"),
            r"cannot be read here \(.*; data\.name: no data set .* 'lab\.secret'.*\): private plugins",
        ),
        (greeting("= rubbish"), "scenario cannot be read here"),
        (greeting(data=[]), "greeting is damaged"),
        (greeting(data={"task": 3}), "greeting is damaged"),
        (greeting(data={"task": "x" * 301}), "greeting is damaged"),
        (greeting(verify=1), "greeting is damaged"),
        (
            greeting(),
            r"the data here are not those of the server: task \(.*, unknown there\).* or FEDSIM_DATA",
        ),
    ],
)
async def test_a_greeting_that_is_none_for_this_version(make_world: Any, said: bytes, match: str) -> None:
    await check_that_it_is_refused(make_world, said, match)


async def check_that_it_is_refused(make_world: Any, said: bytes, match: str) -> None:
    world = await make_world(num_clients=4, greeting=said)
    with pytest.raises(UserError, match=match):
        await join(world.url)
    await goes_on(world)
    assert not world.server.rejected


@pytest.mark.parametrize(
    ("part", "match"),
    [
        (
            {"labels": "200 of int64 #0123"},
            r"server: labels \(200 of int64 both, with other values\)\. Both sides",
        ),
        (
            {"samples": "180 of float32 #0123"},
            r"server: samples \(200 of float32 here, 180 of float32 there\)\. Both sides",
        ),
    ],
)
async def test_a_server_with_other_data(make_world: Any, part: dict[str, str], match: str) -> None:
    await check_that_it_is_refused(make_world, greeting(data={**here(), **part}), match)


async def test_another_protocol(make_world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    world = await make_world(num_clients=4, greeting=greeting())
    with monkeypatch.context() as patched:
        patched.setattr("fedsim.bus.http.requests.join_request", lambda clients: SEVEN)
        with pytest.raises(UserError, match=r"speaks protocol 7, this server 4: install the same version"):
            await join(world.url)
    await goes_on(world)


async def test_a_request_to_join_that_the_server_does_not_understand(
    make_world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await make_world(num_clients=4, greeting=greeting())

    with monkeypatch.context() as patched:
        patched.setattr("fedsim.bus.http.requests.join_request", lambda clients: b"{}")
        with pytest.raises(UserError, match=r"does not speak this fedsim's protocol .* the same version"):
            await join(world.url)
    assert world.server.rejected["protocol"] == 1
    await goes_on(world)


Serve = Callable[..., Awaitable[str]]


@pytest.fixture
async def serve() -> Any:
    """Return what serves something else."""
    runners = []

    async def serve(handler: Any) -> str:
        runner = web.ServerRunner(web.Server(handler), shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        runners.append(runner)
        return f"http://127.0.0.1:{runner.addresses[0][1]}"

    yield serve
    for runner in runners:
        await runner.cleanup()


@pytest.mark.parametrize("status", [200, 307, 404])
async def test_some_other_server(serve: Serve, status: int) -> None:
    asked = []

    async def page(request: web.BaseRequest) -> web.Response:
        asked.append(request.path)
        return web.Response(text="welcome", status=status, headers={"Location": "/elsewhere"})

    url = await serve(page)
    with pytest.raises(UserError, match=rf"is no fedsim server \(status {status}\): check the address"):
        await join(url)
    assert asked == ["/join"]  # nobody is sent elsewhere, with the session's secret


async def test_a_server_that_is_only_busy_is_tried_again(serve: Serve) -> None:
    tries = 0

    async def busy(request: web.BaseRequest) -> web.Response:
        nonlocal tries
        tries += 1
        return web.Response(status=503 if tries < 3 else 404)

    url = await serve(busy)
    with pytest.raises(UserError, match="status 404"):
        await join(url)
    assert tries == 3


async def goes_on(world: Any) -> None:
    """Exchange something with an honest process."""
    client = await world.join("0-3")
    world.ask(2)
    async with asyncio.timeout(60):
        world.reply(client, await client.receive())
        assert (await world.server.receive()).header.sender == 2
