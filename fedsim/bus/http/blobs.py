"""Blobs: a large frame on its way over HTTP, followed by its SHA-256 of 32 bytes.

Either side may break off at any byte and go on from there. Bytes are hashed in a thread while further ones
travel, so that neither hashing nor the network waits for the other, and the loop for neither.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from hashlib import sha256
from hmac import compare_digest

import numpy as np

from fedsim.bus.base import Header
from fedsim.bus.http.control import SessionError
from fedsim.network.overhead import DIGEST_BYTES

HELD = "Fedsim-Held"
"""Header of answers to PUT and HEAD: how many bytes of the blob the server holds."""
ANSWER = "Fedsim-Answer"
"""Header of PUT and HEAD: which answer a blob is. A process that has lost its memory may number them anew."""
SESSION = "Fedsim-Session"
"""Header of every request about blobs."""
_HASHED_AT_ONCE = 1 << 19
_RANGE = re.compile(r"bytes=(\d{1,16})-")
_CONTENT_RANGE = re.compile(r"bytes (\d{1,16})-(\d{1,16})/(\d{1,16})")


def digest_of(parts: Sequence[bytes | memoryview]) -> bytes:
    """Return the SHA-256 of a frame in parts; takes about half a millisecond per MB."""
    digest = sha256()
    for part in parts:
        digest.update(part)
    return digest.digest()


def pieces(parts: Sequence[bytes | memoryview], start: int, most: int) -> Iterator[memoryview]:
    """Yield the bytes of a frame from a position on, in pieces of a length at most, without copying."""
    for part in parts:
        view = memoryview(part).cast("B")
        if start >= len(view):
            start -= len(view)
            continue
        for at in range(start, len(view), most):
            yield view[at : at + most]
        start = 0


def name_of(header: Header) -> str:
    """Return how :data:`ANSWER` names an answer."""
    return f"{header.client}-{header.dispatch}"


def range_start(header: str | None) -> int | None:
    """Return where a request's ``Range`` starts, 0 without one; None for a form that is not used here."""
    if header is None:
        return 0
    match = _RANGE.fullmatch(header)
    return None if match is None else int(match[1])


def content_range(header: str | None) -> tuple[int, int, int] | None:
    """Return start, end (past the last byte) and total of a ``Content-Range``; None for another form."""
    match = _CONTENT_RANGE.fullmatch(header or "")
    if match is None:
        return None
    start, last, total = (int(digits) for digits in match.groups())
    return (start, last + 1, total) if start <= last < total else None


class Arriving:
    """A blob that arrives.

    Args:
        frame_bytes: Length of its frame. Memory for it is reserved, but taken up only as bytes arrive.

    Attributes:
        total: Bytes to arrive: the frame and its digest.
        held: Bytes that have.
    """

    def __init__(self, frame_bytes: int) -> None:
        self.total = frame_bytes + DIGEST_BYTES
        self.held = 0
        self._frame_bytes = frame_bytes
        self._view = memoryview(np.empty(self.total, np.uint8).data)
        self._digest = sha256()
        self._hashed = 0
        self._job: asyncio.Future[None] | None = None

    @property
    def is_complete(self) -> bool:
        """Whether all bytes are here."""
        return self.held == self.total

    @property
    def frame_bytes(self) -> int:
        """Length of the frame."""
        return self._frame_bytes

    def reset(self) -> None:
        """Begin anew, after a digest that was wrong."""
        self.held = self._hashed = 0
        self._digest = sha256()

    def add(self, data: bytes) -> None:
        """Take the next bytes.

        Raises:
            SessionError: More than were announced.
        """
        end = self.held + len(data)
        if end > self.total:
            raise SessionError(f"a blob of {self.total} bytes goes on after its end")
        self._view[self.held : end] = data
        self.held = end
        self._hash_on()

    async def verified(self) -> memoryview | None:
        """Return the frame of a complete blob, read-only; None if it is not what its digest says."""
        while self._hashed < self._frame_bytes or self._job is not None:
            if self._job is None:
                self._hash_on(1)
            if (job := self._job) is not None:
                await asyncio.shield(job)
                self._hashed_some(job)  # it has ended, but its callback may not have run
        announced = bytes(self._view[self._frame_bytes :])
        whole = compare_digest(self._digest.digest(), announced)
        return self._view[: self._frame_bytes].toreadonly() if whole else None

    def _hash_on(self, least: int = _HASHED_AT_ONCE) -> None:
        end = min(self.held, self._frame_bytes)
        if self._job is None and end - self._hashed >= least:
            piece = self._view[self._hashed : end]
            self._hashed = end
            self._job = asyncio.get_running_loop().run_in_executor(None, self._digest.update, piece)
            self._job.add_done_callback(self._hashed_some)

    def _hashed_some(self, job: asyncio.Future[None]) -> None:
        if self._job is job:
            self._job = None
            self._hash_on()
