"""What comes with replies: notes come once, and no more time is spent than has passed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fedsim.bus.http.state_folder import StateFolder
from fedsim.bus.reply_report import Note, Report

LARGE = 40_000
CHOSEN = Note("info", "student chosen", {"teacher_round": 3, "weight": 0.5, "found": True, "why": None})
WARNED = Note("warning", "no validation samples", {"instead": "training loss"})


def noted(world: Any) -> list[tuple[str, dict[str, Any]]]:
    return [line for line in world.log.lines if line[1].get("told_by") == "client"]


EXPECTED = [
    ("student chosen", {"client": 3, **CHOSEN.values, "told_by": "client"}),
    ("no validation samples", {"client": 3, **WARNED.values, "told_by": "client"}),
]


@pytest.mark.parametrize("num", [None, 10, LARGE])
async def test_notes_come_with_the_reply(make_world: Any, num: int | None) -> None:
    world = await make_world()
    client = await world.join()
    client.on_reply(lambda header: Report(0, [CHOSEN, WARNED]))
    if num is None:
        world.server.send(world.down(3), None)
        client.send((await world.within(client.receive())).header.reply(), None)
    else:
        world.ask(3, num=num)
        world.reply(client, await world.within(client.receive()))
    await world.within(world.server.receive())
    assert noted(world) == EXPECTED
    assert not world.server.rejected


async def test_notes_come_once_however_often_the_reply_does(make_world: Any) -> None:
    world = await make_world()
    proxy = await world.proxy(repeat_up=20)
    client = await world.join(url=proxy.url)
    client.on_reply(lambda header: Report(0, [Note("info", f"of {header.dispatch}", {})]))
    for dispatch in range(6):
        world.ask(3, dispatch)
        world.reply(client, await world.within(client.receive()))
        await world.within(world.server.receive())
        if dispatch % 2:
            proxy.reset_all()
    assert [event for event, _ in noted(world)] == [f"of {dispatch}" for dispatch in range(6)]
    assert proxy.repeated_up >= 6
    await world.until(lambda: world.server.rejected["repeated"] >= 3)


async def test_notes_outlive_the_process(make_world: Any, tmp_path: Path) -> None:
    world = await make_world()
    proxy = await world.proxy()
    state = StateFolder(tmp_path)
    first = await world.join(url=proxy.url, state=state)
    first.on_reply(lambda header: Report(0, [CHOSEN, WARNED]))
    world.ask(3)
    delivery = await world.within(first.receive())
    proxy.swallow(True)
    world.reply(first, delivery)
    await world.until(lambda: state.replies())
    await first.close(0)
    state.close()
    proxy.reset_all()
    proxy.swallow(False)
    assert not noted(world)
    state = StateFolder(tmp_path)
    second = await world.join(url=proxy.url, state=state)
    await world.within(world.server.receive())
    assert noted(world) == EXPECTED
    await second.close(0)
    state.close()


async def test_what_is_noted_for_no_run_is_not_taken(make_world: Any) -> None:
    world = await make_world()
    client = await world.join()
    client.on_reply(lambda header: Report(0, [CHOSEN]))
    world.ask(3)
    delivery = await world.within(client.receive())
    world.server.seal()
    world.reply(client, delivery)
    await world.within(world.server.receive())
    assert not noted(world)


async def test_bad_notes_are_counted_and_the_reply_is_taken(make_world: Any, monkeypatch: Any) -> None:
    world = await make_world()
    client = await world.join()
    client.on_reply(lambda header: Report(0, [WARNED]))
    for dispatch, text in enumerate(("no JSON", '[["error", "x", {}]]', None)):
        with monkeypatch.context() as patched:
            if text is not None:
                patched.setattr("fedsim.bus.http.client.written", lambda notes, left_out, text=text: text)
            world.ask(3, dispatch)
            world.reply(client, await world.within(client.receive()))
            await world.within(world.server.receive())
    assert world.server.rejected == {"note": 2}
    assert [event for event, _ in noted(world)] == ["no validation samples"]


# What a reply took


def spent(world: Any) -> list[tuple[int, int, int]]:
    """Return download, compute and upload of each reply, ns."""
    return [record[4:] for record in world.trace.kept if record[1] == "spent"]


def instant(world: Any, kind: str, up: bool) -> int:
    (at_ns,) = [record[0] for record in world.trace.kept if record[1] == kind and record[4] == up]
    return int(at_ns)


async def test_a_process_that_works_before_it_says_that_it_has_the_dispatch(make_world: Any) -> None:
    world = await make_world(report_delay_s=60.0)  # so that it says so with the reply
    client = await world.join()
    client.on_reply(lambda header: Report(30_000_000))
    await world.within(world.server.attendance([3]))
    world.ask(3)
    delivery = await world.within(client.receive())
    await asyncio.sleep(0.05)
    world.reply(client, delivery)
    await world.within(world.server.receive())
    ((download_ns, compute_ns, upload_ns),) = spent(world)
    passed_ns = instant(world, "transfer_end", up=True) - instant(world, "transfer_start", up=False)
    assert 0 <= download_ns <= passed_ns - 50_000_000
    assert compute_ns == pytest.approx(30_000_000)
    assert upload_ns == 0


async def test_an_upload_is_as_long_as_its_parts_take_to_come(make_world: Any) -> None:
    world = await make_world(chunk_bytes=1 << 14)
    proxy = await world.proxy()
    client = await world.join(url=proxy.url)
    world.ask(3, num=LARGE)
    delivery = await world.within(client.receive())
    proxy.harm.bytes_per_s = 2_000_000.0  # 160 kB take 80 ms
    world.reply(client, delivery)
    await world.within(world.server.receive())
    ((download_ns, compute_ns, upload_ns),) = spent(world)
    assert upload_ns >= 10_000_000
    passed_ns = instant(world, "transfer_end", up=True) - instant(world, "transfer_start", up=False)
    assert download_ns + upload_ns <= passed_ns
    assert compute_ns == 0


async def test_a_liar_spends_no_more_than_has_passed(make_world: Any) -> None:
    world = await make_world()
    client = await world.join()
    client.on_reply(lambda header: Report(10**15))
    world.ask(3)
    world.reply(client, await world.within(client.receive()))
    await world.within(world.server.receive())
    ((download_ns, compute_ns, upload_ns),) = spent(world)
    passed_ns = instant(world, "transfer_end", up=True) - instant(world, "transfer_start", up=False)
    assert 0 < download_ns + compute_ns + upload_ns <= passed_ns


async def test_a_header_alone_is_not_downloaded(make_world: Any) -> None:
    world = await make_world()
    client = await world.join()
    client.on_reply(lambda header: Report(1_000_000))
    world.server.send(world.down(3), None)
    delivery = await world.within(client.receive())
    await asyncio.sleep(0.002)
    client.send(delivery.header.reply(), None)
    await world.within(world.server.receive())
    ((download_ns, compute_ns, upload_ns),) = spent(world)
    assert (download_ns, upload_ns) == (0, 0)
    assert compute_ns == pytest.approx(1_000_000)
