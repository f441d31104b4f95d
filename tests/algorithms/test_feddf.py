"""FedDF: the specification's sanity checks (5.C.1)."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from math import exp, log
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from fedsim.algorithms.base import Reply, Setting
from fedsim.algorithms.common.distillation import Distillation
from fedsim.algorithms.feddf import teacher_of
from fedsim.engine.losses import Batch
from fedsim.engine.optimisers import cosine
from fedsim.errors import UserError
from fedsim.params import Model
from fedsim.task import Task
from fedsim.wire import ModelUpdate
from tests.algorithms.stand_ins import Server
from tests.engine.conftest import Table

MLP = 64 * 16 + 16 + 16 * 10 + 10
LINEAR = 64 * 10 + 10


def _model(architecture: str, value: float) -> Model:
    return Model(architecture, {"w": np.full((2,), value, np.float32)})


def _reply(client: int, architecture: str, value: float, num_samples: int) -> Reply:
    message = ModelUpdate.of(_model(architecture, value), num_samples=num_samples)
    return Reply(client, 0, "train", 0, 0, 1.0, message)


STATE = {"a": _model("a", 9.0), "b": _model("b", 8.0), "c": _model("c", 7.0)}
REPLIES = [_reply(0, "a", 1, 10), _reply(1, "b", 5, 10), _reply(2, "a", 4, 20)]


class _Server(Server):
    """Evaluates and distils by saying so."""

    num_public = 3
    task = SimpleNamespace(num_outputs=10)
    architecture_of = staticmethod("aba".__getitem__)

    def initial_model(self, architecture: str) -> Model:
        return STATE[architecture]

    def __init__(self, accuracies: Mapping[float, float] | None = None) -> None:
        super().__init__(accuracies=accuracies or {}, asked=[])

    def public(self, positions: Any, *, labelled: bool = False) -> Any:
        assert positions.tolist() == [0, 1, 2]
        return labelled

    async def evaluate(self, model: Model, samples: bool) -> Any:
        assert samples
        return SimpleNamespace(accuracy=self.accuracies[float(model.params["w"][0])])

    async def predict_each(self, models: Any, samples: bool) -> Any:
        self.asked = [float(model.params["w"][0]) for model in models]
        return [np.zeros((3, 10), np.float32) for _ in models]

    async def fit(self, model: Model, **how: Any) -> Any:
        falling = how["optimiser"].inner
        assert falling == cosine(falling.inner, how["steps"])
        return SimpleNamespace(model=_model(model.architecture, float(model.params["w"][0]) + 100))


def _merged(algorithm: Any, server: Any = None) -> dict[str, float]:
    state = asyncio.run(algorithm.merge(server or _Server(), STATE, REPLIES))
    return {label: float(model.params["w"][0]) for label, model in state.items()}


def test_models_are_averaged_by_architecture(world: Any) -> None:
    assert _merged(world.algorithm("feddf", server_steps=0)) == {"a": 3.0, "b": 5.0, "c": 7.0}
    uniform = world.algorithm("feddf", server_steps=0, weighting="uniform")
    assert _merged(uniform) == {"a": 2.5, "b": 5.0, "c": 7.0}


def test_all_models_teach_and_all_prototypes_learn(world: Any) -> None:
    server = _Server()
    assert _merged(world.algorithm("feddf"), server) == {"a": 103.0, "b": 105.0, "c": 107.0}
    assert server.asked == [1.0, 5.0, 4.0]
    assert _merged(world.algorithm("feddf", distill_idle=False)) == {"a": 103.0, "b": 105.0, "c": 7.0}


def test_the_worst_may_be_left_out(world: Any) -> None:
    # Chance is a tenth, so 0.11 is not enough and 0.12 is.
    server = _Server({1.0: 0.11, 5.0: 0.12, 4.0: 0.5})
    assert _merged(world.algorithm("feddf", drop_worst=True), server) == {"a": 104.0, "b": 105.0, "c": 107.0}
    assert server.asked == [5.0, 4.0]
    nobody = _Server({1.0: 0.1, 5.0: 0.0, 4.0: 0.1})
    assert _merged(world.algorithm("feddf", drop_worst=True), nobody) == {"a": 9.0, "b": 8.0, "c": 7.0}
    assert nobody.asked == []


def test_a_teacher_by_hand() -> None:
    logits = [np.array([[0, 0]], np.float32), np.array([[2 * log(3), 0]], np.float32)]
    assert teacher_of(logits, "logits") == pytest.approx(np.array([[0.75, 0.25]]))  # the mean is ln 3
    assert teacher_of(logits, "probs") == pytest.approx(np.array([[(0.5 + 0.9) / 2, (0.5 + 0.1) / 2]]))
    assert teacher_of(logits, "losses") == pytest.approx(np.array([[[0.5, 0.5], [0.9, 0.1]]]))


def _gradient(loss: Any, logits: list[list[float]], teacher: Any) -> tuple[float, Any]:
    x = torch.tensor(logits, requires_grad=True)
    value = loss({"model": Table()}, {"public": Batch(x, None)}, {"teacher": torch.tensor(teacher)})
    value.backward()
    assert x.grad is not None
    return float(value.detach()), x.grad.numpy()


def test_mean_loss_by_hand_and_its_gradient_is_that_of_mean_probabilities() -> None:
    teachers = np.array([[[0.5, 0.5], [0.9, 0.1]], [[1.0, 0.0], [0.2, 0.8]]])
    logits = [[log(4.0), 0.0], [0.3, -0.4]]
    loss, gradient = _gradient(Distillation(), logits, teachers)
    _, expected = _gradient(Distillation(), logits, teachers.mean(axis=1))
    np.testing.assert_allclose(gradient, expected, rtol=1e-6)
    first = (0.5 * log(0.5 / 0.8) + 0.5 * log(0.5 / 0.2) + 0.9 * log(0.9 / 0.8) + 0.1 * log(0.1 / 0.2)) / 2
    q = exp(0.3) / (exp(0.3) + exp(-0.4))
    second = (log(1 / q) + 0.2 * log(0.2 / q) + 0.8 * log(0.8 / (1 - q))) / 2
    assert loss == pytest.approx((first + second) / 2, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("ensemble", ["logits", "probs", "losses"])
def test_one_model_learns_nothing_from_itself(ensemble: str, world: Any) -> None:
    def model(num_clients: int, **settings: Any) -> Model:
        algorithm = world.algorithm("feddf", ensemble=ensemble, **settings)
        seen = world.watched(algorithm)
        world.run(algorithm, num_clients=num_clients, rounds=2)
        found: Model = seen[0]["global"]
        return found

    alone, fedavg = model(1, server_steps=200), model(1, server_steps=0)
    for name, array in fedavg.params.items():
        np.testing.assert_allclose(alone.params[name], array, rtol=1e-5, atol=1e-6)
    several, average = model(4, server_steps=20), model(4, server_steps=0)
    assert max(np.abs(several.params[n] - a).max() for n, a in average.params.items()) > 0.005


def test_prototypes_travel_by_architecture_and_count_as_they_are(world: Any) -> None:
    algorithm = world.algorithm("feddf", server_steps=1)
    seen = world.watched(algorithm)
    totals = world.run(algorithm, models=("linear", "mlp")).totals
    assert totals.parameters_up == totals.parameters_down == 3 * 2 * (MLP + LINEAR)
    assert [(one["global"].architecture, one.get("personal")) for one in (seen[2], seen[3])] == [
        ("mlp", None),
        ("mlp", None),
    ]
    assert [seen[client]["personal"].architecture for client in (0, 1)] == ["linear", "linear"]
    assert seen[0]["global"] is seen[3]["global"]


def test_prototypes_are_measured_together_on_the_global_test_set(world: Any) -> None:
    algorithm = world.algorithm("feddf", server_steps=1)
    seen = world.watched(algorithm)
    result = world.run(algorithm, models=("linear", "mlp"), training={"epochs": 3})
    data = world.data()
    x, labels = data.x[data.global_test].reshape(-1, 64), data.y[data.global_test]
    hits = {}
    for label, model in (("linear", seen[0]["personal"]), ("mlp", seen[0]["global"])):
        values = dict(model.params)
        weight, bias = values.pop("head.weight"), values.pop("head.bias")
        features = x
        if values:
            inner_weight, inner_bias = values.values()
            features = np.maximum(x @ inner_weight.T + inner_bias, 0)
        hits[label] = float(((features @ weight.T + bias).argmax(axis=1) == labels).mean())
    sizes = data.sizes("train")
    few, many = int(sizes[:2].sum()), int(sizes[2:].sum())
    assert result.final.global_ == pytest.approx(hits["mlp"])
    expected = (few * hits["linear"] + many * hits["mlp"]) / (few + many)
    assert result.final.others == {"prototypes": pytest.approx(expected)}
    assert hits["linear"] != hits["mlp"]


def test_a_single_prototype_is_the_global_model(world: Any) -> None:
    assert not world.run(world.algorithm("feddf", server_steps=1)).final.others


def test_distilling_takes_the_servers_time(world: Any) -> None:
    short, long = (world.run(world.algorithm("feddf", server_steps=n), rounds=1) for n in (10, 100))
    none = world.run(world.algorithm("feddf", server_steps=0), rounds=1)
    assert none.simulated_s < short.simulated_s < long.simulated_s


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (ModelUpdate.of(_model("b", 1), 1), "architecture 'b', not 'a'"),
        (ModelUpdate.of(Model("a", {"w": np.zeros(3, np.float32)}), 1), "w: float32"),
    ],
)
def test_another_architecture_than_the_clients_is_rejected(message: Any, reason: str, world: Any) -> None:
    reply = Reply(0, 0, "train", 0, 0, 1.0, message)
    assert reason in world.algorithm("feddf").vet(_Server(), STATE, reply)


def test_settings_that_cannot_be(world: Any) -> None:
    data = replace(world.data(), public_labelled=False)
    with pytest.raises(UserError, match="write drop_worst = false"):
        world.run(world.algorithm("feddf", drop_worst=True), data=data)
    regression = Setting(Task((1,), 1, kind="regression"), {}, None, 5, True)  # type: ignore[arg-type]
    assert "probabilities of classes" in world.misfits(world.algorithm("feddf"), regression)


def test_unlabelled_public_samples_do(world: Any) -> None:
    data = replace(world.data(), public_labelled=False, public_at_clients=False)
    settings = {"rounds": 1}
    first = world.run(world.algorithm("feddf", server_steps=5), data=data, **settings)
    second = world.run(world.algorithm("feddf", server_steps=5), **settings)
    assert first.model_hash == second.model_hash
    assert first.totals.data_down == 0  # the server alone needs them
