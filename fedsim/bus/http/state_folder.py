"""What a client process must not forget: its session, replies that are not taken, its clients' states.

A file is written beside its place, flushed to the disk, and moved there, so a crash leaves the old file or
the new one. A reply and the state of its client that goes with it are one file, so they count together; when
the reply is taken, the file becomes that of the state. Every file names itself, and carries the SHA-256 of
that and its contents; nobody but its owner can read it.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import struct
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgpack

from fedsim.bus.http.messages import Reply
from fedsim.durable import restrict, telling, write
from fedsim.errors import UserError
from fedsim.quoting import MOST_SAID, quoted
from fedsim.wire import Frame

_MAGIC = b"fedsim state 6\n"
_MEND = (
    "Make room there, or mend what the system says, and start this process again: it goes on from its state "
    "folder, and nothing is lost"
)
_MOST_NAME = 64
_OTHERS = 0o077
_OWN = frozenset({"replies", "lock", "session", "session.part", "states"})
_REPLY = re.compile(r"(\d{1,10})-(\d{1,10})(\.state)?")
_SIZES = struct.Struct(">IQ")
"""Of what describes a reply, and of its frame."""


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
        self._kept: dict[int, list[Path]] = {}  # by client, the replies that states go with, oldest first
        self._turning = threading.Lock()  # held while files are written, which may outlast who asked for it
        self._changing = threading.Lock()  # states are set on the loop and made durable beside it
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
        """The run that the folder belongs to; empty before the first greeting."""
        return self._run

    def close(self) -> None:
        """Let another process use the folder, once nothing is being written any more."""
        with self._turning:
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
        with self._changing, self._telling():
            if client in self._new:
                return self._new[client]
            kept, path = self._kept.get(client), self._states / str(client)
            if kept:
                return _read_reply(kept[-1])[1]
            return _read_reply(path)[1] if path.exists() else None

    def put(self, client: int, state: bytes) -> None:
        """Set a client's state; it becomes durable together with the client's next reply."""
        with self._changing:
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

    def turn(self, replies: Sequence[Reply], gone: Sequence[tuple[int, ...]]) -> None:
        """Make replies durable, each with its client's new state, and forget others; blocks on the disk."""
        with self._turning, self._telling():
            if self._lock < 0:  # whoever asked for it was cancelled, and another process may be at work
                return
            for reply in replies:
                self._keep(reply)
            for key in gone:
                path = self._place(key, has_state=True)
                with self._changing:
                    if path in (kept := self._kept.get(key[0], [])):
                        kept.remove(path)
                        path.replace(self._states / str(key[0]))
                        continue
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

    def _keep(self, reply: Reply) -> None:
        client, frame, state = reply.key[0], reply.frame, reply.state
        path = self._place(reply.key, has_state=state is not None)
        said = msgpack.packb([reply.key, frame is not None, reply.spent_s, reply.notes])
        parts = () if frame is None else frame.parts
        _save(path, _SIZES.pack(len(said), sum(map(len, parts))), said, *parts, state or b"")
        if state is not None:
            with self._changing:
                self._kept.setdefault(client, []).append(path)
                if self._new.get(client) is state:
                    del self._new[client]

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

    def _load_session(self) -> tuple[str, str]:
        path = self.path / "session"
        if not path.exists():
            self._session, self._run = secrets.token_hex(16), ""
            self._save_session()
            return self._session, ""
        words = bytes(_read(path, "session")).decode("ascii", "replace").split("\n")
        if len(words) != 2 or len(words[0]) != 32:
            raise _damaged(path, "not a session")
        return words[0], words[1]

    def _save_session(self) -> None:
        _save(self.path / "session", f"{self._session}\n{self._run}".encode())


def _save(path: Path, *parts: Any) -> None:
    """Put contents into a file, durably and at once."""
    name = f"{path.name}\n".encode()
    digest = sha256(name)
    for part in parts:
        digest.update(part)
    write(path, _MAGIC, digest.digest(), name, *parts, mend=_MEND)


def _read(path: Path, names: str) -> memoryview:
    """Return what a file contains, whose name for itself fits a pattern."""
    with telling(path, _MEND, doing="read"):
        whole = path.read_bytes()
    start = len(_MAGIC) + 32
    if re.match(rb"fedsim state \d+\n", whole) and not whole.startswith(_MAGIC):
        raise UserError(
            f"the file {quoted(path.name)} of the state folder {quoted(str(path.parent), MOST_SAID)} is of "
            "another version of fedsim: go on with that one, or remove the folder to begin anew"
        )
    found = whole[len(_MAGIC) : start]
    if not whole.startswith(_MAGIC) or sha256(memoryview(whole)[start:]).digest() != found:
        raise _damaged(path, "its checksum is wrong")
    name = whole[start : start + _MOST_NAME].partition(b"\n")[0].decode("ascii", "replace")
    if not re.fullmatch(names, name):
        raise _damaged(path, f"it is that of {name!r}")
    return memoryview(whole)[start + len(name) + 1 :]


def _read_reply(path: Path) -> tuple[Reply, bytes | None]:
    """Return a reply, and the state that goes with it; also from the file that is now the state's."""
    is_state = path.parent.name == "states"
    whole = _read(path, rf"{path.name}-\d+\.state" if is_state else re.escape(path.name))
    try:
        length, frame_bytes = _SIZES.unpack_from(whole)
        frame_at = _SIZES.size + length
        (client, dispatch), has_frame, (held_s, worked_s), notes = msgpack.unpackb(
            whole[_SIZES.size : frame_at]
        )
    except (ValueError, TypeError, struct.error, msgpack.UnpackException) as error:
        raise _damaged(path, error) from None
    end = frame_at + frame_bytes
    frame = Frame(bytes(whole[frame_at:end]), frame_bytes) if has_frame else None
    reply = Reply((client, dispatch), frame, (held_s, worked_s), notes, is_new=False)
    return reply, bytes(whole[end:]) if is_state or path.suffix else None


def _damaged(path: Path, why: object) -> UserError:
    return UserError(
        f"the file {quoted(str(path), MOST_SAID)} of the state folder is damaged ({why}): remove "
        "the folder to begin anew"
    )
