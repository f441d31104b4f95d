"""A small world to train in. Coroutine tests of this folder run on virtual time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedsim.clock import VirtualTimeLoop
from fedsim.config import Config
from fedsim.data import FederatedData
from fedsim.data.client_split import Split
from fedsim.data.federated import Holdings
from fedsim.engine.execute import fit, run
from fedsim.engine.executors.base import Executor, ExecutorConfig
from fedsim.engine.executors.threads import Threads
from fedsim.engine.jobs import ClientSamples, Fit, Fitted, Job, Stream
from fedsim.engine.optimisers import Optimiser, Sgd
from fedsim.engine.steps import Descent
from fedsim.engine.worker_state import Resources, Worker
from fedsim.models import Architecture, ModelPlugin, Net
from fedsim.models.base import named
from fedsim.models.mlp import PLUGIN as MLP
from fedsim.params import Array, Model
from fedsim.rng import Key
from fedsim.task import Task

Start = Callable[..., Model]
MakeFit = Callable[..., Fit]
OpenThreads = Callable[[int], Executor]
"""Types of fixtures."""

TASK = Task((6,), 3)
TRAIN_SIZES = (11, 5, 0, 21)
TEST_SIZES = (3, 2, 0, 4)


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], VirtualTimeLoop]]:
    return {"virtual": VirtualTimeLoop}


@pytest.fixture
def two_torch_threads() -> Iterator[None]:
    """Give torch two threads, also in threads to come, so that a job's one is seen."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


class Counting(nn.Module):
    """Counts its calls in training in a buffer that it replaces instead of writing into it."""

    calls: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def initialise(self, generator: torch.Generator) -> None:
        self.calls.zero_()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.calls = self.calls + 1
        return x


@dataclass
class Table:
    """A live model that gives its inputs back as logits."""

    params: Mapping[str, Tensor] = field(default_factory=dict)

    def __call__(self, x: Tensor) -> Tensor:
        return x

    def features(self, x: Tensor) -> Tensor:
        return x

    def head(self, features: Tensor) -> Tensor:
        return features

    def public(self, x: Tensor) -> Tensor:
        return self(x)

    def at(self, params: Mapping[str, Tensor], *, moves_buffers: bool = False) -> Callable[[Tensor], Tensor]:
        raise NotImplementedError


class Last(nn.Module):
    """An LSTM over the features as a sequence of scalars; its last output."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(1, 4, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.lstm(x[:, :, None])[0]
        return output[:, -1]


class HandMade(nn.Module):
    """A matrix product spelt so that no counter sees it."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.empty(3, 6))

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.matrix)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x[:, None, :] * self.matrix).sum(-1)


class Private(ModelPlugin[Config]):
    """A net made by a function."""

    def __init__(self, make: Callable[[], Net]) -> None:
        super().__init__(Config())
        self._make = make

    def build(self, task: Task) -> Net:
        return self._make()


def _tied() -> Net:
    first, second = nn.Linear(6, 6), nn.Linear(6, 6)
    second.weight = first.weight
    return Net(named(first=first, second=second), nn.Linear(6, 3))


NETS: Mapping[str, Callable[[], Net]] = {
    "norm": lambda: Net(named(fc=nn.Linear(6, 4), norm=nn.BatchNorm1d(4)), nn.Linear(4, 3)),
    "dropout": lambda: Net(named(fc=nn.Linear(6, 4), drop=nn.Dropout(0.5)), nn.Linear(4, 3)),
    "counting": lambda: Net(named(fc=nn.Linear(6, 4), count=Counting()), nn.Linear(4, 3)),
    "lstm": lambda: Net(named(last=Last()), nn.Linear(4, 3)),
    "tied": _tied,
    "hand_made": lambda: Net(named(first=HandMade()), nn.Identity()),
}


def _frozen(array: Array) -> Array:
    array.flags.writeable = False
    return array


