"""Options that several commands share, and lazy parsing of their values.

What does the work of a command, or reads the value of an option, is named by its place and imported when it
is called, so that help and completion are fast: see :func:`late`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, TypedDict, TypeVar

import click

from fedsim.errors import UserError

F = TypeVar("F", bound=Callable[..., Any])


class OutputOptions(TypedDict):
    """The options of results, which all commands that run something have."""

    out: Path | None
    force: bool
    verify: bool
    track: Sequence[str]
    live: int | None
    quiet: bool


def late(place: str) -> Callable[..., Any]:
    """Return a function that is imported when it is called."""

    def call(*args: Any, **kwargs: Any) -> Any:
        module, _, name = place.partition(":")
        return getattr(import_module(f"fedsim.{module}"), name)(*args, **kwargs)

    return call


def read_by(place: str, *args: Any, **kwargs: Any) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Return a callback that parses an option by a lazily imported function, and names it in errors."""
    read = late(place)

    def callback(context: click.Context, parameter: click.Parameter, text: Any) -> Any:
        if text is None or text == () or context.resilient_parsing:  # completion needs no values
            return text
        try:
            return read(text, *args, **kwargs)
        except UserError as error:
            raise click.BadParameter(str(error)) from None

    return callback


def all_of(*options: Callable[[Any], Any]) -> Callable[[F], F]:
    """Combine several options, in this order."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def path_option(name: str, metavar: str, words: str) -> Callable[[Any], Any]:
    """Return an option that is a file or a folder."""
    return click.option(name, metavar=metavar, type=click.Path(path_type=Path), help=words)


def number_option(
    name: str, kind: str, words: str, metavar: str = "INTEGER", *, required: bool = False
) -> Callable[[Any], Any]:
    """Return an option of a whole number, in the range of a type of :mod:`fedsim.ranges`."""
    read = read_by("cli.values:whole_number", kind)
    return click.option(name, metavar=metavar, callback=read, help=words, required=required)


def set_option(metavar: str, words: str, name: str = "overrides") -> Callable[[Any], Any]:
    """Return ``--set``, whose paths are those of a scenario unless it has another name in Python."""
    complete = late("cli.completion:value") if name == "overrides" else None
    help_text = f"{words}; may be repeated."
    return click.option(
        "--set", name, metavar=metavar, multiple=True, shell_complete=complete, help=help_text
    )


def file_argument(name: str, metavar: str, completed: str, *, required: bool = True) -> Callable[[Any], Any]:
    """Return an argument that is a file or an example, completed by a function of :mod:`cli.completion`."""
    return click.argument(
        name,
        metavar=metavar,
        type=click.Path(path_type=Path),
        required=required,
        callback=_keep_pipe,
        shell_complete=late(f"cli.completion:{completed}"),
    )


def _keep_pipe(context: click.Context, parameter: click.Parameter, path: Path | None) -> Path | None:
    """Replace a pipe, such as that of ``<(...)``, by a copy: a portable command restarts and rereads it."""
    if (
        path is not None
        and not context.resilient_parsing
        and path.parent == Path("/dev/fd")
        and path.is_fifo()
    ):
        with TemporaryFile() as copy:
            copy.write(path.read_bytes())
            copy.seek(0)
            os.dup2(copy.fileno(), int(path.name))
    return path


scenario_file = file_argument("scenario_file", "SCENARIO", "scenarios")
scenario_options = all_of(
    scenario_file,
    set_option("PATH=VALUE", "Replace a value, such as --set training.lr=0.1"),
)
algorithm_option = click.option(
    "--algorithm",
    metavar="NAME",
    shell_complete=late("cli.completion:algorithm"),
    help="Run this algorithm instead of the scenario's.",
)


def _track(words: str) -> Callable[[Any], Any]:
    return click.option(
        "--track",
        metavar="TRACKER",
        multiple=True,
        callback=read_by("cli.values:trackers"),
        shell_complete=late("cli.completion:tracker"),
        help=f"{words}; may be repeated. ('fedsim track' shows results.)",
    )


_live = click.option(
    "--live",
    metavar="[PORT]",
    is_flag=False,
    flag_value="0",
    callback=read_by("cli.values:port"),
    help="Show what goes on in a page for a browser of this machine, whose address is printed.  "
    "[default PORT: one that is free]",
)
_quiet = click.option("--quiet", "-q", is_flag=True, help="Show no progress, only the result.")


def _output(*, track: str, force: str, verify: str) -> Callable[[Any], Any]:
    """Return the options of results, with the help of commands that do one run or several."""
    return all_of(
        _track(track),
        _live,
        click.option("--force", is_flag=True, help=force),
        click.option("--verify", is_flag=True, help=verify),
        _quiet,
    )


speed_up_option = click.option(
    "--speed-up",
    type=click.FloatRange(0.0, min_open=True),
    metavar="X",
    help="In an emulation, let X seconds pass in a real one; below 1 it is slower.  [default: 1]",
)
emulate_options = all_of(
    click.option(
        "--emulate",
        is_flag=True,
        help="Over sockets, hold each client to its device, its link and its availability, in real time.",
    ),
    speed_up_option,
)
profile_option = click.option(
    "--profile",
    is_flag=True,
    help="Also note when each worker was at which jobs, in real time, for 'fedsim timeline'.",
)
output_of_resumed = all_of(
    _track("Show the run in this tracker, from its first round on"), profile_option, _live, _quiet
)
output_of_one = _output(
    track="Show the run in this tracker while it goes on, such as tensorboard, instead of the scenario's",
    force="Replace the results of another run, or begin anew where the same one was interrupted.",
    verify="Check every invariant while running; slower. Over sockets the server checks its own hooks, "
    "the ledger and the trace, and client processes their hooks and jobs.",
)
output_of_several = _output(
    track="Show runs in this tracker while they go on, such as tensorboard, instead of the scenario's",
    force="Replace other results that are in the way; runs that are there already are kept.",
    verify="Check every invariant while runs go on; slower. Runs that are there already are not checked.",
)
one_run = all_of(
    scenario_options,
    algorithm_option,
    number_option("--seed", "Seed", "Use this seed instead of the scenario's."),
    path_option(
        "--out",
        "DIR",
        "Folder of the results.  [default: runs/<name>/<algorithm>-seed<seed>, with a number if it holds "
        "another run]",
    ),
)
