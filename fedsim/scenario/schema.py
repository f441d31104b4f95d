"""The schema of a scenario file: one class for each table, every key documented.

Only what a table can say about itself is checked here; what tables say about each other is in ``checks.py``.
Tables that choose a plugin are in ``choices.py``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainSerializer,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.functional_validators import AfterValidator
from pydantic_core import PydanticCustomError

from fedsim import ranges, toml_writer
from fedsim.config import AsTuple, Config, fault
from fedsim.data.client_split import Shares, shares_fault
from fedsim.data.public_from_other_data import Augment
from fedsim.engine.executors.base import Batching
from fedsim.engine.training_config import TrainingConfig
from fedsim.fleet import GroupConfig, ServerConfig
from fedsim.fleet.device_class import check_class
from fedsim.fleet.edges import EdgeConfig
from fedsim.fleet.power import EnergyConfig
from fedsim.input_paths import InputPath
from fedsim.network.cell_settings import CellConfig
from fedsim.network.fault_settings import FaultConfig, RetryConfig
from fedsim.plugin_choice import NamedChoice, OrName, Params, Several, left_out
from fedsim.quoting import quoted
from fedsim.runtime.budget import UntilConfig
from fedsim.runtime.clients.interrupted_work import OnLeave
from fedsim.runtime.parts import EvaluationConfig
from fedsim.scenario.choices import (
    DATASET,
    DEVICE,
    EXECUTOR,
    AggregationChoice,
    AlgorithmChoice,
    AugmentationChoice,
    AvailabilityChoice,
    ModelChoice,
    NetworkChoice,
    PacingChoice,
    PartitionChoice,
    PublicSource,
    SelectorChoice,
    WorkloadChoice,
)
from fedsim.trackers.base import TrackerChoice
from fedsim.units import PositiveSeconds
from fedsim.wire.codecs.choices import NO_CODECS, CodecConfig

MAX_NAME = 100
"""Characters of a name or a label."""

NAME = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9._-]{{0,{MAX_NAME - 1}}}")
"""Names that are safe as folders and in messages."""

DEFAULT_MODEL = "mlp"
"""Label and name of the only model where the file has none."""

DEFAULT_SPLIT: Shares = (0.7, 0.1, 0.2)


def plain_name(text: str, otherwise: str) -> str:
    """Return a name that is like a text, or another where nothing of the text could be in a name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).lstrip("-.")[:MAX_NAME] or otherwise


def name_that(cannot: str, word: str) -> AfterValidator:
    """Return a validator of names; its error says what a text cannot do, and what would."""

    def check(name: str) -> str:
        if NAME.fullmatch(name):
            return name
        rule = f"a {word} is 1 to {MAX_NAME} letters, digits, '-', '_' and '.', and begins with a letter"
        problem = f"{quoted(name)} cannot {cannot}: {rule}, a digit or '_'"
        raise fault(problem, f"write {plain_name(name, f'my-{word}')!r}")

    return AfterValidator(check)


class CheckpointConfig(Config):
    """When a run keeps what it needs to be continued after an interruption."""

    every_rounds: ranges.Rounds = 10
    """Rounds from one checkpoint to the next, ..."""
    every_real_s: Annotated[float, Field(ge=0, le=1e9)] = 60.0
    """... or real time, s, if that passes first."""
    keep: Annotated[int, Field(ge=0, le=1000)] = 3
    """The newest ones are kept; with 0 there are none."""
    max_share: ranges.PositiveShare = 0.01
    """Share of the real time that they may take: the next one waits until so much has passed."""


