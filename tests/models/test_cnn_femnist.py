from collections.abc import Callable

from fedsim.models import Architecture
from fedsim.models.dropout import Dropout
from fedsim.task import Task

CHARACTERS = Task((1, 28, 28), 62)
"""Weights and biases of each: 32 of 1 channel, 64 of 32, 64 of 64."""


def test_dropout_follows_the_pooling_and_the_full_layer(make: Callable[..., Architecture]) -> None:
    net = make("cnn_femnist", CHARACTERS, conv_dropout=0.1).skeleton()
    found = {name: module.p for name, module in net.named_modules() if isinstance(module, Dropout)}
    assert found == {"body.pool.dropout": 0.1, "body.fc1.dropout": 0.5}
