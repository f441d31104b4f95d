"""PersFL-GD: the specification's sanity checks (5.E.7)."""

from typing import Any

import numpy as np
import pytest
import torch

from fedsim.algorithms.persfl import Imitating
from fedsim.engine.losses import Batch

SHORT: dict[str, Any] = {"lambdas": [0.5, 1.0], "temperatures": [1.0, 5.0], "distill_epochs": 3}


def _gradient(soft: Any, weight: float, temperature: float) -> tuple[float, Any]:
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(8, 5, generator=generator, requires_grad=True)
    teacher = torch.randn(8, 5, generator=generator)
    batches = {"train": Batch(torch.zeros(8, 1), torch.arange(8) % 5)}
    loss = Imitating(weight, temperature, soft)
    value = loss({"model": lambda x: logits}, batches, {"teacher": teacher})  # type: ignore[dict-item]
    (gradient,) = torch.autograd.grad(value, logits)
    return float(value.detach()), gradient.numpy()


@pytest.mark.parametrize("temperature", [1.0, 5.0, 25.0])
def test_gradients_are_those_of_persfl(temperature: float) -> None:
    divergence, its = _gradient("forward", 0.75, temperature)
    entropy, mine = _gradient("cross_entropy", 0.75, temperature)
    assert entropy > divergence + 0.1
    assert np.allclose(its, mine, atol=1e-6)
    assert not np.allclose(its, _gradient("reverse", 0.75, temperature)[1], atol=1e-3)


def _personal(world: Any, name: str, **params: Any) -> dict[int, Any]:
    models = world.personal(world.algorithm(name, **{**SHORT, **params}), num_samples=400)
    assert len(models) == 4
    return {client: model.params for client, model in models.items()}


def _largest_difference(left: dict[int, Any], right: dict[int, Any]) -> float:
    return max(
        float(np.abs(left[client][name] - right[client][name]).max())
        for client in left
        for name in left[client]
    )


@pytest.mark.slow
def test_models_are_those_of_persfl_up_to_rounding(world: Any) -> None:
    for pair in ({"lambdas": [0.5], "temperatures": [5.0]}, {"lambdas": [0.75], "temperatures": [1.0]}):
        mine, its = _personal(world, "persfl_gd", **pair), _personal(world, "persfl", **pair)
        assert _largest_difference(mine, its) < 1e-4
        other = _personal(world, "persfl", **pair, kl_direction="reverse")
        assert _largest_difference(mine, other) > 1e-3


def test_what_travels_is_what_persfl_sends(world: Any) -> None:
    results = [world.run(world.algorithm(name, **SHORT)) for name in ("persfl", "persfl_gd")]
    assert results[0].totals == results[1].totals