class RunConfig(Config):
    """The run as a whole."""

    model_config = ConfigDict(
        json_schema_extra={"anyOf": [{"required": ["rounds"]}, {"required": ["until"]}]}
    )

    name: Annotated[str, name_that("name a folder", "name")] = "run"
    """Name of the results' folder; the scenario's file name if left out."""
    seed: ranges.Seed = 0
    """The one seed from which all randomness flows."""
    until: UntilConfig | None = None
    """Budgets: the first that is met ends the run, if its rounds do not end before."""
    rounds: ranges.Rounds | None = Field(None, examples=[100])
    """How many rounds to run; not needed where `until` ends the run."""
    save_models: bool = False
    """Whether the models at the end, of all evaluated clients, are kept in the run's folder."""
    trackers: Annotated[tuple[OrName[TrackerChoice], ...], AsTuple] = ()
    """Where the run is shown while it goes on: names, or tables of name and params. They are no part of what
    the run is, so its folder's `scenario.toml` does not have them."""

    checkpoint: CheckpointConfig = CheckpointConfig()
    """When checkpoints are kept. They are no part of what the run is either."""

    @model_validator(mode="before")
    @classmethod
    def _named(cls, table: Any) -> Any:
        """Write the rounds out that are left out, so that a fault of theirs has their path."""
        return {"rounds": None, **table} if isinstance(table, Mapping) else table

    @field_validator("rounds", mode="after")
    @classmethod
    def _it_ends(cls, rounds: int | None, info: ValidationInfo) -> int | None:
        if rounds is None and info.data.get("until", "") is None:
            raise PydanticCustomError("missing", "nothing ends the run")
        return rounds


class PublicConfig(Config):
    """The public set, on which knowledge is exchanged; nobody trains on its labels unless told to."""

    size: ranges.Samples = 0
    """Samples in the public set; without any there is none, and nothing else can be said about it."""
    users: ranges.PartialShare = 0.0
    """Instead of size, a share of the users, those of the global test set apart: all samples of theirs."""
    source: OrName[PublicSource] | None = None
    """Another data set to draw it from, without labels: a name, or a table of name and params; the public set
    is held out of the data set itself if left out."""
    augment: Augment = "none"
    """How its images are transformed, once: fedet crops, flips, jitters colours and rotates at random."""
    held: Literal["everywhere", "server"] = "everywhere"
    """Who holds it from the start; what only the server holds it has to send."""


def _shares(shares: Shares) -> Shares:
    if problem := shares_fault(shares):
        raise fault(problem, "write for example [0.7, 0.1, 0.2]")
    return shares


def _form(split: Any) -> str:
    first = split[0] if isinstance(split, list | tuple) and split else None
    return "several" if isinstance(first, list | tuple) else "one"


OneSplit = Annotated[Shares, AsTuple, AfterValidator(_shares)]
Splits = Annotated[
    Annotated[OneSplit, Tag("one")] | Annotated[tuple[OneSplit, ...], AsTuple, Tag("several")],
    Discriminator(_form),
]


class DataConfig(NamedChoice):
    """The data set, and how it is spread over the clients."""

    KIND = DATASET
    name: str = "digits"
    root: InputPath | None = None
    """Folder of data sets; FEDSIM_DATA if left out."""
    limit: ranges.PositiveSamples | None = None
    """Use only so many samples, equally many of each class (where there are no classes, or where samples have
    users: at random); all if left out."""
    split: Splits | None = Field(None, validate_default=True)
    """Shares of each client's samples for train, validation and test, [0.7, 0.1, 0.2] if left out; or a list
    of such, one of which each client draws."""
    global_test: ranges.PartialShare = 0.0
    """Share of all samples held out as the global test set, where the data set has no test part itself."""
    global_test_users: ranges.PartialShare = 0.0
    """Instead, a share of the users: all samples of theirs, and no client is one of them."""
    public: PublicConfig = PublicConfig()
    """The public set."""
    partition: OrName[PartitionChoice] | None = Field(None, validate_default=True)
    """Who holds which sample: a name, or a table of name and params; iid if left out."""
    augmentation: Several[AugmentationChoice] = ()
    """How clients' images are transformed at random in each training, and nowhere else: a name, a table of
    name and params, or a list of such, one after the other."""

    @field_validator("limit", "split", "partition", mode="before")
    @classmethod
    def _suits(cls, value: Any, info: ValidationInfo) -> Any:
        # A data set of counts has nothing to draw from, to split and to spread; any other must be spread.
        if "name" not in info.data:
            return value
        if DATASET.find(info.data["name"]).has_samples:
            defaults: dict[str, Any] = {"split": DEFAULT_SPLIT, "partition": {}}
            return defaults.get(info.field_name or "") if value is None else value
        if value is not None:
            problem = f"data set {quoted(info.data['name'])} has sample counts only, so there is nothing to"
            act = {"limit": "draw from", "split": "split", "partition": "spread"}[info.field_name or ""]
            raise fault(f"{problem} {act}", f"leave data.{info.field_name} out")
        return value


