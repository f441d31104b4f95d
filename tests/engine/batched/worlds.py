"""Data and nets of clients that are computed together."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedsim.data import FederatedData
from fedsim.data.client_split import Split
from fedsim.data.federated import Holdings
from fedsim.engine.jobs import Fitted
from fedsim.engine.worker_state import Resources, Worker
from fedsim.models import Architecture, ModelPlugin
from fedsim.models.linear import PLUGIN as LINEAR
from fedsim.models.mlp import PLUGIN as MLP
from fedsim.params import Array
from fedsim.rng import Key
from fedsim.task import Task


def dense(*hidden: int) -> ModelPlugin[Any]:
    """Return a plugin of fully connected nets with these hidden layers."""
    return MLP(MLP.Config(hidden=hidden)) if hidden else LINEAR(LINEAR.Config())


def world(
    task: Task,
    sizes: Sequence[int],
    nets: Mapping[str, ModelPlugin[Any]],
    *,
    split: Split = "train",
    num_public: int = 0,
    num_test: int = 0,
) -> Worker:
    """Return a worker whose clients hold so many random samples of a split, with nets by label."""
    generator, num_own = Key.root(5).numpy(), sum(sizes)
    total = num_own + num_public + num_test
    y: Array = generator.integers(0, task.num_outputs, total)
    held = Holdings(np.cumsum([0, *sizes]), generator.permutation(num_own))
    none = Holdings(np.zeros(len(sizes) + 1, np.int64), np.arange(0))
    if task.kind == "regression":
        y = generator.standard_normal(total)
    data = FederatedData(
        task,
        generator.standard_normal((total, *task.input_shape)).astype(np.float32),
        y.astype(task.label_dtype),
        public=np.arange(num_own, num_own + num_public),
        global_test=np.arange(num_own + num_public, total),
        num_clients=len(sizes),
        holdings={"train": none, "val": none, "test": none, split: held},
    )
    architectures = {label: Architecture(label, plugin, task) for label, plugin in nets.items()}
    return Worker(Resources.of(data, architectures, "cpu"), threading.Event())


def bits(fitted: Fitted) -> Any:
    """Return something that equals only that of a result with the same bits."""
    models = {
        name: {leaf: (array.dtype, array.shape, array.tobytes()) for leaf, array in model.params.items()}
        for name, model in fitted.models.items()
    }
    architectures = [model.architecture for model in fitted.models.values()]
    return architectures, models, np.float64(fitted.loss).tobytes(), fitted.num_steps
