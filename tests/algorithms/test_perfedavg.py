"""Per-FedAvg: the specification's sanity checks (5.D.1)."""

from typing import Any

import numpy as np
import pytest

from fedsim.algorithms import perfedavg
from fedsim.algorithms.perfedavg import MetaDescent
from fedsim.params import Array, Model
from tests.algorithms.stand_ins import normed


def _with_ones(x: Array) -> Array:
    return np.concatenate([x, np.ones((len(x), 1))], 1)


X, Y = np.array([[1.0], [-2.0], [0.5]]), np.array([1.0, 3.0, -1.0])
INPUTS = _with_ones(X)
HESSIAN = 2 * INPUTS.T @ INPUTS / 3
"""Of the mean squared error, in the weight and the bias."""


def _slope(w: Array, inputs: Array = INPUTS, targets: Array = Y) -> Array:
    slope: Array = 2 * inputs.T @ (inputs @ w - targets) / len(inputs)
    return slope


def _flat(model: Model) -> Array:
    return np.concatenate([array.reshape(-1) for array in model.params.values()]).astype(np.float64)


def _run(world: Any, rounds: int = 3, **params: Any) -> Any:
    return world.run(world.algorithm("perfedavg", **params), rounds=rounds)


@pytest.mark.parametrize("variant", ["fo", "hf"])
@pytest.mark.parametrize("clients_per_round", [None, 2])
def test_alpha_zero_is_uniform_fedavg_at_rate_beta_bit_for_bit(
    variant: str, clients_per_round: int | None, world: Any
) -> None:
    # The second mini-batches are those that FedAvg meets.
    meta = world.run(
        world.algorithm("perfedavg", alpha=0.0, beta=0.05, variant=variant),
        clients_per_round=clients_per_round,
    )
    plain = world.run(
        world.algorithm("fedavg", weighting="uniform"),
        clients_per_round=clients_per_round,
        training={"lr": 0.05},
    )
    assert meta.models[0]["global"].digest() == plain.models[0]["global"].digest()
    assert meta.totals == plain.totals


def test_running_statistics_are_those_of_fedavg_too(world: Any) -> None:
    nets = {"architectures": normed(world)}
    meta = world.run(world.algorithm("perfedavg", alpha=0.0), rounds=1, **nets)
    plain = world.run(world.algorithm("fedavg", weighting="uniform"), rounds=1, **nets)
    assert meta.models[0]["global"].buffers
    assert meta.models[0]["global"].digest() == plain.models[0]["global"].digest()


@pytest.mark.parametrize("variant", ["fo", "hf"])
def test_a_step_on_a_quadratic_is_that_of_its_closed_form(variant: str, world: Any) -> None:
    alpha, beta = 0.1, 0.05
    # The difference of two gradients is exact here, so a large one is; a small one would round more.
    algorithm = world.algorithm("perfedavg", alpha=alpha, beta=beta, variant=variant)
    if variant == "hf":
        algorithm = world.algorithm("perfedavg", alpha=alpha, beta=beta, variant=variant, delta=0.1)
    changes: dict[str, Any] = {**world.regression((X, Y)), "training": {"batch_size": 3}, "rounds": 1}
    start = _flat(world.parts(algorithm, **changes).initial()("mlp"))
    models = world.run(algorithm, **changes).models[0]
    gradient = _slope(start - alpha * _slope(start))
    if variant == "hf":  # the gradient of F(w - alpha grad F(w))
        gradient = gradient - alpha * HESSIAN @ gradient
    np.testing.assert_allclose(_flat(models["global"]), start - beta * gradient, rtol=1e-4)
    end = _flat(models["global"])
    np.testing.assert_allclose(_flat(models["personal"]), end - alpha * _slope(end), rtol=1e-4)


