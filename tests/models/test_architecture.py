from typing import Any

import numpy as np
import pytest
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
