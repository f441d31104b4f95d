"""Default folders of results: equal runs have the same folder, other runs have others.

Without ``--out`` a run goes to ``runs/<name>/<algorithm>-seed<seed>``.
Where something else is in the way, the place is numbered: ``-2``, ``-3``, and so on. What is replaced without
``--force`` is what has the same results: a simulated run of the same resolved scenario by the same version of
fedsim. Over sockets times are real, and a plugin of the user's may have changed: no such run is known to have
the results of another.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, Literal

from fedsim import __version__
from fedsim.durable import telling
from fedsim.errors import OutputError
from fedsim.report.atomic_folder import MARK, MEND, STATE, is_free
from fedsim.report.checkpoints import FOLDER
from fedsim.report.job_time_file import REAL_TIME
from fedsim.report.provenance import Bus
from fedsim.report.run_columns import RUN_TABLES
from fedsim.report.unfinished_runs import FORK, is_unfinished, read_state, why_not_resumable
from fedsim.scenario import Scenario, resolved_toml

RUNS = Path("runs")
"""Parent of the default folders."""

COMPARISON = "comparison.json"
"""The file that marks the folder of a comparison."""

STUDY = "study.toml"
"""The file that marks the folder of a study."""

VALIDATION = "validation.json"
"""The file that marks the folder of a validation."""

COMPARISON_CSV = "comparison.csv"

TABLES = (COMPARISON_CSV, COMPARISON)
"""Files of a comparison alone; it leaves those of a study's answers too."""

CONTENTS = frozenset(
    {
        *("scenario.toml", MARK, "run.json", "trace.msgpack", "log.jsonl", "models", REAL_TIME, FOLDER),
        *(table.file for table in RUN_TABLES.values()),
    }
)
"""All files that a run leaves."""

_PLUGIN_KEYS = frozenset({"name", "model", "device", "executor", "dataset", "test"})
"""Keys of a scenario that name a plugin or a data set, by a dotted path where it is the user's, ..."""

_LABEL_KEYS = frozenset({("run", "name"), ("fleet", "name"), ("fleet", "model"), ("server", "model")})
"""... but for these, which are names of other things."""

_DOTTED = re.compile(r"[A-Za-z_]\w*\.[\w.]+")


def run_name(algorithm: str, seed: int) -> str:
    """Return the name of a run's folder among the runs of one scenario."""
    return f"{algorithm}-seed{seed}"


def run_place(scenario: Scenario, bus: Bus, *, force: bool = False, goes_on: bool = True) -> Path:
    """Return the default folder of a run, which may go on with one that is there, or may not."""
    written = resolved_toml(scenario)
    first = RUNS / scenario.run.name / run_name(scenario.algorithm.name, scenario.run.seed)
    if force:
        return first
    return first_fit(first, lambda folder: is_free(folder) or is_own(folder, written, bus, goes_on=goes_on))


def holds_run(folder: Path, scenario_toml: str, bus: Bus = "memory") -> bool:
    """Whether a folder holds a run that would leave the same results again, and nothing else."""
    same = {"status": "complete", "fedsim": __version__, "bus": bus}
    try:
        return (
            bus == "memory"
            and folder.is_dir()
            # A process that is killed at the very end leaves its state.
            and {path.name for path in folder.iterdir()} <= CONTENTS | {STATE}
            and ("save_models = true" in scenario_toml or not (folder / "models").exists())
            and _has_scenario(folder, scenario_toml)
            and same.items() <= read_json(folder / "run.json").items()
            and not _names_private(tomllib.loads(scenario_toml))
        )
    except (OSError, TypeError):
        return False


def holds_scenario(folder: Path, scenario_toml: str) -> bool:
    """Whether a folder holds a run of this resolved scenario, perhaps with other results."""
    return _has_scenario(folder, scenario_toml) and (folder / MARK).is_file()


def holds_unfinished(folder: Path, scenario_toml: str, bus: Bus = "memory") -> bool:
    """Whether a folder holds a run of this resolved scenario that has not come to its end."""
    return (
        _has_scenario(folder, scenario_toml)
        and is_unfinished(folder)
        and read_json(folder / STATE).get("bus", "memory") == bus
    )


def _has_scenario(folder: Path, scenario_toml: str) -> bool:
    """Whether a folder has this resolved scenario from the beginning: a fork had another one."""
    try:
        content = (folder / "scenario.toml").read_bytes()
        return content == scenario_toml.encode() and not (folder / FORK).exists()
    except OSError:
        return False


def is_own(folder: Path, scenario_toml: str, bus: Bus = "memory", *, goes_on: bool = True) -> bool:
    """Whether a folder holds this run: finished, with the same results as it would leave again, or not.

    Over sockets, an unfinished one with checkpoints is another run if this one does not go on with it.
    """
    return holds_run(folder, scenario_toml, bus) or (
        holds_unfinished(folder, scenario_toml, bus)
        and (goes_on or bus == "memory" or not read_json(folder / STATE).get("has_checkpoints"))
    )


def can_go_on(folder: Path, scenario_toml: str, bus: Bus = "memory") -> bool:
    """Whether a folder holds an unfinished run of this scenario that is known to go on as it began.

    A plugin of the user's may have changed, and nothing would notice.
    """
    return (
        holds_unfinished(folder, scenario_toml, bus)
        and why_not_resumable(read_state(folder)) is None
        and not _names_private(tomllib.loads(scenario_toml))
    )


def _names_private(value: Any, *keys: str) -> bool:
    """Whether a resolved scenario, or a part below some keys, names a private plugin or data set."""
    match value:
        case dict():
            return any(_names_private(child, *keys, key) for key, child in value.items())
        case list():
            return any(_names_private(child, *keys) for child in value)
        case str():
            return keys[-1] in _PLUGIN_KEYS and keys not in _LABEL_KEYS and bool(_DOTTED.fullmatch(value))
    return False


def kind_of(folder: Path) -> Literal["run", "study", "comparison", "validation"]:
    """Return what a folder holds."""
    if (folder / MARK).is_file() or is_unfinished(folder):
        return "run"
    if (folder / STUDY).is_file():
        return "study"
    if (folder / COMPARISON).is_file():
        return "comparison"
    if (folder / VALIDATION).is_file():
        return "validation"
    raise OutputError(
        f"{folder} holds no results: name the folder of a run, in which is {MARK}, of a comparison, in which "
        f"is {COMPARISON}, of a study, in which is {STUDY}, or of a validation, in which is {VALIDATION}"
    )


def first_fit(place: Path, fits: Callable[[Path], bool]) -> Path:
    """Return the first fitting place of ``name``, ``name-2``, ``name-3`` and so on."""
    with telling(place, MEND, error=OutputError):
        if fits(place):
            return place
        numbered = (place.with_name(f"{place.name}-{number}") for number in count(2))
        return next(candidate for candidate in numbered if fits(candidate))


def read_json(file: Path) -> dict[str, Any]:
    """Return the object in a JSON file; empty if the file is missing or damaged."""
    try:
        read = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return read if isinstance(read, dict) else {}
