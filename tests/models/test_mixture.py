"""Mixtures of two models: what they compute, cost and hold, and what they are called."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedsim.config import Config
from fedsim.models import Architecture, Architectures, ModelPlugin, Net, mixed
from fedsim.models.base import dense, named
from fedsim.models.flops import forward
from fedsim.params import Model
from fedsim.rng import Key
from fedsim.task import Task

TASK = Task((6,), 3)


class Normed(ModelPlugin[Config]):
    def build(self, task: Task) -> Net:
        return Net(named(**dense(6, 5), norm=nn.BatchNorm1d(5)), nn.Linear(5, 3))


@pytest.fixture
def registry(make: Callable[..., Architecture]) -> Architectures:
    normed = Architecture("normed", Normed(Config()), TASK)
    return Architectures({"normed": normed, "mlp": make("mlp", TASK, hidden=[4])})


def _start(registry: Architectures, label: str, seed: int) -> Model:
    model = registry[label].initial(Key.root(seed))
    # Running statistics that are not those of every start.
    buffers = {name: np.asarray(array + seed, array.dtype) for name, array in model.buffers.items()}
    return Model(label, model.params, buffers)


def _outputs(registry: Architectures, model: Model, x: Tensor) -> Tensor:
    with torch.no_grad():
        outputs: Tensor = registry[model.architecture].module(model)(x)
    return outputs


@pytest.mark.parametrize("label", ["normed", "mlp"])
def test_outputs_are_mixed(label: str, registry: Architectures) -> None:
    first, second = _start(registry, "normed", 1), _start(registry, label, 2)
    both = mixed(first, second, 0.25)
    assert both.architecture == f"normed|{label}"
    x = torch.rand(7, 6, generator=Key.root(3).torch())
    by_hand = 0.25 * _outputs(registry, first, x) + 0.75 * _outputs(registry, second, x)
    assert torch.equal(_outputs(registry, both, x), by_hand)


def test_a_mixture_has_the_cost_and_the_values_of_both(registry: Architectures) -> None:
    architecture = registry["normed|mlp"]
    assert architecture is registry["normed|mlp"]
    assert architecture.num_params == registry["normed"].num_params + registry["mlp"].num_params
    assert architecture.has_batch_norm
    parts = sum(forward(registry[label], 8).flops for label in ("normed", "mlp"))
    assert forward(architecture, 8).flops == parts
    both, start = (
        mixed(_start(registry, "normed", 1), _start(registry, "mlp", 2), 0.25),
        architecture.initial(Key.root(0)),
    )
    for mine, its in ((both.params, start.params), (both.buffers, start.buffers)):
        assert {name: (array.shape, array.dtype) for name, array in mine.items()} == {
            name: (array.shape, array.dtype) for name, array in its.items()
        }
        assert list(mine) == list(its)


def test_mixtures_are_found_by_their_labels(registry: Architectures) -> None:
    starts = {label: _start(registry, label, 0) for label in registry}
    found = registry.start("mlp|normed", starts.__getitem__)
    assert found is not None
    assert found.digest() == mixed(starts["mlp"], starts["normed"], 0.5).digest()
    assert np.array_equal(found.buffers["head.weights"], [0.5, 0.5])
    assert list(registry) == ["normed", "mlp"]
    for label in (
        "mlp|",
        "|mlp",
        "mlp|other",
        "mlp|mlp|mlp",
        "mlp|mlp[1:]",
        "mlp|mlp[:1]",
        "mlp|mlp[:1]+mlp",
    ):
        assert registry.start(label, starts.__getitem__) is None
        with pytest.raises(KeyError):
            registry[label]
