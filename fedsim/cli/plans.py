"""From a scenario file and options to plans that can be run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedsim.report.plan import Plan
    from fedsim.scenario import Scenario


def load(
    file: Path, overrides: Sequence[str], *, algorithm: str | None = None, seed: int | None = None
) -> Scenario:
    """Return the scenario of a file, with values replaced.

    Raises:
        UserError: It has faults.
    """
    from fedsim.scenario import load_scenario

    return load_scenario(file, overrides, algorithm=algorithm, seed=seed)


def plan(scenario: Scenario, *, verify: bool) -> Plan:
    """Build the parts of a run.

    Raises:
        UserError: They cannot be built as the scenario says.
    """
    from fedsim.report.plan import Plan
    from fedsim.scenario import build, resolved_toml

    parts = build(scenario)
    return Plan(
        scenario.run.name, scenario.algorithm.name, resolved_toml(scenario), replace(parts, verify=verify)
    )
