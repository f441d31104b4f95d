"""From a scenario to the ready-made parts of a run: data loaded and spread, devices drawn, plugins made."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from fedsim.data import Dataset, DatasetPlugin, FederatedData, LoadContext, Spreading, federate
from fedsim.engine.executors.base import Executor
from fedsim.errors import DataError, Fault, ScenarioError, UserError
from fedsim.fleet import Fleet, build_fleet
from fedsim.models import Architecture
from fedsim.quoting import MOST_SAID, quoted, shortened
from fedsim.rng import Key
from fedsim.runtime.parts import Parts
from fedsim.scenario import toml
from fedsim.scenario.checks import check, server_label
from fedsim.scenario.choices import EXECUTOR, PublicSource
from fedsim.scenario.schema import DataConfig, EngineConfig, Scenario
from fedsim.scenario.schema_paths import Values
from fedsim.task import Task

MOST_WORKERS = 8
"""As many as ``workers = "auto"`` gives at most."""

EVERYTHING = (1.0, 0.0, 0.0)

PATHS = {
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


def build(scenario: Scenario, source: str = "") -> Parts:
    """Return the parts of a run.

    The data depends on the seed, ``[data]`` and the number of clients alone, so algorithms are compared on
    the same samples.

    Args:
        scenario: What to build.
        source: What errors call it, such as its file; the run's name if empty.

    Raises:
        ScenarioError: All of these: data that cannot be had or spread; models that cannot take it, unless
            it cannot be had; files of availability that cannot be used; groups without a sample, where
            samples and devices are known. Or, where there is nothing else, a fleet in which nobody has the
            memory to train.
    """
    source = source or scenario.run.name
    if faults := check(Values(scenario)):
        raise ScenarioError(faults, source)
    key = Key.root(scenario.run.seed)
    dataset = _dataset(scenario, scenario.data, key.child("data", "load"), faults)
    other = scenario.data.public.source
    public = _dataset(scenario, other, key.child("data", "public"), faults) if other else None
    data = None
    if dataset is not None and (public is not None or other is None):
        data = _spread(scenario, dataset, public, key.child("data"), faults)
    architectures = _architectures(scenario, dataset.task, faults) if dataset is not None else {}
    fleet = _fleet(scenario, data, key, faults)
    if fleet is not None and data is not None:
        faults += _idle_groups(fleet, data)
    if faults or fleet is None or data is None:
        raise ScenarioError(faults, source)
    participation = scenario.participation
    parts = Parts(
        algorithm=scenario.algorithm.make(),
        data=data,
        fleet=fleet,
        architectures=architectures,
        network=scenario.network.make(),
        overhead=scenario.network.overhead,
        executor=_executor(scenario.engine),
        selector=participation.selector.make(),
        pacing=participation.pacing.make(),
        training=scenario.training,
        rounds=scenario.run.rounds,
        seed=scenario.run.seed,
        clients_per_round=participation.clients_per_round,
        client_timeout_s=participation.client_timeout,
        on_leave=participation.on_leave,
        evaluation=scenario.evaluation,
        device=scenario.engine.device,
    )
    if problem := parts.misfit():
        raise ScenarioError([Fault("algorithm", problem)], source)
    try:
        parts.eligible()
    except UserError as error:
        raise ScenarioError([Fault("fleet", str(error))], source) from None
    return parts


def num_workers(engine: EngineConfig) -> int:
    """Return how many jobs run at once; ``auto`` is one for each core that this process may use, to 8."""
    if engine.workers != "auto":
        return engine.workers
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(MOST_WORKERS, cores)


def _executor(engine: EngineConfig) -> Executor:
    plugin = EXECUTOR.find(engine.executor)
    return plugin(plugin.Config.model_validate({"workers": num_workers(engine)}))


# Each of these notes its faults, so that all are known before any is raised.


def _dataset(
    scenario: Scenario, choice: DataConfig | PublicSource, key: Key, faults: list[Fault]
) -> Dataset | None:
    root = scenario.data.root or os.environ.get("FEDSIM_DATA")
    folder = Path(root).expanduser() if root else None
    place = "data" if isinstance(choice, DataConfig) else PATHS["public_source"]
    try:
        plugin: DatasetPlugin[Any] = choice.make()
        return plugin.load(LoadContext(folder, scenario.num_clients, key))
    except DataError as error:
        # Where it is the files that are wrong, most likely the data set's own parameters name them.
        settings = type(choice.params).model_fields
        path = f"{place}.params" if settings else f"{place}.name"
        if error.setting in settings:
            path = f"{place}.params.{error.setting}"
        elif error.setting == "root":
            path = "data.root"
        faults.append(Fault(path, str(error)))
        return None
    except OSError as error:
        faults.append(Fault("data.root", f"files below it cannot be read: {shortened(error, MOST_SAID)}"))
        return None
    except MemoryError as error:
        problem = f"data set {quoted(choice.name)} needs more memory than there is: {error}"
        faults.append(Fault(place, problem, "ask it for fewer or smaller samples"))
        return None


def _spread(
    scenario: Scenario, dataset: Dataset, public: Dataset | None, key: Key, faults: list[Fault]
) -> FederatedData | None:
    data = scenario.data
    try:
        return federate(
            dataset,
            data.partition.make() if data.partition else None,
            Spreading(
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
            ),
            key.child("federate"),
        )
    except DataError as error:
        faults.append(Fault(PATHS.get(error.setting, "data"), str(error)))
        return None
    except MemoryError as error:
        problem = (
            f"spreading the data over {scenario.num_clients} clients needs more memory than there is: {error}"
        )
        faults.append(Fault("data", problem, "use fewer clients, classes or samples"))
        return None


def _fleet(scenario: Scenario, data: FederatedData | None, key: Key, faults: list[Fault]) -> Fleet | None:
    availability, already = [], len(faults)
    for number, group in enumerate(scenario.fleet):
        model = group.availability.make()
        availability.append(model)
        try:
            model.bind(1, key)  # to tell which group a file with a fault belongs to
        except DataError as error:
            faults.append(Fault(f"fleet.{number}.availability.params", str(error)))
    if len(faults) > already:
        return None
    model = server_label(scenario.models, scenario.fleet, scenario.server)
    return build_fleet(
        scenario.fleet,
        scenario.server,
        key,
        default_model=model,
        availability=availability,
        sizes=None if data is None else data.sizes("train"),
    )


def _architectures(scenario: Scenario, task: Task, faults: list[Fault]) -> dict[str, Architecture]:
    architectures = {
        label: Architecture(label, choice.make(), task) for label, choice in scenario.models.items()
    }
    for label, architecture in architectures.items():
        try:
            architecture.skeleton()
        except DataError as error:
            faults.append(Fault(toml.path("models", label), str(error)))
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
