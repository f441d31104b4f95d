from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedsim.config import Config
from fedsim.models import Architecture, ModelPlugin, Net
from fedsim.models.base import named
from fedsim.models.mlp import PLUGIN as MLP
from fedsim.rng import Key
from fedsim.task import Task

TASK = Task((64,), 10)


class Normed(ModelPlugin[Config]):
    """A net with BatchNorm, and a head that uses a body's weight again."""

    def build(self, task: Task) -> Net:
        first = nn.Linear(task.num_inputs, task.num_outputs)
        second = nn.Linear(task.num_inputs, task.num_outputs)
        second.weight = first.weight
        return Net(
            named(norm=nn.BatchNorm1d(task.num_inputs), both=nn.ModuleList([first, second])), nn.Identity()
        )


def mlp() -> Architecture:
    return Architecture("small", MLP(MLP.Config()), TASK)


def test_a_skeleton_is_new_each_time_and_without_memory() -> None:
    architecture = mlp()
    first, second = architecture.skeleton(), architecture.skeleton()
    assert first is not second
    assert {p.device.type for p in first.parameters()} == {"meta"}


def test_start_values_are_frozen_float32_in_module_order_and_fit_the_skeleton() -> None:
    architecture = mlp()
    model = architecture.initial(Key.root(0))
    assert model.architecture == "small"
    assert list(model.params) == [name for name, _ in architecture.skeleton().named_parameters()]
    for name, parameter in architecture.skeleton().named_parameters():
        array = model.params[name]
        assert array.shape == tuple(parameter.shape)
        assert array.dtype == np.float32
        assert not array.flags.writeable
    bound = 1 / 64**0.5
    assert 0.99 * bound < np.abs(model.params["body.fc1.linear.weight"]).max() <= bound


def test_the_values_make_a_net_that_predicts() -> None:
    model = mlp().initial(Key.root(0))
    values = {name: torch.from_numpy(array.copy()) for name, array in model.params.items()}
    logits = torch.func.functional_call(mlp().skeleton(), values, torch.ones(3, 64))
    assert logits.shape == (3, 10)
    assert torch.isfinite(logits).all()


def test_buffers_and_tied_weights() -> None:
    architecture = Architecture("normed", Normed(Config()), TASK)
    model = architecture.initial(Key.root(0))
    assert [name.rpartition(".")[2] for name in model.buffers] == [
        "running_mean",
        "running_var",
        "num_batches_tracked",
    ]
    assert model.buffers["body.norm.num_batches_tracked"].dtype == np.int64
    assert np.array_equal(model.buffers["body.norm.running_var"], np.ones(64, np.float32))
    # The weight that is used twice appears, and counts, once.
    assert tuple(model.params) == (
        "body.norm.weight", "body.norm.bias", "body.both.0.weight", "body.both.0.bias", "body.both.1.bias",
    )  # fmt: skip
    assert architecture.num_params == 64 + 64 + 640 + 10 + 10


@pytest.mark.parametrize(("plugin", "expected"), [(Normed, True), (MLP, False)])
def test_batch_norm_is_found(plugin: type[ModelPlugin[Any]], expected: bool) -> None:
    assert Architecture("x", plugin(plugin.Config()), TASK).has_batch_norm is expected
