"""The runs of a study: each variant at each point of the grid with each seed.

All faults come at once, with their paths in the study file: those of the file itself, and those that a run's
scenario would have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, product
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import ValidationError

from fedsim import toml_writer
from fedsim.errors import DataError, Fault, ScenarioError
from fedsim.input_paths import MARK, located, looking_in
from fedsim.report.places import run_name
from fedsim.scenario import Scenario, load_scenario, resolved_toml, tracked
from fedsim.scenario.load import DO_RUN, document_of, is_study, keys_of, plain, read_source
from fedsim.scenario.schema import plain_name
from fedsim.scenario.validation_messages import faults_of, in_order, shown
from fedsim.studies.study_file import StudyConfig, between, table_of

StudySource: TypeAlias = str | Path | Mapping[str, Any]
"""Where a study comes from: a file, an example's name, or a dictionary of its keys."""

TUNING = "tuning"
"""The folder of the trials, below the study's."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What is compared: a variant at a point of the grid."""

    variant: str
    algorithm: str
    point: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Candidate:
    """Values for what is tuned, and the scenario of a setting with them."""

    values: tuple[Any, ...]
    scenario: Scenario
    label: str


@dataclass(frozen=True, slots=True)
class StudyRun:
    """One run of a study."""

    label: str
    setting: Setting
    seed: int
    scenario: Scenario
    scenario_toml: str

    @property
    def rounds(self) -> int | None:
        """Its rounds; None where a budget ends them."""
        return self.scenario.run.rounds


@dataclass(frozen=True)
class StudyPlan:
    """A study, resolved."""

    config: StudyConfig
    name: str
    seeds: tuple[int, ...]
    grid: tuple[str, ...]
    tuned: tuple[str, ...]
    candidates: Mapping[Setting, tuple[Candidate, ...]]
    toml: str
    kind: Literal["study", "comparison"] = "study"
    source: str = "study"

    @property
    def settings(self) -> tuple[Setting, ...]:
        """What is compared."""
        return tuple(self.candidates)

    @cached_property
    def runs(self) -> tuple[StudyRun, ...]:
        """The runs of all candidates, seed by seed."""
        return tuple(
            _run(candidate.label, setting, candidate.scenario, seed)
            for seed in self.seeds
            for setting, candidates in self.candidates.items()
            for candidate in candidates
        )

    @cached_property
    def trials(self) -> Mapping[tuple[Setting, int], tuple[StudyRun, ...]]:
        """The tuning runs of each candidate, by setting and number of the candidate."""
        seeds = self.config.tune.seeds if self.config.tune is not None else ()
        return {
            (setting, number): tuple(
                _run(
                    f"{TUNING}/{candidate.label}",
                    setting,
                    _with(candidate.scenario, "evaluation", split="val"),
                    seed,
                )
                for seed in seeds
            )
            for setting, candidates in self.candidates.items()
            for number, candidate in enumerate(candidates)
        }

    @property
    def all_trials(self) -> tuple[StudyRun, ...]:
        """The tuning runs of all candidates."""
        return tuple(chain.from_iterable(self.trials.values()))

    @property
    def all_runs(self) -> tuple[StudyRun, ...]:
        """All trials, then the runs of all candidates."""
        return (*self.all_trials, *self.runs)

    @property
    def num_runs(self) -> int:
        """Number of trials and of runs after the tuning."""
        return len(self.all_trials) + len(self.settings) * len(self.seeds)

    def chosen(self, numbers: Mapping[Setting, int]) -> StudyPlan:
        """Return the plan with the chosen candidate of each setting; a setting without a number has none."""
        return replace(
            self,
            candidates={
                setting: (candidates[numbers[setting]],) if setting in numbers else ()
                for setting, candidates in self.candidates.items()
            },
        )

    def tracked(self, names: Sequence[str]) -> StudyPlan:
        """Return the plan with trackers of these names; unchanged without names."""
        candidates = {
            setting: tuple(
                replace(candidate, scenario=tracked(candidate.scenario, names)) for candidate in candidates
            )
            for setting, candidates in self.candidates.items()
        }
        return replace(self, candidates=candidates)

    @property
    def varied(self) -> tuple[str, ...]:
        """The paths of the grid, then those that are tuned."""
        return (*self.grid, *self.tuned)

    def name_of(self, setting: Setting) -> str:
        """Return the name of a setting: ``"fedavg"``, or with a grid ``"fedavg lr=0.1"``."""
        return " ".join([setting.variant, *self.point_words(setting)])

    def row_of(self, setting: Setting, number: int = 0) -> dict[str, Any]:
        """Return the columns that say which setting, and which candidate, a row of a table is of.

        A value that is tuned is None where nothing was chosen.
        """
        candidates = self.candidates[setting]
        tuned = candidates[number].values if candidates else [None] * len(self.tuned)
        values = dict(zip(self.varied, [*setting.point, *tuned], strict=True))
        return {"variant": setting.variant, "algorithm": setting.algorithm, **values}

    def point_words(self, setting: Setting) -> list[str]:
        """Return the values of the grid for people: ``["alpha=0.1"]``."""
        return [f"{keys_of(path)[-1]}={value}" for path, value in zip(self.grid, setting.point, strict=True)]


