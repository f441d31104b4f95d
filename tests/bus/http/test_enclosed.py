"""What client processes say beside answers: notes come once, and no more time is spent than has passed."""

from __future__ import annotations

import asyncio
import json
from math import nan
from pathlib import Path
from typing import Any
from zlib import crc32

import aiohttp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.bus.http.control import FROM_CLIENT, FROM_SERVER, MOST_NOTES, MOST_SPENT_S, SessionError
from fedsim.bus.http.enclosed import enclosed, read, written
from fedsim.bus.http.session import PROTOCOL, encode, header_values, parse
from fedsim.bus.http.store import StateFolder
from fedsim.bus.ledger import Ledger
from fedsim.bus.reply_report import _OWN, MOST_PER_REPLY, Note, Report, in_words
from fedsim.wire import ModelUpdate, pack

NAME = "0123456789abcdef" * 2
LARGE = 40_000
CHOSEN = Note("info", "student chosen", {"teacher_round": 3, "weight": 0.5, "found": True, "why": None})
WARNED = Note("warning", "no validation samples", {"instead": "training loss"})

plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=400)
notes = st.builds(
    Note,
    st.sampled_from(["info", "warning"]),
    st.text(max_size=300),
    st.dictionaries(st.text(min_size=1, max_size=60), plain | st.lists(plain), max_size=20),
)


async def within(awaitable: Any, seconds: float = 60.0) -> Any:
    async with asyncio.timeout(seconds):
        return await awaitable


def test_notes_go_there_and_back() -> None:
    assert read(written([CHOSEN, WARNED])) == [CHOSEN, WARNED]
    assert read(written([])) == []


@given(st.lists(notes, max_size=30))
def test_whatever_is_noted_can_be_read(said: list[Note]) -> None:
    text = written([*map(in_words, said)])
    assert len(text) <= MOST_NOTES
    assert text.isascii()
    found = read(text)
    left_out = [note.values["count"] for note in found if note.event == "notes left out"]
    assert len(found) - len(left_out) + sum(left_out) == len(said)
    ordered = map(in_words, said)
    assert all(its in ordered for its in found[: len(found) - len(left_out)])  # some, in their order
    assert all(in_words(its) == its for its in found)


@pytest.mark.parametrize(
    ("odd", "instead"),
    [
        *((odd, " ") for odd in "\u2028\u2029\x85\n\r\x1c"),
        *((odd, "?") for odd in "\x9b\x1b\0\u202e\ud800"),
    ],
)
def test_a_note_is_one_line_of_the_log(odd: str, instead: str) -> None:
    (note,) = read(written([in_words(Note("info", f"a{odd}b", {"c": f"d{odd}é"}))]))
    assert note == ("info", f"a{instead}b", {"c": f"d{instead}é"})
    for said in (["info", f"a{odd}b", {}], ["info", "x", {"c": f"d{odd}é"}]):
        with pytest.raises(ValueError, match="is no"):
            read(json.dumps([said]))


def test_values_that_no_text_holds_are_put_into_words() -> None:
    values = {
        "a": np.float32(0.5),
        "b": float("nan"),
        "c": 2**70,
        "d": [1, 2],
        "Level": 3,
        "level": 4,
        "2": "\ud800",
    }
    (note,) = read(written([in_words(Note("info", "x", values))]))
    assert note.values == {"a": 0.5, "b": None, "c": str(2**70), "d": "[1, 2]", "level_": 4, "v2": "?"}


def test_what_is_too_much_is_left_out_and_counted() -> None:
    many = read(written([WARNED] * 40))
    assert many == [WARNED] * MOST_PER_REPLY + [
        Note("warning", "notes left out", {"count": 40 - MOST_PER_REPLY})
    ]
    long = Note("info", "x", {f"v{number}": "y" * 300 for number in range(16)})
    found = read(written([long] * 3))
    assert [note.event for note in found] == ["x", "notes left out"]
    assert found[-1].values == {"count": 2}
    assert read(written([WARNED], left_out=7))[1].values == {"count": 7}
    assert read(enclosed(Report(left_out=7), 0)["w"])[0].values == {"count": 7}


