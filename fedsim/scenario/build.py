"""From a scenario to the ready-made parts of a run: data loaded and spread, devices drawn, plugins made."""

from __future__ import annotations

import platform
import tomllib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from fedsim import portable_numerics, toml_writer
from fedsim.data import Dataset, DatasetPlugin, FederatedData, LoadContext, Spreading, federate
from fedsim.engine.worker_state import Resources
from fedsim.errors import DataError, Fault, ScenarioError, UserError
from fedsim.fleet import Fleet, build_fleet
from fedsim.fleet.edges import build_edges, misplaced
from fedsim.input_paths import data_folder, located, moved
from fedsim.models import Architecture
from fedsim.models.portable_operations import unportable_operations
from fedsim.network.cells import Cells, members
from fedsim.network.edges import Edges
from fedsim.quoting import MAX_SHOWN, quoted, shortened
from fedsim.rng import Key
from fedsim.runtime.changeable_settings import Stages
from fedsim.runtime.parts import Parts
from fedsim.scenario.checks import check, server_label
from fedsim.scenario.choices import EXECUTOR, PublicSource
from fedsim.scenario.schema import CheckpointConfig, DataConfig, EngineConfig, Scenario, resolved_toml
from fedsim.scenario.validation_messages import faults_of
from fedsim.system import num_usable_cores
from fedsim.task import Task
from fedsim.trackers.base import Tracker

T = TypeVar("T")

MAX_WORKERS = 8
"""As many as ``workers = "auto"`` gives at most."""

EVERYTHING = (1.0, 0.0, 0.0)

PATHS = {
    "augmentations": "data.augmentation",
    "global_test_share": "data.global_test",
    "global_test_users": "data.global_test_users",
    "limit": "data.limit",
    "num_clients": "fleet",
    "partition": "data.partition",
    "public_source": "data.public.source",
    "public_augment": "data.public.augment",
    "public_size": "data.public.size",
    "public_users": "data.public.users",
}
"""Where a scenario gives the parameters of :func:`fedsim.data.federate`."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A run to be done and recorded.

    A fork has an ``origin``, which says where its past comes from, and ``stages``, of which the last is that
    of its parts.
    """

    name: str
    algorithm: str
    scenario_toml: str
    parts: Parts
    save_models: bool = False
    trackers: tuple[Tracker[Any], ...] = ()
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    stages: Stages = field(default_factory=dict)
    origin: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, scenario: Scenario, source: str, *, verify: bool = False) -> Plan:
        """Return the plan of a scenario, with its parts built."""
        parts = replace(build(scenario, source), verify=verify)
        run = scenario.run
        written = resolved_toml(scenario)
        trackers = tuple(choice.make() for choice in run.trackers)
        return cls(
            run.name, scenario.algorithm.name, written, parts, run.save_models, trackers, run.checkpoint
        )


def build(scenario: Scenario, source: str = "") -> Parts:
    """Return the parts of a run.

    The data depends on the seed, ``[data]`` and the number of clients alone, so algorithms are compared on
    the same samples.
    """
    source = source or scenario.run.name
    if faults := check(scenario):
        raise ScenarioError(faults, source)
    require_numerics([scenario.engine])
    key = Key.root(scenario.run.seed)
    data, architectures = _data_and_architectures(scenario, key, faults)
    fleet = _fleet(scenario, data, key, faults)
    cells = None if fleet is None else _cells(scenario, fleet, key, faults)
    faults += misplaced(scenario.edge, [one.name for one in scenario.cell])
    idle = [] if fleet is None or data is None else _idle_groups(fleet, data)
    if faults or fleet is None or data is None:
        raise ScenarioError([*faults, *idle], source)
    executor = EXECUTOR.find(scenario.engine.executor)
    parts = Parts(
        algorithm=scenario.algorithm.make(),
        data=data,
        fleet=fleet,
        architectures=architectures,
        cells=cells,
        edges=None if cells is None else _edges(scenario, cells, key),
        energy=scenario.energy,
        executor=executor(
            executor.Config(
                workers=num_workers(scenario.engine),
                batching=scenario.engine.batching,
                params=scenario.engine.params,
            )
        ),
        **settings(scenario),
        seed=scenario.run.seed,
        device=scenario.engine.device,
        numerics=scenario.engine.numerics,
        rebuild=partial(resources_elsewhere, resolved_toml(scenario)) if executor.is_elsewhere else None,
    )
    if faults := [*idle, *parts.misfits(), *_nobody(parts)]:
        raise ScenarioError(faults, source)
    return parts


