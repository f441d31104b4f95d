"""The command ``fedsim``, and its commands in the order of the manual. Nothing heavy is imported here.

They are declared in modules by what they do. What does a command's work is imported when it is called
(:func:`fedsim.cli.options.late`).
"""

from __future__ import annotations

import click

from fedsim import __version__
from fedsim.cli.error_handling import Group
from fedsim.cli.result_commands import calibrate, diff, energy, report, timeline, track
from fedsim.cli.run_commands import compare, extend, fork, fuzz, resume, run, study, validate
from fedsim.cli.scenario_commands import check, completion, devices, list_, new, schema
from fedsim.cli.socket_commands import join, serve, token


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="fedsim", message="%(prog)s %(version)s")
def main() -> None:
    """Simulate federated learning: real training, real bytes, simulated time.

    A scenario is a TOML file, or the name of an example such as quickstart. It describes a fleet of devices,
    a data set and how it is spread, and an algorithm. Any value in it can be replaced with --set PATH=VALUE.
    """


for command in (
    *(run, resume, extend, fork, compare, study, validate, fuzz),
    *(report, timeline, energy, calibrate, diff, track),
    *(serve, join, token),
    *(list_, check, new, devices, schema, completion),
):
    main.add_command(command)
