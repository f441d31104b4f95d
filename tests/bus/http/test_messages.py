"""Entries and large replies, there and back, and what are none."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from hashlib import sha256
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.bus import Header
from fedsim.bus.http.messages import (
    FROM_CLIENT,
    FROM_SERVER,
    LENGTHS,
    Incoming,
    ProtocolError,
    Reader,
    Reply,
    dispatch_entry,
    entry,
    framed,
    header_of,
    pieces,
    read_large,
    sendable,
    transfer_bytes,
)
from fedsim.wire import DEFAULT, Frame, PublicBatch

DOWN = Header(-1, 3, 2, "train", 5, 4, 1)
SPENT = (0.5, 0.25)


@given(st.integers(1, 50))
def test_entries_are_read_however_they_are_cut(piece: int) -> None:
    _, frame = framed(DOWN, PublicBatch(np.arange(3)), DEFAULT)
    assert frame is not None
    whole = frame.join()
    data = b"".join(
        (
            dispatch_entry(7, DOWN, frame, is_small=True),
            dispatch_entry(8, DOWN, frame, is_small=False),
            dispatch_entry(9, DOWN, None, is_small=True),
            *(entry("q", 1, 3, body=b"?"), entry("a"), entry("e", True, "over")),
        )
    )
    reader = Reader(FROM_SERVER, 1000)
    found = [one for at in range(0, len(data), piece) for one in reader.feed(data[at : at + piece])]
    assert not reader.num_left
    assert [one.letter for one in found] == ["d", "d", "d", "q", "a", "e"]
    assert [header_of(one.values) for one in found[:3]] == [DOWN] * 3
    assert [(one.values[0], one.values[-1], one.body) for one in found[:3]] == [
        (7, len(whole), whole),
        (8, len(whole), b""),
        (9, None, b""),
    ]
    assert found[3:] == [("q", (1, 3), b"?"), ("a", (), b""), ("e", (True, "over"), b"")]


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (Reply((3, 5), Frame(b"frame", 5), SPENT, "[]"), ("r", (3, 5, SPENT, "[]"), b"frame")),
        (Reply((3, 5), None, SPENT), ("r", (3, 5, SPENT, None), b"")),
        (Reply((3, 5), fault="spoilt"), ("u", (3, 5, "spoilt"), b"")),
        (Reply((7,), Frame(b"held", 4)), ("s", (7, True), b"held")),
        (Reply((7,), Frame(b"why", 3), fault="why"), ("s", (7, False), b"why")),
    ],
)
def test_what_a_process_sends_up(reply: Reply, expected: object) -> None:
    whole = b"".join(reply.parts())
    assert read_large(memoryview(whole)) == expected
    for spoilt in (b"", b"x", b"\0\0", b"\xff\xff", whole[:-1]):
        with pytest.raises(ProtocolError):
            read_large(memoryview(spoilt))
    (small,) = Reader(FROM_CLIENT, 1000).feed(reply.entry(0.0))
    assert small == expected
    (later,) = Reader(FROM_CLIENT, 1000).feed(reply.entry(1.0))
    assert later.values[2:3] == (((1.5, 0.25),) if small.letter == "r" else small.values[2:3])


def head(data: bytes, body: bytes = b"") -> bytes:
    return LENGTHS.pack(len(data), len(body), crc32(data + body)) + data + body


@pytest.mark.parametrize(
    ("data", "letters", "problem"),
    [
        (entry("a"), FROM_CLIENT, r"'a',\) may not come"),
        (entry("r", 1, 2, SPENT, None), FROM_SERVER, r"'r', .* may not come"),
        (entry("z"), FROM_CLIENT, r"'z',\) may not come"),
        (entry("r"), FROM_CLIENT, "0 values, not 4"),
        (entry("u", 1, -1, "why"), FROM_CLIENT, r"u\[1\]: -1"),
        (entry("u", 1.0, 1, "why"), FROM_CLIENT, r"u\[0\]: 1.0"),
        *(
            (entry("r", 1, 1, times, None), FROM_CLIENT, r"r\[2\]")
            for times in ((float("nan"), 0.0), (0.0, -1.0), (0.0, 2e9), (0, 0.0))
        ),
        (entry("r", 1, True, SPENT, None), FROM_CLIENT, r"r\[1\]: True"),
        (entry("r", 0, 2**31, SPENT, None), FROM_CLIENT, r"r\[1\]: 2147483648"),
        (entry("u", 1, 1, "why", body=b"x"), FROM_CLIENT, "1 bytes follow"),
        *((entry("u", 1, 1, why), FROM_CLIENT, r"u\[2\]") for why in ("\x1b[2J", "x" * 2000)),
        (entry("r", 1, 1, SPENT, None, body=b"xy")[:-1] + b"z", FROM_CLIENT, "2 bytes do not have"),
        (entry("d", 1, 3, 0, 1, "t" * 257, 0, -1, None), FROM_SERVER, r"d\[4\]"),
        (entry("d", 1, 3, 0, 1, "train", 0, 2**40, None), FROM_SERVER, r"d\[6\]"),
        (entry("d", 1, 3, 0, 1, "train", 0, -1, 3, body=b"xx"), FROM_SERVER, "2 bytes follow"),
        *((head(b), FROM_CLIENT, "may not|not a head|end within") for b in (b"", b"\x01", b"\xc1", b"\x80")),
        (head(b"\x91" * 3000), FROM_CLIENT, "nested|not a head"),
        (head(b"\xdd\xff\xff\xff\xff"), FROM_CLIENT, "not a head|end within"),
        (LENGTHS.pack(20_000, 0, 0), FROM_CLIENT, "an entry of 20000"),
        (LENGTHS.pack(1, 2000, 0), FROM_CLIENT, "1 and 2000 bytes"),
    ],
)
def test_what_is_no_entry(data: bytes, letters: frozenset[str], problem: str) -> None:
    with pytest.raises(ProtocolError, match=problem):
        Reader(letters, 1000).feed(data)


@given(st.binary(max_size=300), st.binary(max_size=50), st.integers(0, 60))
def test_any_bytes_are_entries_or_a_protocol_error(noise: bytes, insert: bytes, at: int) -> None:
    valid: Any = entry("r", 3, 5, SPENT, "[]", body=b"frame")
    for data in (noise, valid[:at] + insert + valid[at:], valid[:at] + insert + valid[at + len(insert) :]):
        with suppress(ProtocolError):
            assert all(one.letter in FROM_CLIENT for one in Reader(FROM_CLIENT, 1000).feed(data))
        with suppress(ProtocolError):
            read_large(memoryview(data + sha256(data).digest()))


def test_any_text_can_be_sent() -> None:
    assert sendable("\ud800" + "x" * 2000) == "?" + "x" * 1023


def test_no_other_entry_is_read_after_a_bit_has_flipped() -> None:
    whole = dispatch_entry(9, DOWN, None, is_small=True)
    for place in range(8 * len(whole)):
        spoilt = bytearray(whole)
        spoilt[place // 8] ^= 1 << place % 8
        with suppress(ProtocolError):
            assert Reader(FROM_SERVER, 1000).feed(bytes(spoilt)) == []


@given(st.lists(st.binary(max_size=20), max_size=5), st.integers(1, 50))
def test_pieces_are_the_bytes_and_their_digest(parts: list[bytes], max_bytes: int) -> None:
    async def all_pieces() -> list[bytes]:
        return [bytes(piece) async for piece in pieces(parts, max_bytes)]

    found = asyncio.run(all_pieces())
    whole = b"".join(parts) + sha256(b"".join(parts)).digest()
    assert b"".join(found) == whole
    assert transfer_bytes(parts) == len(whole)
    assert all(len(piece) <= max(max_bytes, 32) for piece in found)


@pytest.mark.parametrize("num_bytes", [1, 1000, 3 << 20])
@pytest.mark.parametrize("is_spoilt", [False, True])
async def test_what_arrives_is_verified(num_bytes: int, is_spoilt: bool) -> None:
    frame = (bytes(range(256)) * (num_bytes // 256 + 1))[:num_bytes]
    whole = frame + sha256(frame + b"x" * is_spoilt).digest()
    incoming = Incoming(num_bytes + 32)
    for start in range(0, len(whole), 7777):
        assert not incoming.is_complete
        incoming.add(whole[start : start + 7777])
    assert incoming.is_complete
    found = await incoming.verified()
    assert (found is None) == is_spoilt
    if found is not None:
        assert bytes(found) == frame
        assert found.readonly
    with pytest.raises(ProtocolError, match="goes on after its end"):
        incoming.add(b"x")
