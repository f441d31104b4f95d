"""What the tables of a scenario must say about each other.

Each check names the tables that it looks at as its arguments, and runs if all of them are valid by
themselves: so faults of every sort are reported together.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fedsim.algorithms.base import Algorithm
from fedsim.data import DatasetPlugin
from fedsim.data.federated import SPLITS
from fedsim.engine.executors.base import Executor
from fedsim.errors import Fault
from fedsim.fleet import GroupConfig, ServerConfig
from fedsim.plugins import available
from fedsim.scenario.choices import ALGORITHM, EXECUTOR
from fedsim.scenario.faults import nearest
from fedsim.scenario.schema import (
    AlgorithmChoice,
    DataConfig,
    EngineConfig,
    EvaluationConfig,
    ModelChoice,
    ParticipationConfig,
)

Fleet = tuple[GroupConfig, ...]
Models = Mapping[str, ModelChoice]


def check(tables: Mapping[str, Any]) -> list[Fault]:
    """Return the faults between tables.

    Args:
        tables: The valid ones, by name.
    """
    found: list[Fault] = []
    for rule in RULES:
        names = list(inspect.signature(rule).parameters)
        if all(name in tables for name in names):
            found += rule(*(tables[name] for name in names))
    return found


def server_label(models: Models, fleet: Fleet, server: ServerConfig) -> str:
    """Return the label of the server's architecture: its own, or else the first group's."""
    return server.model or fleet[0].model or next(iter(models))


def _cohort(fleet: Fleet, participation: ParticipationConfig) -> Iterator[Fault]:
    wanted, there = participation.clients_per_round, sum(group.count for group in fleet)
    if wanted is not None and wanted > there:
        yield Fault(
            "participation.clients_per_round",
            f"{wanted} clients a round, but the fleet has {there}",
            f"write {there} or fewer, or leave it out to ask all",
        )


def _labels(models: Models, fleet: Fleet, server: ServerConfig) -> Iterator[Fault]:
    labels = list(models)
    entries = [(f"fleet.{number}", group.model) for number, group in enumerate(fleet)]
    for path, label in [*entries, ("server", server.model)]:
        if label is not None and label not in models:
            yield Fault(f"{path}.model", f"no model is labelled {label!r}", nearest(label, labels))
        elif label is None and len(labels) > 1 and path != "server":
            listed = ", ".join(labels)
            problem = f"it names no model, and there are {len(labels)}: {listed}"
            yield Fault(path, problem, f"add model = {labels[0]!r} or another of them")


def _one_architecture(
    algorithm: AlgorithmChoice, models: Models, fleet: Fleet, server: ServerConfig
) -> Iterator[Fault]:
    plugin = algorithm.plugin
    if not issubclass(plugin, Algorithm) or plugin.mixed_architectures:
        return
    default = next(iter(models)) if len(models) == 1 else None
    labels = [group.model or default for group in fleet]
    first = labels[0]
    if first not in models:
        return
    able = [
        found.name for found in available(ALGORITHM.folder) if getattr(found.plugin, "mixed_architectures", 0)
    ]
    rule = f"{algorithm.name} needs the same model everywhere"
    mend = f"write {first!r}, or choose an algorithm for mixed architectures: {', '.join(able)}"
    for number, label in enumerate(labels):
        if label in models and label != first:
            yield Fault(f"fleet.{number}.model", f"model {label!r} is not the first group's: {rule}", mend)
    if server.model in models and server.model != first:
        yield Fault("server.model", f"model {server.model!r} is not the clients': {rule}", mend)


def _public_set(algorithm: AlgorithmChoice, data: DataConfig) -> Iterator[Fault]:
    plugin = algorithm.plugin
    if issubclass(plugin, Algorithm) and plugin.needs_public and data.public.size == 0:
        yield Fault(
            "data.public.size",
            f"0 samples, but {algorithm.name} exchanges knowledge on a public set",
            "write size = 200, say, below [data.public]",
        )


def _something_to_learn(data: DataConfig, engine: EngineConfig) -> Iterator[Fault]:
    if not _has_samples(data) and _learns(engine):
        yield Fault(
            "engine.executor",
            f"{engine.executor!r} trains, and data set {data.name!r} has sample counts only",
            'write executor = "null" below [engine], or choose a data set with samples',
        )


def _counts_alone(data: DataConfig) -> Iterator[Fault]:
    if not _has_samples(data) and data.global_test > 0:
        problem = f"{data.global_test} of no samples: data set {data.name!r} has sample counts only"
        yield Fault("data.global_test", problem, "leave it out")


def _something_to_measure(
    data: DataConfig, engine: EngineConfig, evaluation: EvaluationConfig
) -> Iterator[Fault]:
    if not evaluation.every or not _learns(engine) or data.split is None:
        return
    if data.split[SPLITS.index(evaluation.split)] == 0:
        yield Fault(
            "evaluation.split",
            f"{evaluation.split!r} has the share 0 in data.split = {list(data.split)}: nothing to measure on",
            "give it a share, choose the other split, or write every = 0 to measure nothing",
        )


def _cuda(engine: EngineConfig) -> Iterator[Fault]:
    import torch

    if engine.device == "cuda" and not torch.cuda.is_available():
        problem = "'cuda' is asked for, but torch finds no CUDA device on this computer"
        yield Fault("engine.device", problem, "write 'cpu', or install a torch with CUDA and its driver")


def _has_samples(data: DataConfig) -> bool:
    plugin = data.plugin
    return issubclass(plugin, DatasetPlugin) and plugin.has_samples


def _learns(engine: EngineConfig) -> bool:
    plugin = EXECUTOR.find(engine.executor)
    return issubclass(plugin, Executor) and plugin.learns


RULES: tuple[Callable[..., Iterator[Fault]], ...] = (
    _cohort,
    _labels,
    _one_architecture,
    _public_set,
    _something_to_learn,
    _counts_alone,
    _something_to_measure,
    _cuda,
)
