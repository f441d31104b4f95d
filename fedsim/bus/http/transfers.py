"""Large frames on their way: bytes followed by their SHA-256."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from hashlib import sha256
from hmac import compare_digest

import numpy as np

from fedsim.bus.http.messages import ProtocolError
from fedsim.network.overhead import DIGEST_BYTES

Parts = Sequence[bytes | memoryview]


def transfer_bytes(parts: Parts) -> int:
    """Return how many bytes travel for these parts, with the SHA-256."""
    return sum(map(len, parts)) + DIGEST_BYTES


async def pieces(parts: Parts, max_bytes: int) -> AsyncIterator[bytes | memoryview]:
    """Yield the parts and their SHA-256 in pieces of at most ``max_bytes``, without copying."""
    digest = asyncio.get_running_loop().run_in_executor(None, _sha256, parts)
    for part in parts:
        view = memoryview(part).cast("B")
        for start in range(0, len(view), max_bytes):
            yield view[start : start + max_bytes]
    yield await digest


class Incoming:
    """A large frame that arrives. Its memory is reserved at once, but used only as bytes arrive."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.num_bytes = 0
        self._view = memoryview(np.empty(total, np.uint8).data)

    @property
    def is_complete(self) -> bool:
        """Whether all bytes are here."""
        return self.num_bytes == self.total

    def add(self, data: bytes) -> None:
        """Take the next bytes; more than were announced are a ProtocolError."""
        end = self.num_bytes + len(data)
        if end > self.total:
            raise ProtocolError(f"a transfer of {self.total} bytes goes on after its end")
        self._view[self.num_bytes : end] = data
        self.num_bytes = end

    async def verified(self) -> memoryview | None:
        """Return the bytes before the SHA-256, read-only; None if they do not have it."""
        body, digest = self._view[:-DIGEST_BYTES].toreadonly(), self._view[-DIGEST_BYTES:]
        return body if compare_digest(await asyncio.to_thread(_sha256, [body]), bytes(digest)) else None


def _sha256(parts: Parts) -> bytes:
    """Return the SHA-256; takes about half a millisecond per MB."""
    digest = sha256()
    for part in parts:
        digest.update(part)
    return digest.digest()