@pytest.mark.parametrize("variant", ["fo", "hf"])
def test_each_gradient_has_a_mini_batch_of_its_own(
    variant: str, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    alpha, beta, call = 0.1, 0.05, MetaDescent.__call__
    met: list[dict[str, tuple[Array, Array]]] = []

    def watched(self: MetaDescent, work: Any, batches: Any) -> Any:
        if batches["train"].x.device.type != "meta":  # where it is not the cost that is measured
            met.append(
                {name: (_with_ones(batch.x.numpy()), batch.labels.numpy()) for name, batch in batches.items()}
            )
        return call(self, work, batches)

    monkeypatch.setattr(MetaDescent, "__call__", watched)
    delta = {"delta": 0.1} if variant == "hf" else {}
    algorithm = world.algorithm("perfedavg", alpha=alpha, beta=beta, variant=variant, **delta)
    training = {"batch_size": 1, "steps": 3}
    changes: dict[str, Any] = {**world.regression((X, Y)), "training": training, "rounds": 1, "seed": 1}
    w = _flat(world.parts(algorithm, **changes).initial()("mlp"))
    end = _flat(world.run(algorithm, verify=False, **changes).models[0]["global"])
    assert len(met) == 3
    orders = {name: tuple(batches[name][1].item() for batches in met) for name in met[0]}
    assert len(set(orders.values())) == len(orders) == (3 if variant == "hf" else 2)
    for batches in met:
        gradient = _slope(w - alpha * _slope(w, *batches["ahead"]), *batches["train"])
        if variant == "hf":
            inputs, _ = batches["curvature"]
            gradient = gradient - alpha * 2 * inputs.T @ inputs @ gradient
        w = w - beta * gradient
    np.testing.assert_allclose(end, w, rtol=1e-4)


def test_local_steps_have_the_momentum_of_the_training(world: Any) -> None:
    meta = world.run(world.algorithm("perfedavg", alpha=0.0, beta=0.05), training={"momentum": 0.9}, rounds=1)
    plain = world.run(
        world.algorithm("fedavg", weighting="uniform"), training={"lr": 0.05, "momentum": 0.9}, rounds=1
    )
    assert meta.models[0]["global"].digest() == plain.models[0]["global"].digest()


def test_adaptation_is_plain_descent_whatever_the_training(world: Any) -> None:
    alpha, training = 0.1, {"batch_size": 3, "momentum": 0.9, "weight_decay": 0.1}
    algorithm = world.algorithm("perfedavg", alpha=alpha, adapt_steps=2)
    models = world.run(algorithm, training=training, rounds=1, **world.regression((X, Y))).models[0]
    w = _flat(models["global"])
    for _ in range(2):
        w = w - alpha * _slope(w)
    np.testing.assert_allclose(_flat(models["personal"]), w, rtol=1e-4)


def test_on_a_linear_loss_both_variants_are_one(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perfedavg, "label_loss", lambda logits, labels: logits[:, 0].mean())
    ends = []
    for variant in ("fo", "hf"):
        changes = {"models": ("linear", "linear"), "training": {"lr": 0.01}}
        result = world.run(world.algorithm("perfedavg", alpha=0.5, variant=variant), rounds=1, **changes)
        ends.append(_flat(result.models[0]["global"]))
    np.testing.assert_allclose(ends[0], ends[1], atol=1e-7)


def test_adaptation_changes_what_is_a_client_s_own_alone(world: Any) -> None:
    none, some = (_run(world, adapt_steps=steps) for steps in (0, 5))
    for client, models in some.models.items():
        assert models["global"].digest() == models["gm"].digest() == none.models[client]["global"].digest()
        assert none.models[client]["personal"].digest() == models["global"].digest()
        assert models["personal"].digest() != models["global"].digest()
    assert some.final.global_ == none.final.global_
    assert some.final.others["gm"] == none.final.others["gm"] == none.final.mean


def test_no_test_sample_is_adapted_to(world: Any) -> None:
    data = world.data()
    nobody: list[list[int]] = [[]] * 4
    usual, untested = (
        world.run(world.algorithm("perfedavg"), rounds=1, data=some)
        for some in (data, world.holding(data, "test", nobody))
    )
    assert usual.model_hash == untested.model_hash
