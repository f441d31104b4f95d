import asyncio
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.bus.http.messages import ProtocolError
from fedsim.bus.http.transfers import Incoming, pieces, transfer_bytes


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
