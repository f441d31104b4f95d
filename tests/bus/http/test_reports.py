"""What comes with replies: notes come once, and no more time is spent than has passed."""

import asyncio
import math
from typing import Any

import pytest

from fedsim.bus.reply_report import Note, Report

LARGE = 400_000
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
    client.reporter = lambda header: Report(0, NOTES)
    world.reply(client, await world.asked(client, 3, num=num))
    await world.taken()
    assert noted(world) == EXPECTED
    assert world.log.warned == [NOTES[1].event]
    assert not world.server.rejected
    delivery = await world.asked(client, 3, 1, num=num)
    world.server.seal()
    world.reply(client, delivery)
    await world.taken()
    assert noted(world) == EXPECTED  # what is noted for no run is not taken


async def test_times_are_what_both_sides_have_seen(world: Any) -> None:
    """A large upload is as long as its parts take to come, a small one no time."""
    proxy = await world.proxy(slice_bytes=1 << 14)
    client = await world.join(url=proxy.url)
    await world.within(world.server.wait_for_clients([3]))
    for dispatch, (num, compute_s, after_s) in enumerate([(10, 3, 5.0), (LARGE, 0, 0.0), (10, 10**6, 0.0)]):
        client.reporter = lambda header, of=compute_s: Report(of * 10**9)
        proxy.bytes_per_s, began_s = math.inf, asyncio.get_running_loop().time()
        delivery = await world.asked(client, 3, dispatch, num)
        await asyncio.sleep(after_s)
        proxy.bytes_per_s = 1e6
        world.reply(client, delivery)
        await world.taken()
        passed_s = asyncio.get_running_loop().time() - began_s
        *_, times_ns = (record[4:] for record in world.trace.kept if record[1] == "spent")
        download_s, worked_s, upload_s = (time_ns / 1e9 for time_ns in times_ns)
        # 1.6 MB, of which the first of several messages is there when it begins
        assert upload_s == (pytest.approx(1.35, abs=0.3) if num == LARGE else 0)
        assert worked_s == compute_s or compute_s > passed_s  # who says the latter is not believed
        assert 0 <= download_s <= passed_s - after_s - upload_s
        assert download_s + worked_s + upload_s <= passed_s
