from collections.abc import Callable

import pytest
from torch import nn

from fedsim.models import Architecture
from fedsim.task import Task

GREY, COLOUR = Task((1, 28, 28), 10), Task((3, 32, 32), 10)


def buffer_values(architecture: Architecture) -> int:
    return sum(buffer.numel() for buffer in architecture.skeleton().buffers())


@pytest.mark.parametrize(("task", "expected"), [(GREY, 11_172_810), (COLOUR, 11_173_962)])
def test_resnet18_has_the_counts_of_the_specification(
    make: Callable[..., Architecture], task: Task, expected: int
) -> None:
    architecture = make("resnet18", task)
    assert architecture.num_params == expected
    assert buffer_values(architecture) == 9_620


@pytest.mark.parametrize(("name", "below"), [("resnet18", 11_159_232), ("resnet8", 4_892_352)])
def test_bodies_without_normalisation_have_the_counts_of_the_specification(
    make: Callable[..., Architecture], name: str, below: int
) -> None:
    architecture = make(name, COLOUR, norm="none")
    assert architecture.num_params == below + 512 * 10 + 10
    assert buffer_values(architecture) == 0


def test_resnet8_has_ten_layers_with_weights_in_its_body_and_no_normalisation(
    make: Callable[..., Architecture],
) -> None:
    names = [name for name, _ in make("resnet8", COLOUR).skeleton().body.named_parameters()]
    # A stem, two in each of four stages, and three shortcuts, which nobody counts as layers.
    assert sum("downsample" not in name for name in names) + 1 == 10
    assert sum("downsample" in name for name in names) == 3
    assert not any("bn" in name or "norm" in name for name in names)


def test_group_normalisation_has_the_parameters_of_batch_normalisation_and_no_buffers(
    make: Callable[..., Architecture],
) -> None:
    architecture = make("resnet18", COLOUR, norm="group")
    assert architecture.num_params == 11_173_962
    assert buffer_values(architecture) == 0
    assert not architecture.has_batch_norm


@pytest.mark.parametrize(("width", "groups"), [(64, 32), (32, 32), (12, 4), (3, 1)])
def test_a_narrow_net_has_as_many_groups_as_divide_its_channels(
    make: Callable[..., Architecture], width: int, groups: int
) -> None:
    net = make("resnet8", COLOUR, norm="group", width=width).skeleton()
    first = next(module for module in net.modules() if isinstance(module, nn.GroupNorm))
    assert (first.num_groups, first.num_channels) == (groups, width)
