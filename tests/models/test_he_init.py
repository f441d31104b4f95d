from collections.abc import Callable

import pytest
import torch
from torch import nn

from fedsim.models import Architecture
from fedsim.models.he_init import HeConv2d, start_by_he
from fedsim.rng import Key
from fedsim.task import Task


def test_the_law_is_he_s_normal_one_over_the_outputs() -> None:
    layer = HeConv2d(3, 64, 3)
    with torch.no_grad():
        layer.initialise(Key.root(0).torch())
        expected = nn.init.kaiming_normal_(
            torch.empty_like(layer.weight), mode="fan_out", nonlinearity="relu", generator=Key.root(0).torch()
        )
    assert torch.equal(layer.weight, expected)
    assert layer.weight.std().item() == pytest.approx((2 / (64 * 9)) ** 0.5, rel=0.05)
    assert layer.bias is not None
    assert not layer.bias.any()


def test_every_convolution_is_replaced_by_one_that_computes_the_same() -> None:
    inner = nn.Sequential(nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2, bias=False), nn.ReLU())
    net = nn.Sequential(nn.Conv2d(2, 4, (3, 1), dilation=2, padding_mode="reflect", padding=1), inner)
    before, x = {name: p.detach().clone() for name, p in net.named_parameters()}, torch.rand(2, 2, 9, 9)
    expected = net(x)
    start_by_he(net)
    assert [type(m) for m in net.modules() if isinstance(m, nn.Conv2d)] == [HeConv2d, HeConv2d]
    assert [name for name, _ in net.named_parameters()] == list(before)
    assert torch.equal(torch.func.functional_call(net, before, x), expected)


@pytest.mark.parametrize(
    ("name", "settings"),
    [("vgg", {"form": "fedma", "depth": 19}), ("resnet8", {}), ("resnet18", {"norm": "none"})],
)
def test_the_signal_survives_a_deep_body_without_normalisation(
    make: Callable[..., Architecture], name: str, settings: dict[str, object]
) -> None:
    architecture = make(name, Task((3, 32, 32), 10), width=8, **settings)
    model, net = architecture.initial(Key.root(0)), architecture.skeleton()
    values = {name: torch.tensor(array) for name, array in model.params.items()}
    convolutions = net.body[:5]
    below = {place: values[f"body.{place}"] for place, _ in convolutions.named_parameters()}
    x = torch.rand(8, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        signal = torch.func.functional_call(convolutions, below, x)
    assert 1e-2 < signal.std().item() < 1e2
