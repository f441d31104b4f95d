"""Arguments and options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


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
    return click.option(
        "--seed", type=click.IntRange(min=0), help="Use this seed instead of the scenario's."
    )(function)


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
