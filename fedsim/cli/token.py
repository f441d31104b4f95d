"""``fedsim token``."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

from fedsim.bus.http.access import ClientRanges, new_token
from fedsim.cli.console import note, say
from fedsim.durable import telling
from fedsim.errors import OutputError


def new(clients: str, tokens: Path | None) -> None:
    """Make a token, print its secret, and add its hash to the file of tokens, if there is one."""
    ranges = ClientRanges.parse(clients)
    secret, line = new_token(ranges)
    if tokens is None:
        note(f"add this line to the server's file of tokens:\n{line}")
    else:
        _append(tokens, line)
        note(f"added a token for the clients {ranges} to {tokens}; this is the secret, shown only now:")
    say(secret)


def _append(file: Path, line: str) -> None:
    with telling(file, "Give --tokens a file in a folder that is there", error=OutputError):
        descriptor = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    with (
        telling(file, "Make room there, and start again"),
        os.fdopen(descriptor, "r+b", buffering=0) as lines,
    ):
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        content = lines.read()
        whole = b"" if not content or content.endswith(b"\n") else b"\n"
        added = whole + line.encode() + b"\n"
        try:
            if lines.write(added) != len(added):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(descriptor)
        except OSError:
            lines.truncate(len(content))  # half a line would spoil the file
            raise
