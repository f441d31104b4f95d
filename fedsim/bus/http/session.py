"""What both sides of a session remember, without sockets or a clock.

The rules, alike in both directions:

1. A sender numbers its deliveries from 1 and keeps each until it is *settled*: a delivery to a client by the
   client's answer, an answer by the server's acknowledgement. Numbers are never used twice in a session.
2. Within a connection numbers ascend, so a receiver remembers one number, the last it had, and drops what is
   not above it. A connection delivers in order or breaks; nothing else can happen between two sockets.
3. After a break the receiver says the last number it had, and the sender replays all that is above it and
   not settled. A receiver that has lost its memory says 0 and gets all that is not settled.
4. An actor sees a delivery once: what a receiver without memory gets again is known by client and dispatch,
   and only one answer to each dispatch is taken.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from fedsim.bus.http.control import (
    DELIVERIES,
    FROM_CLIENT,
    FROM_SERVER,
    PROTOCOL,
    Control,
    SessionError,
    encode,
    header_of,
    header_values,
    parse,
    sendable,
)

__all__ = [
    "DELIVERIES",
    "FROM_CLIENT",
    "FROM_SERVER",
    "PROTOCOL",
    "Control",
    "Inbox",
    "Outbox",
    "SessionError",
    "TokenBucket",
    "encode",
    "header_of",
    "header_values",
    "parse",
    "sendable",
]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Kept(Generic[T]):
    item: T
    num_bytes: int
    shared: Hashable


class Outbox(Generic[T]):
    """Deliveries that are numbered and not settled yet.

    Args:
        max_bytes: So many bytes are held at most, or one delivery.
        max_count: So many deliveries are held at most.

    Attributes:
        last: The number given last.
        num_bytes: Bytes held.
    """

    def __init__(self, max_bytes: int, max_count: int) -> None:
        self._max_bytes = max_bytes
        self._max_count = max_count
        self._kept: dict[int, _Kept[T]] = {}
        self._shared: dict[Hashable, list[int]] = {}  # how many hold it, and its bytes
        self.last = 0
        self.num_bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[tuple[int, T]]:
        for number, kept in self._kept.items():
            yield number, kept.item

    @property
    def base(self) -> int:
        """The number before the first that is held: all up to it are settled."""
        return next(iter(self._kept), self.last + 1) - 1

    def fits(self, num_bytes: int, shared: Hashable = None, shared_bytes: int = 0) -> bool:
        """Say whether a delivery can be added now; an empty outbox takes any."""
        if not self._kept:
            return True
        if shared is not None and shared not in self._shared:
            num_bytes += shared_bytes
        return len(self._kept) < self._max_count and self.num_bytes + num_bytes <= self._max_bytes

    def add(self, item: T, num_bytes: int, shared: Hashable = None, shared_bytes: int = 0) -> int:
        """Number a delivery and keep it.

        Args:
            item: The delivery.
            num_bytes: Bytes of its own.
            shared: What it has in common with others, which is counted once for all of them.
            shared_bytes: The bytes of that.

        Raises:
            OverflowError: It does not fit; ask :meth:`fits` first.
        """
        if not self.fits(num_bytes, shared, shared_bytes):
            raise OverflowError(f"the outbox holds {len(self)} deliveries of {self.num_bytes} bytes: full")
        self.last += 1
        self._kept[self.last] = _Kept(item, num_bytes, shared)
        self.num_bytes += num_bytes
        if shared is not None:
            holders = self._shared.setdefault(shared, [0, shared_bytes])
            holders[0] += 1
            if holders[0] == 1:
                self.num_bytes += shared_bytes
        return self.last

    def get(self, number: int) -> T | None:
        """Return a delivery that is not settled."""
        kept = self._kept.get(number)
        return None if kept is None else kept.item

    def settle(self, number: int) -> T | None:
        """Forget one delivery and return it; None where it is settled already."""
        kept = self._kept.pop(number, None)
        if kept is None:
            return None
        self.num_bytes -= kept.num_bytes
        if kept.shared is not None:
            holders = self._shared[kept.shared]
            holders[0] -= 1
            if not holders[0]:
                del self._shared[kept.shared]
                self.num_bytes -= holders[1]
        return kept.item

    def acknowledge(self, number: int) -> list[tuple[int, T]]:
        """Settle all deliveries up to a number; return them.

        Raises:
            SessionError: A number that was never given.
        """
        if number > self.last:
            raise SessionError(f"delivery {number} is acknowledged, the last sent is {self.last}")
        settled = []
        while self._kept and (first := next(iter(self._kept))) <= number:
            item = self.settle(first)
            assert item is not None  # noqa: S101
            settled.append((first, item))
        return settled

    def replay(self, after: int) -> list[int]:
        """Return the numbers above one that are not settled, ascending.

        Raises:
            SessionError: A number that was never given.
        """
        if after > self.last:
            raise SessionError(f"delivery {after} is said to have arrived, the last sent is {self.last}")
        return [number for number in self._kept if number > after]

    def skip_to(self, number: int) -> None:
        """Give the next delivery a number above this one, at least."""
        self.last = max(self.last, number)


class Inbox:
    """Which deliveries have arrived.

    Args:
        last: The number of the last that has.
        gaps: Whether numbers may be left out, because the sender knows them to be settled.
    """

    def __init__(self, last: int = 0, *, gaps: bool = False) -> None:
        self.last = last
        self._gaps = gaps

    def accept(self, number: int) -> bool:
        """Note a delivery; say whether it is new.

        Raises:
            SessionError: The number is none, or leaves a gap where there is none.
        """
        if number <= 0 or (number > self.last + 1 and not self._gaps):
            raise SessionError(f"delivery {number} comes after delivery {self.last}")
        if number <= self.last:
            return False
        self.last = number
        return True


class TokenBucket:
    """Lets so many through per second, and a burst at once.

    Args:
        rate: Tokens per second.
        burst: Most tokens at once.
        now_s: The time.
    """

    def __init__(self, rate: float, burst: float, now_s: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._at_s = now_s

    def take(self, now_s: float) -> bool:
        """Take a token; False where none is left."""
        self._tokens = min(self._burst, self._tokens + (now_s - self._at_s) * self._rate)
        self._at_s = now_s
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