def settings(scenario: Scenario) -> dict[str, Any]:
    """Return the parts of a run that may change while it goes on, by name."""
    participation, network = scenario.participation, scenario.network
    return {
        "network": network.make(),
        "overhead": network.overhead,
        "codec": scenario.codec,
        "faults": scenario.faults,
        "retry": participation.retry,
        "client_timeout_s": participation.client_timeout,
        "selector": participation.selector.make(),
        "pacing": participation.pacing.make(),
        "workload": participation.workload.make(),
        "aggregation": scenario.aggregation.make(),
        "on_leave": participation.on_leave,
        "training": scenario.training,
        "rounds": scenario.run.rounds,
        "until": scenario.run.until,
        "clients_per_round": participation.clients_per_round,
        "evaluation": scenario.evaluation,
    }


def resources_elsewhere(scenario_toml: str) -> Resources:
    """Return what the jobs of a run need, in a process that does them for another one."""
    scenario = with_own_root(read_resolved(scenario_toml))
    require_numerics([scenario.engine])
    faults: list[Fault] = []
    data, architectures = _data_and_architectures(scenario, Key.root(scenario.run.seed), faults)
    if data is None or faults:
        raise ScenarioError(faults, f"{scenario.run.name} on {platform.node()}")
    is_portable = scenario.engine.numerics == "portable"
    return Resources.of(data, architectures, scenario.engine.device, portable=is_portable)


def require_numerics(engines: Iterable[EngineConfig]) -> None:
    """Check that this process computes as scenarios say."""
    kinds = {engine.numerics for engine in engines}
    if len(kinds) > 1:
        raise UserError(
            "engine.numerics is 'native' in some runs and 'portable' in others, and a process has one kind "
            "of numbers: give each kind a study or comparison of its own"
        )
    if "portable" in kinds:
        portable_numerics.require()
    elif kinds and portable_numerics.is_requested():
        raise UserError(
            f"this process was started for portable numbers ({portable_numerics.REQUEST} is set), and "
            "engine.numerics is 'native': write 'portable', or start another process without the variable"
        )


def read_resolved(scenario_toml: str, data: Path | None = None) -> Scenario:
    """Return a scenario that another process has resolved."""
    document: dict[str, Any] = {}
    try:
        document = tomllib.loads(scenario_toml)
        if data is not None:
            document["data"] = moved(document.get("data", {}), str(data.expanduser()))
        return Scenario.model_validate(document)
    except ValidationError as error:
        problem = "; ".join(f"{fault.path}: {fault.problem}" for fault in faults_of(error, document))
    except tomllib.TOMLDecodeError as error:
        problem = str(error)
    raise UserError(
        f"the scenario cannot be read here ({shortened(problem, MAX_SHOWN)}): private plugins that it names "
        "have to be in modules that this process can import, such as files of its working folder, and not in "
        "a notebook or a main script"
    )


def with_own_root(scenario: Scenario, root: str | None = None) -> Scenario:
    """Return a scenario of another machine with a folder of data sets of this one."""
    if (own := scenario.data.root) is not None:
        with suppress(DataError):
            root = str(located(own))
    return scenario.model_copy(update={"data": scenario.data.model_copy(update={"root": root})})


def _data_and_architectures(
    scenario: Scenario, key: Key, faults: list[Fault]
) -> tuple[FederatedData | None, dict[str, Architecture]]:
    dataset = _dataset(scenario, scenario.data, key.child("data", "load"), faults)
    other = scenario.data.public.source
    public = _dataset(scenario, other, key.child("data", "public"), faults) if other else None
    data = None
    if dataset is not None and (public is not None or other is None):
        data = _spread(scenario, dataset, public, key.child("data"), faults)
    return data, _architectures(scenario, dataset.task, faults) if dataset is not None else {}


def num_workers(engine: EngineConfig) -> int:
    """Return how many jobs run at once; ``auto`` is one for each core that this process may use, to 8."""
    return min(MAX_WORKERS, num_usable_cores()) if engine.workers == "auto" else engine.workers


def _noting(
    faults: list[Fault], paths: Mapping[str, str], make: Callable[[], T], what: str = "", mend: str = ""
) -> T | None:
    """Make something; note a fault and return None if it cannot be had, so that all faults come together."""
    try:
        return make()
    except DataError as error:
        faults.append(Fault(paths.get(error.setting, paths[""]), str(error)))
    except OSError as error:
        faults.append(Fault("data.root", f"files below it cannot be read: {shortened(error, MAX_SHOWN)}"))
    except MemoryError as error:
        path = paths.get("all of it", paths[""])
        faults.append(Fault(path, f"{what} needs more memory than there is: {error}", mend))
    return None


