import asyncio
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.bus.http.messages import ProtocolError
from fedsim.bus.http.transfers import Incoming, Outgoing, content_range, range_start


@given(st.lists(st.binary(max_size=20), max_size=5), st.integers(0, 120), st.integers(1, 50))
def test_pieces_are_the_bytes_and_their_digest_from_a_position_on(
    parts: list[bytes], start: int, most: int
) -> None:
    async def pieces() -> list[bytes]:
        return [bytes(piece) async for piece in outgoing.pieces(start, most)]

    outgoing = Outgoing(parts)
    whole = b"".join(parts) + sha256(b"".join(parts)).digest()
    assert outgoing.total == len(whole)
    found = asyncio.run(pieces())
    assert b"".join(found) == whole[start:]
    assert all(len(piece) <= max(most, 32) for piece in found)


@pytest.mark.parametrize(
    ("read", "header", "found"),
    [
        *((range_start, *one) for one in ((None, 0), ("bytes=0-", 0), ("bytes=77-", 77))),
        *((range_start, text, None) for text in ("bytes=1-2", "bytes=-5", "x=1-")),
        (content_range, "bytes 0-9/10", (0, 10, 10)),
        (content_range, "bytes 5-9/20", (5, 10, 20)),
        (content_range, "bytes */20", (20, 20, 20)),
        *((content_range, text, None) for text in ("bytes 5-4/20", "bytes 5-20/20", "bytes 5-9/*", None)),
        (content_range, "bytes 0-9/" + "9" * 20, None),
    ],
)
def test_ranges(read: Callable[[str | None], Any], header: str | None, found: Any) -> None:
    assert read(header) == found


@pytest.mark.parametrize("num_bytes", [1, 1000, 3 << 20])
@pytest.mark.parametrize("most", [7777, 1 << 20])
async def test_what_arrives_is_verified_however_it_comes(num_bytes: int, most: int) -> None:
    frame = (bytes(range(256)) * (num_bytes // 256 + 1))[:num_bytes]
    arriving = Incoming(num_bytes + 32)
    for spoil in (True, False):
        whole = frame + sha256(frame + b"x" * spoil).digest()
        for at in range(0, len(whole), most):
            arriving.add(whole[at : at + most])
            await asyncio.sleep(0)
        assert arriving.is_complete
        found = await arriving.verified()
        assert (found is None) == spoil
        if found is not None:
            assert bytes(found) == frame
            assert found.readonly
        with pytest.raises(ProtocolError, match="goes on after its end"):
            arriving.add(b"x")
        if spoil:
            arriving.reset()
            assert arriving.held == 0
