"""``fedsim token``."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import click

from fedsim.cli.console import note, say
from fedsim.durable import telling
from fedsim.errors import OutputError


@click.group("token")
def command() -> None:
    """Make tokens, with which client processes show who they are."""


@command.command("new")
@click.option("--clients", required=True, metavar="0-9,12", help="The clients that it grants.")
@click.option(
    "--tokens",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Add it, hashed, to this file of the server's.",
)
def new(clients: str, tokens: Path | None) -> None:
    """Make a token, and print it.

    The secret goes to the holder, who gives it to 'fedsim join' as FEDSIM_TOKEN or --token. The server knows
    only a hash of it, which is added to the file for 'fedsim serve --tokens', or shown.
    """
    from fedsim.bus.http.access import ClientRanges, new_token

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