def test_a_long_note_does_not_hide_those_that_follow() -> None:
    long = Note("info", "x", {f"v{number}": "é" * 300 for number in range(16)})
    assert len(json.dumps(in_words(long))) > MOST_NOTES
    assert read(written([long, CHOSEN, long, WARNED])) == [
        CHOSEN,
        WARNED,
        Note("warning", "notes left out", {"count": 2}),
    ]


def as_text(*said: Any) -> str:
    return json.dumps(list(said))


BAD = [
    7,
    "",
    "no JSON",
    "[" * 5000,
    "1" * 5000,
    '{"a": 1}',
    as_text("note"),
    as_text(["info", "x"]),
    as_text(["error", "x", {}]),
    as_text([["info"], "x", {}]),
    as_text(["info", 3, {}]),
    as_text(["info", "x" * 201, {}]),
    as_text(["info", "\ud800", {}]),
    as_text(["info", "x", []]),
    as_text(["info", "x", {"a": [1]}]),
    as_text(["info", "x", {"a": {}}]),
    as_text(["info", "x", {"a": "y" * 301}]),
    as_text(["info", "x", {"a": "\udfff"}]),
    as_text(["info", "x", {"a": float("inf")}]),
    as_text(["info", "x", {"a": 2**63}]),
    as_text(["info", "a\u2028b", {}]),
    as_text(["info", "x", {"a": "\x9b"}]),
    *(as_text(["info", "x", {name: 1}]) for name in (*sorted(_OWN), "A", "", "a b")),
    as_text(["info", "x", {f"a{number}": 1 for number in range(17)}]),
    as_text(*([["info", "x", {}]] * (MOST_PER_REPLY + 2))),
    " " * (MOST_NOTES + 1),
]


@pytest.mark.parametrize("text", BAD)
def test_what_is_no_note_is_refused(text: Any) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of many kinds
        read(text)


def test_no_name_that_the_log_uses_is_free() -> None:
    used = [
        "args",
        "at_s",
        "client",
        "event",
        "exc_info",
        "level",
        "method_name",
        "self",
        "stack_info",
        "told_by",
    ]
    assert sorted(_OWN) == used
    (note,) = read(written([in_words(Note("info", "x", dict.fromkeys(used, 1)))]))
    assert list(note.values) == [f"{name}_" for name in used]


def test_only_answers_have_more_fields() -> None:
    down, up = (-1, 3, 1, "train", 0, 0, -1), (3, -1, 1, "train", 0, 0, -1)
    more = enclosed(Report(250_000_000, [WARNED]), 5_000_000_000)
    assert more["s"] == (5.0, 0.25)
    assert parse(encode("none", n=1, h=up, a=0, **more), FROM_CLIENT).values["s"] == (5.0, 0.25)
    assert "w" not in parse(encode("none", n=1, h=up, a=0, s=(0.0, 0.0)), FROM_CLIENT).values
    wrong: list[tuple[dict[str, Any], frozenset[str]]] = [
        ({"n": 1, "h": down, "a": 0, **more}, FROM_SERVER),
        ({"n": 1, "h": up, "a": 0, "x": 1}, FROM_CLIENT),
        ({"n": 1, "h": up, "a": 0, "s": (0.0, 0.0), "x": 1}, FROM_CLIENT),
        ({"n": 1, "h": up, "s": (0.0, 0.0)}, FROM_CLIENT),
        *(
            ({"n": 1, "h": up, "a": 0, "s": s}, FROM_CLIENT)
            for s in (0.0, (1.0,), (1.0, -1.0), (1, 2.0), (1.0, 2e9), (1.0, nan))
        ),
    ]
    for values, words in wrong:
        with pytest.raises(SessionError):
            parse(encode("none", **values), words)
    with pytest.raises(SessionError, match="the fields are"):
        parse(encode("ack", n=1, w="[]"), FROM_CLIENT)
    assert enclosed(Report(2**70), -5)["s"] == (0.0, MOST_SPENT_S)


