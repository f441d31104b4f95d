"""What travels: numbers and frames of runs with four clients and three rounds."""

from typing import Any

import pytest

S, P = 64 * 16 + 16 + 16 * 10 + 10, 40 * 10
"""Parameters of a model; probabilities of all public samples."""
AS_FEDAVG = ["apfl", "ditto", "fedadagrad", "fedadam", "fedasync", "fedavgm", "fedbuff", "fedprox", "fedyogi"]
AS_FEDAVG += ["ktpfl_w", "mapper", "moon", "perfedavg", "pfedme"]


@pytest.mark.parametrize("name", AS_FEDAVG)
def test_frames_are_those_of_fedavg(name: str, world: Any) -> None:
    params = {"lam": 1.0} if name == "pfedme" else {}
    assert world.run(world.algorithm(name, **params)).totals == world.run(world.algorithm("fedavg")).totals


@pytest.mark.parametrize(
    ("name", "params", "up", "down", "frames_down"),
    [
        ("fedamp", {}, 12 * S, 12 * S, 12),
        ("fedavg", {}, 12 * S, 12 * S, 12),
        ("fedfomo", {"offers": 0}, 12 * S, 4 * S, 4),  # the start model comes down once
        ("fedmd", {}, 12 * P, 12 * P, 24),
        ("fedmd", {"public_per_round": 20}, 6 * P, 6 * P, 24),
        ("fedper", {"personal_layers": 3}, 0, 0, 12),
        ("fml", {}, 12 * S, 12 * S, 12),
        ("hypcluster", {"clusters": 3}, 12 * S, 36 * S, 12),
        *((name, {}, 12 * P, 12 * P, 24) for name in ("ktpfl", "sim_pfd", "topk_pfd")),
        ("l2sgd", {}, 12 * S, 12 * S, 24),
        ("pfedhn", {}, 12 * S, 12 * S, 12),
        ("scaffold", {}, 24 * S, 24 * S, 12),
    ],
)
def test_parameters_each_way(
    name: str, params: dict[str, Any], up: int, down: int, frames_down: int, world: Any
) -> None:
    totals = world.run(world.algorithm(name, **params)).totals
    assert (totals.parameters_up, totals.parameters_down) == (up, down)
    assert (totals.frames_up, totals.frames_down) == (12, frames_down)
    assert 0 < totals.bytes_up - 4 * up < 12 * 600
    assert 0 < totals.bytes_down - 4 * down < 24 * 600


@pytest.mark.parametrize("name", ["dsfl", "fedmd", "ktpfl", "perfed_ckt", "sim_pfd", "topk_pfd"])
def test_bytes_of_predictions_do_not_depend_on_architectures(name: str, world: Any) -> None:
    small, large, mixed = (
        world.run(world.algorithm(name), models=models, rounds=2).totals
        for models in (("linear", "linear"), ("mlp", "mlp"), ("mlp", "linear"))
    )
    assert small == large == mixed
