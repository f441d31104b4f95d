"""The reference of the command line, in Markdown, from the commands themselves.

The manual is built with it (``docs/conf.py``). To see it, run ``python tools/command_reference.py``.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click
from click.testing import CliRunner

from fedsim.cli import main


def commands() -> str:
    """Return every command with its arguments and options."""
    context = click.Context(main, info_name="fedsim")
    return "\n".join(line for name in main.commands for line in _command(main.commands[name], name, context))


def output(*words: str) -> str:
    """Return a command, and what it prints now in an empty folder."""
    runner = CliRunner()
    with runner.isolated_filesystem():
        result = runner.invoke(main, words[1:], catch_exceptions=False)
    if result.exit_code:
        raise RuntimeError(result.output)
    return f"```console\n$ {' '.join(words)}\n{result.stdout.strip()}\n```"


def _command(command: click.Command, name: str, above: click.Context) -> Iterator[str]:
    context = click.Context(command, info_name=name, parent=above)
    if isinstance(command, click.Group):
        for inner in command.commands:
            yield from _command(command.commands[inner], inner, context)
        return
    usage = " ".join(command.collect_usage_pieces(context))
    yield from (f"## {context.command_path}", "", "```text", f"{context.command_path} {usage}", "```", "")
    yield from (_text(inspect.cleandoc(command.help or "")), "")
    yield from (f"```{{program}} {context.command_path}", "```", "")
    for option in command.params:
        if isinstance(option, click.Option) and not option.hidden:
            yield from _option(option, context)


def _option(option: click.Option, context: click.Context) -> Iterator[str]:
    value = "" if option.is_flag else f" {option.make_metavar(context)}"
    yield f"```{{option}} {', '.join(f'{name}{value}' for name in reversed(option.opts))}"
    shown = option.get_help_record(context)  # with the default, where click shows it
    yield from ("", _text(shown[1] if shown else ""), "```", "")


def _text(help_: str) -> str:
    """Return a help text as Markdown: placeholders in capitals stay as they are, commands become code."""
    return re.sub(r"'(fedsim [^']+)'", r"`\1`", help_.replace("<", "&lt;"))


if __name__ == "__main__":
    print(commands())
