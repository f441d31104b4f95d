from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from fedsim.models import Architecture, Net
from fedsim.models.base import named
from fedsim.models.cpu_layout import is_faster_channels_last, pool_before_relu
from fedsim.rng import Key
from fedsim.task import Task

ODD = [-0.0, 0.0, 1.0, -1.0, 0.5, float("inf"), -float("inf"), float("nan")]
"""Values of which windows have ties, nothing positive, or NaN."""
POOLS: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [{"kernel_size": 2}, {"kernel_size": 3, "stride": 1}, {"kernel_size": 2, "padding": 1}]
)


def _through(net: nn.Module, x: Tensor, flow: Tensor) -> tuple[Tensor, Tensor]:
    """Return the output, and the gradient of the input for one of the output that ``flow`` begins with."""
    x = x.clone().requires_grad_()
    y = net(x)
    (gradient,) = torch.autograd.grad(y, x, flow[: y.numel()].view_as(y))
    return y.detach(), gradient


def _bits(values: Tensor) -> Tensor:
    return values.contiguous().view(torch.int32)


def _numbers(count: int, seed: int) -> Tensor:
    """Return odd values, numbers of ordinary size, and any 32 bits, mixed."""
    generator = Key.root(seed).numpy()
    bits = generator.integers(0, 2**32, count, np.uint32).view(np.float32)
    usual = generator.standard_normal(count, np.float32)
    kinds = np.stack([generator.choice(np.array(ODD, np.float32), count), usual, bits])
    return torch.from_numpy(kinds[generator.integers(0, 3, count), np.arange(count)])


@given(st.integers(0, 2**32), POOLS, st.booleans(), st.booleans())
def test_pooling_first_keeps_values_and_the_bits_of_gradients(
    seed: int, pool: dict[str, Any], in_place: bool, channels_last: bool
) -> None:
    x, flow = _numbers(50, seed).view(1, 2, 5, 5), _numbers(128, seed + 1)
    if channels_last:
        x = x.contiguous(memory_format=torch.channels_last)
    # In place ReLU needs a layer before it, since it may not write into the input.
    net = nn.Sequential(nn.ELU(), nn.ReLU(in_place), nn.MaxPool2d(**pool))
    expected = _through(net, x, flow)
    pool_before_relu(net)
    assert [type(layer) for layer in net] == [nn.ELU, nn.MaxPool2d, nn.ReLU]
    found = _through(net, x, flow)
    # ReLU keeps a -0.0 in some places of a vector only, so an output of zero may change its sign.
    assert torch.equal(_bits(found[0] + 0.0), _bits(expected[0] + 0.0))
    assert torch.equal(_bits(found[1]), _bits(expected[1]))


class Piecewise(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.row = named(relu=nn.ReLU(), pool=nn.MaxPool2d(2))

    def forward(self, x: Tensor) -> Tensor:
        return self.row[1](self.row[0](x) - 1)  # type: ignore[no-any-return]


def test_only_rows_that_run_as_a_whole_are_changed_and_names_stay() -> None:
    body = named(
        first=named(conv=nn.Conv2d(1, 1, 1), relu=nn.ReLU(), pool=nn.MaxPool2d(2), drop=nn.Dropout()),
        places=named(relu=nn.ReLU(), pool=nn.MaxPool2d(2, return_indices=True)),
        own=Piecewise(),
        relu=nn.ReLU(),
    )
    pool_before_relu(body)
    orders = [list(row._modules) for row in (body, body.first, body.places, body.own.row)]  # type: ignore[union-attr]
    assert orders == [
        ["first", "places", "own", "relu"],
        ["conv", "pool", "relu", "drop"],
        ["relu", "pool"],
        ["relu", "pool"],
    ]
    assert list(dict(body.named_parameters())) == ["first.conv.weight", "first.conv.bias"]


class Viewing(nn.Module):
    """Flattens in a way that only one layout allows."""

    def forward(self, x: Tensor) -> Tensor:
        return x.view(len(x), -1)


@pytest.mark.parametrize(
    ("name", "settings", "faster"),
    [
        ("cnn", {}, True),
        ("lenet", {}, True),
        ("resnet8", {"width": 32, "norm": "batch"}, True),
        ("resnet8", {"width": 33}, False),
        ("resnet8", {"width": 32, "norm": "group"}, False),
        ("alexnet", {"hidden": 4}, False),
        ("mlp", {}, False),
    ],
)
def test_the_layout_suits_narrow_convolutions_without_group_normalisation(
    make: Callable[..., Architecture], name: str, settings: dict[str, Any], faster: bool
) -> None:
    assert is_faster_channels_last(make(name, Task((3, 16, 16), 3), **settings).skeleton()) is faster


def test_a_net_with_layers_of_ones_own_keeps_its_layout() -> None:
    conv, head = nn.Conv2d(2, 2, 1), nn.Linear(8, 3)
    assert is_faster_channels_last(Net(named(conv=conv, flat=nn.Flatten()), head))
    assert not is_faster_channels_last(Net(named(conv=conv, flat=Viewing()), head))
