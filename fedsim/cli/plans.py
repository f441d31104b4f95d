"""From a scenario file and options to plans that can be run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedsim.errors import Fault
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


def load_all(
    file: Path, overrides: Sequence[str], *, algorithms: Sequence[str], seeds: Sequence[int | None]
) -> list[Scenario]:
    """Return the scenario of a file for each seed and algorithm, seed by seed.

    Raises:
        UserError: All faults that it has with any of them, each once.
    """
    from fedsim.errors import ScenarioError

    scenarios: list[Scenario] = []
    faults: dict[Fault, None] = {}
    for seed in seeds:
        for algorithm in algorithms:
            try:
                scenarios.append(load(file, overrides, algorithm=algorithm, seed=seed))
            except ScenarioError as error:
                faults |= dict.fromkeys(error.faults)
    if faults:
        raise ScenarioError(list(faults), str(file))
    return scenarios


def plan(scenario: Scenario, file: Path, *, verify: bool) -> Plan:
    """Build the parts of a run; ``file`` is where the scenario is from, for errors to name.

    Raises:
        UserError: They cannot be built as the scenario says.
    """
    from fedsim.report.plan import Plan
    from fedsim.scenario import build, resolved_toml

    parts = build(scenario, str(file))
    return Plan(
        scenario.run.name, scenario.algorithm.name, resolved_toml(scenario), replace(parts, verify=verify)
    )


def place(scenario: Scenario, out: Path | None) -> tuple[str, Path]:
    """Return what a run is called among those of its scenario, and its folder."""
    from fedsim.report.plan import RUNS, folder_name

    name = folder_name(scenario.algorithm.name, scenario.run.seed)
    return name, out or RUNS / scenario.run.name / name
