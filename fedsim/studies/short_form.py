"""The short form of a study: a scenario, several algorithms, and ``PATH=V1,V2`` for what is varied.

Commas separate values, but for those within brackets, braces or quotation marks: ``training.lr=0.1,0.5`` are
two values, ``models.mlp.params.hidden=[8, 16]`` is one, a list, and so is ``"a, b"``, a text. A path with one
value is an override, as in a run; paths with several make a grid.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedsim import toml
from fedsim.errors import Fault, ScenarioError
from fedsim.quoting import quoted
from fedsim.scenario.load import Algorithm, Override, Overrides, Source, document_of, parse_override
from fedsim.scenario.schema import plain_name
from fedsim.studies.plan import StudyPlan, load_study

_PIECES = re.compile(r""""(?:[^"\\]|\\.)*"|'[^']*'|[][{},"']|[^][{},"']+""")
"""Texts in quotation marks, what separates and encloses values, and all between them."""

_ELSEWHERE = {
    "run.seed": "give --seeds instead, such as --seeds 0,1",
    "algorithm": "give --algorithms instead",
    "algorithm.name": "give --algorithms instead",
    "algorithm.params": "set each parameter by its own path, such as algorithm.params.mu",
}
"""Paths that the short form sets by other options, or not at all, and what to do."""


def varies(overrides: Sequence[str]) -> bool:
    """Whether any path has several values."""
    return any(len(values_of(text.partition("=")[2])) != 1 for text in overrides)


def short_form(
    source: Source,
    overrides: Sequence[str],
    algorithms: Sequence[str],
    seeds: Sequence[int] | None,
    targets: Sequence[float],
) -> StudyPlan:
    """Return the plan of a comparison at each point of a grid."""
    single, grid, faults = _parsed(overrides)
    if faults:
        raise ScenarioError(list(dict.fromkeys(faults)), document_of(source)[1])
    return grid_plan(source, single, grid, algorithms, seeds, targets)


def grid_plan(
    source: Source,
    single: Mapping[str, Any],
    grid: Mapping[str, Sequence[Any]],
    algorithms: Sequence[Algorithm],
    seeds: Sequence[int] | None,
    targets: Sequence[float],
) -> StudyPlan:
    """Return the plan of a comparison at each point of a grid, given values by path."""
    base, said, folders = document_of(source)
    name: Any = plain_name(Path(said).stem, "run")
    run = base.setdefault("run", {})
    if isinstance(run, dict):
        name = single.get("run.name", run.setdefault("name", name))
    tables: dict[str, Any] = {
        "name": name,
        "base": base,
        "folders": [str(folder.resolve()) for folder in folders],
        "set": dict(single),
        "targets": list(targets),
        "variant": [{"algorithm": algorithm} for algorithm in algorithms],
        "grid": {path: list(values) for path, values in grid.items()},
    }
    try:
        return load_study(tables | ({} if seeds is None else {"seeds": list(seeds)}))
    except ScenarioError as error:
        raise ScenarioError(error.faults, said) from None


def values_of(text: str) -> tuple[str, ...]:
    """Return the values in a text, as they are spelt; none if its commas are ambiguous."""
    if "," not in text:
        return (text,)
    values, depth = [""], 0
    for piece in _PIECES.findall(text):
        depth += (piece in "[{") - (piece in "]}")
        if depth < 0 or piece in "\"'":
            return ()
        if piece == "," and not depth:
            values.append("")
        else:
            values[-1] += piece
    return tuple(values) if not depth and all(map(str.strip, values)) else ()


def by_path(overrides: Overrides) -> Mapping[str, Any]:
    """Return overrides as values by path."""
    if isinstance(overrides, Mapping):
        return overrides
    read = [parse_override(text) for text in overrides]
    if faults := [fault for fault in read if isinstance(fault, Fault)]:
        raise ScenarioError(faults, "scenario")
    return {toml.path(*override.keys): override.value for override in read if isinstance(override, Override)}


def _parsed(overrides: Sequence[str]) -> tuple[dict[str, Any], dict[str, list[Any]], list[Fault]]:
    """Return paths with one value, paths with several, and what is wrong with them."""
    given: list[list[Override]] = []
    faults: list[Fault] = []
    for text in overrides:
        left, equals, right = text.partition("=")
        read = [parse_override(f"{left}{equals}{value}") for value in values_of(right)]
        if not read:
            mend = "put commas between values, and what holds a comma itself in quotation marks or brackets"
            faults.append(Fault(left.strip(), f"{quoted(right)} can be read in several ways", mend))
        faults += [one for one in read if isinstance(one, Fault)][:1]
        given.append([one for one in read if isinstance(one, Override)])
    given = [each for each in given if each]
    for number, each in enumerate(given):
        for other in given[:number] + given[number + 1 :]:
            one, another = each[0].keys, other[0].keys
            shorter = min(len(one), len(another))
            if len(each) > 1 and one[:shorter] == another[:shorter]:
                problem = f"it has several values, and {toml.path(*another)} is set too"
                faults.append(Fault(toml.path(*one), problem, "leave out one of the two"))
    by_path = {toml.path(*each[0].keys): [one.value for one in each] for each in given}
    for path, mend in _ELSEWHERE.items():
        if path in by_path:
            faults.append(Fault(path, "it is not set like this where values are varied", mend))
    single = {path: values[0] for path, values in by_path.items() if len(values) == 1}
    return single, {path: by_path[path] for path in by_path if path not in single}, faults
