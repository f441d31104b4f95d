"""Loading a scenario: its tables, then overrides, then the schema, then what tables say about each other.

A scenario comes from a TOML file, from an example that fedsim brings along, or from Python.

An override is ``PATH=VALUE``: a path as in the file (``fleet.0.count``), and a value as in TOML, or a bare
string. All faults come at once, in the order of the file.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, time
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from pydantic import ValidationError

from fedsim import example_files, toml_writer
from fedsim.errors import Fault, ScenarioError, UnknownPluginError, UserError
from fedsim.example_files import STUDIES
from fedsim.input_paths import looking_in
from fedsim.numerals import parse_whole
from fedsim.plugins import Plugin, path_of
from fedsim.quoting import MAX_SHOWN, nearest, quoted, shortened
from fedsim.scenario.checks import check, server_label
from fedsim.scenario.choices import AlgorithmChoice
from fedsim.scenario.schema import Scenario, plain_name, tables_of
from fedsim.scenario.validation_messages import faults_of, in_order, shown
from fedsim.trackers.base import Tracker, TrackerChoice

Source: TypeAlias = str | Path | Mapping[str, Any] | Scenario
"""Where a scenario comes from: a file, an example's name, a dictionary of tables, or a loaded scenario."""

Algorithm: TypeAlias = str | type[Plugin[Any]]
"""The name of an algorithm, or a class that implements one."""

Overrides: TypeAlias = Sequence[str] | Mapping[str, Any]
"""``PATH=VALUE`` each, or the values by path."""

EXAMPLE = "write PATH=VALUE, such as training.lr=0.1"

SPELLING = (
    "write keys with one dot between them; entries of a list are numbered from 0, as in fleet.0.count, "
    "and a key with other characters than letters, digits, '-' and '_' stands in quotation marks"
)


_DO_STUDY = "use 'fedsim study', or fedsim.study in Python"

DO_RUN = "use 'fedsim run', or fedsim.run in Python, or write a study that has it as its base"


@dataclass(frozen=True, slots=True)
class Override:
    """One value to be put into a scenario."""

    keys: tuple[str, ...]
    value: Any


def load_scenario(
    source: Source,
    overrides: Overrides = (),
    *,
    algorithm: Algorithm | None = None,
    seed: int | None = None,
    folders: Sequence[Path] = (),
) -> Scenario:
    """Return a scenario, checked, with every default filled in.

    Args:
        source: A file, the name of an example, a dictionary of tables, or a scenario loaded before. Where a
            dictionary names a plugin, the class itself may stand.
        overrides: Values that replace the source's, by path: ``{"training.lr": 0.1, "run.rounds": 5}``, or
            texts such as ``"training.lr=0.1"``. A table replaces the whole table of the source, and keys that
            it leaves out get their defaults; to keep the others, name each key that changes by its path.
        algorithm: Run this one instead of the source's. Its parameters are those of ``[algorithm.params]`` if
            that is the source's own one, else those of ``[algorithms.<name>]``, else its defaults.
        seed: Instead of ``run.seed``.
        folders: Where relative paths are looked for after the folder of the source, if that is a file.

    Raises:
        ScenarioError: All that is wrong with the source and the overrides.
    """
    document, source_name, own_folders = document_of(source)
    name = None if algorithm is None else plain(algorithm, source_name)
    faults, moved = _adapt(document, parsed(overrides, source_name), name, seed)
    run = document.setdefault("run", {})
    if isinstance(run, dict):
        run.setdefault("name", plain_name(Path(source_name).stem, "run"))
    scenario = None
    with looking_in([*own_folders, *folders], _root_of(document)):
        try:
            scenario = Scenario.model_validate(document)
        except ValidationError as error:
            faults += faults_of(error, document)
        faults += check(document, faults)
    if faults or scenario is None:
        raise ScenarioError(
            [_where_written(fault, moved) for fault in in_order(faults, document)], source_name
        )
    return _with_models(scenario)


def load_each(
    source: Source, overrides: Overrides, algorithms: Sequence[Algorithm], seeds: Sequence[int] | None
) -> list[Scenario]:
    """Return a scenario for each seed and algorithm, seed by seed; the source's seed if seeds is None."""
    if isinstance(algorithms, str | type):
        algorithms = [algorithms]
    if not algorithms or (seeds is not None and not list(seeds)):
        raise UserError("there is nothing to compare: name at least one algorithm, and one seed if any")
    scenarios: list[Scenario] = []
    faults: dict[Fault, None] = {}
    source_name = ""
    every: Sequence[int | None] = [None] if seeds is None else seeds
    for seed in every:
        for algorithm in algorithms:
            try:
                scenarios.append(load_scenario(source, overrides, algorithm=algorithm, seed=seed))
            except ScenarioError as error:
                faults |= dict.fromkeys(error.faults)
                source_name = error.source
    if faults:
        raise ScenarioError(list(faults), source_name)
    return scenarios


