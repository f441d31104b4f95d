"""Shared by several tests: parameters of short runs, contexts for hooks, a net with BatchNorm."""

from collections.abc import Callable, Container, Coroutine
from itertools import count
from types import SimpleNamespace
from typing import Any

from torch import nn

from fedsim.algorithms.aggregation.base import Aggregation
from fedsim.config import Config
from fedsim.models import Architecture, ModelPlugin, Net
from fedsim.models.base import dense, named
from fedsim.network import Parcel
from fedsim.task import Task

FEW: dict[str, Any] = {"lambdas": [0.0, 0.5], "temperatures": [1.0, 5.0], "distill_epochs": 3}

QUICK: dict[str, dict[str, Any]] = {
    # By default each client trains 29 students for 20 passes: here 3 students for 3.
    "persfl": FEW,
    "persfl_gd": FEW,
    # The paper's rates are for hundreds of rounds.
    "pfedme": {"lam": 1.0, "eta": 0.5},
    # The paper's rate is for thousands of public samples, and slow with forty.
    "fedet": {"server_lr": 0.1, "server_steps": 30},
    "feddf": {"server_steps": 10},
    "pfeddf": {"server_steps": 10, "finetune_epochs": 1},
    # By default each client tries ten passes.
    "fedavg_ft": {"finetune_epochs": 1},
    "fedme": {"finetune_epochs": 1},
    "fedgkt": {"server_epochs": 3},
    # The authors make thousands of rounds.
    "pfedhn": {"server_lr": 0.2, "hidden": 20},
}
"""Settings for what takes long by default and means the same with less, or is made for larger worlds."""


def nth(
    numbers: Container[int], *, sender: int | None = None, receiver: int | None = None
) -> Callable[[Parcel, int], bool]:
    """Lose the frames of these numbers, from 1 on, of those that come from a party or go to one."""
    met = count(1)

    def lost(parcel: Parcel, ordinal: int) -> bool:
        return (parcel.sender == sender or parcel.receiver == receiver) and next(met) in numbers

    return lost


class Server(SimpleNamespace):
    """A server's context that computes at once, averages, and keeps what it is charged."""

    def __init__(self, **attributes: Any) -> None:
        own = {"flops": [], "at_work": {}, "round": 1, "aggregation": Aggregation(Config()), "warn": None}
        super().__init__(**{**own, **attributes})

    async def call(self, function: Callable[..., Any], *arguments: Any, flops: float) -> Any:
        assert flops > 0
        self.flops.append(flops)
        return function(*arguments)

    def background(self, name: str, work: Coroutine[Any, Any, Any]) -> None:
        self.at_work[name] = work

    async def collect(self, name: str) -> Any:
        return await self.at_work.pop(name)


class Client:
    """A client's context that counts samples, and keeps its warnings."""

    def __init__(self, num_val: int = 3) -> None:
        self.num_val, self.warnings = num_val, list[tuple[str, dict[str, Any]]]()

    def num_samples(self, split: str = "train") -> int:
        return self.num_val if split == "val" else 9

    def own(self, split: str) -> str:
        return split

    def warn(self, event: str, **values: Any) -> None:
        self.warnings.append((event, values))


class Normed(ModelPlugin[Config]):
    def build(self, task: Task) -> Net:
        blocks = {"flatten": nn.Flatten(), **dense(task.num_inputs, 12), "norm": nn.BatchNorm1d(12)}
        return Net(named(**blocks), nn.Linear(12, task.num_outputs))


def normed(world: Any) -> dict[str, Architecture]:
    return {"mlp": Architecture("mlp", Normed(Config()), world.data().task)}
