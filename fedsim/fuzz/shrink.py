"""Shrinking a scenario that fails: the same failure with fewer settings and smaller numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from functools import reduce
from operator import getitem
from typing import Any

from fedsim.fuzz.random_scenarios import RandomScenario

Path = tuple[str | int, ...]
"""Keys of tables and places in lists that lead to a setting."""


def shrunk(scenario: RandomScenario, fails: Callable[[RandomScenario], bool]) -> RandomScenario:
    """Return a scenario without whatever its failure does not need.

    Settings are left out one by one, whole tables first, or their numbers halved, as long as it fails.

    Args:
        scenario: A scenario that fails.
        fails: Says whether another one fails in the same way.
    """
    before = None
    while scenario != before:
        before = scenario
        for is_kept in (False, True):
            for path in list(_paths(scenario.tables)):
                tables = _smaller(scenario.tables, path, is_kept=is_kept)
                if tables is not None and fails(candidate := replace(scenario, tables=tables)):
                    scenario = candidate
    toml = scenario.toml
    return replace(scenario, files={name: text for name, text in scenario.files.items() if name in toml})


def _paths(tree: Any, above: Path = ()) -> Iterator[Path]:
    """Yield the paths of all settings, tables before what is in them, later entries of lists first."""
    keys = list(tree) if isinstance(tree, dict) else range(len(tree))[::-1] if isinstance(tree, list) else ()
    for key in keys:
        yield (*above, key)
        yield from _paths(tree[key], (*above, key))


def _smaller(tables: dict[str, Any], path: Path, *, is_kept: bool) -> dict[str, Any] | None:
    """Return tables without a setting, or, if it is kept, with half its number; None if it has none."""
    tables = deepcopy(tables)
    try:
        table: Any = reduce(getitem, path[:-1], tables)  # type: ignore[arg-type]
        number = table[path[-1]]
    except (KeyError, IndexError, TypeError):  # something before it was left out
        return None
    if not is_kept:
        del table[path[-1]]
    elif type(number) is int and number > 1:
        table[path[-1]] = number // 2
    else:
        return None
    return tables
