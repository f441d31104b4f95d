"""The ``fedsim`` command: the only place that prints.

Results go to standard output, progress and errors to standard error. Each is dressed up where it is a
terminal, and plain lines where it is not. Commands import what they need when they are called, so that
``--help`` and ``list devices`` do not wait for torch.

=== ================================================================
0   all went well
1   a run failed, or a bug in fedsim (then with a traceback)
2   a mistake of the user's: the message says how to mend it
130 interrupted from the keyboard; 143 terminated. Nothing is left half-written
=== ================================================================
"""

import click

from fedsim import __version__
from fedsim.cli import check, compare, join, listing, run, schema, serve, token
from fedsim.cli.group import Group


def _version(context: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        click.echo(f"fedsim {__version__}")
        context.exit()


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version."
)
def main() -> None:
    """Simulate federated learning: real training, real bytes, simulated time.

    A scenario is a TOML file that describes a fleet of devices, a data set and how it is spread, and an
    algorithm. Any value in it can be replaced with --set PATH=VALUE.
    """


for _command in (
    run.command,
    compare.command,
    serve.command,
    join.command,
    token.command,
    listing.command,
    check.command,
    schema.command,
):
    main.add_command(_command)

__all__ = ["main"]
