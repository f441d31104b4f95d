"""State folders: the session of a client process, replies that are not taken, and states of clients.

A file is written beside its place, flushed to the disk, and moved there, so a crash leaves the old file or
the new one. A reply and the state that goes with it are one file; when the reply is taken, the file is moved
to the states. Every file has the SHA-256 of its contents and owner; only the user can read it.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import secrets
import struct
import threading
from contextlib import AbstractContextManager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from fedsim.bus.http.messages import ProtocolError, Reply, read_large
from fedsim.durable import restrict, telling, write
from fedsim.errors import UserError
from fedsim.quoting import MOST_SAID, quoted
from fedsim.wire import Frame

_MAGIC = b"fedsim state 7\n"
_MEND = (
    "Make room there, or mend what the system says, and start this process again: it goes on from its state "
    "folder, and nothing is lost"
)
_OTHERS = 0o077
_OWN = frozenset({"replies", "lock", "session", "session.part", "states"})
_REPLY = re.compile(r"(\d{1,10})-(\d{1,10})(\.state)?")
_LENGTH = struct.Struct(">Q")
"""Length of a reply; the client's state follows it."""


class StateFolder:
    """A folder for one client process at a time and one run, closed to other users.

    ``session`` is the session's secret; ``run`` is empty before the first greeting. A folder that other users
    can read is closed to them if it holds nothing else. Faults are UserErrors, refusals of the system
    FileErrors.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.session = self.run = ""
        self._replies = self.path / "replies"
        self._states = self.path / "states"
        self._new: dict[int, bytes] = {}
        self._kept: dict[int, list[Path]] = {}  # by client, the replies with states, oldest first
        self._writing = threading.Lock()  # a thread may outlast its caller
        self._lock = -1
        try:
            with self._telling():
                self._make()
                self._seize()
                self._repair()
                self._load_session()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the folder once no file is being written."""
        with self._writing:
            if self._lock >= 0:
                os.close(self._lock)
                self._lock = -1

    def begin(self, run: str) -> None:
        """Set the run that the folder belongs to."""
        if run != self.run:
            self.run = run
            _save(self.path / "session", "session", f"{self.session}\n{run}".encode())

    def get(self, client: int) -> bytes | None:
        """Return the newest state of a client, if there is one."""
        if client in self._new:
            return self._new[client]
        path = (self._kept.get(client) or [self._states / str(client)])[-1]
        with self._telling():
            return _read_reply(path)[1] if path.exists() else None

    def put(self, client: int, state: bytes) -> None:
        """Set a client's state; it becomes durable with the client's next reply."""
        self._new[client] = state

    def pending(self, client: int) -> bytes | None:
        """Return the state that goes with the next reply of a client, if it is new."""
        return self._new.get(client)

    def replies(self) -> list[Reply]:
        """Return the kept replies without their states, by client and dispatch."""
        with self._telling():
            return [_read_reply(path)[0] for path in self._reply_files()]

    async def keep(self, reply: Reply) -> None:
        """Make a reply durable, with its client's new state."""
        await asyncio.to_thread(self._write, reply)
        if reply.state is not None:
            self._kept.setdefault(reply.key[0], []).append(self._place(reply.key, has_state=True))
            if self._new.get(reply.key[0]) is reply.state:
                del self._new[reply.key[0]]
            reply.state = None  # it is in the file, and may be large

    def forget(self, key: tuple[int, ...]) -> None:
        """Forget a reply; its state stays."""
        path, kept = self._place(key, has_state=True), self._kept.get(key[0], [])
        with self._telling():
            if path in kept:
                path.replace(self._states / str(key[0]))
                kept.remove(path)
            else:
                self._place(key, has_state=False).unlink(missing_ok=True)

    def _telling(self) -> AbstractContextManager[None]:
        return telling(self.path, _MEND, doing="use the state folder")

    def _make(self) -> None:
        """Make the folders, closed to other users."""
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
                    f"users and holds more than states ({others[0]!r}): give the states a folder of their "
                    "own, which will be closed to others"
                )
            restrict(folder)

    def _seize(self) -> None:
        """Lock the folder."""
        self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        os.fchmod(self._lock, 0o600)  # whatever the umask
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"another process uses the state folder {quoted(str(self.path), MOST_SAID)}: "
                "give each its own"
            ) from None

    def _write(self, reply: Reply) -> None:
        with self._writing:
            if self._lock < 0:  # the caller was cancelled, and another process may use the folder
                return
            path, parts = self._place(reply.key, has_state=reply.state is not None), reply.parts()
            length = _LENGTH.pack(sum(map(len, parts)))
            _save(path, str(reply.key[0]), length, *parts, reply.state or b"")

    def _place(self, key: tuple[int, ...], *, has_state: bool) -> Path:
        return self._replies / f"{key[0]}-{key[1]}{'.state' if has_state else ''}"

    def _reply_files(self) -> list[Path]:
        names = [match for path in self._replies.iterdir() if (match := _REPLY.fullmatch(path.name))]
        return [self._replies / match[0] for match in sorted(names, key=lambda m: (int(m[1]), int(m[2])))]

    def _repair(self) -> None:
        """Remove half-written files of a crash; close files to other users."""
        for path in [*self._replies.iterdir(), *self._states.iterdir(), *self.path.iterdir()]:
            if path.name.endswith(".part"):
                path.unlink()
            elif path.stat().st_mode & _OTHERS:
                restrict(path)
        for path in self._reply_files():
            if path.suffix:
                self._kept.setdefault(int(path.name.split("-")[0]), []).append(path)

    def _load_session(self) -> None:
        path = self.path / "session"
        if not path.exists():
            _save(path, "session", f"{secrets.token_hex(16)}\n".encode())
        self.session, self.run = bytes(_read(path, "session")).decode("ascii").split("\n")


