"""The schema of a study file: what is varied, and what is asked."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field

from fedsim.config import AsTuple, Config, Writable, fault
from fedsim.ranges import Seed
from fedsim.runtime.budget import Measure
from fedsim.scenario.choices import ALGORITHM
from fedsim.scenario.schema import MAX_NAME, name_that
from fedsim.scenario.validation_messages import shown
from fedsim.studies.intervals import Method
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
