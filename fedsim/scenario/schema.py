"""The schema of a scenario file: one class for each table, every key documented.

Only what a table can say about itself is checked here; what tables say about each other is in ``checks.py``.
The table ``[data]`` is in ``datatable.py``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    field_validator,
)
from pydantic.functional_validators import AfterValidator

from fedsim.config import AsTuple, Config
from fedsim.engine.training import TrainingConfig
from fedsim.fleet import GroupConfig, ServerConfig
from fedsim.network import OverheadConfig
from fedsim.quoting import quoted
from fedsim.ranges import BatchSize, Clients, Interval, Rounds, Seed, Workers
from fedsim.runtime.presence import OnLeave
from fedsim.scenario.choices import (
    ALGORITHM,
    AVAILABILITY,
    DEVICE,
    EXECUTOR,
    MODEL,
    NETWORK,
    PACING,
    SELECTOR,
    Choice,
    Params,
    fault,
    left_out,
    spelt_out,
)
from fedsim.scenario.datatable import DataConfig
from fedsim.units import PositiveSeconds

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
"""Names that are safe as folders and in messages."""

MOST_NAME = 100
"""Characters of a name or a label."""

DEFAULT_MODEL = "mlp"
"""Label and name of the only model where the file has none."""


def _plain_name(name: str) -> str:
    if not NAME.fullmatch(name) or len(name) > MOST_NAME:
        problem = (
            f"{quoted(name)} cannot name a folder: a name is 1 to 100 letters, digits, '-', '_' and '.', and"
        )
        shown = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:MOST_NAME] or "my-run"
        raise fault("name", f"{problem} begins with a letter, a digit or '_'", f"write {shown!r}")
    return name


class RunConfig(Config):
    """The run as a whole."""

    name: Annotated[str, AfterValidator(_plain_name)] = "run"
    """Name of the results' folder; the scenario's file name if left out."""
    seed: Seed = 0
    """The one seed from which all randomness flows."""
    rounds: Rounds = Field(examples=[100])
    """How many rounds to run."""


class ModelChoice(Choice):
    """An architecture."""

    KIND = MODEL
    name: str
    """Model: a file of ``fedsim/models``, or a dotted path; the label if left out."""
    params: Params = left_out()
    """Parameters of the model."""


class AlgorithmChoice(Choice):
    """The algorithm."""

    KIND = ALGORITHM
    name: str = "fedavg"
    """Algorithm: a file of ``fedsim/algorithms``, or a dotted path."""
    params: Params = left_out()
    """Parameters of the algorithm."""


class NetworkChoice(Choice):
    """How transfers move over the links."""

    KIND = NETWORK
    KEY = "model"
    model: str = "fluid"
    """Network model: a file of ``fedsim/network``, or a dotted path."""
    params: Params = left_out()
    """Parameters of the network model."""
    overhead: OverheadConfig = OverheadConfig()
    """What protocols add to each message on the link."""


class SelectorChoice(Choice):
    """Who is asked."""

    KIND = SELECTOR
    name: str = "uniform"
    """Selector: a file of ``fedsim/runtime/selectors``, or a dotted path."""
    params: Params = left_out()
    """Parameters of the selector."""


class PacingChoice(Choice):
    """When a round closes."""

    KIND = PACING
    name: str = "synchronous"
    """Pacing: a file of ``fedsim/runtime/pacing``, or a dotted path."""
    params: Params = left_out()
    """Parameters of the pacing."""


class AvailabilityChoice(Choice):
    """When clients are there."""

    KIND = AVAILABILITY
    name: str = "always"
    """Availability model: a file of ``fedsim/fleet/availability``, or a dotted path."""
    params: Params = left_out()
    """Parameters of the availability model."""


def _found(device: str) -> str:
    DEVICE.find(device)
    return device


class FleetGroup(GroupConfig):
    """One ``[[fleet]]`` entry: clients of one device class or file, and when they are there."""

    availability: Annotated[AvailabilityChoice, BeforeValidator(spelt_out, str | AvailabilityChoice)] = Field(
        "always", validate_default=True
    )
    """When these clients are there: a name, or a table of name and params."""

    _exists = field_validator("device", mode="after")(_found)


class ServerEntry(ServerConfig):
    """The server's device, links and model."""

    _exists = field_validator("device", mode="after")(_found)


