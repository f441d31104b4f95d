"""What every augmentation's tests need."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from fedsim.data.augmentations.base import Augmentation
from fedsim.plugins import load
from fedsim.rng import Key


@pytest.fixture
def made() -> Callable[..., Augmentation[Any]]:
    """Makes an augmentation by its name and parameters."""

    def make(name: str, **params: Any) -> Augmentation[Any]:
        plugin: Any = load("fedsim.data.augmentations", name)
        made: Augmentation[Any] = plugin(plugin.Config.model_validate(params))
        return made

    return make


@pytest.fixture
def images() -> Tensor:
    """200 images of 2 x 4 x 6 pixels, of which none is 0 and no two are equal."""
    return torch.arange(1, 200 * 48 + 1, dtype=torch.float32).view(200, 2, 4, 6)


@pytest.fixture
def generator() -> torch.Generator:
    return Key.root(3).torch()
