"""State folders: the session of a client process, and states of its clients.

A state is a file named by its client and the dispatch after which the client had it. It is written before the
reply leaves, beside its place, and moved there, so a crash leaves the whole file or none. A dispatch whose
reply the server has not taken comes again, and is answered from the state before it. So do all dispatches
after the checkpoint from which a server goes on that was started again. Only the user can read the files.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
from pathlib import Path

from fedsim.bus.http.state_versions import StateVersions
from fedsim.durable import telling, write
from fedsim.errors import UserError
from fedsim.quoting import MAX_SHOWN, quoted

_VERSION = "fedsim state 11"
_MEND = (
    "Make room there, or mend what the system says, and start this process again: it goes on from its state "
    "folder, and nothing is lost"
)
_STATE = re.compile(r"(\d{1,10})-(\d{1,10})")


class StateFolder:
    """A folder for one client process at a time and one run.

    ``session`` is the session's secret; ``run`` and ``server`` are empty before the first greeting. Faults
    are UserErrors, refusals of the system FileErrors. ``versions`` are the states that there are.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.versions = StateVersions(self._remove)
        self._lock = -1
        try:
            with telling(self.path, _MEND, doing="use the state folder"):
                self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._seize()
                there = list(self.path.iterdir())
                for place in there:
                    if place.suffix == ".part":
                        place.unlink()
                names = [name for place in there if (name := _STATE.fullmatch(place.name))]
                for client, dispatch in sorted((int(name[1]), int(name[2])) for name in names):
                    self.versions.add(client, dispatch)
                self.session, self.run, self.server = self._load_session()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the folder."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def bind(self, run: str, server: str) -> None:
        """Set the run that the folder belongs to, and the server that its states agree with."""
        if (run, server) != (self.run, self.server):
            self.run, self.server = run, server
            lines = _VERSION, self.session, run, server
            write(self.path / "session", "\n".join(lines).encode(), mend=_MEND)

    def get(self, client: int) -> bytes | None:
        """Return the newest state of a client."""
        if (newest := self.versions.newest(client)) is None:
            return None
        with telling(self.path, _MEND, doing="read"):
            return self._place(client, newest).read_bytes()

    def put(self, client: int, dispatch: int, state: bytes) -> None:
        """Keep the state of a client after a dispatch, durably."""
        write(self._place(client, dispatch), state, mend=_MEND)
        self.versions.add(client, dispatch)

    def _place(self, client: int, dispatch: int) -> Path:
        return self.path / f"{client}-{dispatch}"

    def _remove(self, client: int, dispatch: int) -> None:
        with telling(self.path, _MEND, doing="use the state folder"):
            self._place(client, dispatch).unlink(missing_ok=True)

    def _seize(self) -> None:
        """Lock the folder."""
        self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"another process uses the state folder {quoted(str(self.path), MAX_SHOWN)}: "
                "give each its own"
            ) from None

    def _load_session(self) -> tuple[str, str, str]:
        path = self.path / "session"
        if not path.exists():
            session = secrets.token_hex(16)
            write(path, f"{_VERSION}\n{session}\n\n".encode(), mend=_MEND)
            return session, "", ""
        version, *words = path.read_text("utf-8", "replace").split("\n")
        if version == _VERSION and len(words) == 3 and re.fullmatch("[0-9a-f]{32}", words[0]):
            return words[0], words[1], words[2]
        is_other = version.startswith("fedsim state") and version != _VERSION
        raise UserError(
            f"the state folder {quoted(str(self.path), MAX_SHOWN)} "
            f"{'is of another version of fedsim' if is_other else 'is damaged'}: remove it to begin anew"
        )
