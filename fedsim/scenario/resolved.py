"""The resolved scenario: every value written out, defaults too, in a file that loads to an equal scenario."""

from __future__ import annotations

from fedsim.scenario import toml
from fedsim.scenario.schema import Scenario


def resolved_toml(scenario: Scenario) -> str:
    """Return the scenario as TOML; what is left out is what has no value (such as no limit)."""
    tables = scenario.model_dump(mode="json", exclude_none=True)
    if not scenario.algorithms:
        del tables["algorithms"]
    return toml.document(tables)
