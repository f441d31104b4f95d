"""``fedsim list``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fedsim.cli.console import say, strong, table

if TYPE_CHECKING:
    from fedsim.plugins import Found

FOLDERS = {
    "algorithms": "fedsim.algorithms",
    "datasets": "fedsim.data",
    "models": "fedsim.models",
    "partitions": "fedsim.data.partitions",
    "devices": "fedsim.fleet.devices",
    "availability": "fedsim.fleet.availability",
    "networks": "fedsim.network",
    "executors": "fedsim.engine.executors",
    "selectors": "fedsim.runtime.selectors",
    "pacings": "fedsim.runtime.pacing",
}
"""Where the plugins of each kind are."""


@click.command("list")
@click.argument("kind", type=click.Choice(list(FOLDERS)))
@click.option("--details", is_flag=True, help="Show the parameters of each, with defaults.")
def command(kind: str, details: bool) -> None:
    """List what there is to choose from."""
    from fedsim.plugins import available
    from fedsim.report.grid import Grid

    plugins = available(FOLDERS[kind])
    if details:
        for found in plugins:
            _describe(found)
    else:
        rows = [(found.name, found.summary) for found in plugins]
        table(Grid(("name", "what it is"), rows, text_columns=frozenset({0, 1})))


def _describe(found: Found) -> None:
    from fedsim.cli.parameters import parameters

    say(f"{strong(found.name)}: {found.summary}")
    for name, default, documentation in parameters(found.plugin.Config):
        say(f"  {name} = {default}")
        if documentation:
            say(click.wrap_text(documentation, 96, initial_indent="      ", subsequent_indent="      "))
    say()
