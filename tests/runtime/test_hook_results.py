"""What a hook returns by mistake is told with its name and what was expected."""

import re
from types import SimpleNamespace
from typing import Any

import pytest

from fedsim.algorithms.fedavg import FedAvg
from fedsim.errors import RunError


class SendsNone(FedAvg):
    async def send(self, *_: Any) -> Any:
        return None


class SendsAList(FedAvg):
    async def send(self, server: Any, state: Any, cohort: Any) -> Any:
        return state, list(cohort)


class TrainsToNone(FedAvg):
    async def train(self, *_: Any) -> Any:
        return None


class MergesToNone(FedAvg):
    async def merge(self, *_: Any) -> Any:
        return None


@pytest.mark.parametrize(
    ("algorithm", "hook", "expected"),
    [
        (SendsNone, "SendsNone.send", "returned None, but has to return (state, messages)"),
        (SendsAList, "SendsAList.send", "returned tuple ("),
        (TrainsToNone, "TrainsToNone.train", "returned None, but has to return (state, reply)"),
        (MergesToNone, "MergesToNone.merge", "returned None, but has to return the server's new state"),
    ],
)
def test_a_hook_that_returns_something_else_is_named(
    world: SimpleNamespace, algorithm: type[FedAvg], hook: str, expected: str
) -> None:
    with pytest.raises(RunError, match=re.escape(f".{hook} {expected}")):
        world.play(algorithm(algorithm.Config()), client_timeout_s=1e6)


@pytest.mark.parametrize("name", ["send", "train", "merge", "models_of"])
def test_a_hook_that_is_no_coroutine_function_is_named(world: SimpleNamespace, name: str) -> None:
    def ordinary(self: Any, *_: Any) -> Any:
        return None

    algorithm = type("Ordinary", (FedAvg,), {name: ordinary})(FedAvg.Config())
    with pytest.raises(RunError, match=r"ordinary is an ordinary function: write it with async def"):
        world.play(algorithm, client_timeout_s=1e6)