class ParticipationConfig(Config):
    """Who takes part, and how long the server waits."""

    clients_per_round: Clients | None = None
    """Clients asked in a round; all if left out."""
    client_timeout: PositiveSeconds = Field("1 h", validate_default=True)
    """How long the server waits for a client before it counts as dropped."""
    on_leave: OnLeave = "resume"
    """What becomes of work when its client goes away: when the client returns it goes on (resume) or begins
    anew (restart), or it is lost at once."""
    selector: Annotated[SelectorChoice, BeforeValidator(spelt_out, str | SelectorChoice)] = Field(
        "uniform", validate_default=True
    )
    """Who is asked: a name, or a table of name and params."""
    pacing: Annotated[PacingChoice, BeforeValidator(spelt_out, str | PacingChoice)] = Field(
        "synchronous", validate_default=True
    )
    """When a round closes: a name, or a table of name and params."""


class EngineConfig(Config):
    """Who trains, on this computer; no result depends on it, except on the kind of device."""

    executor: str = "threads"
    """Executor: a file of ``fedsim/engine/executors``, or a dotted path; ``null`` learns nothing."""
    workers: Workers | Literal["auto"] = "auto"
    """Jobs that run at once; auto: one for each core, at most 8."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where jobs run."""

    @field_validator("executor", mode="after")
    @classmethod
    def _exists(cls, name: str) -> str:
        EXECUTOR.find(name)
        return name


class EvaluationConfig(Config):
    """When accuracy is measured, and on whom; it costs no virtual time."""

    every: Interval = 1
    """Rounds between two evaluations, the last round is always evaluated; 0: never."""
    clients: Clients = 1000
    """At most so many clients, drawn once by seed."""
    split: Literal["test", "val"] = "test"
    """On which of the clients' splits."""
    batch_size: BatchSize = 256
    """Samples in a forward pass."""


def _labelled(models: Any) -> Any:
    """Give every model without a name its label as its name."""
    if not isinstance(models, Mapping):
        return models
    named = {
        label: {"name": label, **table} if isinstance(table, Mapping) else table
        for label, table in models.items()
    }
    return named or {DEFAULT_MODEL: {"name": DEFAULT_MODEL}}


def _label(label: str) -> str:
    if not NAME.fullmatch(label) or len(label) > MOST_NAME:
        raise fault(
            "label",
            f"{quoted(label)} cannot label a model: a label is 1 to 100 letters, digits, '-', '_' and '.'",
        )
    return label


def _by_name(tables: Any) -> Any:
    """Read ``{fedprox = {mu = 1}}`` as choices of algorithms; validated ones are left as they are."""
    if not isinstance(tables, Mapping):
        return tables
    return {
        name: params if isinstance(params, AlgorithmChoice) else {"name": name, "params": params}
        for name, params in tables.items()
    }


def _params_alone(choices: Mapping[str, AlgorithmChoice]) -> dict[str, Any]:
    params = {name: choice.params for name, choice in choices.items()}
    return {name: own.model_dump(mode="json", exclude_none=True) for name, own in params.items()}


class Scenario(Config):
    """A whole scenario: what ``load_scenario`` returns and ``build`` takes."""

    model_config = ConfigDict(validate_default=True)

    run: RunConfig
    """The run as a whole."""
    data: DataConfig = left_out()
    """The data set, and how it is spread over the clients."""
    models: Annotated[
        dict[Annotated[str, AfterValidator(_label)], ModelChoice], BeforeValidator(_labelled)
    ] = left_out()
    """Architectures by label; one called mlp if left out."""
    algorithm: AlgorithmChoice = left_out()
    """The algorithm."""
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
