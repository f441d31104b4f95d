"""A tiny scenario file, and a way to call the command in its folder."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fedsim.cli import main

Call = Callable[..., Result]

DIVERGING = (
    *("--set", "models.linear.name=mlp", "--set", "training.steps=2"),
    *("--set", "training.lr=1e6", "--set", "training.weight_decay=1e6"),
)
"""Two steps take weights to some 1e23: finite, unlike their outputs; no server would take them."""


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_scenario: str) -> Path:
    """The working folder, empty but for the scenario ``tiny.toml``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NO_COLOR", raising=False)
    (tmp_path / "tiny.toml").write_text(tiny_scenario)
    return tmp_path


@pytest.fixture
def call(here: Path) -> Call:
    runner = CliRunner()

    def invoke(*arguments: str) -> Result:
        return runner.invoke(main, arguments)

    return invoke
