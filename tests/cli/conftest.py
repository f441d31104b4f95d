"""A tiny scenario file, and a way to call the command in its folder."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fedsim.cli import main

Call = Callable[..., Result]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_scenario: str) -> Path:
    """The working folder, empty but for the scenario ``tiny.toml``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NO_COLOR", raising=False)
    (tmp_path / "tiny.toml").write_text(tiny_scenario)
    return tmp_path


@pytest.fixture
def call(here: Path) -> Call:
    """Return a function that calls the command with arguments."""
    runner = CliRunner()

    def invoke(*arguments: str) -> Result:
        return runner.invoke(main, arguments)

    return invoke
