"""The schema of a study file, and what its keys must say about each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field

from fedsim import toml_writer
from fedsim.config import AsTuple, Config, Writable, fault
from fedsim.errors import Fault
from fedsim.quoting import nearest, quoted
from fedsim.ranges import Seed
from fedsim.report import number_format
from fedsim.runtime.budget import Measure
from fedsim.scenario.choices import ALGORITHM
from fedsim.scenario.load import SPELLING, keys_of
from fedsim.scenario.schema import MAX_NAME, name_that
from fedsim.scenario.validation_messages import shown
from fedsim.studies.intervals import MIN_BOOTSTRAP_SEEDS, Method
from fedsim.units import PositiveBytes, PositiveSeconds

T = TypeVar("T")


def _each_once(values: tuple[T, ...]) -> tuple[T, ...]:
    twice = [value for number, value in enumerate(values) if value in values[:number]]
    if twice:
        raise fault(f"{shown(twice[0])} is given twice", "give each value once")
    return values


def _listed(values: Any) -> Any:
    if not isinstance(values, list | tuple):
        mend = 'write the path in quotation marks, and its values in a list: "training.lr" = [0.01, 0.1]'
        raise fault(f"{shown(values)} is not a list of values", mend)
    return values


Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
Seeds = Annotated[tuple[Seed, ...], AsTuple, Field(min_length=1), AfterValidator(_each_once)]
Target = Annotated[float, Field(gt=0, le=1)]
Values = Annotated[
    tuple[Writable, ...], AsTuple, BeforeValidator(_listed), Field(min_length=1), AfterValidator(_each_once)
]


class VariantConfig(Config):
    """A way of learning that is compared with others."""

    algorithm: Annotated[str, AfterValidator(ALGORITHM.known)] = Field(examples=['"fedavg"'])
    """The algorithm."""
    name: Name | None = None
    """What tables call it; the algorithm's name if left out."""
    params: dict[str, Writable] = Field(default_factory=dict)
    """Parameters of the algorithm; each replaces the one of the base, and all others stay."""
    set: dict[str, Writable] = Field(default_factory=dict)
    """Values of the scenario for this variant alone: "training.lr" = 0.05."""


class AtConfig(Config):
    """Budgets within which accuracies are compared; of what is left out, the least that a run has spent."""

    simulated: Annotated[tuple[PositiveSeconds, ...], AsTuple, AfterValidator(_each_once)] = ()
    """Simulated times, such as ["1 h", "2 h"]."""
    bytes: Annotated[tuple[PositiveBytes, ...], AsTuple, AfterValidator(_each_once)] = ()
    """Bytes of all frames, up and down together, raw samples included, such as ["100 MB"]."""


class TuneConfig(Config):
    """How values are tuned: by the accuracy on clients' validation samples, mean over clients and seeds.

    Beside ``seeds`` it has lists of values by path; every combination is tried.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Values]

    seeds: Seeds = Field(examples=["[100]"])
    """The seeds of the trials, none of which is a seed of the study."""

    @property
    def values(self) -> dict[str, tuple[Any, ...]]:
        """The values that are tried, by path."""
        return dict(self.__pydantic_extra__ or {})


class StudyConfig(Config):
    """A study: every variant at every point of the grid with every seed."""

    name: Annotated[str, name_that("name a folder", "name")] | None = None
    """Name of the folder of results; the study's file name if left out."""
    base: dict[str, Any] = Field(examples=['"quickstart"'])
    """The scenario that is varied: its tables, or its file, or an example."""
    folders: Annotated[tuple[str, ...], AsTuple] = ()
    """Where relative paths are looked for first; if left out, in the folders of the base's file and of the
    study's."""
    set: dict[str, Writable] = Field(default_factory=dict)
    """Values that replace those of the base in every run, by their paths in quotation marks."""
    seeds: Seeds | None = None
    """The seeds; the one of the base if left out."""
    targets: Annotated[tuple[Target, ...], AsTuple, AfterValidator(_each_once)] = ()
    """Accuracies to be reached."""
    of: Measure = "personal_mean"
    """Which accuracy: the mean over clients, the mean over the least accurate tenth of them, or the one on
    the global test set."""
    at: AtConfig = AtConfig()
    """Simulated times and bytes at which accuracies are compared."""
    interval: Method = "t"
    """The 95 % intervals of means over seeds: Student's t, or a bootstrap of at least six seeds."""
    baseline: str | None = None
    """Name of the variant with which the others are compared, seed by seed."""
    variant: Annotated[tuple[VariantConfig, ...], AsTuple, Field(min_length=1)] = Field(
        examples=['[{ algorithm = "fedavg" }]']
    )
    """What is compared, one [[variant]] table each."""
    grid: dict[str, Values] = Field(default_factory=dict)
    """Lists of values by path; every variant runs with every combination."""
    tune: TuneConfig | None = None
    """Lists of values by path, of which each variant gets its best at each point of the grid."""


