"""A study of a run that takes milliseconds: two variants, two seeds."""

from typing import Any

import pytest


@pytest.fixture
def tiny() -> dict[str, Any]:
    return {
        "name": "tiny",
        "base": {
            "run": {"rounds": 3},
            "data": {"limit": 80, "global_test": 0.2},
            "models": {"mlp": {"params": {"hidden": [4]}}},
            "training": {"lr": 0.5, "batch_size": 10},
            "fleet": [{"count": 3, "device": "low"}],
        },
        "seeds": [0, 1],
        "targets": [0.05, 0.999],
        "baseline": "fedavg",
        "variant": [{"algorithm": "fedavg"}, {"algorithm": "local"}],
    }
