"""Scenario files: their schema, loading them with every fault at once, and building a run from them."""

from fedsim.scenario.build import Plan, build
from fedsim.scenario.json_schema import json_schema
from fedsim.scenario.load import Algorithm, Overrides, Source, load_each, load_scenario
from fedsim.scenario.schema import Scenario, resolved_toml, tracked

__all__ = [
    "Algorithm",
    "Overrides",
    "Plan",
    "Scenario",
    "Source",
    "build",
    "json_schema",
    "load_each",
    "load_scenario",
    "resolved_toml",
    "tracked",
]