MAX_RUNS = 10_000
"""Maximum number of runs of a study."""

_NAMED = 'write algorithm = "fedavg", say, in a [[variant]], one for each algorithm'

ELSEWHERE = {
    "run.seed": "write {seeds} at the top of the study instead",
    "algorithm": _NAMED,
    "algorithm.name": _NAMED,
    "algorithm.params": "write params = {{ mu = 0.1 }}, say, in a [[variant]]",
}
"""Paths for which a study has keys of its own, and what to write instead."""


def between(document: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield the faults between the keys of a study."""
    variants, grid = document.get("variant"), table_of(document.get("grid"))
    tune = dict(table_of(document.get("tune")))
    of_trials = tune.pop("seeds", ())
    run = table_of(table_of(document.get("base")).get("run"))
    seeds = document.get("seeds", [run.get("seed", 0)])
    for seed in of_trials if isinstance(of_trials, list) and isinstance(seeds, list) else ():
        if seed in seeds:
            problem = (
                f"{seed} is a seed of the study too, and its runs would be judged by what was tuned to it"
            )
            yield Fault("tune.seeds", problem, "give other seeds")
    if "tune" in document and isinstance(document["tune"], dict) and not tune:
        yield Fault("tune", "nothing is tuned", 'add values to try, such as "training.lr" = [0.01, 0.1]')
    varied = [*(("grid", path) for path in grid), *(("tune", path) for path in tune)]
    for number, (table, path) in enumerate(varied):
        yield from _given_too(
            toml_writer.path(table, path), [entry for entry in varied[:number] if _hides(path, entry[1])]
        )
    called: dict[Any, int] = {}
    for number, variant in enumerate(variants if isinstance(variants, list) else []):
        if not isinstance(variant, dict):
            continue
        name = variant.get("name", variant.get("algorithm"))
        if isinstance(name, str) and called.setdefault(name, number) != number:
            problem = f"{quoted(name)} is the name of two variants"
            yield Fault(f"variant.{number}", problem, 'give this one a name of its own: name = "..."')
        yield from _set_faults(variant, varied, "variant", number, "set")
    yield from _set_faults(document, varied, "set")
    yield from _path_faults(grid, "grid")
    yield from _path_faults(tune, "tune")
    baseline = document.get("baseline")
    if isinstance(baseline, str) and baseline not in called:
        yield Fault("baseline", f"no variant is called {quoted(baseline)}", nearest(baseline, list(called)))
    if (
        document.get("interval") == "bootstrap"
        and isinstance(seeds, list)
        and len(seeds) < MIN_BOOTSTRAP_SEEDS
    ):
        holds = f"{100 * (1 - 2.0 ** (1 - len(seeds))):.0f} %"
        problem = (
            f"a bootstrap of {number_format.several(len(seeds), 'seed')}: even from the least of their "
            f"values to the largest, the mean is found in {holds} of studies at most"
        )
        mend = f'give at least {MIN_BOOTSTRAP_SEEDS} seeds, or write interval = "t"'
        yield Fault("interval", problem, mend)
    lists = [seeds, *grid.values(), *tune.values()]
    number = prod(len(values) for values in lists if isinstance(values, list))
    if isinstance(variants, list) and (number := number * len(variants)) > MAX_RUNS:
        yield Fault("grid", f"that makes {number} runs", f"vary less: a study has at most {MAX_RUNS}")


def _set_faults(
    table: Mapping[str, Any], varied: Sequence[tuple[str, str]], *above: str | int
) -> Iterator[Fault]:
    """Yield the faults of values that a study or a variant sets."""
    yield from _path_faults(table.get("set"), *above)
    for path in table_of(table.get("set")):
        yield from _given_too(
            toml_writer.path(*above, path), [entry for entry in varied if _hides(entry[1], path)]
        )


def _given_too(place: str, others: Sequence[tuple[str, str]]) -> Iterator[Fault]:
    for table, path in others[:1]:
        yield Fault(place, f"[{table}] gives {path} too", "leave out one of the two")


def _hides(path: str, before: str) -> bool:
    """Whether a value at one path replaces all of a value that was set at another path before."""
    keys = keys_of(path)
    return bool(keys) and keys_of(before)[: len(keys)] == keys


def _path_faults(values: Any, *above: str | int) -> Iterator[Fault]:
    """Yield the faults of paths that are keys of a table."""
    for path, value in table_of(values).items():
        keys = keys_of(path)
        if not keys:
            yield Fault(toml_writer.path(*above, path), f"the path {quoted(path)} is malformed", SPELLING)
        elif mend := ELSEWHERE.get(toml_writer.path(*keys)):
            seeds = f"seeds = {shown(value if isinstance(value, list) else [value])}"
            problem = f"a study does not set {path} by its path"
            yield Fault(toml_writer.path(*above, path), problem, mend.format(seeds=seeds))


def table_of(value: Any) -> dict[str, Any]:
    """Return a table, or an empty one in place of anything else."""
    return value if isinstance(value, dict) else {}