def document_of(source: Source) -> tuple[dict[str, Any], str, list[Path]]:
    """Return a scenario's tables, unchecked, what errors call it, and its folder."""
    if isinstance(source, Scenario):
        return tomllib.loads(toml_writer.document(tables_of(source))), source.run.name, []
    if isinstance(source, Mapping):
        tables, source_name, folders = plain(source, "scenario"), "scenario", []
    else:
        tables, source_name, folder = read_source(source)
        folders = [folder]
    if is_study(tables):
        raise ScenarioError(
            [Fault("", "this is a study, which has scenarios and is none", _DO_STUDY)], source_name
        )
    return tables, source_name, folders


def is_study(tables: Mapping[str, Any]) -> bool:
    """Whether tables are those of a study, not of a scenario."""
    return not tables.keys().isdisjoint({"base", "variant"})


def read_source(source: str | Path, *, studies: bool = False) -> tuple[dict[str, Any], str, Path]:
    """Return the tables of a file or of an example, what errors call it, and its folder."""
    path = Path(source)
    if not os.path.isfile(path):  # noqa: PTH113 (which also answers for a path that is too long)
        known = example_files.names(studies=studies)
        name = str(source)
        if studies and name not in known:
            name = f"{STUDIES}{name}"
        if name in known:
            file = example_files.file_of(name)
            return tomllib.loads(file.read_text("utf-8")), name, file.parent
        if not path.suffix and not os.path.exists(path):  # noqa: PTH110
            kind = "example of a study" if studies else "example"
            problem = f"there is no file {quoted(str(path))}, and no {kind} of that name"
            others = [
                name.removeprefix(example_files.STUDIES) for name in example_files.names(studies=not studies)
            ]
            mend = nearest(path, known)
            if str(source).removeprefix(example_files.STUDIES) in others:
                mend = f"a scenario is: {DO_RUN}" if studies else f"a study is: {_DO_STUDY}"
            raise ScenarioError([Fault("", problem, mend)], str(path))
    return _read_tables(path), str(path), path.parent


def _root_of(document: Mapping[str, Any]) -> str | None:
    """Return ``data.root`` of an unchecked document."""
    data = document.get("data")
    root = data.get("root") if isinstance(data, Mapping) else None
    return root if isinstance(root, str) else None


def plain(value: Any, source_name: str) -> Any:
    """Return a copy of a value as TOML would have it, with plugin classes by their dotted paths."""
    if isinstance(value, Mapping):
        return {str(key): plain(item, source_name) for key, item in value.items()}
    if isinstance(value, list | tuple | range):
        return [plain(item, source_name) for item in value]
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, type):
        try:
            return path_of(value)
        except UnknownPluginError as error:
            raise ScenarioError([Fault("", str(error))], source_name) from None
    return value


def parsed(overrides: Overrides, source_name: str) -> list[Override | Fault]:
    """Read overrides; ``source_name`` is the name of their source in errors."""
    if isinstance(overrides, str):
        overrides = [overrides]
    if not isinstance(overrides, Mapping):
        return [parse_override(text) for text in overrides]
    return [
        Override(keys, plain(value, source_name))
        if (keys := keys_of(path))
        else Fault("", f"the path {quoted(path)} is malformed", SPELLING)
        for path, value in overrides.items()
    ]


def _read_tables(path: Path) -> dict[str, Any]:
    """Return what is in a TOML file."""

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
        raise refuse(f"the file is not TOML: {shortened(error, MAX_SHOWN)}", mend) from None


def _adapt(
    document: dict[str, Any], parsed: Sequence[Override | Fault], algorithm: str | None, seed: int | None
) -> tuple[list[Fault], dict[str, str]]:
    """Put overrides, algorithm and seed into the document, in place."""
    given = [item for item in parsed if isinstance(item, Override)]
    faults: list[Fault | None] = [item for item in parsed if isinstance(item, Fault)]
    # What is set for the algorithm is meant for the one that runs, so the change of algorithms comes between.
    faults += [apply_override(document, item) for item in given if item.keys[0] != "algorithm"]
    twice, moved = _choose(document, algorithm)
    faults += [twice, *(apply_override(document, item) for item in given if item.keys[0] == "algorithm")]
    name = _name_of(document)
    if algorithm is not None and isinstance(name, str) and name != algorithm:
        problem = f"an override asks for {quoted(name)}, but {quoted(algorithm)} is to be run"
        faults.append(Fault("algorithm.name", problem, "leave one of them out"))
    if seed is not None and isinstance(document.setdefault("run", {}), dict):
        document["run"]["seed"] = plain(seed, "seed")  # perhaps a NumPy integer
    return [fault for fault in faults if fault is not None], moved


