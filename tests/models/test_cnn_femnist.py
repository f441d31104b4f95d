from collections.abc import Callable

import pytest

from fedsim.models import Architecture
from fedsim.models.dropout import Dropout
from fedsim.task import Task

CHARACTERS = Task((1, 28, 28), 62)
CONVOLUTIONS = [320, 18_496, 36_928, 36_928]
"""Weights and biases of each: 32 of 1 channel, 64 of 32, 64 of 64."""


def test_two_convolutions_have_the_count_of_the_specification(make: Callable[..., Architecture]) -> None:
    assert make("cnn_femnist", CHARACTERS).num_params == 1_206_590


@pytest.mark.parametrize(("layers", "flat"), [(1, 32 * 13 * 13), (2, 64 * 144), (3, 64 * 121), (4, 64 * 100)])
def test_one_to_four_convolutions(make: Callable[..., Architecture], layers: int, flat: int) -> None:
    expected = sum(CONVOLUTIONS[:layers]) + flat * 128 + 128 + 128 * 62 + 62
    assert make("cnn_femnist", CHARACTERS, layers=layers).num_params == expected


def test_dropout_follows_the_pooling_and_the_full_layer(make: Callable[..., Architecture]) -> None:
    net = make("cnn_femnist", CHARACTERS, conv_dropout=0.1).skeleton()
    found = {name: module.p for name, module in net.named_modules() if isinstance(module, Dropout)}
    assert found == {"body.pool.dropout": 0.1, "body.fc1.dropout": 0.5}
