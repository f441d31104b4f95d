"""Fed-ET's nets: other bodies, one shared module, the sizes of the paper's table."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from fedsim.models import Architecture, Net
from fedsim.models.flops import forward
from fedsim.models.output_head import HeadConfig, Representation, finish
from fedsim.task import Task

MODULE = ["fc1.linear.weight", "fc1.linear.bias", "out.weight", "out.bias"]
"""Parameters of a module with one hidden layer."""

NETS: dict[str, tuple[str, dict[str, Any]]] = {
    "vgg19": ("vgg", {"depth": 19, "form": "fedma"}),
    "resnet18": ("resnet18", {"norm": "none"}),
    "resnet8": ("resnet8", {}),
    "cnn": ("cnn_ckt", {}),
}


def head_names(net: Net) -> list[str]:
    return [name for name, _ in net.head.named_parameters()]


@pytest.mark.parametrize(
    ("net", "classes", "expected"),
    [
        ("vgg19", 10, 20_879_306),
        ("vgg19", 100, 20_890_916),
        ("resnet18", 10, 11_488_842),
        ("resnet18", 100, 11_500_452),
        ("resnet8", 10, 5_221_962),
        ("resnet8", 100, 5_233_572),
        ("cnn", 10, 431_548),
        ("cnn", 100, 443_158),
    ],
)
def test_parameter_counts_are_those_of_the_specification(
    make: Callable[..., Architecture], net: str, classes: int, expected: int
) -> None:
    name, settings = NETS[net]
    architecture = make(name, Task((3, 32, 32), classes), representation={}, **settings)
    assert architecture.num_params == expected
    head = architecture.skeleton().head
    assert sum(p.numel() for p in head.parameters()) == {10: 329_610, 100: 341_220}[classes]


def test_an_adapter_stands_where_the_body_has_another_width_and_only_there() -> None:
    config = HeadConfig(representation=Representation(width=6, hidden=(4,)))
    for features, extra in ((6, 0), (3, 3 * 6 + 6)):
        net = finish({"flatten": nn.Flatten()}, features, Task((features,), 2), config)
        assert sum(p.numel() for p in net.body.parameters()) == extra
        assert head_names(net) == MODULE


def test_without_a_module_the_head_is_one_linear_layer() -> None:
    net = finish({"flatten": nn.Flatten()}, 3, Task((3,), 2))
    assert head_names(net) == ["weight", "bias"]


def test_a_projection_head_gives_the_features() -> None:
    config = HeadConfig(projection=5)
    net = finish({"flatten": nn.Flatten()}, 3, Task((3,), 2), config)
    shapes = {name: tuple(p.shape) for name, p in net.named_parameters()}
    assert shapes == {
        "body.projection.hidden.weight": (3, 3),
        "body.projection.hidden.bias": (3,),
        "body.projection.out.weight": (5, 3),
        "body.projection.out.bias": (5,),
        "head.weight": (2, 5),
        "head.bias": (2,),
    }
    x = torch.linspace(-1, 1, 12).reshape(4, 3)
    hidden, out = (net.get_submodule(f"body.projection.{name}") for name in ("hidden", "out"))
    assert torch.equal(net.features(x), out(torch.relu(hidden(x))))
    assert torch.equal(net(x), net.head(net.features(x)))


def test_the_net_of_moon_for_cifar_10(make: Callable[..., Architecture]) -> None:
    # conv 6, conv 16, FC 120, FC 84, then 84 -> 84 -> 256 -> 10.
    moon, plain = (make("lenet", Task((3, 32, 32), 10), **settings) for settings in ({"projection": 256}, {}))
    assert plain.num_params == 62_006
    assert moon.num_params == 62_006 - 850 + (84 + 1) * 84 + (84 + 1) * 256 + (256 + 1) * 10
    assert moon.below(-1).output_shape == (256,)
    assert (moon.layers[-2:], plain.layers[-2:]) == (("projection", "head"), ("fc2", "head"))
    extra = 2 * (84 * 84 + 84 * 256 + (256 - 84) * 10)
    assert forward(moon, 3).flops == forward(plain, 3).flops + 3 * extra


def test_a_representation_module_stands_behind_a_projection_head() -> None:
    config = HeadConfig(projection=5, representation=Representation(width=6, hidden=(4,)))
    net = finish({"flatten": nn.Flatten()}, 3, Task((3,), 2), config)
    assert [name for name, _ in net.body.named_children()] == ["flatten", "projection", "adapter"]
    assert head_names(net) == MODULE
