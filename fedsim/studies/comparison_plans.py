"""Plans of comparisons: a scenario, several algorithms, and ``PATH=V1,V2`` for what is varied.

Commas separate values, but for those within brackets, braces or quotation marks: ``training.lr=0.1,0.5`` are
two values, ``models.mlp.params.hidden=[8, 16]`` is one, a list, and so is ``"a, b"``, a text. A path with one
value is an override, as in a run; paths with several make a grid.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fedsim import toml_writer
from fedsim.errors import Fault, OutputError, ScenarioError
from fedsim.quoting import quoted
from fedsim.report.places import COMPARISON, run_name
from fedsim.report.read_results import read_checked, read_object
from fedsim.scenario import Scenario, load_each, load_scenario
from fedsim.scenario.load import Algorithm, Override, Overrides, Source, document_of, parse_override, parsed
from fedsim.scenario.schema import plain_name
from fedsim.scenario.validation_messages import faults_of
from fedsim.studies.plan import Candidate, Setting, StudyPlan, load_study
from fedsim.studies.study_columns import ANSWERS
from fedsim.studies.study_file import StudyConfig

_PIECES = re.compile(r""""(?:[^"\\]|\\.)*"|'[^']*'|[][{},"']|[^][{},"']+""")
"""Quoted texts, separators and brackets, and all between them."""

_ELSEWHERE = {
    "run.seed": "give --seeds instead, such as --seeds 0,1",
    "algorithm": "give --algorithms instead",
    "algorithm.name": "give --algorithms instead",
    "algorithm.params": "set each parameter by its own path, such as algorithm.params.mu",
}
"""Paths that are given by other options where values are varied, and what to do."""


def command_plan(
    source: Source,
    overrides: Sequence[str],
    algorithms: Sequence[Algorithm],
    seeds: Sequence[int] | None,
    targets: Sequence[float] = (),
) -> StudyPlan:
    """Return the plan of a command: a comparison, or with ``PATH=V1,V2,...`` one at each point of a grid."""
    if all(len(values_of(text.partition("=")[2])) == 1 for text in overrides):
        return comparison_plan(source, overrides, algorithms, seeds, targets)
    single, grid, faults = _parsed(overrides)
    if faults:
        raise ScenarioError(list(dict.fromkeys(faults)), document_of(source)[1])
    return comparison_plan(source, single, algorithms, seeds, targets, grid)


def comparison_plan(
    source: Source,
    overrides: Overrides,
    algorithms: Sequence[Algorithm],
    seeds: Sequence[int] | None,
    targets: Sequence[float] = (),
    grid: Mapping[str, Sequence[Any]] | None = None,
) -> StudyPlan:
    """Return the plan of a comparison, or with a grid of a study that compares at each of its points."""
    if not grid:
        scenarios = load_each(source, overrides, algorithms, seeds)
        name = str(source) if isinstance(source, str | Path) else scenarios[0].run.name
        return plan_of(scenarios, targets, name)
    base, source_name, folders = document_of(source)
    name = plain_name(Path(source_name).stem, "run")
    run = base.setdefault("run", {})
    single = _by_path(overrides)
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
        raise ScenarioError(error.faults, source_name) from None


def plan_of(scenarios: Sequence[Scenario], targets: Sequence[float] = (), source: str = "") -> StudyPlan:
    """Return the plan of a comparison: one scenario with several algorithms and seeds, each of them once."""
    of_algorithm = {scenario.algorithm.name: scenario for scenario in scenarios}
    seeds = dict.fromkeys(scenario.run.seed for scenario in scenarios)
    if len(scenarios) > len(of_algorithm) * len(seeds):
        labels = [run_name(scenario.algorithm.name, scenario.run.seed) for scenario in scenarios]
        twice = next(label for label in labels if labels.count(label) > 1)
        raise OutputError(
            f"two runs of this comparison would be named {twice}: give each algorithm and each seed once, "
            "and compare other settings of an algorithm by runs of their own"
        )
    name = scenarios[0].run.name
    tables = {
        "name": name,
        "base": document_of(scenarios[0])[0],
        "seeds": list(seeds),
        "targets": list(targets),
        "variant": [{"algorithm": algorithm} for algorithm in of_algorithm],
    }
    candidates = {
        Setting(algorithm, algorithm): (Candidate((), scenario, algorithm),)
        for algorithm, scenario in of_algorithm.items()
    }
    try:
        config = StudyConfig.model_validate(tables)
    except ValidationError as error:
        raise ScenarioError(faults_of(error, tables), source or name) from None
    return StudyPlan(
        config, name, tuple(seeds), (), (), candidates, "", kind="comparison", source=source or name
    )


def read_comparison_plan(folder: Path) -> StudyPlan:
    """Return the plan of the comparison in a folder; without targets if its answers were not written."""
    runs = read_object(folder / COMPARISON, ("runs",))["runs"]
    scenarios = [load_scenario(folder / run["folder"] / "scenario.toml") for run in runs]
    file = folder / ANSWERS.file

    def targets(file: Path) -> list[float]:
        with file.open(encoding="utf-8", newline="") as lines:
            return list(dict.fromkeys(float(row["target"]) for row in csv.DictReader(lines) if row["target"]))

    return plan_of(scenarios, read_checked(file, targets) if file.is_file() else ())


def values_of(text: str) -> tuple[str, ...]:
    """Return the values in a text as they are written; empty if its commas are ambiguous."""
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


def _by_path(overrides: Overrides) -> Mapping[str, Any]:
    """Return overrides as values by path."""
    if isinstance(overrides, Mapping):
        return overrides
    read = parsed(overrides, "scenario")
    if faults := [fault for fault in read if isinstance(fault, Fault)]:
        raise ScenarioError(faults, "scenario")
    return {
        toml_writer.path(*override.keys): override.value
        for override in read
        if isinstance(override, Override)
    }


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
        faults += [override for override in read if isinstance(override, Fault)][:1]
        given.append([override for override in read if isinstance(override, Override)])
    given = [each for each in given if each]
    for number, each in enumerate(given):
        for other in given[:number] + given[number + 1 :]:
            keys, other_keys = each[0].keys, other[0].keys
            shorter = min(len(keys), len(other_keys))
            if len(each) > 1 and keys[:shorter] == other_keys[:shorter]:
                problem = f"it has several values, and {toml_writer.path(*other_keys)} is set too"
                faults.append(Fault(toml_writer.path(*keys), problem, "leave out one of the two"))
    by_path = {toml_writer.path(*each[0].keys): [override.value for override in each] for each in given}
    for path, mend in _ELSEWHERE.items():
        if path in by_path:
            faults.append(Fault(path, "it is not set like this where values are varied", mend))
    single = {path: values[0] for path, values in by_path.items() if len(values) == 1}
    return single, {path: by_path[path] for path in by_path if path not in single}, faults
