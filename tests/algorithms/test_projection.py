"""A projection head, proven on an algorithm that compares what it gives and does nothing else.

*Nearby*, after MOON without its previous model: FedAvg whose clients stay near the global model's features.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from fedsim.algorithms.fedavg import FedAvg, FedAvgConfig
from fedsim.engine.losses import MODEL, TRAIN, Batches, Extras, Models, label_loss
from fedsim.engine.steps import Descent
from fedsim.models import Architecture
from fedsim.models.mlp import PLUGIN as MLP
from fedsim.runtime.parts import Parts
from fedsim.runtime.run import RunResult, run
from fedsim.wire import ModelUpdate


def nearby(models: Models, batches: Batches, extras: Extras) -> Tensor:
    """Cross-entropy, and how far features turn from the global model's."""
    model, batch = models[MODEL], batches[TRAIN]
    features = model.features(batch.x)
    turned = 1 - F.cosine_similarity(features, models["global"].features(batch.x)).mean()
    return label_loss(model.head(features), batch.labels) + turned


class Nearby(FedAvg):
    """See the module."""

    async def train(self, client: Any, state: Any, message: Any) -> Any:
        models = {MODEL: message.model, "global": message.model}
        fitted = await client.fit(models, trained=(MODEL,), step=Descent(loss=nearby))
        return state, ModelUpdate.of(fitted.model, num_samples=client.num_samples())


def nets(world: Any) -> dict[str, Architecture]:
    net = MLP(MLP.Config(hidden=(16,), projection=5))
    return {"mlp": Architecture("mlp", net, world.data().task)}


def made(world: Any, algorithm: type[FedAvg] = Nearby, **changes: Any) -> Parts:
    parts: Parts = world.parts(algorithm(FedAvgConfig()), verify=False, architectures=nets(world), **changes)
    return parts


def fingerprint(result: RunResult) -> tuple[Any, ...]:
    return result.trace_hash, result.model_hash, result.simulated_s, result.totals


@pytest.mark.slow
def test_the_head_is_counted_and_nothing_changes_a_bit(world: Any) -> None:
    first = run(made(world))
    assert first.totals.parameters_up == 12 * ((64 + 1) * 16 + (16 + 1) * 16 + (16 + 1) * 5 + (5 + 1) * 10)
    for workers in (1, 2, 4):
        for batching in ("auto", "off"):
            assert fingerprint(run(made(world, workers=workers, batching=batching))) == fingerprint(first)
    fedavg = run(made(world, FedAvg))
    assert fedavg.totals == first.totals
    assert fedavg.model_hash != first.model_hash
    assert fedavg.simulated_s < first.simulated_s  # the other model's features take their time


@pytest.mark.slow
def test_sockets_change_nothing(world: Any) -> None:
    result = world.run_every_way(lambda: Nearby(FedAvgConfig()), verify=False, architectures=nets(world))
    assert result.model_hash == run(made(world)).model_hash
