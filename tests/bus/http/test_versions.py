"""Two sides that do not fit: the process that joins is told plainly, and the server goes on."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from aiohttp import web

from fedsim.bus.http.access import ClientRanges
from fedsim.data.fingerprints import fingerprint
from fedsim.errors import UserError
from fedsim.processes.client import ClientProcess
from fedsim.runtime.sockets.handshake import Greeting
from fedsim.scenario import Scenario, build
from tests.bus.http.conftest import within


async def join(url: str) -> None:
    """Join as ``fedsim join`` does."""
    process = ClientProcess(url=url, clients=ClientRanges.parse("0-1"), workers=1, patience_s=60.0)
    await within(process.run())


def server_with(scenario: str, **data: str) -> bytes:
    """Return the greeting of a server that has some data of its own."""
    there = fingerprint(build(Scenario.model_validate(tomllib.loads(scenario))).data)
    return Greeting(scenario, "fedavg", {**there, **data}).encode()


async def test_a_server_with_other_data_is_left(make_world: Any, tiny_scenario: str) -> None:
    """What other greetings are refused: tests/runtime/sockets/test_handshake.py."""
    world = await make_world(
        num_clients=4, greeting=server_with(tiny_scenario, samples="180 of float32 #0123")
    )
    why = "the data here are not those of the server: samples (200 of float32 here, 180 of float32 there)"
    with pytest.raises(UserError) as refused:
        await join(world.url)
    assert str(refused.value).startswith(why)
    assert not world.server.rejected
    (left,) = world.log.of("process left")  # and the server's terminal says why
    assert left["why"].startswith(why)
    await world.still_works(2)


@pytest.mark.parametrize(
    ("said", "problem", "rejected"),
    [
        (b'{"protocol": 7, "clients": ""}', "speaks protocol 7, this server 4: install the same", "refused"),
        (b"{}", r"does not speak this fedsim's protocol .* the same version", "protocol"),
    ],
)
async def test_another_protocol(
    make_world: Any, monkeypatch: pytest.MonkeyPatch, said: bytes, problem: str, rejected: str
) -> None:
    world = await make_world(num_clients=4)
    with monkeypatch.context() as patched:
        patched.setattr("fedsim.bus.http.requests.join_request", lambda clients: said)
        with pytest.raises(UserError, match=problem):
            await join(world.url)
    assert world.server.rejected == {rejected: 1}
    await world.still_works(2)


@pytest.fixture
async def serve() -> Any:
    """Return what serves something else: answers with each of some statuses in turn."""
    runners, asked = [], list[str]()

    async def serve(*statuses: int) -> tuple[str, list[str]]:
        async def page(request: web.BaseRequest) -> web.Response:
            asked.append(request.path)
            status = statuses[min(len(asked), len(statuses)) - 1]
            return web.Response(text="welcome", status=status, headers={"Location": "/elsewhere"})

        runner = web.ServerRunner(web.Server(page), shutdown_timeout=0.1)
        await runner.setup()
        runners.append(runner)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}", asked

    yield serve
    for runner in runners:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("statuses", "tries"),
    [((200,), 1), ((307,), 1), ((404,), 1), ((503, 503, 404), 3)],
    ids=["another page", "one that leads elsewhere", "none", "one that is only busy at first"],
)
async def test_some_other_server(serve: Any, statuses: tuple[int, ...], tries: int) -> None:
    url, asked = await serve(*statuses)
    with pytest.raises(UserError, match=rf"is no fedsim server \(status {statuses[-1]}\): check the address"):
        await join(url)
    assert asked == ["/join"] * tries  # nobody is sent elsewhere, with the session's secret
