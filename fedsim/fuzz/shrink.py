"""Shrinking a scenario that fails: the same failure with fewer settings and smaller numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from typing import Any

from fedsim.fuzz.random_scenarios import RandomScenario

Path = tuple[str | int, ...]
"""Keys of tables and places in lists that lead to a setting."""

_GONE = KeyError, IndexError, TypeError
"""Raised where a path leads to nothing, because something before it was left out."""


def shrunk(scenario: RandomScenario, fails: Callable[[RandomScenario], bool]) -> RandomScenario:
    """Return the scenario without whatever its failure does not need.

    Settings are left out one by one, whole tables first, and numbers are made smaller, as long as it fails.

    Args:
        scenario: A scenario that fails.
        fails: Says whether another one fails in the same way.
    """
    while True:
        before = scenario
        for change in (_without, _smaller):
            for path in list(_paths(scenario.tables)):
                candidate = change(scenario.tables, path)
                while candidate is not None and fails(replace(scenario, tables=candidate)):
                    scenario = replace(scenario, tables=candidate)
                    candidate = change(candidate, path) if change is _smaller else None
        if scenario == before:
            return _without_unused_files(scenario)


def _paths(tree: Any, above: Path = ()) -> Iterator[Path]:
    """Yield the paths of all settings, tables before what is in them, later entries of lists first."""
    keys = list(tree) if isinstance(tree, dict) else range(len(tree))[::-1] if isinstance(tree, list) else ()
    for key in keys:
        yield (*above, key)
        yield from _paths(tree[key], (*above, key))


def _without(tables: dict[str, Any], path: Path) -> dict[str, Any] | None:
    """Return tables without a setting; None if it is not there."""
    tables = deepcopy(tables)
    try:
        del _above(tables, path)[path[-1]]
    except _GONE:
        return None
    return tables


def _smaller(tables: dict[str, Any], path: Path) -> dict[str, Any] | None:
    """Return tables in which a whole number is halved; None if there is none that can be."""
    tables = deepcopy(tables)
    try:
        table = _above(tables, path)
        number = table[path[-1]]
    except _GONE:
        return None
    if type(number) is not int or number < 2:
        return None
    table[path[-1]] = number // 2
    return tables


def _above(tables: Any, path: Path) -> Any:
    for key in path[:-1]:
        tables = tables[key]
    return tables


def _without_unused_files(scenario: RandomScenario) -> RandomScenario:
    """Return a scenario with the files alone that it still names."""
    toml = scenario.toml
    return replace(scenario, files={name: text for name, text in scenario.files.items() if name in toml})
