"""The bus over TLS, with a certificate made here; and what a person hears where two sides do not agree."""

import asyncio
import math
import ssl
from typing import Any

import aiohttp
import pytest

from fedsim.bus.http.access import Access, ClientRanges, new_token
from fedsim.errors import UserError
from fedsim.processes.addresses_and_tls import client_tls, server_tls
from tests.bus.http.peer import say
from tests.conftest import Certify

LARGE = 100_000  # floats: 400 kB, in several messages


@pytest.fixture
async def make_encrypted(make_world: Any, certify: Certify) -> Any:
    async def make(**options: Any) -> Any:
        return await make_world(encrypt=server_tls(*certify("server")), **options)

    return make


@pytest.fixture
def trusted(certify: Certify) -> ssl.SSLContext | None:
    return client_tls(certify("server")[0])


async def test_a_break_in_the_middle_is_mended(make_encrypted: Any, trusted: Any) -> None:
    secret, line = new_token(ClientRanges.parse("0-9"))
    world = await make_encrypted(access=Access.from_lines([line]))
    proxy = await world.proxy(slice_bytes=1 << 14)
    client = await world.join(url=proxy.url.replace("http", "https"), ssl=trusted, token=secret)
    for number, num in enumerate((10, LARGE)):
        delivery = await world.asked(client, number, num=num)
        if num == LARGE:
            proxy.reset_after = proxy.up + 200_000
        world.reply(client, delivery)
        reply = await world.taken()
        assert (reply.header.sender, len(reply.message.params["w"])) == (number, num)
    assert proxy.reset_after == math.inf
    url = f"{world.url}/health"
    async with aiohttp.ClientSession() as http, http.get(url, ssl=trusted) as response:
        assert (await response.json())["status"] == "ok"


async def test_who_does_not_agree_about_encryption_is_told(
    make_encrypted: Any, make_world: Any, certify: Certify, trusted: Any
) -> None:
    world, plain = await make_encrypted(), await make_world()
    named, key = certify("elsewhere", "DNS:example.org")
    elsewhere = await make_world(encrypt=server_tls(named, key))
    unknown = r"does not show a certificate .*self.signed.*give .* authority"
    mistakes: list[tuple[Any, str, ssl.SSLContext | None, str]] = [
        (world, world.url, client_tls(certify("other")[0]), unknown),
        (world, world.url, None, unknown),
        (elsewhere, elsewhere.url, client_tls(named), "not valid for '127.0.0.1'.*as its certificate names"),
        (world, world.url.replace("https", "http"), None, "encrypts: write https:// in place of http://"),
        (plain, plain.url.replace("http", "https"), trusted, "does not encrypt: write http:// in place of"),
    ]
    for there, url, context, told in mistakes:
        with pytest.raises(UserError, match=told):
            await there.join(url=url, ssl=context)
    old = ssl.create_default_context(cafile=certify("server")[0])
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await world.within(asyncio.open_connection("127.0.0.1", world.port, ssl=old))
    await world.join(ssl=trusted)  # both go on
    await plain.join()


async def test_a_handshake_that_fails_is_forgotten_at_once(make_encrypted: Any) -> None:
    world = await make_encrypted()
    assert await say(world, b"GET /health HTTP/1.1\r\n\r\n") == b""
    assert not world.server.rejected
