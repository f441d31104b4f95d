from collections.abc import Callable

import pytest
from torch import nn

from fedsim.models import Architecture
from fedsim.task import Task

COLOUR = Task((3, 32, 32), 10)


def test_resnet8_has_ten_layers_with_weights_in_its_body_and_no_normalisation(
    make: Callable[..., Architecture],
) -> None:
    names = [name for name, _ in make("resnet8", COLOUR).skeleton().body.named_parameters()]
    # A stem, two in each of four stages, and three shortcuts, which nobody counts as layers.
    assert sum("downsample" not in name for name in names) + 1 == 10
    assert sum("downsample" in name for name in names) == 3
    assert not any("bn" in name or "norm" in name for name in names)


@pytest.mark.parametrize(("width", "groups"), [(64, 32), (32, 32), (12, 4), (3, 1)])
def test_a_narrow_net_has_as_many_groups_as_divide_its_channels(
    make: Callable[..., Architecture], width: int, groups: int
) -> None:
    net = make("resnet8", COLOUR, norm="group", width=width).skeleton()
    first = next(module for module in net.modules() if isinstance(module, nn.GroupNorm))
    assert (first.num_groups, first.num_channels) == (groups, width)
