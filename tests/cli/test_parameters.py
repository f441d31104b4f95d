from typing import Literal

from pydantic import Field

from fedsim.cli.parameters import parameters
from fedsim.config import Config


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
