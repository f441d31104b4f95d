from collections.abc import Callable
from typing import Literal

import pytest
from click.testing import Result
from pydantic import Field

from fedsim.cli.commands import FOLDERS
from fedsim.cli.listing import parameters
from fedsim.config import Config
from fedsim.plugins import available

Call = Callable[..., Result]


@pytest.mark.parametrize("kind", list(FOLDERS))
def test_every_plugin_is_listed_with_its_summary(call: Call, kind: str) -> None:
    result = call("list", kind)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()[2:]
    assert [line.split()[0] for line in lines] == [found.name for found in available(FOLDERS[kind])]
    assert all(len(line.split()) > 2 for line in lines)


@pytest.mark.parametrize("kind", list(FOLDERS))
def test_details_give_every_parameter_with_words(call: Call, kind: str) -> None:
    result = call("list", kind, "--details")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    parameters = [i for i, line in enumerate(lines) if line.startswith("  ") and line[2] != " "]
    assert len(parameters) == sum(len(found.plugin.Config.model_fields) for found in available(FOLDERS[kind]))
    assert all(lines[i + 1].startswith("      ") for i in parameters)


def test_an_unknown_kind_is_a_mistake(call: Call) -> None:
    result = call("list", "unicorns")
    assert result.exit_code == 2
    assert "algorithms" in result.stderr


class Base(Config):
    size: int = 1
    """How much."""


class Settings(Base):
    size: int = 2
    mode: Literal["a", "b"] = "a"
    """How."""
    path: str = Field()
    """Where."""
    shares: tuple[float, ...] = (0.5, 0.5)
    limit: int | None = None


def test_parameters_are_told_as_a_scenario_writes_them() -> None:
    assert parameters(Settings) == [
        ("size", "2", "How much."),
        ("mode", '"a"', 'How. One of: "a", "b".'),
        ("path", "(required)", "Where."),
        ("shares", "[0.5, 0.5]", ""),
        ("limit", "(none)", ""),
    ]
