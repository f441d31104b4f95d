"""What a client process must not forget: its session, replies that are not taken, its clients' states.

A file is written beside its place, flushed to the disk, and moved there, so a crash leaves the old file or
the new one. A reply and the state of its client that goes with it are one file, so they count together; when
the reply is taken, the file becomes that of the state. Every file carries the SHA-256 of its contents and of
whose they are; nobody but its owner can read it.
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
"""Of a reply, which its client's state follows."""


class StateFolder:
    """A folder that one client process at a time may use, for one run; its owner alone can look into it.

    Args:
        path: The folder; made where there is none. One that others can look into is taken from them, unless
            it holds anything else than a state folder does.

    Attributes:
        path: As given.
        session: The session's name: 32 hexadecimal characters.
        run: The run that the folder belongs to; empty before the first greeting.

    Raises:
        UserError: It cannot be used, another process uses it, or a file in it is damaged.
        FileError: The system refuses to read or write in it; also of every method that does.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.session = self.run = ""
        self._replies = self.path / "replies"
        self._states = self.path / "states"
        self._new: dict[int, bytes] = {}
        self._kept: dict[int, list[Path]] = {}  # by client, the replies that states go with, oldest first
        self._writing = threading.Lock()  # by a thread, which may outlast who asked for it
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
        """Let another process use the folder, once nothing is being written any more."""
        with self._writing:
            if self._lock >= 0:
                os.close(self._lock)
                self._lock = -1

    def begin(self, run: str) -> None:
        """Note which run the folder belongs to."""
        if run != self.run:
            self.run = run
            _save(self.path / "session", "session", f"{self.session}\n{run}".encode())

    def get(self, client: int) -> bytes | None:
        """Return what was put for a client last; None where nothing was.

        Raises:
            UserError: The file is damaged.
        """
        if client in self._new:
            return self._new[client]
        path = (self._kept.get(client) or [self._states / str(client)])[-1]
        with self._telling():
            return _read_reply(path)[1] if path.exists() else None

    def put(self, client: int, state: bytes) -> None:
        """Set a client's state; it becomes durable together with the client's next reply."""
        self._new[client] = state

    def pending(self, client: int) -> bytes | None:
        """Return the state that goes with the client's reply that is given now; None for one that stands."""
        return self._new.get(client)

    def replies(self) -> list[Reply]:
        """Return the replies that are kept, by client and dispatch, without the states that go with them.

        Raises:
            UserError: A file is damaged.
        """
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
        """Forget a reply; the state that goes with it stays."""
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
                    f"users and holds more than states ({others[0]!r}): give the states a folder of their "
                    "own, which will be closed to others"
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

    def _write(self, reply: Reply) -> None:
        with self._writing:
            if self._lock < 0:  # whoever asked for it was cancelled, and another process may be at work
                return
            path, parts = self._place(reply.key, has_state=reply.state is not None), reply.parts()
            length = _LENGTH.pack(sum(map(len, parts)))
            _save(path, str(reply.key[0]), length, *parts, reply.state or b"")

    def _place(self, key: tuple[int, ...], *, has_state: bool) -> Path:
        return self._replies / f"{key[0]}-{key[1]}{'.state' if has_state else ''}"

    def _reply_files(self) -> list[Path]:
        found = [match for path in self._replies.iterdir() if (match := _REPLY.fullmatch(path.name))]
        return [self._replies / match[0] for match in sorted(found, key=lambda m: (int(m[1]), int(m[2])))]

    def _repair(self) -> None:
        """Remove what a crash has left half written; keep others out of files too."""
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
    """Put contents into a file, durably and at once."""
    digest = sha256(whose.encode())
    for part in parts:
        digest.update(part)
    write(path, _MAGIC, digest.digest(), *parts, mend=_MEND)


def _read(path: Path, whose: str) -> memoryview:
    """Return what a file contains."""
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
    """Return a reply, and the state that goes with it, if any; also from the file that is now the state's."""
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
    return Reply((client, dispatch), frame, spent_s, notes, is_new=False), bytes(whole[end:])


def _damaged(path: Path, why: object) -> UserError:
    return UserError(
        f"the file {quoted(str(path), MOST_SAID)} of the state folder is damaged ({why}): remove "
        "the folder to begin anew"
    )
