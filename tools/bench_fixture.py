"""What benchmarks run on: generated samples as a data set, and the parts of a run on the naive network."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from fedsim.algorithms.fedavg import PLUGIN as FEDAVG
from fedsim.config import AsTuple, Config
from fedsim.data import Dataset, DatasetPlugin, FederatedData, LoadContext, Spreading, federate
from fedsim.engine.executors.base import Executor, ExecutorConfig
from fedsim.engine.training_config import TrainingConfig
from fedsim.fleet import GroupConfig, ServerConfig, build_fleet
from fedsim.models import Architecture
from fedsim.network.naive import PLUGIN as NAIVE
from fedsim.rng import Key
from fedsim.runtime.parts import EvaluationConfig, Parts
from fedsim.runtime.policies.pacing.synchronous import PLUGIN as SYNCHRONOUS
from fedsim.runtime.policies.selectors.random_draws import Uniform
from fedsim.task import Task


class GeneratedConfig(Config):
    """Settings of generated samples."""

    shape: Annotated[tuple[int, ...], AsTuple]
    """Of one sample."""
    each: int
    """Samples for each client."""


class Generated(DatasetPlugin[GeneratedConfig]):
    """Random samples of ten classes."""

    Config = GeneratedConfig

    def load(self, context: LoadContext) -> Dataset:
        """Return equally many samples for every client."""
        count, shape = context.num_clients * self.config.each, self.config.shape
        generator = context.key.numpy()
        x = generator.standard_normal((count, *shape), dtype=np.float32)
        return Dataset(Task(shape, 10), x, generator.integers(0, 10, count))


def counted(num_clients: int, each: int, shape: tuple[int, ...]) -> FederatedData:
    """Return counts without samples."""
    dataset = Dataset(Task(shape, 10), sizes=np.full(num_clients, each))
    return federate(dataset, None, Spreading(num_clients=num_clients, shares=(1.0, 0.0, 0.0)), Key.root(0))


def world(data: FederatedData, model: Any, executor: type[Executor], workers: int, **changes: Any) -> Parts:
    """Return the parts of a FedAvg run over these data, evaluation off."""
    label = "model"
    half = data.num_clients // 2
    groups = [
        GroupConfig(count=half, device="low"),
        GroupConfig(count=data.num_clients - half, device="high"),
    ]
    defaults: dict[str, Any] = {
        "algorithm": FEDAVG(FEDAVG.Config()),
        "data": data,
        "fleet": build_fleet(groups, ServerConfig(), Key.root(0), default_model=label),
        "architectures": {label: Architecture(label, model, data.task)},
        "network": NAIVE(Config()),
        "executor": executor(ExecutorConfig(workers=workers)),
        "selector": Uniform(Config()),
        "pacing": SYNCHRONOUS(SYNCHRONOUS.Config()),
        "training": TrainingConfig(lr=0.05, batch_size=10, epochs=1),
        "evaluation": EvaluationConfig(every=0, clients=1000),
        "rounds": 10,
    }
    return Parts(**(defaults | changes))
