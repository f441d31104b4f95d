"""What comes with replies: notes come once, and no more time is spent than has passed."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fedsim.bus.http.state_folder import StateFolder
from fedsim.bus.reply_report import Note, Report

LARGE = 40_000
NOTES = [
    Note("info", "student chosen", {"teacher_round": 3, "weight": 0.5, "found": True, "why": None}),
    Note("warning", "no validation samples", {"instead": "training loss"}),
]
EXPECTED = [(note.event, {"client": 3, **note.values, "told_by": "client"}) for note in NOTES]


def noted(world: Any) -> list[tuple[str, dict[str, Any]]]:
    return [line for line in world.log.lines if line[1].get("told_by") == "client"]


@pytest.mark.parametrize("num", [0, 10, LARGE])
async def test_notes_come_with_the_reply(world: Any, num: int) -> None:
    client = await world.join()
    client.on_reply(lambda header: Report(0, NOTES))
    world.ask(3, num=num)
    await world.echo(client)
    await world.taken()
    assert noted(world) == EXPECTED
    assert world.log.warned == [NOTES[1].event]
    assert not world.server.rejected
    world.ask(3, 1, num=num)
    delivery = await world.got(client)
    world.server.seal()
    world.reply(client, delivery)
    await world.taken()
    assert noted(world) == EXPECTED  # what is noted for no run is not taken


async def test_notes_come_once_however_often_the_reply_does(world: Any) -> None:
    proxy = await world.proxy(repeat_up=20)
    client = await world.join(url=proxy.url)
    client.on_reply(lambda header: Report(0, [Note("info", f"of {header.dispatch}", {})]))
    for dispatch in range(6):
        world.ask(3, dispatch)
        await world.echo(client)
        await world.taken()
        if dispatch % 2:
            proxy.reset_all()
    assert [event for event, _ in noted(world)] == [f"of {dispatch}" for dispatch in range(6)]
    assert proxy.repeated >= 6
    await world.until(lambda: world.server.rejected["repeated"] >= 3)


async def test_notes_outlive_the_process(world: Any, tmp_path: Path) -> None:
    proxy = await world.proxy()
    with closing(StateFolder(tmp_path)) as state:
        first = await world.join(url=proxy.url, state=state)
        first.on_reply(lambda header: Report(0, NOTES))
        world.ask(3)
        delivery = await world.got(first)
        proxy.swallow(True)
        world.reply(first, delivery)
        await world.until(state.replies)
        await first.close(0)
    proxy.reset_all()
    proxy.swallow(False)
    assert not noted(world)
    with closing(StateFolder(tmp_path)) as state:
        second = await world.join(url=proxy.url, state=state)
        await world.taken()
        assert noted(world) == EXPECTED
        await second.close(0)


async def test_bad_notes_are_counted_and_the_reply_is_taken(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await world.join()
    client.on_reply(lambda header: Report(0, NOTES))
    for dispatch, text in enumerate(("no JSON", '[["error", "x", {}]]')):
        monkeypatch.setattr("fedsim.bus.http.client.written", lambda notes, left_out, text=text: text)
        world.ask(3, dispatch)
        await world.echo(client)
        await world.taken()
    assert world.server.rejected == {"note": 2}
    assert not noted(world)


# What a reply took


async def spent(world: Any, compute_ns: int, num: int, after_s: float = 0.0) -> tuple[list[float], float]:
    """Return download, compute and upload of a reply given so late, and how long it all took, s."""
    proxy = await world.proxy()
    client = await world.join(url=proxy.url)
    client.on_reply(lambda header: Report(compute_ns))
    await world.within(world.server.attendance([3]))
    began_s = asyncio.get_running_loop().time()
    world.ask(3, num=num)
    delivery = await world.got(client)
    await asyncio.sleep(after_s)
    proxy.bytes_per_s = 1_000_000.0
    world.reply(client, delivery)
    await world.taken()
    passed_s = asyncio.get_running_loop().time() - began_s
    (times_ns,) = [record[4:] for record in world.trace.kept if record[1] == "spent"]
    return [time_ns / 1e9 for time_ns in times_ns], passed_s


async def test_a_process_that_works_before_it_says_that_it_has_the_dispatch(make_world: Any) -> None:
    world = await make_world(report_delay_s=60.0)  # so that it says so with the reply
    (download_s, compute_s, upload_s), passed_s = await spent(world, 3_000_000_000, 10, after_s=5.0)
    assert 0 <= download_s <= passed_s - 5
    assert (compute_s, upload_s) == (3, 0)


async def test_an_upload_is_as_long_as_its_parts_take_to_come(make_world: Any) -> None:
    world = await make_world(chunk_bytes=1 << 14)
    (download_s, compute_s, upload_s), passed_s = await spent(world, 0, LARGE)
    assert upload_s == pytest.approx(0.16, abs=0.08)  # 160 kB, of which some are there when it begins
    assert download_s + upload_s <= passed_s
    assert compute_s == 0


async def test_a_liar_spends_no_more_than_has_passed(world: Any) -> None:
    times_s, passed_s = await spent(world, 10**15, 10)
    assert 0 < sum(times_s) <= passed_s


async def test_a_header_alone_is_not_downloaded(world: Any) -> None:
    times_s, _ = await spent(world, 1_000_000_000, 0, after_s=2.0)
    assert times_s == [0, 1, 0]
