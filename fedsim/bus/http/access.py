"""Who may host which clients: bearer tokens, stored hashed, each for named client numbers.

A file of tokens has a line per token, ``sha256:<64 hexadecimal digits> <clients>``; ``#`` starts a comment.
A token is 256 random bits, so one round of SHA-256 is as good as any slow hash. The file is read again when
it has changed, so tokens can be added, and withdrawn from new connections, during a run.
"""

from __future__ import annotations

import ipaddress
import re
import secrets
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from fedsim.errors import UserError
from fedsim.quoting import MOST_SAID, quoted, shortened

MOST_CLIENT = 2**31 - 1
"""Highest client number."""
MOST_RANGES = 65_536
_HOST = re.compile(r"(?:\[([^\[\]]+)\]|([^:\[\]]+))(?::\d{1,5})?")
_RANGE = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10}))?")
_DIGEST = re.compile(r"sha256:([0-9a-fA-F]{64})")
_MOST_TOKEN = 256


@dataclass(frozen=True, slots=True)
class ClientRanges:
    """Client numbers as ascending ranges that do not touch.

    Attributes:
        ranges: First and last of each range, both included.
    """

    ranges: tuple[tuple[int, int], ...]

    @staticmethod
    def parse(text: str) -> ClientRanges:
        """Read numbers and ranges, such as ``0-9,12``.

        Raises:
            UserError: Anything else.
        """
        found = []
        for part in text.split(","):
            match = _RANGE.fullmatch(part.strip())
            low, high = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
            if not low <= high <= MOST_CLIENT:
                raise UserError(
                    f"clients {quoted(text)}: {quoted(part)} is no client number and no range that goes up: "
                    f"write numbers from 0 to {MOST_CLIENT} and ranges, as in 0-9,12"
                )
            found.append((low, high))
        if len(found) > MOST_RANGES:
            raise UserError(f"{len(found)} ranges of clients: write at most {MOST_RANGES}")
        merged: list[tuple[int, int]] = []
        for low, high in sorted(found):
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
        """The highest number; -1 where there is none."""
        return self.ranges[-1][1] if self.ranges else -1

    def covers(self, other: ClientRanges) -> bool:
        """Say whether all clients of the other are among these."""
        # Ranges that touch are one, so a range that is covered lies within one of these.
        return all(self._end_of(first) >= last for first, last in other.ranges)

    def _end_of(self, client: int) -> int:
        """Return the last of the range that starts at a client or before it; -1 where there is none."""
        place = bisect_right(self.ranges, (client, MOST_CLIENT))
        return self.ranges[place - 1][1] if place else -1


ALL_CLIENTS = ClientRanges(((0, MOST_CLIENT),))

_Version = tuple[int, int, int] | None
"""What changes when a file is written; None where there is no file."""
_UNREAD = (-1, -1, -1)


class Access:
    """Decides what a token grants; make one with :meth:`open` or :meth:`from_file`.

    Attributes:
        is_open: Whether everybody may host everything, without a token.
        warn: Called with what is wrong with the file when it has changed and cannot be used; the tokens that
            were read before stay.
    """

    def __init__(
        self, granted: Mapping[bytes, ClientRanges], *, is_open: bool = False, file: Path | None = None
    ) -> None:
        self._granted = granted
        self._file = file
        self._version: _Version = _UNREAD
        self.is_open = is_open
        self.warn: Callable[[str], object] = lambda problem: None

    @staticmethod
    def open() -> Access:
        """Return an access without tokens: everybody may host every client."""
        return Access({}, is_open=True)

    @staticmethod
    def from_file(path: Path | str) -> Access:
        """Read a file of tokens.

        Raises:
            UserError: A file that cannot be read, a line that is none, or no token at all.
        """
        access = Access({}, file=Path(path))
        access._read()
        if not access._granted:
            raise UserError(f"{path} holds no token: add one with `fedsim token new --clients 0-9`")
        return access

    @staticmethod
    def from_lines(lines: list[str]) -> Access:
        """Read the lines of a file of tokens, which is not known; see :meth:`from_file`."""
        return Access(_granted(lines, "tokens"))

    def grant(self, token: str | None) -> ClientRanges | None:
        """Return the clients that a token allows to host; None for a token that is not known."""
        if self.is_open:
            return ALL_CLIENTS
        try:
            self._read()
        except UserError as error:
            self.warn(str(error))
        # How long a look-up takes may tell of a digest, and so nothing of a token.
        return None if token is None or len(token) > _MOST_TOKEN else self._granted.get(_hashed(token))

    def _read(self) -> None:
        """Read the file, if it has changed."""
        if (file := self._file) is None:
            return
        version = _version(file)  # before the content: what is written between the two is then read again
        if version == self._version:
            return
        is_first, self._version = self._version == _UNREAD, version
        try:
            text = file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(
                f"the file of tokens {quoted(str(file), MOST_SAID)} cannot be read "
                f"({shortened(error, MOST_SAID)}): make one with "
                "`fedsim token new --clients 0-9 --tokens FILE`"
            ) from None
        if not text and not is_first:  # as an editor leaves a file that it is about to write
            raise UserError(
                f"the file of tokens {quoted(str(file), MOST_SAID)} is empty, so the tokens before "
                "stay: to withdraw all of them, leave a line with a # in it"
            )
        self._granted = _granted(text.splitlines(), str(file))


def new_token(clients: ClientRanges) -> tuple[str, str]:
    """Return a new secret for its holder, and the line to store, which does not reveal it."""
    secret = f"fedsim_{secrets.token_urlsafe(32)}"
    return secret, f"sha256:{_hashed(secret).hex()} {clients}"


def is_loopback(host: str) -> bool:
    """Say whether nobody beyond this machine can reach a host, by its name or address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def names_loopback(header: str) -> bool:
    """Say whether a request's ``Host`` names this machine as only programs on it can.

    A page whose name was made to stand for a loopback address (DNS rebinding) still comes with its own name.
    The port is not compared: a browser cannot name another than it connects to, and whoever forwards one may.
    """
    found = _HOST.fullmatch(header)
    return found is not None and is_loopback(found[1] or found[2])


def bearer_token(header: str | None) -> str | None:
    """Return the token of an ``Authorization`` header; None without one."""
    scheme, _, token = (header or "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def _version(file: Path) -> _Version:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _granted(lines: list[str], source: str) -> Mapping[bytes, ClientRanges]:
    """Return the digests of tokens, and what each grants."""
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
    return granted


def _hashed(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogateescape")).digest()
