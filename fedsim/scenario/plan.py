"""What a run is called, beside the parts that it is made of."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fedsim.runtime.parts import Parts
from fedsim.scenario.build import build
from fedsim.scenario.schema import Scenario, resolved_toml


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

    @classmethod
    def of(cls, scenario: Scenario, source: str, *, verify: bool = False) -> Plan:
        """Return the plan of a scenario, with its parts built.

        Args:
            scenario: What to run.
            source: Where the scenario is from, for errors to name.
            verify: Whether every invariant is checked while running.

        Raises:
            UserError: The parts cannot be built as the scenario says.
        """
        parts = replace(build(scenario, source), verify=verify)
        return cls(scenario.run.name, scenario.algorithm.name, resolved_toml(scenario), parts)
