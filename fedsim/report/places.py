"""Where results go: the same run again to the same folder, another run to a folder of its own.

Without ``--out`` a run goes to ``runs/<name>/<algorithm>-seed<seed>``, and a comparison to ``runs/<name>``.
Where something else is in the way, the place is numbered: ``-2``, ``-3``, and so on. What is replaced without
``--force`` is what has the same results: a simulated run of the same resolved scenario by the same version of
fedsim. Over sockets times are real, and a plugin of the user's may have changed: no such run is known to have
the results of another.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from fedsim import __version__
from fedsim.durable import telling
from fedsim.errors import OutputError
from fedsim.report.atomic_folder import MARK, MEND, is_free
from fedsim.report.job_time_file import REAL_TIME
from fedsim.report.provenance import Bus
from fedsim.report.run_columns import RUN_TABLES
from fedsim.scenario import Scenario, resolved_toml

RUNS = Path("runs")
"""Where run folders go unless the user says otherwise."""

COMPARISON = "comparison.json"
"""The file by which a folder is known as that of a comparison."""

TABLES = ("comparison.csv", COMPARISON)
"""Files that a comparison leaves beside its run folders."""

CONTENTS = frozenset(
    {
        *("scenario.toml", MARK, "run.json", "trace.msgpack", "log.jsonl", "models", REAL_TIME),
        *(table.file for table in RUN_TABLES.values()),
    }
)
"""All that a run leaves in its folder."""

_PLUGIN_KEYS = frozenset({"name", "model", "device", "executor", "dataset", "test"})
"""Keys of a scenario that name a plugin or a data set, by a dotted path where it is the user's, ..."""

_LABEL_KEYS = frozenset({("run", "name"), ("fleet", "name"), ("fleet", "model"), ("server", "model")})
"""... but for these, which are names of other things."""

_DOTTED = re.compile(r"[A-Za-z_]\w*\.[\w.]+")


def run_name(algorithm: str, seed: int) -> str:
    """Return the name of a run's folder among the runs of one scenario."""
    return f"{algorithm}-seed{seed}"


def by_name(scenarios: Sequence[Scenario]) -> dict[str, str]:
    """Return the resolved scenarios of a comparison's runs, by the names of their folders."""
    runs: dict[str, str] = {}
    for scenario in scenarios:
        name = run_name(scenario.algorithm.name, scenario.run.seed)
        if name in runs:
            raise OutputError(
                f"two runs of this comparison would be named {name}: give each algorithm and each seed once, "
                "and compare other settings of an algorithm by runs of their own"
            )
        runs[name] = resolved_toml(scenario)
    return runs


def run_place(scenario: Scenario, bus: Bus, *, force: bool = False) -> Path:
    """Return where a run goes whose user names no folder."""
    ((name, written),) = by_name([scenario]).items()
    first = RUNS / scenario.run.name / name
    return first if force else first_fit(first, lambda folder: _has_room(folder, written, bus))


def comparison_place(
    scenarios: Sequence[Scenario], *, tables: Sequence[str] = TABLES, force: bool = False
) -> Path:
    """Return where the run folders and the tables of a comparison go whose user names no folder."""
    runs, first = by_name(scenarios), RUNS / scenarios[0].run.name

    def fits(parent: Path) -> bool:
        if any((parent / table).exists() for table in tables):
            return holds_comparison(parent, runs)
        may_be_made = parent.is_dir() or is_free(parent)
        return may_be_made and all(_has_room(parent / name, written) for name, written in runs.items())

    return first if force else first_fit(first, fits)


def holds_run(folder: Path, scenario_toml: str, bus: Bus = "memory") -> bool:
    """Whether a folder holds a run that would leave the same results again, and nothing else."""
    same = {"status": "complete", "fedsim": __version__, "bus": bus}
    try:
        return (
            bus == "memory"
            and folder.is_dir()
            and {path.name for path in folder.iterdir()} <= CONTENTS
            and ("save_models = true" in scenario_toml or not (folder / "models").exists())
            and (folder / "scenario.toml").read_bytes() == scenario_toml.encode()
            and same.items() <= _read_json(folder / "run.json").items()
            and not _names_private(tomllib.loads(scenario_toml))
        )
    except (OSError, TypeError):
        return False


def holds_scenario(folder: Path, scenario_toml: str) -> bool:
    """Whether a folder holds a run of this resolved scenario, perhaps with other results."""
    try:
        return (folder / MARK).is_file() and (folder / "scenario.toml").read_bytes() == scenario_toml.encode()
    except OSError:
        return False


def holds_comparison(parent: Path, runs: Mapping[str, str]) -> bool:
    """Whether a folder holds a comparison of exactly these runs, given by :func:`by_name`."""
    try:
        compared = {run["folder"] for run in _read_json(parent / COMPARISON)["runs"]}
    except (KeyError, TypeError):
        return False
    return compared == runs.keys() and all(holds_run(parent / name, one) for name, one in runs.items())


def _names_private(value: Any, *keys: str) -> bool:
    """Whether a resolved scenario, or what is below some keys of it, names a plugin or data of the user's."""
    match value:
        case dict():
            return any(_names_private(child, *keys, key) for key, child in value.items())
        case list():
            return any(_names_private(child, *keys) for child in value)
        case str():
            return keys[-1] in _PLUGIN_KEYS and keys not in _LABEL_KEYS and bool(_DOTTED.fullmatch(value))
    return False


def _has_room(folder: Path, scenario_toml: str, bus: Bus = "memory") -> bool:
    return is_free(folder) or holds_run(folder, scenario_toml, bus)


def first_fit(place: Path, fits: Callable[[Path], bool]) -> Path:
    """Return the first that fits of a place, and of the same with ``-2``, ``-3`` and so on at its end."""
    with telling(place, MEND, error=OutputError):
        if fits(place):
            return place
        numbered = (place.with_name(f"{place.name}-{number}") for number in count(2))
        return next(one for one in numbered if fits(one))


def _read_json(file: Path) -> dict[str, Any]:
    """Return what is in a file that fedsim has written; nothing where it is not there or not whole."""
    try:
        read = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return read if isinstance(read, dict) else {}