def _dataset(
    scenario: Scenario, choice: DataConfig | PublicSource, key: Key, faults: list[Fault]
) -> Dataset | None:
    folder = data_folder(scenario.data.root)
    place = "data" if isinstance(choice, DataConfig) else PATHS["public_source"]
    settings = type(choice.params).model_fields
    # Where it is the files that are wrong, most likely the data set's own parameters name them.
    paths = {"": f"{place}.params" if settings else f"{place}.name", "root": "data.root", "all of it": place}
    paths |= {name: f"{place}.params.{name}" for name in settings}

    def load() -> Dataset:
        plugin: DatasetPlugin[Any] = choice.make()
        return plugin.load(LoadContext(folder, scenario.num_clients, key))

    what = f"data set {quoted(choice.name)}"
    return _noting(faults, paths, load, what, "ask it for fewer or smaller samples")


def _spread(
    scenario: Scenario, dataset: Dataset, public: Dataset | None, key: Key, faults: list[Fault]
) -> FederatedData | None:
    data = scenario.data
    spreading = Spreading(
        num_clients=scenario.num_clients,
        shares=data.split or EVERYTHING,
        public_size=data.public.size,
        public_users=data.public.users,
        public_source=public,
        public_augment=data.public.augment,
        public_at_clients=data.public.held == "everywhere",
        global_test_share=data.global_test,
        global_test_users=data.global_test_users,
        limit=data.limit,
        augmentations=tuple(choice.make() for choice in data.augmentation),
    )
    return _noting(
        faults,
        {"": "data", **PATHS},
        lambda: federate(
            dataset, data.partition.make() if data.partition else None, spreading, key.child("federate")
        ),
        f"spreading the data over {scenario.num_clients} clients",
        "use fewer clients, classes or samples",
    )


def _fleet(scenario: Scenario, data: FederatedData | None, key: Key, faults: list[Fault]) -> Fleet | None:
    models = [group.availability.make() for group in scenario.fleet]
    already = len(faults)
    for number, model in enumerate(models):
        # To tell which group a file with a fault belongs to.
        _noting(faults, {"": f"fleet.{number}.availability.params"}, partial(model.bind, 1, key))
        if (battery := scenario.fleet[number].battery) is not None:
            _noting(faults, {"": f"fleet.{number}.battery.plugged.params"}, partial(battery.draw, 1, key))
    if len(faults) > already:
        return None
    return build_fleet(
        scenario.fleet,
        scenario.server,
        key,
        default_model=server_label(scenario),
        availability=models,
        sizes=None if data is None else data.sizes("train"),
    )


def _cells(scenario: Scenario, fleet: Fleet, key: Key, faults: list[Fault]) -> Cells | None:
    if not scenario.cell:
        return None
    key = key.child("cells")
    of, wrong = members(scenario.cell, fleet, key)
    faults += wrong
    return Cells.draw(scenario.cell, of, key)


def _edges(scenario: Scenario, cells: Cells, key: Key) -> Edges | None:
    return build_edges(scenario.edge, cells, key.child("edges")) if scenario.edge else None


def _architectures(scenario: Scenario, task: Task, faults: list[Fault]) -> dict[str, Architecture]:
    architectures = {
        label: Architecture(label, choice.make(), task) for label, choice in scenario.models.items()
    }
    is_portable = scenario.engine.numerics == "portable"
    for label, architecture in architectures.items():
        path, before = toml_writer.path("models", label), len(faults)
        _noting(faults, {"": path}, partial(getattr, architecture, "structure"))
        if is_portable and len(faults) == before and (names := unportable_operations(architecture)):
            problem = f"its operations {', '.join(names)} may have other bits on another processor"
            faults.append(Fault(path, problem, "take other layers, or write engine.numerics = 'native'"))
    return architectures


def _idle_groups(fleet: Fleet, data: FederatedData) -> list[Fault]:
    sizes = data.sizes("train")
    return [
        Fault(
            f"fleet.{number}",
            f"no client of this group ({group.start} to {group.stop - 1}) has a training sample",
            "use fewer clients, more samples, or a partition that serves everybody",
        )
        for number, group in enumerate(fleet.groups)
        if not sizes[group.start : group.stop].any()
    ]


def _nobody(parts: Parts) -> list[Fault]:
    if not parts.data.sizes("train").any():
        return []  # each group is told so
    try:
        parts.eligible()
    except UserError as error:
        return [Fault("fleet", str(error))]
    return []
