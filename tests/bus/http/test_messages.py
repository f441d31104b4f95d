"""Heads of entries, there and back, and what are none."""

from contextlib import suppress
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.bus import Header
from fedsim.bus.http.messages import (
    FROM_CLIENT,
    FROM_SERVER,
    HEAD_LENGTH,
    ProtocolError,
    entry,
    framed,
    nobody_emulates,
    read_head,
    sendable,
)
from fedsim.wire import Limits, PublicBatch

SPENT = (0.5, 0.25, 2.0, 1e9)
ALL = FROM_CLIENT | FROM_SERVER


@pytest.mark.parametrize(
    ("letter", "values", "body"),
    [
        ("j", ("0" * 32, ""), b"0-9"),
        ("h", ("run", "server"), b""),
        ("b", (), b""),
        ("x", ("no",), None),
        ("k", (), None),
        ("d", (3, 5, -1, "train", 4, -1), b"frame"),
        ("d", (3, 5, 2, "train", 4, 1), None),
        ("r", (3, 5, SPENT, "[]"), b"frame"),
        ("r", (3, 5, SPENT, None), None),
        ("u", (3, 5, "spoilt"), None),
        ("s", (7, False), b"why"),
        ("e", (True, "over"), None),
        ("m", ("piece", 3, 5, 0, 2**62), b"part"),
        ("m", ("go", 3, 5, 7, 0), None),
    ],
)
def test_entries_come_back(letter: str, values: tuple[Any, ...], body: bytes | None) -> None:
    data = b"".join(entry(letter, *values, body=None if body is None else (body[:2], body[2:])))
    found, num_bytes, rest = read_head(data, ALL)
    assert found == (letter, values, None, -1)
    assert (num_bytes, bytes(rest)) == ((None, b"") if body is None else (len(body), body))
    for cut in (data[: len(data) - len(rest) - 1], data[:1], b""):
        with pytest.raises(ProtocolError):
            read_head(cut, ALL)


def head(*values: Any, rest: bytes = b"") -> bytes:
    packed = msgpack.packb(values)
    return HEAD_LENGTH.pack(len(packed)) + packed + rest


def raw(data: bytes) -> bytes:
    return HEAD_LENGTH.pack(len(data)) + data


@pytest.mark.parametrize(
    ("data", "letters", "problem"),
    [
        (head("t", 1, 2, None), FROM_CLIENT, r"'t', .* may not come"),
        (head("r", 1, 2, SPENT, None, None), FROM_SERVER, r"'r', .* may not come"),
        (head("z", None), FROM_CLIENT, r"'z', None\) may not come"),
        (head(7, None), FROM_CLIENT, r"7, None\) may not come"),
        (head("r", None), FROM_CLIENT, "0 values, not 4"),
        (head("r"), FROM_CLIENT, "-1 values, not 4"),
        (head("u", 1, -1, "why", None), FROM_CLIENT, r"u\[1\]: -1"),
        (head("u", 1.0, 1, "why", None), FROM_CLIENT, r"u\[0\]: 1.0"),
        *(
            (head("r", 1, 1, times, None, None), FROM_CLIENT, r"r\[2\]")
            for times in (
                *((*pair, 0.0, 0.0) for pair in ((float("nan"), 0.0), (0.0, -1.0), (0.0, 2e9), (0, 0.0))),
                (0.0, 0.0, 0.0, 2e30),
                (0.0, 0.0),
                1.0,
            )
        ),
        (head("r", 1, True, SPENT, None, None), FROM_CLIENT, r"r\[1\]: True"),
        (head("r", 0, 2**31, SPENT, None, None), FROM_CLIENT, r"r\[1\]: 2147483648"),
        *((head("u", 1, 1, why, None), FROM_CLIENT, r"u\[2\]") for why in ("\x1b[2J", "x" * 2000)),
        (head("s", 1, 1, 5), FROM_CLIENT, r"s\[1\]: 1"),
        (head("d", 3, 0, 1, "t" * 1025, 0, -1, None), FROM_SERVER, r"d\[3\]"),
        (head("d", 3, 0, 1, "train", 0, 2**40, None), FROM_SERVER, r"d\[5\]"),
        *((head("u", 1, 1, "why", size), FROM_CLIENT, "u: a body of") for size in (0, 5, "x")),
        *((head("r", 1, 1, SPENT, None, size), FROM_CLIENT, "a body of") for size in (-1, 1.0, True, 2**60)),
        (head("s", 1, True, None), FROM_CLIENT, "a body of None bytes"),
        *(
            (head("m", "piece", *numbers, None), FROM_CLIENT, rf"m\[{place}\]")
            for place, numbers in (
                (1, (-1, 0, 0, 0)),
                (2, (0, 2**31, 0, 0)),
                (3, (0, 0, -1, 0)),
                (4, (0, 0, 0, 2**62 + 1)),
                (4, (0, 0, 0, 1.5)),
                (3, (0, 0, True, 0)),
            )
        ),
        (head("m", 7, 0, 0, 0, 0, None), FROM_SERVER, r"m\[0\]: 7"),
        (head("m", "\n", 0, 0, 0, 0, None), FROM_SERVER, r"m\[0\]"),
        (head("m", "piece", 0, 0, 0, None), FROM_CLIENT, "4 values, not 5"),
        (head("m", "piece", 0, 0, 0, 0, -1), FROM_CLIENT, "m: a body of -1"),
        (head("k", None, rest=b"x"), FROM_CLIENT, "a body of None bytes"),
        (head("r", 1, 1, SPENT, None, None, rest=b"x"), FROM_CLIENT, "a body of None bytes"),
        *(
            (raw(bad), FROM_CLIENT, "may not|not a head|end within")
            for bad in (b"", b"\x01", b"\xc1", b"\x80")
        ),
        (raw(b"\x91" * 3000), FROM_CLIENT, "nested|not a head"),
        (raw(b"\xdd\xff\xff\xff\xff"), FROM_CLIENT, "not a head|end within"),
    ],
)
def test_what_is_no_entry(data: bytes, letters: frozenset[str], problem: str) -> None:
    with pytest.raises(ProtocolError, match=problem):
        read_head(data, letters)


@given(st.binary(max_size=300), st.binary(max_size=50), st.integers(0, 60))
def test_any_bytes_are_an_entry_or_a_protocol_error(noise: bytes, insert: bytes, at: int) -> None:
    valid = b"".join(entry("r", 3, 5, SPENT, "[]", body=(b"frame",)))
    for data in (noise, valid[:at] + insert + valid[at:], valid[:at] + insert + valid[at + len(insert) :]):
        with suppress(ProtocolError):
            assert read_head(data, FROM_CLIENT)[0].letter in FROM_CLIENT


def test_any_text_can_be_sent() -> None:
    assert sendable("\ud800" + "x" * 2000) == "?" + "x" * 1023


def test_a_frame_that_is_too_long_is_not_sent() -> None:
    header = Header(-1, 3, 2, "train", 5, 4, 1)
    assert framed(header, None, Limits()) == (None, None)
    with pytest.raises(ValueError, match=r"the limit is 100; raise HttpLimits\.frame"):
        framed(header, PublicBatch(np.arange(30)), Limits(frame_bytes=100))


def test_what_is_said_of_an_emulation_is_refused_where_there_is_none() -> None:
    found, _, _ = read_head(b"".join(entry("m", "piece", 0, 0, 0, 0)), ALL)
    with pytest.raises(ProtocolError, match=r"'piece' is said of an emulation, and there is none"):
        nobody_emulates(found)