def with_one_worker(scenario: Scenario) -> Scenario:
    """Return a scenario with one worker instead of ``auto``, for concurrent runs."""
    if scenario.engine.workers != "auto":
        return scenario
    return _with(scenario, "engine", workers=1)


def _with(scenario: Scenario, table: str, **values: Any) -> Scenario:
    """Return a scenario with other values in one of its tables."""
    return scenario.model_copy(update={table: getattr(scenario, table).model_copy(update=values)})


def load_study(source: StudySource) -> StudyPlan:
    """Return the plan of a study, with every scenario checked."""
    document, source_name, folder = _document(source)
    if not is_study(document) and not document.keys().isdisjoint(Scenario.model_fields):
        raise ScenarioError([Fault("", "this is a scenario, and no study", DO_RUN)], source_name)
    faults = _with_base(document, source_name, folder)
    folders = [Path(path).resolve() for path in document.get("folders", []) if isinstance(path, str)]
    document.setdefault("name", plain_name(Path(source_name).stem, "study"))
    config = None
    try:
        config = StudyConfig.model_validate(document)
    except ValidationError as error:
        faults += [fault for fault in faults_of(error, document) if not _is_bad(fault.path, faults)]
    faults += between(document)
    candidates = {} if _is_bad("base", faults) else _candidates(document, folders, faults)
    if faults or config is None:
        raise ScenarioError(in_order(faults, document), source_name)
    grid, tuned = tuple(config.grid), tuple(config.tune.values if config.tune else ())
    scenarios = [candidate.scenario for some in candidates.values() for candidate in some]
    seeds = config.seeds or (scenarios[0].run.seed,)
    document = _without_none(document)
    document["folders"] = list(dict.fromkeys(map(str, [*folders, Path.cwd()])))
    if not any(MARK in resolved_toml(scenario) for scenario in scenarios):
        del document["folders"]
    if faults := list(_unwritable(document["base"], "base")):
        raise ScenarioError(faults, source_name)
    written = toml_writer.document(document)
    return StudyPlan(
        config, str(document["name"]), seeds, grid, tuned, candidates, written, source=source_name
    )


def _document(source: StudySource) -> tuple[dict[str, Any], str, Path | None]:
    """Return the keys of a study, its name in errors, and the folder of its file."""
    if isinstance(source, Mapping):
        keys: dict[str, Any] = _without_none(plain(source, "study"), {"set", "params", "grid", "tune"})
        return keys, "study", None
    return read_source(source, studies=True)


def _without_none(value: Any, settings: Collection[str] = ()) -> Any:
    """Return a value from Python without keys that are None.

    What is in the tables called ``settings`` replaces values of the base, so it stays.
    """
    if isinstance(value, Mapping):
        return {
            key: child if key in settings else _without_none(child, settings)
            for key, child in value.items()
            if child is not None
        }
    return [_without_none(child, settings) for child in value] if isinstance(value, list) else value


def _with_base(document: dict[str, Any], source_name: str, folder: Path | None) -> list[Fault]:
    """Replace the file of the base by its tables; return the faults of that file.

    The folders of both files become the study's ``folders``, unless it has them.
    """
    base = document.get("base")
    own = [] if folder is None else [folder]
    if isinstance(base, str):
        try:
            with looking_in(own):
                place = located(base)
            base = place if place.is_file() else base
        except DataError as error:
            if Path(base).suffix:
                return [Fault("base", str(error), "give the path of a .toml file, or the name of an example")]
    if not isinstance(base, str | Path | Mapping | Scenario):
        return []
    try:
        tables, its_name, its_folders = document_of(base)
    except ScenarioError as error:
        return [Fault("base", fault.problem, fault.mend) for fault in error.faults]
    run = tables.setdefault("run", {})
    if isinstance(run, dict):
        of_file = isinstance(base, str | Path)
        run.setdefault("name", plain_name(Path(its_name if of_file else source_name).stem, "run"))
    document["base"] = tables
    document.setdefault("folders", [str(path.resolve()) for path in [*its_folders, *own]])
    return []


def _unwritable(value: Any, *path: str | int) -> Iterator[Fault]:
    """Yield the faults of values that no file can hold, such as a data set itself."""
    if isinstance(value, Mapping | list):
        for key, child in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _unwritable(child, *path, key)
    else:
        try:
            toml_writer.value(value)
        except TypeError:
            problem = f"{shown(value)} cannot be written into a file for other processes to read"
            yield Fault(toml_writer.path(*path), problem, "give a dotted path, by which they can import it")


