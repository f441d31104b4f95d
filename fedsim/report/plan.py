"""What a run is called, beside the parts that it is made of."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedsim.runtime.parts import Parts

RUNS = Path("runs")
"""Where run folders go unless the user says otherwise."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A run to be done and recorded.

    Attributes:
        name: The scenario's name.
        algorithm: The algorithm's name.
        scenario_toml: The resolved scenario.
        parts: What the run is made of.
    """

    name: str
    algorithm: str
    scenario_toml: str
    parts: Parts


def folder_name(algorithm: str, seed: int) -> str:
    """Return the name of a run's folder among the runs of one scenario."""
    return f"{algorithm}-seed{seed}"