def _holdings(sizes: tuple[int, ...], positions: Array) -> tuple[Holdings, Array]:
    offsets = _frozen(np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)]))
    total = int(offsets[-1])
    return Holdings(offsets, _frozen(positions[:total].copy())), positions[total:]


@pytest.fixture(scope="session")
def data() -> FederatedData:
    generator = Key.root(5).numpy()
    num_samples = 64
    x = generator.standard_normal((num_samples, *TASK.input_shape)).astype(np.float32)
    y = generator.integers(0, TASK.num_outputs, num_samples)
    left = generator.permutation(num_samples)
    train, left = _holdings(TRAIN_SIZES, left)
    test, left = _holdings(TEST_SIZES, left)
    val, left = _holdings((0,) * len(TRAIN_SIZES), left)
    public, global_test = _frozen(left[:8].copy()), _frozen(left[8:13].copy())
    holdings: dict[Split, Holdings] = {"train": train, "val": val, "test": test}
    return FederatedData(TASK, _frozen(x), _frozen(y), public, global_test, len(TRAIN_SIZES), holdings)


@pytest.fixture(scope="session")
def architectures() -> Mapping[str, Architecture]:
    mlp = Architecture("mlp", MLP(MLP.Config(hidden=(4,))), TASK)
    return {"mlp": mlp} | {label: Architecture(label, Private(make), TASK) for label, make in NETS.items()}


@pytest.fixture(scope="session")
def resources(data: FederatedData, architectures: Mapping[str, Architecture]) -> Resources:
    return Resources.of(data, architectures, "cpu")


@pytest.fixture
def worker(resources: Resources) -> Worker:
    return Worker(resources, threading.Event())


@pytest.fixture(scope="session")
def start(architectures: Mapping[str, Architecture]) -> Callable[..., Model]:
    """Start values of an architecture, by label and seed."""

    def make(label: str = "mlp", seed: int = 0) -> Model:
        return architectures[label].initial(Key.root(seed))

    return make


PLAIN = Sgd(0.1)


@pytest.fixture(scope="session")
def make_fit(start: Callable[..., Model]) -> Callable[..., Fit]:
    """A fit of client 0's samples, with any field changed; ``optimiser`` is that of each trained model."""

    def make(*, optimiser: Optimiser = PLAIN, **changes: Any) -> Fit:
        fields: dict[str, Any] = {
            "step": Descent(),
            "models": {"model": start()},
            "streams": {"train": Stream(ClientSamples(0), 4)},
            "num_steps": 5,
            "seed": 17,
        }
        fields |= changes
        fields.setdefault("trained", tuple(fields["models"]))
        fields.setdefault("optimisers", dict.fromkeys(fields["trained"], optimiser))
        return Fit(**fields)

    return make


@dataclass(frozen=True)
class Lab:
    """What a job is made of and runs on, in one fixture."""

    resources: Resources
    worker: Worker
    start: Start
    make_fit: MakeFit

    @property
    def data(self) -> FederatedData:
        return self.resources.data

    @property
    def architectures(self) -> Mapping[str, Architecture]:
        return self.resources.architectures

    def run(self, job: Job) -> Any:
        return run(job, self.worker)

    def fit(self, **changes: Any) -> Fitted:
        """Make a fit and do it."""
        return fit(self.make_fit(**changes), self.worker)


@pytest.fixture
def lab(resources: Resources, worker: Worker, start: Start, make_fit: MakeFit) -> Lab:
    return Lab(resources, worker, start, make_fit)


class Pooled(Threads):
    """Threads in any case, also for one worker."""

    def open(self, resources: Resources) -> None:
        self._start(resources, self.config.workers)


@pytest.fixture
def threads(resources: Resources) -> Iterator[Callable[[int], Executor]]:
    """Opened executors of so many threads, to which every job goes at once; closed at the end."""
    opened = []

    def make(workers: int = 1) -> Executor:
        executor = Pooled(ExecutorConfig(workers=workers, batching="off"))
        executor.open(resources)
        opened.append(executor)
        return executor

    yield make
    for executor in opened:
        executor.close()