def _candidates(
    document: Mapping[str, Any], folders: Sequence[Path], faults: list[Fault]
) -> dict[Setting, tuple[Candidate, ...]]:
    """Return the candidates of each setting; add the faults of any scenario."""
    varied = {
        key: {
            path: values
            for path, values in table_of(document.get(key)).items()
            if isinstance(values, list)
            and not _is_bad(toml_writer.path(key, path), faults)
            and (key, path) != ("tune", "seeds")
        }
        for key in ("grid", "tune")
    }
    common = table_of(document.get("set"))
    variants = [] if any(fault.path == "grid" for fault in faults) else document.get("variant")
    candidates: dict[Setting, tuple[Candidate, ...]] = {}
    labels, known = set[str](), dict.fromkeys(faults)
    for number, variant in enumerate(variants if isinstance(variants, list) else []):
        if not isinstance(variant, dict) or _is_bad(f"variant.{number}", faults):
            continue
        own = {
            path: value
            for path, value in common.items()
            if not _is_bad(toml_writer.path("set", path), faults)
        }
        places = {"algorithm.name": toml_writer.path("variant", number, "algorithm")}
        places |= {path: toml_writer.path("set", path) for path in own}
        for key in ("set", "params"):
            for path, value in table_of(variant.get(key)).items():
                full = path if key == "set" else toml_writer.path("algorithm", "params", path)
                own[full] = value
                places[full] = toml_writer.path("variant", number, key, path)
                if key == "params":  # where the base has parameters of this algorithm
                    places[toml_writer.path("algorithms", variant["algorithm"], path)] = places[full]
        places |= {path: toml_writer.path(key, path) for key, paths in varied.items() for path in paths}
        points, tuned = (product(*paths.values()) for paths in varied.values())
        for point, values in product(points, tuned):
            overrides = {**own, **dict(zip(chain(*varied.values()), [*point, *values], strict=True))}
            setting = Setting(_name(variant), variant["algorithm"], tuple(map(_hashable, point)))
            try:
                scenario = load_scenario(
                    document["base"], overrides, algorithm=variant["algorithm"], folders=folders
                )
            except ScenarioError as error:
                known |= dict.fromkeys(_where_written(fault, places) for fault in error.faults)
            else:
                tried = tuple(map(_hashable, values))
                label = _label(setting, tried, list(chain(*varied.values())), labels)
                candidate = Candidate(tried, scenario, label)
                candidates[setting] = (*candidates.get(setting, ()), candidate)
    faults[:] = list(known)
    return candidates


def _where_written(fault: Fault, places: Mapping[str, str]) -> Fault:
    """Return a fault of a scenario with its path in the study: what set the value, or the base."""
    keys = keys_of(fault.path) or (fault.path,)
    for path, place in places.items():
        set_here = keys_of(path)
        shorter = min(len(keys), len(set_here))
        if keys[:shorter] == set_here[:shorter]:
            return Fault(place, fault.problem, fault.mend)
    return Fault(f"base.{fault.path}" if fault.path else "base", fault.problem, fault.mend)


def _run(label: str, setting: Setting, scenario: Scenario, seed: int) -> StudyRun:
    scenario = _with(scenario, "run", seed=seed)
    return StudyRun(run_name(label, seed), setting, seed, scenario, resolved_toml(scenario))


def _label(setting: Setting, tried: tuple[Any, ...], paths: Sequence[str], labels: set[str]) -> str:
    """Return the label of a setting with a candidate's values, and add it to those that others have."""
    values = (
        f"{keys_of(path)[-1]}-{value}" for path, value in zip(paths, [*setting.point, *tried], strict=True)
    )
    first = label = plain_name("-".join([setting.variant, *values]), "variant")
    number = 2
    while label in labels:
        label, number = f"{first}-{number}", number + 1
    labels.add(label)
    return label


def _name(variant: Mapping[str, Any]) -> str:
    return str(variant.get("name") or variant["algorithm"])


def _hashable(value: Any) -> Any:
    """Return a number, a truth value or a text as it is, anything else as TOML has it."""
    return value if isinstance(value, bool | int | float | str) else toml_writer.value(value)


def _is_bad(path: str, faults: Sequence[Fault]) -> bool:
    """Whether a fault is known of a path, or of one below it."""
    return any(f"{fault.path}.".startswith(f"{path}.") for fault in faults)


def path_headings(paths: Sequence[str]) -> list[str]:
    """Return the last keys of paths, or the whole paths where that would not tell them apart."""
    lasts = [keys_of(path)[-1] for path in paths]
    heads = (last if lasts.count(last) == 1 else path for last, path in zip(lasts, paths, strict=True))
    return [head.replace("_", "\n") for head in heads]
