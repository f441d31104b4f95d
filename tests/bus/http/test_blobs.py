import asyncio
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.bus.http.blobs import Arriving, content_range, digest_of, pieces, range_start
from fedsim.bus.http.session import SessionError


@given(st.lists(st.binary(max_size=20), max_size=5), st.integers(0, 120), st.integers(1, 50))
def test_pieces_are_the_bytes_from_a_position_on(parts: list[bytes], start: int, most: int) -> None:
    whole = b"".join(parts)
    found = list(pieces(parts, start, most))
    assert b"".join(found) == whole[start:]
    assert all(len(piece) <= most for piece in found)
    assert digest_of(parts) == sha256(whole).digest()


@pytest.mark.parametrize(
    ("header", "start"),
    [
        (None, 0),
        ("bytes=0-", 0),
        ("bytes=77-", 77),
        ("bytes=1-2", None),
        ("bytes=-5", None),
        ("items=1-", None),
    ],
)
def test_ranges_asked_for(header: str | None, start: int | None) -> None:
    assert range_start(header) == start


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ("bytes 0-9/10", (0, 10, 10)),
        ("bytes 5-9/20", (5, 10, 20)),
        ("bytes 5-4/20", None),
        ("bytes 5-20/20", None),
        ("bytes 5-9/*", None),
        ("bytes */20", None),
        ("bytes 0-9/" + "9" * 20, None),
        (None, None),
    ],
)
def test_ranges_sent(header: str | None, found: tuple[int, int, int] | None) -> None:
    assert content_range(header) == found


@pytest.mark.parametrize("num_bytes", [1, 1000, 3 << 20])
@pytest.mark.parametrize("most", [7777, 1 << 20])
async def test_a_blob_is_verified_however_it_comes(num_bytes: int, most: int) -> None:
    frame = bytes(range(256)) * (num_bytes // 256 + 1)
    frame = frame[:num_bytes]
    for spoil in (False, True):
        blob = Arriving(num_bytes)
        whole = frame + sha256(frame + b"x" * spoil).digest()
        for at in range(0, len(whole), most):
            blob.add(whole[at : at + most])
            await asyncio.sleep(0)
        assert blob.is_complete
        found: Any = await blob.verified()
        assert (found is None) == spoil
        if not spoil:
            assert bytes(found) == frame
            assert found.readonly
        with pytest.raises(SessionError, match="goes on after its end"):
            blob.add(b"x")


async def test_a_blob_can_begin_anew() -> None:
    blob = Arriving(3)
    blob.add(bytes(35))
    assert await blob.verified() is None
    blob.reset()
    assert blob.held == 0
    blob.add(b"abc" + sha256(b"abc").digest())
    found = await blob.verified()
    assert found is not None
    assert bytes(found) == b"abc"
