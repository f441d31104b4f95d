"""Reading a scenario file: TOML, then ``--set``, then the schema, then what tables say about each other.

All faults come at once, in the order of the file.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fedsim.errors import Fault, ScenarioError
from fedsim.quoting import MOST_SAID, quoted, shortened
from fedsim.scenario import overrides as setting
from fedsim.scenario import toml
from fedsim.scenario.checks import check, server_label
from fedsim.scenario.choices import AlgorithmChoice
from fedsim.scenario.schema import Scenario
from fedsim.scenario.schema_paths import Values
from fedsim.scenario.validation_messages import faults_of, in_order


def load_scenario(
    path: str | Path,
    overrides: Sequence[str] = (),
    *,
    algorithm: str | None = None,
    seed: int | None = None,
) -> Scenario:
    """Return the scenario of a file.

    Args:
        path: The file.
        overrides: Values that replace the file's: ``training.lr=0.1``, as after ``--set``.
        algorithm: Run this one instead of the file's. Its parameters are those of ``[algorithm.params]`` if
            that is the file's own one, else those of ``[algorithms.<name>]``, else its defaults.
        seed: Instead of ``run.seed``.

    Raises:
        ScenarioError: All that is wrong with the file and the overrides.
    """
    document = _read(Path(path))
    faults, moved = _adapt(document, overrides, algorithm, seed)
    run = document.setdefault("run", {})
    if isinstance(run, dict):
        run.setdefault("name", _name(Path(path)))
    scenario = None
    try:
        scenario = Scenario.model_validate(document)
    except ValidationError as error:
        faults += faults_of(error, document)
    faults += check(Values(document, faults))
    if faults or scenario is None:
        raise ScenarioError([_where_written(fault, moved) for fault in in_order(faults, document)], str(path))
    return _with_models(scenario)


def _read(path: Path) -> dict[str, Any]:
    def refuse(problem: str, mend: str) -> ScenarioError:
        return ScenarioError([Fault("", problem, mend)], str(path))

    try:
        text = path.read_text("utf-8-sig")  # some editors begin a file with a byte order mark
    except UnicodeDecodeError as error:
        problem = f"the file is not text in UTF-8 (byte {error.start})"
        raise refuse(problem, "save it as UTF-8, and give a .toml file") from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise refuse(f"the file cannot be read: {reason}", "give the path of a .toml file") from None
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        where = re.search(r"line (\d+)", str(error))
        lines = text.splitlines()
        there = where and lines[int(where[1]) - 1 :][:1]
        mend = f"mend this line: {shortened(there[0].strip())}" if there else "mend the end of the file"
        raise refuse(f"the file is not TOML: {shortened(error, MOST_SAID)}", mend) from None


def _adapt(
    document: dict[str, Any], overrides: Sequence[str], algorithm: str | None, seed: int | None
) -> tuple[list[Fault], dict[str, str]]:
    """Put overrides, algorithm and seed into the document, in place.

    Returns:
        What is wrong with them, and for each path that was moved where the file has it.
    """
    parsed = [setting.parse(text) for text in overrides]
    faults = [item for item in parsed if isinstance(item, Fault)]
    given = [item for item in parsed if isinstance(item, setting.Override)]
    # What is set for the algorithm is meant for the one that runs, so the change of algorithms comes between.
    ours = [item for item in given if item.keys[0] == "algorithm"]
    found = [setting.apply(document, item) for item in given if item not in ours]
    twice, moved = _choose(document, algorithm)
    found += [twice, *(setting.apply(document, item) for item in ours)]
    name = _name_of(document)
    if algorithm is not None and isinstance(name, str) and name != algorithm:
        problem = f"--set asks for {quoted(name)}, and the command for {quoted(algorithm)}"
        found.append(Fault("algorithm.name", problem, "leave one of them out"))
    if seed is not None and isinstance(document.setdefault("run", {}), dict):
        document["run"]["seed"] = seed
    return [*faults, *(fault for fault in found if fault)], moved


def _choose(document: dict[str, Any], name: str | None) -> tuple[Fault | None, dict[str, str]]:
    """Make ``name`` the algorithm, or leave the file's own; take its parameters from where they are.

    The former algorithm's parameters go to ``algorithms``, so that nothing is lost.
    """
    own, tables, former = document.get("algorithm", {}), document.get("algorithms", {}), _name_of(document)
    if not isinstance(own, dict) or not isinstance(tables, dict) or not isinstance(former, str):
        return None, {}
    if former in tables and own.get("params"):
        place = toml.path("algorithms", former)
        problem = f"the parameters of {quoted(former)} are given here and in [algorithm.params]"
        return Fault(place, problem, "keep one of the two"), {}
    name, others, moved = name or former, dict(tables), {}
    if name != former and own.get("params"):
        others[former] = own["params"]
        moved[toml.path("algorithms", former)] = "algorithm.params"
    if name in tables:
        own = {**own, "params": others.pop(name)}
        moved["algorithm.params"] = toml.path("algorithms", name)
    elif name != former:
        own = {**own, "params": {}}
    document["algorithm"] = {**own, "name": name}
    document["algorithms"] = others
    return None, moved


def _where_written(fault: Fault, moved: Mapping[str, str]) -> Fault:
    for now, before in moved.items():
        if fault.path == now or fault.path.startswith(f"{now}."):
            return replace(fault, path=before + fault.path.removeprefix(now))
    return fault


def _name_of(document: dict[str, Any]) -> Any:
    own = document.get("algorithm", {})
    default = AlgorithmChoice.model_fields["name"].default
    return own.get("name", default) if isinstance(own, dict) else None


def _name(path: Path) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).lstrip(".-")[:100] or "run"


def _with_models(scenario: Scenario) -> Scenario:
    """Write out which model each group and the server train."""
    label = next(iter(scenario.models))
    fleet = tuple(
        group if group.shares else group.model_copy(update={"model": group.model or label})
        for group in scenario.fleet
    )
    model = server_label(scenario.models, fleet, scenario.server)
    server = scenario.server.model_copy(update={"model": model})
    return scenario.model_copy(update={"fleet": fleet, "server": server})