# Over sockets


def noted(world: Any) -> list[tuple[str, dict[str, Any]]]:
    return [line for line in world.log.lines if line[1].get("told_by") == "client"]


EXPECTED = [
    ("student chosen", {"client": 3, **CHOSEN.values, "told_by": "client"}),
    ("no validation samples", {"client": 3, **WARNED.values, "told_by": "client"}),
]


@pytest.mark.parametrize("num", [10, LARGE])
async def test_notes_come_with_the_answer(make_world: Any, num: int) -> None:
    world = await make_world()
    client = await world.join()
    client.on_answer(lambda header: Report(0, [CHOSEN, WARNED]))
    world.ask(3, num=num)
    world.answer(client, await within(client.receive()))
    await within(world.server.receive())
    assert noted(world) == EXPECTED
    assert not world.server.rejected


async def test_notes_come_with_a_header_alone(make_world: Any) -> None:
    world = await make_world()
    client = await world.join()
    client.on_answer(lambda header: Report(0, [CHOSEN, WARNED]))
    world.server.send(world.down(3), None)
    delivery = await within(client.receive())
    client.send(delivery.header.reply(), None)
    await within(world.server.receive())
    assert noted(world) == EXPECTED


async def test_notes_come_once_however_often_the_answer_does(make_world: Any) -> None:
    world = await make_world()
    proxy = await world.proxy(repeat_up=20)
    client = await world.join(url=proxy.url)
    client.on_answer(lambda header: Report(0, [Note("info", f"of {header.dispatch}", {})]))
    for dispatch in range(6):
        world.ask(3, dispatch)
        world.answer(client, await within(client.receive()))
        if dispatch % 2:
            proxy.reset_all()
        await within(world.server.receive())
    assert [event for event, _ in noted(world)] == [f"of {dispatch}" for dispatch in range(6)]
    assert proxy.repeated_up >= 6


async def test_notes_outlive_the_process(make_world: Any, tmp_path: Path) -> None:
    world = await make_world()
    proxy = await world.proxy()
    state = StateFolder(tmp_path)
    first = await world.join(url=proxy.url, state=state)
    first.on_answer(lambda header: Report(0, [CHOSEN, WARNED]))
    world.ask(3)
    delivery = await within(first.receive())
    proxy.swallow(True)
    world.answer(first, delivery)
    await world.until(lambda: state.replies())
    await first.close(0)
    state.close()
    proxy.reset_all()
    proxy.swallow(False)
    assert not noted(world)
    state = StateFolder(tmp_path)
    second = await world.join(url=proxy.url, state=state)
    await within(world.server.receive())
    assert noted(world) == EXPECTED
    await second.close(0)
    state.close()


async def test_what_is_noted_for_no_run_is_not_taken(make_world: Any) -> None:
    world = await make_world()
    client = await world.join()
    client.on_answer(lambda header: Report(0, [CHOSEN]))
    world.ask(3)
    delivery = await within(client.receive())
    world.server.seal()
    world.answer(client, delivery)
    await within(world.server.receive())
    assert not noted(world)


async def test_bad_notes_are_counted_and_the_answer_is_taken(make_world: Any) -> None:
    world = await make_world()
    async with (
        aiohttp.ClientSession() as http,
        http.ws_connect(f"{world.url}/bus", max_msg_size=0) as socket,
    ):
        hello = {"proto": PROTOCOL, "session": NAME, "clients": "0-9", "last": 0, "base": 0, "ready": True}
        await socket.send_bytes(encode("hello", **hello))
        for number, text in enumerate([*BAD, written([WARNED])]):
            world.ask(3, number)
            await world.until(lambda number=number: world.server._asked[3, number].has_begun)
            header = world.down(3, number).reply()
            update = ModelUpdate.of(world.model(10), num_samples=1)
            frame = pack(update).frame(sender=3, receiver=-1, round=1, exchange="train").join()
            head = encode("send", n=number + 1, h=header_values(header), a=0, c=crc32(frame), w=text)
            await socket.send_bytes(head + frame)
            assert (await within(world.server.receive())).header == header
    assert world.server.rejected == {"note": len(BAD)}
    assert [event for event, _ in noted(world)] == ["no validation samples"]


