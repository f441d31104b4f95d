"""``fedsim schema``."""

from __future__ import annotations

import json

import click

from fedsim.cli.console import say


@click.command("schema")
def command() -> None:
    """Print the JSON schema of scenario files, for editors."""
    from fedsim.scenario import json_schema

    say(json.dumps(json_schema(), indent=2, ensure_ascii=False))
