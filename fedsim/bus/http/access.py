"""Who may host which clients: bearer tokens, stored hashed, each for named client numbers.

A file of tokens has a line per token, ``sha256:<64 hexadecimal digits> <clients>``; ``#`` starts a comment.
A token is 256 random bits, so one round of SHA-256 is as good as any slow hash. The file is read again when
it has changed, so tokens can be added, and withdrawn from new connections, during a run.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import secrets
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from fedsim.errors import UserError
from fedsim.quoting import MOST_SAID, quoted, shortened

MOST_CLIENT = 2**31 - 1
"""Highest client number."""
MOST_RANGES = 65_536
_HOST = re.compile(r"(?:\[([^\[\]]+)\]|([^:\[\]]+))(?::\d{1,5})?")
_MOST_TOKEN = 256
_TOKEN_PREFIX = "fedsim_"  # noqa: S105
_SCHEME = "sha256:"


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
            first, dash, last = part.strip().partition("-")
            if not _is_number(first) or (dash and not _is_number(last)):
                raise UserError(
                    f"clients {quoted(text)}: {quoted(part)} is no client number and no range of numbers: "
                    "write numbers from 0 and ranges, as in 0-9,12"
                )
            low, high = int(first), int(last) if dash else int(first)
            if not low <= high <= MOST_CLIENT:
                raise UserError(
                    f"clients {quoted(text)}: the range {quoted(part)} goes up, from 0 to "
                    f"{MOST_CLIENT} at most"
                )
            found.append((low, high))
        if len(found) > MOST_RANGES:
            raise UserError(f"{len(found)} ranges of clients: write at most {MOST_RANGES}")
        return ClientRanges(_merged(found))

    def __contains__(self, client: object) -> bool:
        if not isinstance(client, int):
            return False
        place = bisect_right(self.ranges, (client, MOST_CLIENT)) - 1
        return place >= 0 and self.ranges[place][0] <= client <= self.ranges[place][1]

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
        return all(first in self and self._end_of(first) >= last for first, last in other.ranges)

    def _end_of(self, client: int) -> int:
        return self.ranges[bisect_right(self.ranges, (client, MOST_CLIENT)) - 1][1]


ALL_CLIENTS = ClientRanges(((0, MOST_CLIENT),))

_Granted = tuple[tuple[bytes, ClientRanges], ...]
"""Digests of tokens, and what each grants."""

_Version = tuple[int, int, int] | None
"""What changes when a file is written; None where there is no file."""


class Access:
    """Decides what a token grants; make one with :meth:`open` or :meth:`from_file`.

    Attributes:
        is_open: Whether everybody may host everything, without a token.
        warn: Called with what is wrong with the file when it has changed and cannot be used; the tokens that
            were read before stay.
    """

    def __init__(self, granted: _Granted, *, is_open: bool = False) -> None:
        self._granted = granted
        self._file: Path | None = None
        self._version: _Version = None
        self.is_open = is_open
        self.warn: Callable[[str], object] = lambda problem: None

    @staticmethod
    def open() -> Access:
        """Return an access without tokens: everybody may host every client."""
        return Access((), is_open=True)

    @staticmethod
    def from_file(path: Path | str) -> Access:
        """Read a file of tokens.

        Raises:
            UserError: A file that cannot be read, a line that is none, or no token at all.
        """
        file = Path(path)
        version = _version(file)  # before the content: what is written between the two is then read again
        access = Access(_read(file))
        if not access._granted:
            raise UserError(f"{path} holds no token: add one with `fedsim token new --clients 0-9`")
        access._file, access._version = file, version
        return access

    @staticmethod
    def from_lines(lines: list[str]) -> Access:
        """Read the lines of a file of tokens, which is not known; see :meth:`from_file`."""
        return Access(_granted(lines, "tokens"))

    def grant(self, token: str | None) -> ClientRanges | None:
        """Return the clients that a token allows to host; None for a token that is not known.

        Every stored token is compared, in constant time, whichever matches.
        """
        if self.is_open:
            return ALL_CLIENTS
        self._read_again()
        if token is None or len(token) > _MOST_TOKEN:
            return None
        digest, found = _hashed(token), None
        for stored, clients in self._granted:
            if hmac.compare_digest(stored, digest):
                found = clients
        return found

    def _read_again(self) -> None:
        if self._file is None or (version := _version(self._file)) == self._version:
            return
        self._version = version
        try:
            granted = _read(self._file)
            if version is not None and not version[1]:  # as an editor leaves a file that it is about to write
                raise UserError(
                    f"the file of tokens {quoted(str(self._file), MOST_SAID)} is empty, so the tokens before "
                    "stay: to withdraw all of them, leave a line with a # in it"
                )
        except UserError as error:
            self.warn(str(error))
        else:
            self._granted = granted


def new_token(clients: ClientRanges) -> tuple[str, str]:
    """Return a new secret for its holder, and the line to store, which does not reveal it."""
    secret = _TOKEN_PREFIX + secrets.token_urlsafe(32)
    return secret, f"{_SCHEME}{_hashed(secret).hex()} {clients}"


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


def _read(file: Path) -> _Granted:
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"the file of tokens {quoted(str(file), MOST_SAID)} cannot be read "
            f"({shortened(error, MOST_SAID)}): make one with "
            "`fedsim token new --clients 0-9 --tokens FILE`"
        ) from None
    return _granted(text.splitlines(), str(file))


def _granted(lines: list[str], source: str) -> _Granted:
    granted = []
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        digest = _digest_of(words[0])
        if len(words) != 2 or digest is None:
            raise UserError(
                f"{source}, line {number}: not a token: a line is sha256:<64 hexadecimal digits> and the "
                "clients, as in 0-9,12; `fedsim token new` writes one"
            )
        granted.append((digest, ClientRanges.parse(words[1])))
    return tuple(granted)


def _hashed(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogateescape")).digest()


def _digest_of(word: str) -> bytes | None:
    digits = word.removeprefix(_SCHEME)
    if digits == word or len(digits) != 64:
        return None
    try:
        return bytes.fromhex(digits)
    except ValueError:
        return None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 10


def _merged(ranges: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return tuple(merged)
