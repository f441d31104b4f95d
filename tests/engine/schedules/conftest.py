"""What every schedule's tests need."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from fedsim.plugins import load

Factors = Callable[..., list[float]]


@pytest.fixture
def factors() -> Factors:
    """Gives the first factors of a schedule, by its name and parameters."""

    def of(name: str, count: int = 8, length: int = 1, **params: Any) -> list[float]:
        plugin: Any = load("fedsim.engine.schedules", name)
        schedule = plugin(plugin.Config.model_validate(params))
        return [schedule.factor(position, length) for position in range(count)]

    return of


@pytest.fixture
def torchs() -> Callable[..., list[float]]:
    """Gives the rates of one of torch's schedulers, from 1 on."""

    def of(scheduler: Any, count: int = 8, **params: Any) -> list[float]:
        optimiser = torch.optim.SGD([torch.zeros(1)], lr=1.0)
        schedule, rates = scheduler(optimiser, **params), []
        for _ in range(count):
            rates.append(optimiser.param_groups[0]["lr"])
            optimiser.step()
            schedule.step()
        return rates

    return of
