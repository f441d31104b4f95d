"""The bus over TLS, with a certificate made here; and what a person hears where two sides do not agree."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fedsim.bus.http.access import Access, ClientRanges, new_token
from fedsim.errors import UserError
from fedsim.processes.addresses_and_tls import client_tls, server_tls
from tests.bus.http.peer import say

OPENSSL = shutil.which("openssl")
pytestmark = pytest.mark.skipif(OPENSSL is None, reason="openssl is not here: it makes the certificates")
LARGE = 100_000  # floats: 400 kB, fetched apart

Certified = Callable[..., tuple[Path, Path]]


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Certified:
    """Return what makes a certificate that signs itself, and its key."""
    folder = tmp_path_factory.mktemp("certificates")

    def make(name: str, names: str = "IP:127.0.0.1,DNS:localhost") -> tuple[Path, Path]:
        certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
        if not certificate.exists():
            command = [
                *(str(OPENSSL), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
                *("-nodes", "-days", "2", "-subj", f"/CN={name}", "-addext", f"subjectAltName={names}"),
                *("-addext", "keyUsage=critical,digitalSignature,keyCertSign"),
                *("-keyout", str(key), "-out", str(certificate)),
            ]
            subprocess.run(command, check=True, capture_output=True)  # noqa: S603
        return certificate, key

    return make


@pytest.fixture
async def make_encrypted(make_world: Any, certified: Certified) -> Any:
    async def make(**options: Any) -> Any:
        return await make_world(encrypt=server_tls(*certified("server")), **options)

    return make


@pytest.fixture
def trusted(certified: Certified) -> ssl.SSLContext | None:
    """What trusts the server's certificate."""
    return client_tls(certified("server")[0])


async def test_a_break_in_the_middle_is_mended(make_encrypted: Any, trusted: Any) -> None:
    secret, line = new_token(ClientRanges.parse("0-9"))
    world = await make_encrypted(access=Access.from_lines([line]), chunk_bytes=1 << 16)
    proxy = await world.proxy(slice_bytes=1 << 14)
    client = await world.join(url=proxy.url.replace("http", "https"), ssl=trusted, token=secret)
    for number, num in enumerate((10, LARGE)):
        world.ask(number, num=num)
        delivery = await world.got(client)
        if num == LARGE:
            proxy.reset_after = proxy.up + 200_000
        world.reply(client, delivery)
        reply = await world.taken()
        assert (reply.header.sender, len(reply.message.params["w"])) == (number, num)
    assert proxy.reset_after is None
    url = f"{world.url}/health"
    async with aiohttp.ClientSession() as http, http.get(url, ssl=trusted) as response:
        assert (await response.json())["status"] == "ok"


async def test_who_does_not_agree_about_encryption_is_told(
    make_encrypted: Any, make_world: Any, certified: Certified, trusted: Any
) -> None:
    world, plain = await make_encrypted(), await make_world()
    named, key = certified("elsewhere", "DNS:example.org")
    elsewhere = await make_world(encrypt=server_tls(named, key))
    unknown = r"does not show a certificate .*self.signed.*give .* authority"
    mistakes: list[tuple[Any, str, ssl.SSLContext | None, str]] = [
        (world, world.url, client_tls(certified("other")[0]), unknown),
        (world, world.url, None, unknown),
        (elsewhere, elsewhere.url, client_tls(named), "not valid for '127.0.0.1'.*as its certificate names"),
        (world, world.url.replace("https", "http"), None, "encrypts: write https:// in place of http://"),
        (plain, plain.url.replace("http", "https"), trusted, "does not encrypt: write http:// in place of"),
    ]
    for there, url, context, told in mistakes:
        with pytest.raises(UserError, match=told):
            await there.join(url=url, ssl=context)
    old = ssl.create_default_context(cafile=certified("server")[0])
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await world.within(asyncio.open_connection("127.0.0.1", world.port, ssl=old))
    await world.join(ssl=trusted)  # both go on
    await plain.join()


async def test_who_is_lost_before_the_greeting_is_no_user_of_the_wrong_scheme(make_world: Any) -> None:
    world = await make_world(patience_s=2.0)
    proxy = await world.proxy(reset_after=1)
    client = await world.join(url=proxy.url)  # the second attempt succeeds
    world.ask(0)
    assert (await world.got(client)).header.receiver == 0
    await world.server.close(0.1)
    with pytest.raises(ConnectionError, match="no connection to"):
        await world.join(url=proxy.url)


async def test_those_who_never_shake_hands_are_bounded_too(make_encrypted: Any, trusted: Any) -> None:
    world = await make_encrypted(max_handshakes=20, max_connections=30)
    client = await world.join(ssl=trusted)
    crowd = [await asyncio.open_connection("127.0.0.1", world.port) for _ in range(100)]
    ended = [asyncio.ensure_future(reader.read()) for reader, _ in crowd]
    await world.until(lambda: sum(one.done() for one in ended) >= 80)
    assert world.server.connections.num_connections <= 30
    world.ask(0)
    await world.echo(client)
    await world.taken()
    assert world.server.rejected["connections"] >= 80
    # Those that are left are turned out when their time is up.
    await world.until(lambda: world.server.connections.num_connections <= 4)
    for _, writer in crowd:
        writer.transport.abort()
    await asyncio.gather(*ended, return_exceptions=True)


async def test_a_handshake_that_fails_is_forgotten_at_once(make_encrypted: Any) -> None:
    world = await make_encrypted()
    assert await say(world, b"GET /health HTTP/1.1\r\n\r\n") == b""
    await world.until(lambda: world.server.connections.num_connections == 0)
    assert world.server.rejected["slow"] == 0
