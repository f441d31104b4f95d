"""What a client process must not forget: its session, replies that are not taken, its clients' states.

A file is written beside its place, flushed to the disk, and moved there, so a crash leaves the old file or
the new one. A client's new state and the reply that goes with it count together: the state is written first,
under another name, and takes its place once the reply stands; at the next start a new state without its
reply is dropped. Every file names itself, and carries the SHA-256 of that and its contents; nobody but its
owner can read it.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgpack

from fedsim.bus.base import Header
from fedsim.durable import restrict, sync, telling, write
from fedsim.errors import UserError
from fedsim.quoting import MOST_SAID, quoted
from fedsim.wire import Frame

_MAGIC = b"fedsim state 5\n"
_MEND = (
    "Make room there, or mend what the system says, and start this process again: it goes on from its state "
    "folder, and nothing is lost"
)
_MOST_NAME = 64
_OTHERS = 0o077
_OWN = frozenset({"replies", "lock", "session", "session.part", "states"})
_REPLY = re.compile(r"(\d{1,10})-(\d{1,10})")

Kept = tuple[Header, Frame | None, bytes | None, tuple[float, float], str | None]
"""A reply; the state of its client that goes with it: the one that was pending when it was given; what was
spent on it, and its notes."""


class StateFolder:
    """A folder that one client process at a time may use, for one run; its owner alone can look into it.

    Args:
        path: The folder; made where there is none. One that others can look into is taken from them, unless
            it holds anything else than a state folder does.

    Attributes:
        path: As given.

    Raises:
        UserError: It cannot be used, another process uses it, or a file in it is damaged.
        FileError: The system refuses to read or write in it; also of every method that does.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._replies = self.path / "replies"
        self._states = self.path / "states"
        self._new: dict[int, bytes] = {}
        self._newer = threading.Lock()  # states are set on the loop and made durable beside it
        self._lock = -1
        try:
            with self._telling():
                self._make()
                self._seize()
                self._session, self._run = self._load_session()
                self._repair()
        except BaseException:
            self.close()
            raise

    @property
    def session(self) -> str:
        """The session's name: 32 hexadecimal characters."""
        return self._session

    @property
    def run(self) -> str:
        """The run that the folder belongs to; empty before the first welcome."""
        return self._run

    def close(self) -> None:
        """Let another process use the folder."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def begin(self, run: str) -> None:
        """Note which run the folder belongs to."""
        if run != self._run:
            self._run = run
            self._save_session()

    def get(self, client: int) -> bytes | None:
        """Return what was put for a client last; None where nothing was.

        Raises:
            UserError: The file is damaged.
        """
        if client in self._new:
            return self._new[client]
        path = self._states / str(client)
        with self._telling():
            return _load(path) if path.exists() else None

    def put(self, client: int, state: bytes) -> None:
        """Set a client's state; it becomes durable together with the client's next reply."""
        with self._newer:
            self._new[client] = state

    def pending(self, client: int) -> bytes | None:
        """Return the state that goes with the client's reply that is given now; None for one that stands."""
        return self._new.get(client)

    def replies(self) -> list[tuple[Header, Frame | None, tuple[float, float], str | None]]:
        """Return the replies that are kept, by client and dispatch: header, frame, what was spent, notes.

        Raises:
            UserError: A file is damaged.
        """
        found = []
        with self._telling():
            for name in sorted(self._reply_names(), key=lambda key: tuple(map(int, key.split("-")))):
                header, frame, _, spent_s, notes = self._read_reply(self._replies / name)
                found.append((header, None if frame is None else Frame(frame, len(frame)), spent_s, notes))
        return found

    def turn(self, replies: Sequence[Kept], gone: Sequence[Header]) -> None:
        """Make replies durable, each with its client's new state, and forget others; blocks on the disk."""
        with self._telling():
            for reply in replies:
                self._keep(*reply)
            for header in gone:
                (self._replies / _file_of(header)).unlink(missing_ok=True)

    def _telling(self) -> AbstractContextManager[None]:
        return telling(self.path, _MEND, doing="use the state folder")

    def _make(self) -> None:
        """Make the folders, and keep others out of them."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        for folder in (self.path, self._replies, self._states):
            with suppress(FileExistsError):
                folder.mkdir(mode=0o700)
                restrict(folder)  # whatever the umask
            if not folder.stat().st_mode & _OTHERS:
                continue
            if others := sorted({path.name for path in self.path.iterdir()} - _OWN):
                raise UserError(
                    f"the state folder {quoted(str(self.path), MOST_SAID)} is open to other "
                    f"users and holds more than states ({others[0]!r}): give --state a folder of its own, "
                    "which will be closed to them"
                )
            restrict(folder)

    def _seize(self) -> None:
        """Keep other processes out."""
        self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        os.fchmod(self._lock, 0o600)  # whatever the umask
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"another process uses the state folder {quoted(str(self.path), MOST_SAID)}: "
                "give each its own"
            ) from None

    def _keep(
        self,
        header: Header,
        frame: Frame | None,
        state: bytes | None,
        spent_s: tuple[float, float],
        notes: str | None,
    ) -> None:
        client = header.client
        place, beside = self._states / str(client), self._states / f"{client}.new"
        digest = None if state is None else _save(beside, state)
        joined = None if frame is None else frame.join()
        _save(
            self._replies / _file_of(header), msgpack.packb([_values(header), joined, digest, spent_s, notes])
        )
        if state is not None:
            beside.replace(place)
            sync(self._states)
            with self._newer:
                if self._new.get(client) is state:
                    del self._new[client]

    def _reply_names(self) -> list[str]:
        return [path.name for path in self._replies.iterdir() if _REPLY.fullmatch(path.name)]

    def _read_reply(self, path: Path) -> tuple[Header, Any, Any, Any, Any]:
        try:
            values, *others = msgpack.unpackb(_load(path), use_list=False, max_bin_len=2**31 - 1)
            frame, digest, spent_s, notes = others
            return Header(*values), frame, digest, spent_s, notes
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise _damaged(path, error) from None

    def _repair(self) -> None:
        """Finish or undo what a crash has left half done; keep others out of files too."""
        for path in [*self._replies.iterdir(), *self._states.iterdir(), *self.path.iterdir()]:
            if path.name.endswith(".part"):
                path.unlink()
            elif path.stat().st_mode & _OTHERS:
                restrict(path)
        fresh = {path.name[:-4]: path for path in self._states.iterdir() if path.name.endswith(".new")}
        if not fresh:
            return
        stands = {
            (name.split("-")[0], self._read_reply(self._replies / name)[2]) for name in self._reply_names()
        }
        for client, path in fresh.items():
            if (client, _read(path)[1]) in stands:
                path.replace(self._states / client)
            else:
                path.unlink()
        sync(self._states)

    def _load_session(self) -> tuple[str, str]:
        path = self.path / "session"
        if not path.exists():
            self._session, self._run = secrets.token_hex(16), ""
            self._save_session()
            return self._session, ""
        words = _load(path).decode("ascii", "replace").split("\n")
        if len(words) != 2 or len(words[0]) != 32:
            raise _damaged(path, "not a session")
        return words[0], words[1]

    def _save_session(self) -> None:
        _save(self.path / "session", f"{self._session}\n{self._run}".encode())


def _save(path: Path, contents: bytes) -> bytes:
    """Put contents into a file, durably and at once; return the digest of what it says."""
    name = _name_of(path)
    digest = sha256(name)
    digest.update(contents)
    write(path, _MAGIC, digest.digest(), name, contents, mend=_MEND)
    return digest.digest()


def _load(path: Path) -> bytes:
    return _read(path)[0]


def _read(path: Path) -> tuple[bytes, bytes]:
    """Return what a file contains, and the digest of what it says."""
    with telling(path, _MEND, doing="read"):
        whole = path.read_bytes()
    start = len(_MAGIC) + 32
    digest = whole[len(_MAGIC) : start]
    if re.match(rb"fedsim state \d+\n", whole) and not whole.startswith(_MAGIC):
        raise UserError(
            f"the file {quoted(path.name)} of the state folder {quoted(str(path.parent), MOST_SAID)} is of "
            "another version of fedsim: go on with that one, or remove the folder to begin anew"
        )
    if not whole.startswith(_MAGIC) or sha256(memoryview(whole)[start:]).digest() != digest:
        raise _damaged(path, "its checksum is wrong")
    name = _name_of(path)
    if not whole.startswith(name, start):
        other = whole[start : start + _MOST_NAME].partition(b"\n")[0].decode("ascii", "replace")
        raise _damaged(path, f"it is that of {other!r}")
    return whole[start + len(name) :], digest


def _name_of(path: Path) -> bytes:
    """Return what a file calls itself, which is the same before and after it is moved into its place."""
    return f"{path.name.removesuffix('.new')}\n".encode()


def _file_of(header: Header) -> str:
    return f"{header.client}-{header.dispatch}"


def _values(header: Header) -> tuple[Any, ...]:
    return (
        *(header.sender, header.receiver, header.round, header.exchange),
        *(header.dispatch, header.turn, header.merged),
    )


def _damaged(path: Path, why: object) -> UserError:
    return UserError(
        f"the file {quoted(str(path), MOST_SAID)} of the state folder is damaged ({why}): remove "
        "the folder to begin anew"
    )
