"""The commands that help to write scenarios and command lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fedsim.cli.options import algorithm_option, file_argument, late, number_option, path_option, set_option
from fedsim.cli.plugin_kinds import FOLDERS

COLUMNS = "columns"
"""What can be listed beside plugins."""


class _Kind(click.Choice[str]):
    """A choice of plurals that also takes the singular."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        plural = f"{value}s"
        return super().convert(plural if plural in self.choices else value, param, ctx)


@click.command("list")
@click.argument("kind", type=_Kind([*FOLDERS, COLUMNS]))
@click.option(
    "--details", is_flag=True, help="Show the parameters of each, with defaults; of columns, the type."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document, for programs.")
def list_(kind: str, **values: Any) -> None:
    """List the plugins of a kind, or the columns of all tables."""
    if kind == COLUMNS:
        late("cli.column_listing:list_columns")(**values)
    else:
        late("cli.listing:list_plugins")(kind=kind, **values)


@click.command()
@file_argument("scenario_file", "SCENARIO", "scenarios_and_studies")
@set_option("PATH=VALUE", "Replace a value, such as --set training.lr=0.1")
@algorithm_option
@number_option("--jobs", "Processes", "Of a study: runs at once.  [default: those of 'fedsim study']", "N")
def check(**values: Any) -> None:
    """Check a scenario or a study, and show what it will cost.

    Shows the fleet, the data and the models, and rehearses the first rounds without training, so that bytes
    and times are measured and not estimated. If the rehearsal fails, the exit status is 2. Of a study it
    shows the number of runs. Real time is forecast from a few jobs that are done.
    """
    late("cli.check:check")(**values)


@click.command()
@click.argument("example", shell_complete=late("cli.completion:examples"))
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Replace a file.")
def new(**values: Any) -> None:
    """Write an example scenario to FILE, to start from.

    If FILE is left out, it has the example's name. EXAMPLE is the name of a scenario that fedsim brings
    along, such as quickstart. The files that it names, such as a table of devices, are written beside it.
    """
    late("cli.new:new")(**values)


@click.group()
def devices() -> None:
    """Make device classes."""


@devices.command("import")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option(
    "--like", metavar="CLASS", default="high", help="Whose other quantities it has.  [default: high]"
)
@click.option("--name", metavar="NAME", default="Phone", help="What the class is called.  [default: Phone]")
@path_option("--out", "FILE", "The module to write.  [default: print it]")
@click.option("--force", is_flag=True, help="Replace a file.")
def import_(**values: Any) -> None:
    """Make a device class from Android's power_profile.xml.

    The class is in a Python module. A scenario names it by its path, such as device = "phone.Phone" if the
    module is phone.py in the working folder. Powers are those of the profile. Speed, memory and links are not
    in it, and are those of another class.
    """
    late("cli.new:import_device")(**values)


@click.command()
def schema() -> None:
    """Print the JSON schema of scenario files, for editors."""
    late("cli.check:schema")()


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes commands in a shell.

    Names are those of scenarios, studies, algorithms (also in a list), trackers, kinds of plugins, and the
    paths of --set.

    In ~/.bashrc: eval "$(fedsim completion bash)"; likewise for zsh in ~/.zshrc. For fish, in
    ~/.config/fish/config.fish: fedsim completion fish | source
    """
    late("cli.completion:print_script")(shell=shell)
