"""From a scenario to the ready-made parts of a run: data loaded and spread, devices drawn, plugins made."""

from __future__ import annotations

import os
from pathlib import Path

from fedsim.data import FederatedData, LoadContext, federate
from fedsim.engine.executors.base import Executor
from fedsim.errors import DataError, Fault, ScenarioError, UserError
from fedsim.fleet import Fleet, build_fleet
from fedsim.models import Architecture
from fedsim.rng import Key
from fedsim.runtime.parts import EvaluationSettings, Parts
from fedsim.scenario.checks import check, server_label
from fedsim.scenario.choices import EXECUTOR
from fedsim.scenario.schema import EngineConfig, Scenario
from fedsim.task import Task

MOST_WORKERS = 8
"""As many as ``workers = "auto"`` gives at most."""

EVERYTHING = (1.0, 0.0, 0.0)


def build(scenario: Scenario) -> Parts:
    """Return the parts of a run.

    The data depends on the seed, ``[data]`` and the number of clients alone, so algorithms are compared on
    the same samples.

    Raises:
        ScenarioError: Data that cannot be had or spread, a model that cannot take it, an idle group,
            or a fleet in which nobody has the memory to train.
    """
    tables = {name: getattr(scenario, name) for name in Scenario.model_fields}
    if faults := check(tables):
        raise ScenarioError(faults, scenario.run.name)
    key = Key.root(scenario.run.seed)
    data = _data(scenario, key.child("data"))
    model = server_label(scenario.models, scenario.fleet, scenario.server)
    fleet = _fleet(scenario, key, model)
    if faults := _idle_groups(fleet, data):
        raise ScenarioError(faults, scenario.run.name)
    evaluation, participation = scenario.evaluation, scenario.participation
    parts = Parts(
        algorithm=scenario.algorithm.make(),
        data=data,
        fleet=fleet,
        architectures=_architectures(scenario, data.task),
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
        evaluation=EvaluationSettings(
            every=evaluation.every,
            clients=evaluation.clients,
            split=evaluation.split,
            batch_size=evaluation.batch_size,
        ),
        device=scenario.engine.device,
    )
    try:
        parts.eligible()
    except UserError as error:
        raise ScenarioError([Fault("fleet", str(error))], scenario.run.name) from None
    return parts


def num_workers(engine: EngineConfig) -> int:
    """Return how many jobs run at once; ``auto`` is one for each core that this process may use, to 8."""
    if engine.workers != "auto":
        return engine.workers
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(MOST_WORKERS, cores)


def _data(scenario: Scenario, key: Key) -> FederatedData:
    data = scenario.data
    root = data.root or os.environ.get("FEDSIM_DATA")
    folder = Path(root).expanduser() if root else None
    # Where it is the files that are wrong, most likely the data set's own parameters name them.
    path = "data.params" if type(data.params).model_fields else "data.name"
    try:
        dataset = data.make().load(LoadContext(folder, scenario.num_clients, key.child("load")))
        path = "data"
        return federate(
            dataset,
            data.partition.make() if data.partition else None,
            num_clients=scenario.num_clients,
            shares=data.split or EVERYTHING,
            key=key.child("federate"),
            public_size=data.public.size,
            global_test_share=data.global_test,
            limit=data.limit,
        )
    except DataError as error:
        raise ScenarioError([Fault(path, str(error))], scenario.run.name) from error


def _fleet(scenario: Scenario, key: Key, default_model: str) -> Fleet:
    faults, availability = [], []
    for number, group in enumerate(scenario.fleet):
        model = group.availability.make()
        availability.append(model)
        try:
            model.bind(1, key)  # to tell which group a file with a fault belongs to
        except DataError as error:
            faults.append(Fault(f"fleet.{number}.availability.params", str(error)))
    if faults:
        raise ScenarioError(faults, scenario.run.name)
    return build_fleet(
        scenario.fleet, scenario.server, key, default_model=default_model, availability=availability
    )


def _architectures(scenario: Scenario, task: Task) -> dict[str, Architecture]:
    architectures = {
        label: Architecture(label, choice.make(), task) for label, choice in scenario.models.items()
    }
    faults = []
    for label, architecture in architectures.items():
        try:
            architecture.skeleton()
        except DataError as error:
            faults.append(Fault(f"models.{label}", str(error)))
    if faults:
        raise ScenarioError(faults, scenario.run.name)
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


def _executor(engine: EngineConfig) -> Executor:
    plugin = EXECUTOR.find(engine.executor)
    executor = plugin(plugin.Config.model_validate({"workers": num_workers(engine)}))
    assert isinstance(executor, Executor)  # noqa: S101
    return executor