# What an answer took


def spent(world: Any) -> list[tuple[int, int, int]]:
    """Return download, compute and upload of each answer, ns."""
    return [record[4:] for record in world.trace.kept if record[1] == "spent"]


def instant(world: Any, kind: str, up: bool) -> int:
    (at_ns,) = [record[0] for record in world.trace.kept if record[1] == kind and record[4] == up]
    return int(at_ns)


async def test_a_process_that_works_before_it_acknowledges(make_world: Any) -> None:
    world = await make_world(ack_delay_s=60.0)  # so that the acknowledgement goes with the answer
    client = await world.join()
    client.on_answer(lambda header: Report(30_000_000))
    world.ask(3)
    delivery = await within(client.receive())
    await asyncio.sleep(0.05)
    world.answer(client, delivery)
    await within(world.server.receive())
    ((download_ns, compute_ns, upload_ns),) = spent(world)
    passed_ns = instant(world, "transfer_end", up=False) - instant(world, "transfer_start", up=False)
    assert passed_ns >= 50_000_000
    assert 0 <= download_ns <= passed_ns - 50_000_000 + 1_000
    assert compute_ns == pytest.approx(30_000_000)
    assert upload_ns == 0


async def test_an_upload_is_as_long_as_its_parts_take_to_come(make_world: Any) -> None:
    world = await make_world(chunk_bytes=1 << 14)
    proxy = await world.proxy()
    client = await world.join(url=proxy.url)
    world.ask(3, num=LARGE)
    delivery = await within(client.receive())
    proxy.harm.bytes_per_s = 2_000_000.0  # 160 kB take 80 ms
    world.answer(client, delivery)
    await within(world.server.receive())
    ((download_ns, compute_ns, upload_ns),) = spent(world)
    assert upload_ns >= 10_000_000
    passed_ns = instant(world, "transfer_end", up=True) - instant(world, "transfer_start", up=False)
    assert download_ns + upload_ns <= passed_ns
    assert compute_ns == 0


async def test_a_liar_spends_no_more_than_has_passed(
    make_world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, sent, loop = await make_world(), Ledger.sent, asyncio.get_running_loop()

    def sent_late(ledger: Ledger, now_ns: int, header: Any, *more: Any) -> int:
        until_s = loop.time() + 1e-3  # the clock goes on while a transfer to a client is entered
        while header.sender < 0 and loop.time() < until_s:
            pass
        return sent(ledger, now_ns, header, *more)

    monkeypatch.setattr(Ledger, "sent", sent_late)
    client = await world.join()
    client.on_answer(lambda header: Report(10**15))
    world.ask(3)
    world.answer(client, await within(client.receive()))
    await within(world.server.receive())
    ((download_ns, compute_ns, upload_ns),) = spent(world)
    passed_ns = instant(world, "transfer_end", up=True) - instant(world, "transfer_start", up=False)
    assert 0 < download_ns + compute_ns + upload_ns <= passed_ns


async def test_a_header_alone_is_not_downloaded(make_world: Any) -> None:
    world = await make_world()
    client = await world.join()
    client.on_answer(lambda header: Report(1_000_000))
    world.server.send(world.down(3), None)
    delivery = await within(client.receive())
    await asyncio.sleep(0.002)
    client.send(delivery.header.reply(), None)
    await within(world.server.receive())
    ((download_ns, compute_ns, upload_ns),) = spent(world)
    assert (download_ns, upload_ns) == (0, 0)
    assert compute_ns == pytest.approx(1_000_000)
