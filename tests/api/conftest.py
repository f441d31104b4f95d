"""A run of two rounds in milliseconds."""

from pathlib import Path
from typing import Any, TypeVar

import pytest

import fedsim

K = TypeVar("K", fedsim.Result, fedsim.Comparison, fedsim.StudyResult)

TINY: dict[str, Any] = {
    "run": {"name": "tiny", "rounds": 2},
    "data": {"limit": 80, "global_test": 0.2},
    "models": {"mlp": {"params": {"hidden": [4]}}},
    "training": {"lr": 0.1, "batch_size": 10},
    "fleet": [{"count": 3, "device": "low"}],
    "engine": {"workers": 1},
}


@pytest.fixture
def tiny() -> dict[str, Any]:
    return {name: dict(table) if isinstance(table, dict) else list(table) for name, table in TINY.items()}


def opened_as(kind: type[K], folder: Path | str) -> K:
    """Open a folder that has to hold results of a kind."""
    opened = fedsim.open(folder)
    assert isinstance(opened, kind)
    return opened