def _save(path: Path, whose: str, *parts: Any) -> None:
    """Write a file, durably and at once."""
    digest = sha256(whose.encode())
    for part in parts:
        digest.update(part)
    write(path, _MAGIC, digest.digest(), *parts, mend=_MEND)


def _read(path: Path, whose: str) -> memoryview:
    """Return the contents of a file."""
    with telling(path, _MEND, doing="read"):
        whole = path.read_bytes()
    start = len(_MAGIC) + 32
    if re.match(rb"fedsim state \d+\n", whole) and not whole.startswith(_MAGIC):
        raise UserError(
            f"the file {quoted(path.name)} of the state folder {quoted(str(path.parent), MOST_SAID)} is of "
            "another version of fedsim: go on with that one, or remove the folder to begin anew"
        )
    content, digest = memoryview(whole)[start:], sha256(whose.encode())
    digest.update(content)
    if whole[:start] != _MAGIC + digest.digest():
        raise _damaged(path, "its checksum is wrong")
    return content


def _read_reply(path: Path) -> tuple[Reply, bytes]:
    """Return a reply and its state from a file of replies or of states."""
    whole = _read(path, path.name.partition("-")[0])
    try:
        (length,) = _LENGTH.unpack_from(whole)
        end = _LENGTH.size + length
        _, (client, dispatch, spent_s, notes), body = read_large(whole[_LENGTH.size : end])
    except (ValueError, struct.error, ProtocolError) as error:
        raise _damaged(path, error) from None
    if path.parent.name == "replies" and path.stem != f"{client}-{dispatch}":
        raise _damaged(path, f"it is that of dispatch {dispatch}")
    frame = Frame(bytes(body), len(body)) if body else None
    return Reply((client, dispatch), frame, spent_s, notes, is_durable=True), bytes(whole[end:])


def _damaged(path: Path, why: object) -> UserError:
    return UserError(
        f"the file {quoted(str(path), MOST_SAID)} of the state folder is damaged ({why}): remove "
        "the folder to begin anew"
    )
