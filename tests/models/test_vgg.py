from collections.abc import Callable

import pytest
import torch
from torch import nn

from fedsim.models import Architecture
from fedsim.models.dropout import Dropout
from fedsim.models.vgg import Grid
from fedsim.task import Task
from fedsim.torchvision_compat import torchvision_module

COLOUR = Task((3, 32, 32), 10)


@pytest.mark.parametrize("depth", [11, 19])
def test_the_imagenet_form_has_torchvisions_layers(make: Callable[..., Architecture], depth: int) -> None:
    with torch.device("meta"):
        theirs = getattr(torchvision_module("models.vgg"), f"vgg{depth}_bn")(num_classes=10)
    ours = make("vgg", COLOUR, form="imagenet", depth=depth).skeleton()
    assert [tuple(p.shape) for p in ours.parameters()] == [tuple(p.shape) for p in theirs.parameters()]
    assert sum(isinstance(module, Dropout) for module in ours.modules()) == 2
    assert not any(isinstance(module, nn.Dropout) for module in ours.modules())


@pytest.mark.parametrize("shape", [(2, 3, 1, 1), (2, 3, 7, 14), (1, 2, 10, 3)])
def test_the_grid_is_torchs_adaptive_pooling(shape: tuple[int, ...]) -> None:
    x = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(Grid()(x), nn.AdaptiveAvgPool2d(7)(x))


def test_any_channels_and_larger_images(make: Callable[..., Architecture]) -> None:
    net = make("vgg", Task((1, 64, 33), 7), width=2).plugin.build(Task((1, 64, 33), 7)).eval()
    assert net(torch.ones(2, 1, 64, 33)).shape == (2, 7)
    assert net.features(torch.ones(2, 1, 64, 33)).shape == (2, 16 * 2)


def test_a_width_scales_every_layer_below_the_head(make: Callable[..., Architecture]) -> None:
    net = make("vgg", COLOUR, width=16, form="imagenet").skeleton()
    widths = [module.out_channels for module in net.modules() if isinstance(module, nn.Conv2d)]
    assert widths == [16, 32, 64, 64, 128, 128, 128, 128]
    assert [m.out_features for m in net.modules() if isinstance(m, nn.Linear)] == [1024, 1024, 10]
