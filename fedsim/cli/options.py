"""Arguments and options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from fedsim.numerals import whole
from fedsim.quoting import quoted

F = TypeVar("F", bound=Callable[..., Any])


class WholeNumber(click.ParamType):  # type: ignore[type-arg]
    """A whole number in ASCII digits, in the range of a type of :mod:`fedsim.ranges`.

    Args:
        kind: The type's name: the module is loaded when there is a value to check, so that ``--help`` need
            not wait for it.
    """

    name = "integer"

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number, or fail with the rule that the text breaks."""
        from fedsim import ranges

        least, most = ranges.ends(getattr(ranges, self.kind))
        number = value if isinstance(value, int) else whole(value.strip())
        if number is None:
            self.fail(f"{quoted(value)} is not a whole number: write one from {least} to {most}", param, ctx)
        if not least <= number <= most:
            end = f"below {least}" if number < least else f"above {most}"
            self.fail(f"{quoted(value)} is {end}: write a whole number from {least} to {most}", param, ctx)
        return number


SEED = WholeNumber("Seed")
WORKERS = WholeNumber("Workers")
PROCESSES = WholeNumber("Processes")


def scenario(function: F) -> F:
    """The scenario file, and values to replace in it."""
    function = click.option(
        "--set",
        "overrides",
        metavar="PATH=VALUE",
        multiple=True,
        help="Replace a value, such as --set training.lr=0.1; may be repeated.",
    )(function)
    return click.argument("scenario_file", metavar="SCENARIO", type=click.Path(path_type=Path))(function)


def algorithm(function: F) -> F:
    """One algorithm instead of the scenario's."""
    return click.option("--algorithm", metavar="NAME", help="Run this algorithm instead of the scenario's.")(
        function
    )


def seed(function: F) -> F:
    """One seed instead of the scenario's."""
    return click.option("--seed", type=SEED, help="Use this seed instead of the scenario's.")(function)


def out(function: F) -> F:
    """Where a run's folder goes."""
    return click.option(
        "--out",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Folder of the results.  [default: runs/<name>/<algorithm>-seed<seed>]",
    )(function)


def output(function: F) -> F:
    """Where results go, and how much is checked and said."""
    for option in (
        click.option("--quiet", "-q", is_flag=True, help="Show no progress, only the result."),
        click.option(
            "--verify",
            is_flag=True,
            help="Check every invariant while running; slower. Over sockets the server checks its own hooks, "
            "the ledger, the trace and the table of dispatches, and client processes their hooks and jobs.",
        ),
        click.option("--force", is_flag=True, help="Replace the results of an earlier run."),
    ):
        function = option(function)
    return function
