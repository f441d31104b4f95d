"""Client ranges, and bearer tokens that grant them.

A file of tokens has a line per token, ``sha256:<64 hexadecimal digits> <clients>``; ``#`` starts a comment.
A token is 256 random bits, so one round of SHA-256 is as good as a slow hash.
"""

from __future__ import annotations

import ipaddress
import re
import secrets
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from fedsim.errors import UserError
from fedsim.quoting import MAX_SHOWN, quoted, shortened

MAX_CLIENT = 2**31 - 1
"""Highest client number."""
MAX_RANGES = 65_536
_HOST = re.compile(r"(?:\[([^\[\]]+)\]|([^:\[\]]+))(?::\d{1,5})?")
_RANGE = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10}))?")
_DIGEST = re.compile(r"sha256:([0-9a-fA-F]{64})")
_MAX_TOKEN = 256


@dataclass(frozen=True, slots=True)
class ClientRanges:
    """Client numbers as ascending ranges (first, last) that do not touch."""

    ranges: tuple[tuple[int, int], ...]

    @staticmethod
    def parse(text: str) -> ClientRanges:
        """Read numbers and ranges, such as ``0-9,12``."""
        ranges = []
        for part in text.split(","):
            match = _RANGE.fullmatch(part.strip())
            low, high = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
            if not low <= high <= MAX_CLIENT:
                raise UserError(
                    f"clients {quoted(text)}: {quoted(part)} is no client number and no range that goes up: "
                    f"write numbers from 0 to {MAX_CLIENT} and ranges, as in 0-9,12"
                )
            ranges.append((low, high))
        if len(ranges) > MAX_RANGES:
            raise UserError(f"{len(ranges)} ranges of clients: write at most {MAX_RANGES}")
        merged: list[tuple[int, int]] = []
        for low, high in sorted(ranges):
            if merged and low <= merged[-1][1] + 1:
                low, high = merged[-1][0], max(merged.pop()[1], high)
            merged.append((low, high))
        return ClientRanges(tuple(merged))

    def __contains__(self, client: object) -> bool:
        return isinstance(client, int) and 0 <= client <= self._end_of(client)

    def __iter__(self) -> Iterator[int]:
        for first, last in self.ranges:
            yield from range(first, last + 1)

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self.ranges)

    def __str__(self) -> str:
        return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in self.ranges)

    @property
    def highest(self) -> int:
        """The highest number; -1 without any."""
        return self.ranges[-1][1] if self.ranges else -1

    def covers(self, other: ClientRanges) -> bool:
        """Whether these include all clients of the other."""
        # Ranges that touch are one, so a range that is covered lies within one of these.
        return all(self._end_of(first) >= last for first, last in other.ranges)

    def _end_of(self, client: int) -> int:
        """Return the last of the range that starts at or before a client; -1 without one."""
        place = bisect_right(self.ranges, (client, MAX_CLIENT))
        return self.ranges[place - 1][1] if place else -1


ALL_CLIENTS = ClientRanges(((0, MAX_CLIENT),))


class Access:
    """Decides which clients a token grants; made by the methods below."""

    def __init__(self, granted: Mapping[bytes, ClientRanges], *, is_open: bool = False) -> None:
        self._granted = granted
        self.is_open = is_open

    @staticmethod
    def open() -> Access:
        """Return an access without tokens: every process may host every client."""
        return Access({}, is_open=True)

    @staticmethod
    def from_file(path: Path | str) -> Access:
        """Read a file of tokens; a UserError if it cannot be read or has none."""
        try:
            text = Path(path).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(
                f"the file of tokens {quoted(str(path), MAX_SHOWN)} cannot be read "
                f"({shortened(error, MAX_SHOWN)}): make one with "
                "`fedsim token new --clients 0-9 --tokens FILE`"
            ) from None
        access = Access.from_lines(text.splitlines(), str(path))
        if not access._granted:
            raise UserError(f"{path} holds no token: add one with `fedsim token new --clients 0-9`")
        return access

    @staticmethod
    def from_lines(lines: list[str], source: str = "tokens") -> Access:
        """Read the lines of a file of tokens."""
        granted = {}
        for number, line in enumerate(lines, 1):
            if not (words := line.partition("#")[0].split()):
                continue
            match = _DIGEST.fullmatch(words[0])
            if match is None or len(words) != 2:
                raise UserError(
                    f"{source}, line {number}: not a token: a line is sha256:<64 hexadecimal digits> and the "
                    "clients, as in 0-9,12; `fedsim token new` writes one"
                )
            granted[bytes.fromhex(match[1])] = ClientRanges.parse(words[1])
        return Access(granted)

    def grant(self, token: str | None) -> ClientRanges | None:
        """Return the clients that a token grants; None for an unknown one."""
        if self.is_open:
            return ALL_CLIENTS
        # The time of a look-up may reveal something of a digest, but nothing of a token.
        return None if token is None or len(token) > _MAX_TOKEN else self._granted.get(_hashed(token))


def new_token(clients: ClientRanges) -> tuple[str, str]:
    """Return a new secret, and the line to store, which does not reveal it."""
    secret = f"fedsim_{secrets.token_urlsafe(32)}"
    return secret, f"sha256:{_hashed(secret).hex()} {clients}"


def is_loopback(host: str) -> bool:
    """Whether a host name or address is a loopback one."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def names_loopback(header: str) -> bool:
    """Whether a request's ``Host`` is a loopback name or address; a page that rebinds DNS sends its own name.

    The port is not compared: a browser names the one that it connects to, and forwarding may change it.
    """
    match = _HOST.fullmatch(header)
    return match is not None and is_loopback(match[1] or match[2])


def bearer_token(header: str | None) -> str | None:
    """Return the token of an ``Authorization`` header, if it has one."""
    scheme, _, token = (header or "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def _hashed(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogateescape")).digest()
