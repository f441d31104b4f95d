from collections.abc import Callable

import pytest

from fedsim.models import Architecture
from fedsim.models.dropout import Dropout
from fedsim.task import Task

CONVOLUTIONS = [640, 110_784, 663_936, 884_992, 590_080]


@pytest.mark.parametrize(
    ("shape", "settings", "expected"),
    [
        ((1, 28, 28), {}, 20_125_386),
        ((3, 32, 32), {}, 23_272_266),
        ((1, 28, 28), {"hidden": 256}, sum(CONVOLUTIONS) + 2 * (256 * 256 + 256) + 256 * 10 + 10),
    ],
)
def test_parameter_counts_are_those_of_the_specification(
    make: Callable[..., Architecture], shape: tuple[int, ...], settings: dict[str, int], expected: int
) -> None:
    assert make("alexnet", Task(shape, 10), **settings).num_params == expected


def test_dropout_comes_before_both_wide_layers(make: Callable[..., Architecture]) -> None:
    net = make("alexnet", Task((1, 28, 28), 10), hidden=16, dropout=0.2).skeleton()
    found = {name: module.p for name, module in net.named_modules() if isinstance(module, Dropout)}
    assert found == {"body.fc1.dropout": 0.2, "body.fc2.dropout": 0.2}
