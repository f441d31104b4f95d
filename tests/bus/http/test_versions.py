"""Two sides that do not fit: the process that joins is told plainly, and the server goes on."""

import tomllib
from typing import Any

import pytest
from aiohttp import web

from fedsim.bus.http.access import ClientRanges
from fedsim.bus.http.messages import PROTOCOL
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


async def test_a_server_with_other_data_is_left(make_world: Any, tiny_scenario: str) -> None:
    """What other greetings are refused: tests/runtime/sockets/test_handshake.py."""
    data = fingerprint(build(Scenario.model_validate(tomllib.loads(tiny_scenario))).data)
    greeting = Greeting(tiny_scenario, "fedavg", {**data, "samples": "180 of float32 #0123"})
    world = await make_world(num_clients=4, greeting=greeting.encode())
    why = "the data here are not those of the server: samples (200 of float32 here, 180 of float32 there)"
    with pytest.raises(UserError) as refused:
        await join(world.url)
    assert str(refused.value).startswith(why)
    assert not world.server.rejected
    (left,) = world.log.of("process left")  # and the server's terminal says why
    assert left["why"].startswith(why)
    await world.still_works(2)


async def test_another_protocol(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("fedsim.bus.http.connecting.PROTOCOL", PROTOCOL + 1)
        with pytest.raises(
            UserError, match=f"speaks protocol {PROTOCOL}, this process {PROTOCOL + 1}: install the"
        ):
            await join(world.url)
    assert world.server.rejected == {"protocol": 1}
    await world.still_works()


@pytest.mark.parametrize(
    ("statuses", "problem"),
    [
        pytest.param((200,), r"no fedsim server .*\(status 200\): check the address", id="another page"),
        pytest.param((503, 503, 404), r"server .*\(status 404\)", id="none, and one that is busy at first"),
        pytest.param((421,), "only who calls it by a loopback name", id="one that is called by another name"),
    ],
)
async def test_some_other_server(statuses: tuple[int, ...], problem: str) -> None:
    asked = list[str]()

    async def page(request: web.BaseRequest) -> web.Response:
        asked.append(request.path)
        status = statuses[min(len(asked), len(statuses)) - 1]
        return web.Response(text="welcome", status=status)

    runner = web.ServerRunner(web.Server(page), shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        with pytest.raises(UserError, match=problem):
            await join(f"http://127.0.0.1:{runner.addresses[0][1]}")
    finally:
        await runner.cleanup()
    assert asked == ["/session"] * len(statuses)
