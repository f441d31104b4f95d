"""APFL: the specification's sanity checks (5.D.11)."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedsim.algorithms.apfl import ALPHA, MAY_MOVE, OWN, SHARED, ClientState, Interpolated
from fedsim.engine.losses import TRAIN, Batch
from fedsim.engine.optimisers import Sgd
from fedsim.engine.steps import Work
from fedsim.params import Model
from fedsim.runtime.run import RunResult

PLAIN: dict[str, Any] = {"verify": False}


def _personal(result: RunResult) -> dict[int, bytes]:
    return {client: models["personal"].digest() for client, models in result.models.items()}


# Arithmetic


class _Line:
    """Gives ``x w``; the squared error of x = 1, y = 0 is ``w^2``, its gradient ``2 w``."""

    def __init__(self, w: float) -> None:
        self.params = {"w": torch.tensor([w], requires_grad=True)}

    def __call__(self, x: Tensor) -> Tensor:
        return x * self.params["w"]

    def at(self, params: Mapping[str, Tensor], *, moves_buffers: bool) -> Callable[[Tensor], Tensor]:
        return lambda x: x * params["w"]


def _stepped(step: Interpolated, times: int = 1) -> tuple[float, float, float]:
    """Return w, v and alpha after steps of size 0.1 from w = 1, v = 3 and alpha = 0.5."""
    models: Any = {SHARED: _Line(1.0), OWN: _Line(3.0)}
    sgd = {name: Sgd(0.1) for name in models}
    states = {name: sgd[name].start(list(models[name].params.values())) for name in models}
    outputs = {ALPHA: torch.tensor(0.5), MAY_MOVE: torch.tensor(1.0)}
    work = Work(models, (SHARED, OWN), {}, sgd, states, torch.Generator(), outputs)
    for _ in range(times):
        step(work, {TRAIN: Batch(torch.ones(1, 1), torch.zeros(1))})
    w, v = (float(models[name].params["w"].detach()) for name in (SHARED, OWN))
    return w, v, float(work.outputs[ALPHA])


def test_a_step_by_hand() -> None:
    # w falls by 0.1 * 2; the mixture is (3 + 0.8) / 2 = 1.9, where the gradient is 3.8.
    w, v, alpha = _stepped(Interpolated("round", 0.01, 0.0))
    assert w == pytest.approx(0.8)
    assert v == pytest.approx(3 - 0.1 * 0.5 * 3.8)
    assert alpha == pytest.approx(0.5 - 0.01 * (3 - 0.8) * 3.8)
    _, same, decayed = _stepped(Interpolated("round", 0.01, 2.0))
    assert same == v
    assert decayed == pytest.approx(alpha - 0.01 * 2.0 * 0.5)
    assert _stepped(Interpolated("never", 0.01, 0.0)) == (w, v, 0.5)


def test_alpha_moves_once_or_in_every_step() -> None:
    once, twice = (_stepped(Interpolated("round", 0.01, 0.0), times) for times in (1, 2))
    assert twice[2] == once[2]
    assert twice[1] < once[1]
    w, v, alpha = _stepped(Interpolated("step", 0.01, 0.0))
    assert alpha == once[2]
    mixture = alpha * v + (1 - alpha) * 0.8 * w
    after = _stepped(Interpolated("step", 0.01, 0.0), 2)
    assert after[2] == pytest.approx(alpha - 0.01 * (v - 0.8 * w) * 2 * mixture)


def test_alpha_stays_a_share() -> None:
    assert _stepped(Interpolated("round", 10.0, 0.0))[2] == 0.0
    assert _stepped(Interpolated("round", 10.0, -100.0))[2] == 1.0


def test_a_mixture_by_hand() -> None:
    def model(value: float) -> Model:
        return Model("mlp", {"w": np.full(2, value, np.float32)}, {"mean": np.full(1, value, np.float32)})

    state = ClientState(model(8.0), model(0.0), {ALPHA: np.array(0.25, np.float32)})
    assert state.mixture(state.shared).params["w"].tolist() == [2.0, 2.0]
    assert state.mixture(model(4.0)).buffers["mean"].tolist() == [5.0]


# Runs


def test_without_own_models_a_client_has_what_it_sent(world: Any) -> None:
    algorithm = world.algorithm("apfl", alpha=0.0, adapt="never")
    turns = world.recorded(algorithm, "train")
    result = world.run(algorithm, **PLAIN)
    sent = {client.client: reply.model.digest() for (client, *_), (_, reply) in turns}
    assert _personal(result) == sent


def test_the_server_has_the_same_models_for_every_alpha(world: Any) -> None:
    fedavg = world.algorithm("fedavg", weighting="uniform")
    wanted = world.results(fedavg, "merge")
    world.run(fedavg, rounds=2, **PLAIN)
    for params in ({}, {"alpha": 0.9, "adapt": "step"}):
        algorithm = world.algorithm("apfl", **params)
        merged = world.results(algorithm, "merge")
        world.run(algorithm, rounds=2, **PLAIN)
        assert [model.digest() for model in merged] == [model.digest() for model in wanted]


def test_a_client_that_was_never_asked_has_the_start_values(world: Any) -> None:
    result = world.run(world.algorithm("apfl"), clients_per_round=1, rounds=1, **PLAIN)
    start = world.parts(world.algorithm("apfl")).initial()("mlp").digest()
    assert sorted(digest == start for digest in _personal(result).values()) == [False, True, True, True]
