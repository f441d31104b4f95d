"""Converts exceptions and signals to messages and exit statuses, for all commands."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import click

from fedsim.errors import FedsimError, RunError, UserError
from fedsim.portable_numerics import FreshProcessError
from fedsim.quoting import MAX_SHOWN, shortened
from fedsim.system import check_system

FAILED, MISTAKEN, INTERRUPTED, TERMINATED = 1, 2, 130, 143


MEANT = {
    "init": "new",
    "open": "report",
    "plot": "report",
    "show": "report",
    "simulate": "run",
    "start": "run",
    "sweep": "study",
    "train": "run",
    "view": "report",
}
"""Names of commands in other programs, and the command to suggest for each."""


class TerminatedError(KeyboardInterrupt):
    """Raised by SIGTERM; like Ctrl-C it passes handlers of ordinary exceptions."""


class Group(click.Group):
    """A group of commands whose failures become an exit status and a message on standard error."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Read the options before the command."""
        with _short_usage():
            return super().make_context(*args, **kwargs)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command; suggest what may be meant where there is none."""
        if ctx.parent is None and args[0] in MEANT:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {MEANT[args[0]]!r}?")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, and exit with its status."""
        _print_what_cannot_be_printed()
        _see_private_plugins()
        try:
            check_system()
            with _terminable(), _short_usage():
                return super().invoke(ctx)
        except UserError as error:
            if isinstance(error, FreshProcessError):
                raise  # the command is started anew
            _leave(str(error), MISTAKEN)
        except FedsimError as error:
            notes = "".join(f"\n  {line}" for line in getattr(error, "__notes__", ()))
            _leave(f"the run failed: {error}{_causes(error)}{notes}", FAILED)
        except TerminatedError as error:
            _leave(f"terminated: {_left(error)}", TERMINATED)
        except KeyboardInterrupt as error:
            _leave(f"interrupted: {_left(error)}", INTERRUPTED)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            if isinstance(error, OSError) and error.errno == errno.EPIPE:
                raise  # nobody reads on: click closes the output and leaves quietly
            if isinstance(error, OSError) and error.errno is not None:  # the system refuses something
                place = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
                _leave(f"the run failed: {place}{error.strerror}", FAILED)
            traceback.print_exc(file=sys.stderr)
            _leave("this is a bug in fedsim or in a plugin: please report it with the lines above", FAILED)


@contextmanager
def rehearsing(file: Path) -> Iterator[None]:
    """Convert a failed rehearsal to a UserError that names the file."""
    try:
        yield
    except RunError as error:
        if type(error) is not RunError:  # a bug, of fedsim or of a plugin, is no fault of the file
            raise
        raise UserError(f"{file}: its rehearsal failed: {error}") from error


def _print_what_cannot_be_printed() -> None:
    """Print '?' for characters that the output cannot encode."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _see_private_plugins() -> None:
    """Append the working folder to Python's path, as a scenario may name plugins there."""
    if not {"", str(Path.cwd())} & set(sys.path):
        sys.path.append(str(Path.cwd()))


def _leave(message: str, status: int) -> NoReturn:
    click.echo(f"fedsim: {message}", err=True)
    raise SystemExit(status)


def _left(error: BaseException) -> str:
    """Return what an interruption has left behind, by the notes of its exception."""
    return "; ".join(getattr(error, "__notes__", ["nothing was left half-written"]))


def _causes(error: BaseException) -> str:
    """Return the causes of an error that its message does not repeat."""
    cause, lines = error.__cause__, ""
    while cause is not None:
        line = f"{type(cause).__name__}: {cause}"
        if line not in str(error):
            lines += f"\n  caused by {line}"
        cause = cause.__cause__
    return lines


@contextmanager
def _short_usage() -> Iterator[None]:
    """Shorten messages of click, which repeat whole arguments."""
    try:
        yield
    except click.UsageError as error:
        message = error.format_message()
        if len(message) <= MAX_SHOWN:
            raise
        raise click.UsageError(shortened(message, MAX_SHOWN), error.ctx) from None


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM raise :class:`TerminatedError` in the main thread; elsewhere signals cannot be handled."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise TerminatedError
