"""``fedsim token``."""

from __future__ import annotations

import os
from pathlib import Path

import click

from fedsim.cli.console import note, say
from fedsim.errors import OutputError
from fedsim.quoting import MOST_SAID, shortened


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
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "r+b") as lines:
            content = lines.read()
            whole = b"" if not content or content.endswith(b"\n") else b"\n"
            lines.write(whole + line.encode() + b"\n")
            lines.flush()
            os.fsync(descriptor)
    except OSError as error:
        raise OutputError(
            f"cannot write {shortened(file, MOST_SAID)}: {error.strerror or error}. Give --tokens a "
            "file in a folder that is there"
        ) from None
