"""The bus over TLS, with a certificate made here; and what a person hears where two sides do not agree."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fedsim.bus.http.access import Access, ClientRanges, new_token
from fedsim.errors import UserError
from fedsim.processes.addresses_and_tls import client_tls, server_tls

OPENSSL = shutil.which("openssl")
pytestmark = pytest.mark.skipif(OPENSSL is None, reason="openssl is not here: it makes the certificates")
LARGE = 100_000  # floats: 400 kB, fetched apart

Certificate = tuple[Path, Path]


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Certificate]:
    """Return what makes a certificate that signs itself, and its key."""
    folder = tmp_path_factory.mktemp("certificates")

    def make(name: str, names: str = "IP:127.0.0.1,DNS:localhost") -> Certificate:
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
async def make_encrypted(make_world: Any, certified: Callable[[str], Certificate]) -> Any:
    async def make(name: str = "server", **options: Any) -> Any:
        return await make_world(encrypt=server_tls(*certified(name)), **options)

    return make


async def test_messages_go_both_ways(make_encrypted: Any, certified: Callable[[str], Certificate]) -> None:
    secret, line = new_token(ClientRanges.parse("0-9"))
    world = await make_encrypted(access=Access.from_lines([line]))
    client = await world.join(ssl=client_tls(certified("server")[0]), token=secret)
    for number, num in enumerate((10, LARGE)):
        world.ask(number, num=num)
        delivery = await world.within(client.receive())
        world.reply(client, delivery)
        answer = await world.within(world.server.receive())
        assert answer.header.sender == number
        assert len(answer.message.params["w"]) == num
    assert not world.server.rejected


async def test_a_break_in_the_middle_is_mended(
    make_encrypted: Any, certified: Callable[[str], Certificate]
) -> None:
    world = await make_encrypted(chunk_bytes=1 << 16)
    proxy = await world.proxy(slice_bytes=1 << 14)
    client = await world.join(url=f"https://127.0.0.1:{proxy.port}", ssl=client_tls(certified("server")[0]))
    world.ask(0, num=LARGE)
    delivery = await world.within(client.receive())
    proxy.harm.reset_after = proxy.up + 200_000
    world.reply(client, delivery)
    answer = await world.within(world.server.receive())
    assert len(answer.message.params["w"]) == LARGE
    assert proxy.harm.reset_after is None


async def test_health_is_encrypted_too(make_encrypted: Any, certified: Callable[[str], Certificate]) -> None:
    world = await make_encrypted()
    trusted = client_tls(certified("server")[0])
    async with (
        aiohttp.ClientSession() as http,
        http.get(f"{world.url}/health", ssl=trusted or True) as response,
    ):
        assert (await response.json())["status"] == "ok"


async def test_an_old_protocol_is_refused(
    make_encrypted: Any, certified: Callable[[str], Certificate]
) -> None:
    world = await make_encrypted()
    old = ssl.create_default_context(cafile=certified("server")[0])
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await world.within(asyncio.open_connection("127.0.0.1", world.port, ssl=old))
    await world.join(ssl=client_tls(certified("server")[0]))


async def test_a_certificate_that_is_not_trusted(
    make_encrypted: Any, certified: Callable[[str], Certificate]
) -> None:
    world = await make_encrypted()
    for authority in (client_tls(certified("other")[0]), None):
        with pytest.raises(UserError, match=r"does not show a certificate .*self.signed.*give .* authority"):
            await world.within(world.join(ssl=authority))
    await world.join(ssl=client_tls(certified("server")[0]))


async def test_a_certificate_for_another_name(make_world: Any, certified: Callable[..., Certificate]) -> None:
    certificate, key = certified("elsewhere", "DNS:example.org")
    world = await make_world(encrypt=server_tls(certificate, key))
    with pytest.raises(UserError, match=r"not valid for '127.0.0.1'.*as its certificate names it"):
        await world.within(world.join(ssl=client_tls(certificate)))


async def test_no_encryption_where_there_is_some(
    make_encrypted: Any, certified: Callable[[str], Certificate]
) -> None:
    world = await make_encrypted()
    with pytest.raises(UserError, match="encrypts: write https:// in place of http://"):
        await world.within(world.join(url=f"http://127.0.0.1:{world.port}"))
    await world.join(ssl=client_tls(certified("server")[0]))


async def test_encryption_where_there_is_none(
    make_world: Any, certified: Callable[[str], Certificate]
) -> None:
    world = await make_world()
    with pytest.raises(UserError, match="does not encrypt: write http:// in place of https://"):
        await world.within(
            world.join(url=f"https://127.0.0.1:{world.port}", ssl=client_tls(certified("server")[0]))
        )
    await world.join()


async def test_who_is_lost_before_the_greeting_is_no_user_of_the_wrong_scheme(make_world: Any) -> None:
    world = await make_world()
    proxy = await world.proxy(reset_after=1)
    client = await world.join(url=proxy.url)  # the second attempt succeeds
    world.ask(0)
    assert (await world.within(client.receive())).header.receiver == 0
    await world.server.close(0.1)
    with pytest.raises(ConnectionError, match="no connection to"):
        await world.within(world.join(url=proxy.url, limits=replace(world.limits, patience_s=0.1)))


async def test_those_who_never_shake_hands_are_bounded_too(
    make_encrypted: Any, certified: Callable[[str], Certificate]
) -> None:
    world = await make_encrypted(max_handshakes=20, max_connections=30, handshake_timeout_s=1.0)
    client = await world.join(ssl=client_tls(certified("server")[0]))
    crowd = [await asyncio.open_connection("127.0.0.1", world.port) for _ in range(100)]
    ended = [asyncio.ensure_future(reader.read()) for reader, _ in crowd]
    await world.until(lambda: sum(one.done() for one in ended) >= 80)
    assert world.server.num_connections <= 30
    world.ask(0)
    world.reply(client, await world.within(client.receive()))
    await world.within(world.server.receive())
    assert world.server.rejected["connections"] >= 80
    for _, writer in crowd:
        writer.transport.abort()
    await asyncio.gather(*ended, return_exceptions=True)
    # Those that are left are turned out when their time is up.
    await world.until(lambda: world.server.num_connections <= 4)
