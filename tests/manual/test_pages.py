"""What the manual says to write and to run can be written and run."""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import manual_blocks
import pytest
from click.testing import CliRunner
from manual_blocks import Block

from fedsim.cli import main
from fedsim.scenario import load_scenario
from fedsim.studies.plan import load_study

BLOCKS = [block for page in manual_blocks.pages() for block in manual_blocks.blocks(page)]
TOML = [block for block in BLOCKS if block.language == "toml"]
COMMANDS = [(block.page, command) for block in BLOCKS for command in block.commands]
PAGES = sorted(
    {block.page for block in BLOCKS if block.language in ("python", "console") and not block.reason}
)
ROOT = manual_blocks.DOCS.parent
SHORT = ["--set", "run.rounds=2"]
"""Rounds of runs here, where a command does not say how many."""


def _words(page: str, command: str) -> list[str]:
    words = manual_blocks.fedsim_words(command)
    others = r"make (\w+)$|tensorboard |docker |python -m fedsim|PIP_CONSTRAINT=|eval "
    assert words or re.match(others, command), (page, command)
    return words


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_every_command_is_one(page: str, command: str, here: Path) -> None:
    """Options are read as the command line does; what they name is looked for when pages are executed."""
    _write_files(page, here)
    if target := re.match(r"make (\w+)$", command):
        assert re.search(rf"^{target[1]}:", (ROOT / "Makefile").read_text(), re.M)
    arguments: list[str] = _words(page, command)
    group: click.Command = main
    while arguments and isinstance(group, click.Group):
        name, *arguments = arguments
        assert name in group.commands, command
        group = group.commands[name]
        if not isinstance(group, click.Group):
            group.make_context(name, arguments)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working folder, whose packages are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] in ("lab", "my_lab")]:
        del sys.modules[name]


def _write_files(page: str, folder: Path) -> None:
    for block in manual_blocks.blocks(page):
        if block.file:
            _write(block, folder)


def _write(block: Block, folder: Path) -> None:
    file = folder / block.file
    file.parent.mkdir(exist_ok=True)
    file.write_text(block.text)


@pytest.mark.parametrize(
    "block", [pytest.param(one, id=f"{one.page}-{number}") for number, one in enumerate(TOML)]
)
def test_every_piece_of_a_scenario_is_valid(block: Block, here: Path) -> None:
    _write_files(block.page, here)
    tables = tomllib.loads(block.text)
    if "variant" in tables:
        assert load_study(tables).runs
    else:
        load_scenario({"run": {"rounds": 1}, "fleet": [{"count": 100}]} | tables)


def test_what_is_not_run_says_why() -> None:
    silent = [block for block in BLOCKS if block.reason]
    assert {block.language for block in silent} == {"console"}
    assert len(silent) < len([block for block in BLOCKS if block.language == "console"]) / 4


def _shortened(words: list[str]) -> list[str]:
    if words[0] in ("run", "compare") and not any(word.startswith("run.rounds") for word in words):
        return [*words, *SHORT]
    if words[0] == "study":
        return ["check", *words[1:]]  # the runs are those of 'fedsim compare', many times over
    return words


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_a_page_can_be_executed(page: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files are written and its blocks run in order, with few rounds."""
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setenv("MPLCONFIGDIR", str(here))
    names: dict[str, Any] = {"__name__": "manual"}
    for block in manual_blocks.blocks(page):
        if block.file:
            _write(block, here)
        elif block.language == "python":
            exec(compile(_few_rounds(block.text), page, "exec"), names)  # noqa: S102
        elif not block.reason:
            for command in block.commands:
                _run(command)


def _run(command: str) -> None:
    if words := manual_blocks.fedsim_words(command):
        result = CliRunner().invoke(main, _shortened(words))
        assert result.exit_code == 0, (command, result.output)
        if " > " in command:
            Path(command.rpartition(" > ")[2]).write_text(result.stdout)


def _few_rounds(code: str) -> str:
    return re.sub(r'("run\.rounds": )\d+', r"\g<1>3", code)
