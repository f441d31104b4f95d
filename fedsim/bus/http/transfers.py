"""Large frames on their way: bytes followed by their SHA-256, which may be broken off and gone on with."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from hashlib import sha256
from hmac import compare_digest

import numpy as np

from fedsim.bus.http.messages import ProtocolError
from fedsim.network.overhead import DIGEST_BYTES

_HASHED_AT_ONCE = 1 << 19
_RANGE = re.compile(r"bytes=(\d{1,16})-")
_CONTENT_RANGE = re.compile(r"bytes (?:(\d{1,16})-(\d{1,16})|\*)/(\d{1,16})")


def range_start(header: str | None) -> int | None:
    """Return where a request's ``Range`` starts, 0 without one; None for a form that is not used here."""
    if header is None:
        return 0
    match = _RANGE.fullmatch(header)
    return None if match is None else int(match[1])


def content_range(header: str | None) -> tuple[int, int, int] | None:
    """Return start, end (past the last byte) and total of a ``Content-Range``; None for another form.

    Nothing follows ``bytes */TOTAL``, which is sent where all bytes are there.
    """
    match = _CONTENT_RANGE.fullmatch(header or "")
    if match is None:
        return None
    total = int(match[3])
    if match[1] is None:
        return total, total, total
    start, end = int(match[1]), int(match[2]) + 1
    return (start, end, total) if start < end <= total else None


class Outgoing:
    """Bytes to be sent, in any number of attempts.

    Args:
        parts: The bytes.

    Attributes:
        total: Bytes to be sent, with the SHA-256.
    """

    def __init__(self, parts: Sequence[bytes | memoryview]) -> None:
        self._parts = parts
        self._num_bytes = sum(map(len, parts))
        self._digest: asyncio.Future[bytes] | None = None
        self.total = self._num_bytes + DIGEST_BYTES

    async def pieces(self, start: int, most: int) -> AsyncIterator[bytes | memoryview]:
        """Yield the bytes from a position on, in pieces of a length at most, without copying."""
        if self._digest is None:
            self._digest = asyncio.get_running_loop().run_in_executor(None, _digest_of, self._parts)
        skipped = start
        for part in self._parts:
            view = memoryview(part).cast("B")
            for at in range(min(skipped, len(view)), len(view), most):
                yield view[at : at + most]
            skipped = max(0, skipped - len(view))
        yield (await asyncio.shield(self._digest))[max(0, start - self._num_bytes) :]


class Incoming:
    """Bytes that arrive; they are hashed in a thread while further ones travel.

    Args:
        total: Bytes to arrive, with the SHA-256. Memory is reserved, but taken up only as they do.

    Attributes:
        total: As given.
        held: Bytes that have arrived.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self._view = memoryview(np.empty(total, np.uint8).data)
        self.reset()

    def reset(self) -> None:
        """Begin anew, after a SHA-256 that was wrong."""
        self.held = self._hashed = 0
        self._digest = sha256()
        self._job: asyncio.Future[None] | None = None

    @property
    def is_complete(self) -> bool:
        """Whether all bytes are here."""
        return self.held == self.total

    def add(self, data: bytes) -> None:
        """Take the next bytes.

        Raises:
            ProtocolError: More than were announced.
        """
        end = self.held + len(data)
        if end > self.total:
            raise ProtocolError(f"a transfer of {self.total} bytes goes on after its end")
        self._view[self.held : end] = data
        self.held = end
        if end - self._hashed >= _HASHED_AT_ONCE and (self._job is None or self._job.done()):
            self._hash()

    async def verified(self) -> memoryview | None:
        """Return all bytes before the SHA-256, read-only; None if they are not what it says."""
        body, digest = self._view[:-DIGEST_BYTES], self._view[-DIGEST_BYTES:]
        while True:
            if self._job is not None:
                await asyncio.shield(self._job)  # it goes on though its request is broken off
            if self._hashed == len(body):
                return body.toreadonly() if compare_digest(self._digest.digest(), bytes(digest)) else None
            self._hash()

    def _hash(self) -> None:
        """Begin to hash what has come."""
        start, self._hashed = self._hashed, min(self.held, self.total - DIGEST_BYTES)
        piece = self._view[start : self._hashed]
        self._job = asyncio.get_running_loop().run_in_executor(None, self._digest.update, piece)


def _digest_of(parts: Sequence[bytes | memoryview]) -> bytes:
    """Return the SHA-256; takes about half a millisecond per MB."""
    digest = sha256()
    for part in parts:
        digest.update(part)
    return digest.digest()