def _is_known(device: str) -> str:
    check_class(device, DEVICE.find(device))
    return device


class FleetGroup(GroupConfig):
    """One ``[[fleet]]`` entry: clients of one device class or file, and when they are there."""

    availability: OrName[AvailabilityChoice] = Field("always", validate_default=True)
    """When these clients are there: a name, or a table of name and params."""

    _exists = field_validator("device", mode="after")(_is_known)


class ServerEntry(ServerConfig):
    """The server's device, links and model."""

    _exists = field_validator("device", mode="after")(_is_known)


class EdgeEntry(EdgeConfig):
    """One ``[[edge]]`` entry."""

    _exists = field_validator("device", mode="after")(_is_known)


class ParticipationConfig(Config):
    """Who takes part, and how long the server waits."""

    clients_per_round: ranges.Clients | None = None
    """Clients asked in a round; all if left out."""
    client_timeout: PositiveSeconds = Field("1 h", validate_default=True)
    """How long the server waits for a client before it counts as dropped."""
    retry: RetryConfig | None = None
    """How frames are sent again that a fault of the network has kept from arriving: a table of times and
    after; never if left out."""
    on_leave: OnLeave = "resume"
    """What becomes of work when its client goes away: when the client returns it goes on (resume) or begins
    anew (restart), or it is lost at once."""
    selector: OrName[SelectorChoice] = Field("uniform", validate_default=True)
    """Who is asked: a name, or a table of name and params."""
    pacing: OrName[PacingChoice] = Field("synchronous", validate_default=True)
    """When a round closes: a name, or a table of name and params."""
    workload: OrName[WorkloadChoice] = Field("fixed", validate_default=True)
    """How much local work a dispatch is: a name, or a table of name and params."""


class EngineConfig(Config):
    """Who trains, on this computer; no result depends on it, except on the kind of device."""

    executor: Annotated[str, AfterValidator(EXECUTOR.known)] = "threads"
    """Executor: one of ``fedsim.engine.executors``, or a dotted path; ``null`` learns nothing."""
    params: Params = left_out()
    """Parameters of the executor."""
    workers: ranges.Workers | Literal["auto"] = "auto"
    """Jobs that run at once; auto: one for each core, at most 8."""
    batching: Batching = "auto"
    """Whether jobs of many clients that are alike may be computed together (auto) or one by one (off); on
    CUDA they are computed one by one."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where jobs run."""
    numerics: Literal["native", "portable"] = "native"
    """Whether jobs take the fastest kernels of the processor (native), or those that give equal bits on
    different x86-64 processors (portable), on the CPU."""

    @field_validator("params", mode="plain")
    @classmethod
    def _validated(cls, params: Any, info: ValidationInfo) -> Any:
        if "executor" not in info.data:
            return params  # nothing can be said about them
        return EXECUTOR.find(info.data["executor"]).params().model_validate(params)


def _labelled(models: Any) -> Any:
    """Give every model without a name its label as its name."""
    if not isinstance(models, Mapping):
        return models
    named = {
        label: {"name": label, **table} if isinstance(table, Mapping) else table
        for label, table in models.items()
    }
    return named or {DEFAULT_MODEL: {"name": DEFAULT_MODEL}}


def _by_name(tables: Any) -> Any:
    """Read ``{fedprox = {mu = 1}}`` as choices of algorithms; validated ones are left as they are."""
    if not isinstance(tables, Mapping):
        return tables
    return {
        name: params if isinstance(params, AlgorithmChoice) else {"name": name, "params": params}
        for name, params in tables.items()
    }


def _params_alone(choices: Mapping[str, AlgorithmChoice]) -> dict[str, Any]:
    return {
        name: choice.params.model_dump(mode="json", exclude_none=True) for name, choice in choices.items()
    }


