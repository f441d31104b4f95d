"""MOON: the specification's sanity checks (5.B.3)."""

from math import exp, log
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from fedsim.algorithms.contexts import ClientContext
from fedsim.algorithms.moon import Contrast, Moon
from fedsim.config import Config
from fedsim.engine.losses import Batch
from fedsim.engine.steps import Descent
from fedsim.models import Architecture, ModelPlugin, Net
from fedsim.models.base import named
from fedsim.models.mlp import PLUGIN as MLP
from fedsim.task import Task

LOGITS = torch.tensor([[2.0, -1.0], [0.5, 0.5]])
BATCH = Batch(torch.zeros(2, 1), torch.tensor([0, 1]))


def _live(*features: tuple[float, float]) -> Any:
    return SimpleNamespace(features=lambda x: torch.tensor(features), head=lambda features: LOGITS)


def _loss(mu: float, temperature: float, **models: Any) -> Tensor:
    return Contrast(mu, temperature)(models, {"train": BATCH}, {})


def test_the_contrast_is_log_2_where_previous_and_global_are_one() -> None:
    model, other = _live((1.0, 0.0), (0.3, 0.4)), _live((0.0, 1.0), (-1.0, 2.0))
    loss = _loss(0.5, 0.7, **{"model": model, "global": other, "previous 0": other})
    assert float(loss) == pytest.approx(float(F.cross_entropy(LOGITS, BATCH.labels)) + 0.5 * log(2))


def test_the_contrast_by_hand() -> None:
    # Cosines of 1 with the global model, of 0 and -1 with the two before.
    right, up, left = ((x, y) for x, y in ((3.0, 0.0), (0.0, 2.0), (-1.0, 0.0)))
    models = {
        "model": _live(right, right),
        "global": _live(right, right),
        "previous 0": _live(up, up),
        "previous 1": _live(left, left),
    }
    near, far, farther = exp(1 / 0.5), 1.0, exp(-1 / 0.5)
    contrast = -log(near / (near + far + farther))
    loss = _loss(2.0, 0.5, **models)
    assert float(loss) == pytest.approx(float(F.cross_entropy(LOGITS, BATCH.labels)) + 2 * contrast)


def test_a_client_remembers_its_last_models_also_when_they_get_lost(world: Any) -> None:
    algorithm = world.algorithm("moon", buffer=2)
    seen = world.recorded(algorithm, "models_of", lambda *call: call[2].previous)
    lost = lambda parcel, ordinal: parcel.receiver < 0 and ordinal == 3  # noqa: E731 - the second upload
    world.run(algorithm, num_clients=1, rounds=4, lost=lost, client_timeout_s=50.0)
    assert [len(previous) for previous in seen[:4]] == [1, 2, 2, 2]
    assert len({previous[0].digest() for previous in seen[:4]}) == 4


def test_a_client_trains_against_the_message_and_its_own_last_models(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit, train = ClientContext.fit, Moon.train
    given, jobs = list[Any](), list[Any]()  # in the same order: a client's turn begins with its job

    async def spying(self: Any, models: Any, **work: Any) -> Any:
        jobs.append((models, work))
        return await fit(self, models, **work)

    async def noting(self: Any, client: Any, state: Any, message: Any) -> Any:
        given.append((client.round, state, message))
        return await train(self, client, state, message)

    monkeypatch.setattr(ClientContext, "fit", spying)
    monkeypatch.setattr(Moon, "train", noting)
    world.run(world.algorithm("moon", mu=0.7, temperature=0.3, buffer=2), num_clients=2, rounds=3)
    assert len(jobs) == 6
    for (models, work), (number, state, message) in zip(jobs, given, strict=True):
        previous = {f"previous {age}": model for age, model in enumerate(state.previous)}
        assert len(previous) == number - 1
        frozen = {"global": message.model, **previous} if previous else {}
        digests = {name: model.digest() for name, model in models.items()}
        expected = {"model": message.model, **frozen}
        assert digests == {name: model.digest() for name, model in expected.items()}
        assert work["trained"] == ("model",)
        assert work["step"] == (Descent(Contrast(0.7, 0.3)) if previous else Descent())


def test_the_projection_head_is_trained_and_counted(world: Any) -> None:
    net = MLP(MLP.Config(hidden=(16,), projection=5))
    nets = {"mlp": Architecture("mlp", net, world.data().task)}
    runs = [
        world.run(world.algorithm("moon", mu=mu), rounds=2, architectures=nets, verify=False)
        for mu in (0.0, 1.0)
    ]
    scalars = (64 + 1) * 16 + (16 + 1) * 16 + (16 + 1) * 5 + (5 + 1) * 10
    assert runs[0].totals.parameters_up == 8 * scalars
    heads = [run.models[0]["global"].params["body.projection.out.weight"] for run in runs]
    assert (heads[0] != heads[1]).any()


def test_features_that_are_the_samples_are_refused(world: Any) -> None:
    (fault,) = world.parts(world.algorithm("moon"), models=("linear", "linear")).misfits()
    assert fault.path == "models.linear"
    assert "features" in str(fault)
    assert not list(world.parts(world.algorithm("moon")).misfits())


class Doubling(Net):
    """Gives twice what its head makes of its features."""

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = 2 * super().forward(x)
        return logits


class OfItsOwn(ModelPlugin[Config]):
    """A model that is more than its head on its features."""

    def build(self, task: Task) -> Net:
        flatten, hidden = nn.Flatten(), nn.Linear(task.num_inputs, 4)
        return Doubling(named(flatten=flatten, hidden=hidden), nn.Linear(4, task.num_outputs))


def test_a_net_that_computes_in_its_own_way_is_refused(world: Any) -> None:
    nets = {"mlp": Architecture("mlp", OfItsOwn(Config()), world.data().task)}
    (fault,) = world.parts(world.algorithm("moon"), architectures=nets).misfits()
    assert "a Doubling, computes in its own way" in str(fault)