def parse_override(text: str) -> Override | Fault:
    """Read one ``PATH=VALUE``."""
    left, equals, right = text.partition("=")
    if not equals:
        return Fault("", f"the override {quoted(text)} has no '='", EXAMPLE)
    left = left.strip()
    if not left:
        return Fault("", f"the override {quoted(text)} names no path before '='", EXAMPLE)
    keys = keys_of(left)
    if not keys:
        return Fault("", f"the override {quoted(text)}: the path {quoted(left)} is malformed", SPELLING)
    return Override(keys, _value(right.strip()))


def apply_override(document: dict[str, Any], override: Override) -> Fault | None:
    """Put a value into a document, in place; tables that are not there are made."""
    place: Any = document
    path = shortened(toml_writer.path(*override.keys))
    for depth, name in enumerate(override.keys):
        here, above = (
            toml_writer.path(*override.keys[: depth + 1]),
            shortened(toml_writer.path(*override.keys[:depth])),
        )
        index: Any = name
        if isinstance(place, list):
            index = parse_whole(name)
            if index is None or not 0 <= index < len(place):
                return Fault(
                    here,
                    f"override of {path}: {above} is a list of {len(place)}, and has no entry {quoted(name)}",
                    f"entries are numbered 0 to {len(place) - 1}" if place else "the file must give an entry",
                )
        elif not isinstance(place, dict):
            problem = (
                f"override of {path}: {above} is {shown(place)}, not a table that could hold {quoted(name)}"
            )
            return Fault(here, problem, f"set {above} itself")
        if depth == len(override.keys) - 1:
            place[index] = override.value
            return None
        if isinstance(place, dict):
            place.setdefault(index, {})
            if override.keys[depth + 1] in {"name", "params"} and isinstance(place[index], str):
                # The short form of a choice: selector = "uniform" is selector = { name = "uniform" }.
                place[index] = {"name": place[index]}
        place = place[index]
    return None


def keys_of(text: str) -> tuple[str, ...]:
    """Return the keys of a path such as ``fleet.0.count``; none if it is malformed."""
    try:
        # A line break would make it a document instead of a key.
        table: Any = tomllib.loads(f"{text} = 0") if "\n" not in text else {}
    except tomllib.TOMLDecodeError:
        return ()
    keys: list[str] = []
    while isinstance(table, dict):
        if len(table) != 1:
            return ()
        [(name, table)] = table.items()
        keys.append(name)
    return tuple(keys)


def _value(text: str) -> Any:
    try:
        table = tomllib.loads(f"value = {text}")
    except ValueError:
        return text
    value = table["value"]
    # More than one key: the text had a line break. No scenario holds a date, so that was meant as text.
    return text if len(table) > 1 or isinstance(value, date | time) else value


def _choose(document: dict[str, Any], name: str | None) -> tuple[Fault | None, dict[str, str]]:
    """Make ``name`` the algorithm, or leave the file's own; take its parameters from where they are.

    The former algorithm's parameters go to ``algorithms``, so that nothing is lost.
    """
    own, tables, former = document.get("algorithm", {}), document.get("algorithms", {}), _name_of(document)
    if not isinstance(own, dict) or not isinstance(tables, dict) or not isinstance(former, str):
        return None, {}
    if former in tables and own.get("params"):
        place = toml_writer.path("algorithms", former)
        problem = f"the parameters of {quoted(former)} are given here and in [algorithm.params]"
        return Fault(place, problem, "keep one of the two"), {}
    name, others, moved = name or former, dict(tables), {}
    if name != former and own.get("params"):
        others[former] = own["params"]
        moved[toml_writer.path("algorithms", former)] = "algorithm.params"
    if name in tables:
        own = {**own, "params": others.pop(name)}
        moved["algorithm.params"] = toml_writer.path("algorithms", name)
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


def _with_models(scenario: Scenario) -> Scenario:
    """Write out which model each group and the server train."""
    label = next(iter(scenario.models))
    fleet = tuple(
        group if group.shares else group.model_copy(update={"model": group.model or label})
        for group in scenario.fleet
    )
    server = scenario.server.model_copy(update={"model": server_label(scenario)})
    return scenario.model_copy(update={"fleet": fleet, "server": server})


def load_tracker(
    name: Algorithm, params: Overrides = (), *, folder: str | Path | None = None
) -> Tracker[Any]:
    """Return a tracker."""
    written = plain(name, "tracker")
    document: dict[str, Any] = {"name": written, "params": {} if folder is None else {"folder": str(folder)}}
    results = [
        override if isinstance(override, Fault) else apply_override(document["params"], override)
        for override in parsed(params, written)
    ]
    faults = [fault for fault in results if fault is not None]
    try:
        choice = TrackerChoice.model_validate(document)
    except ValidationError as error:
        faults += faults_of(error, document)
    if faults:
        raise ScenarioError(faults, "tracker")
    tracker: Tracker[Any] = choice.make()
    return tracker