class Scenario(Config):
    """A whole scenario: what ``load_scenario`` returns and ``build`` takes."""

    model_config = ConfigDict(validate_default=True)

    run: RunConfig = left_out()
    """The run as a whole."""
    data: DataConfig = left_out()
    """The data set, and how it is spread over the clients."""
    models: Annotated[
        dict[Annotated[str, name_that("label a model", "label")], ModelChoice], BeforeValidator(_labelled)
    ] = left_out()
    """Architectures by label; one called mlp if left out."""
    algorithm: AlgorithmChoice = left_out()
    """The algorithm."""
    aggregation: OrName[AggregationChoice] = Field("mean", validate_default=True)
    """How the server combines the models that clients send: a name, or a table of name and params."""
    algorithms: Annotated[
        dict[str, AlgorithmChoice],
        BeforeValidator(_by_name, dict[str, dict[str, Any]]),
        PlainSerializer(_params_alone, when_used="json"),
    ] = left_out()
    """Parameters of other algorithms, by name, for comparisons that name them."""
    training: TrainingConfig = TrainingConfig()
    """How clients train."""
    fleet: Annotated[
        tuple[Annotated[FleetGroup, AfterValidator(GroupConfig.explicit)], ...], AsTuple, Field(min_length=1)
    ]
    """Groups of clients, one [[fleet]] table each."""
    server: Annotated[ServerEntry, AfterValidator(ServerConfig.explicit)] = left_out()
    """The server's device, links and model."""
    network: NetworkChoice = left_out()
    """How transfers move over the links."""
    cell: Annotated[tuple[CellConfig, ...], AsTuple] = ()
    """Networks that clients share on their way to the server, one [[cell]] table each. Only the network model
    `fluid` follows them."""
    edge: Annotated[tuple[Annotated[EdgeEntry, AfterValidator(EdgeConfig.explicit)], ...], AsTuple] = ()
    """Aggregators at the doors of cells, which average the replies of a cell's clients before they go up, one
    [[edge]] table each."""
    codec: CodecConfig = NO_CODECS
    """How messages are made shorter before they travel, by direction and by what they hold."""
    faults: Annotated[tuple[FaultConfig, ...], AsTuple] = ()
    """What goes wrong in the network and at clients, one [[faults]] table each."""
    energy: EnergyConfig | None = None
    """Whether the energy of the run is computed, and what it costs."""
    participation: ParticipationConfig = left_out()
    """Who takes part, and how long the server waits."""
    engine: EngineConfig = EngineConfig()
    """Who trains, on this computer."""
    evaluation: EvaluationConfig = EvaluationConfig()
    """When accuracy is measured, and on whom."""

    @property
    def num_clients(self) -> int:
        """Clients of all groups."""
        return sum(group.count for group in self.fleet)


def tracked(scenario: Scenario, names: Sequence[str]) -> Scenario:
    """Return a scenario with trackers of these names instead of its own; the same without names."""
    if not names:
        return scenario
    trackers = tuple(TrackerChoice(name=name) for name in dict.fromkeys(names))
    return scenario.model_copy(update={"run": scenario.run.model_copy(update={"trackers": trackers})})


def tables_of(scenario: Scenario) -> dict[str, Any]:
    """Return a scenario as tables, every value written out, defaults too, so that they load to an equal one.

    What is left out is what has no value (such as no limit).
    """
    tables = scenario.model_dump(mode="json", exclude_none=True)
    if not scenario.algorithms:
        del tables["algorithms"]
    if not scenario.cell:
        del tables["cell"]
    if not scenario.edge:
        del tables["edge"]
    if not scenario.codec.is_on():
        del tables["codec"]
    if not scenario.faults:
        del tables["faults"]
    if scenario.aggregation.name == "mean":
        del tables["aggregation"]
    if not tables["engine"]["params"]:
        del tables["engine"]["params"]
    return tables


def resolved_toml(scenario: Scenario) -> str:
    """Return the tables of a scenario as TOML, without its trackers and checkpoints: the run is the same."""
    tables = tables_of(scenario)
    del tables["run"]["trackers"], tables["run"]["checkpoint"]
    return toml_writer.document(tables)
