import threading

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from fedsim.config import Config
from fedsim.errors import InvariantError
from fedsim.models import Architecture, ModelPlugin, Net
from fedsim.models.base import named
from fedsim.models.cnn import PLUGIN as CNN
from fedsim.models.flops import forward, measure
from fedsim.models.lenet import PLUGIN as LENET
from fedsim.models.mlp import PLUGIN as MLP
from fedsim.task import Task


class Wrapped(ModelPlugin[Config]):
    """Any layers in a row."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__(Config())
        self.layers = layers

    def build(self, task: Task) -> Net:
        return Net(named(**{f"layer{i}": layer for i, layer in enumerate(self.layers)}), nn.Identity())


class LastOfSequence(nn.Module):
    """The last output of a recurrent layer."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 5, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.lstm(x)[0]
        return output[:, -1]


class HandMade(nn.Module):
    """A matrix product spelt so that no counter sees it."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.empty(4, 8))

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.matrix)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x[:, None, :] * self.matrix).sum(-1)


def training_step(architecture: Architecture, batch_size: int) -> None:
    net = architecture.skeleton()
    x = torch.empty(batch_size, *architecture.task.input_shape, device="meta")
    torch.autograd.grad(net(x).sum(), list(net.parameters()))


@pytest.mark.parametrize("b", [1, 10, 32])
def test_an_mlp_counts_its_products(b: int) -> None:
    architecture = Architecture("mlp", MLP(MLP.Config()), Task((64,), 10))
    layers = [64 * 128, 128 * 128, 128 * 10]
    assert forward(architecture, b).flops == 2 * b * sum(layers)
    # Backward: each layer's weight gradient, and each layer's input gradient except the first's.
    assert measure(lambda: training_step(architecture, b)).flops == 2 * b * (
        2 * sum(layers) + sum(layers[1:])
    )


@pytest.mark.parametrize("b", [1, 8])
def test_convolutions_count_by_the_formula(b: int) -> None:
    cnn = Architecture("cnn", CNN(CNN.Config()), Task((1, 28, 28), 10))
    first, second = 28 * 28 * 32 * 25 * 1, 14 * 14 * 64 * 25 * 32
    full = 7 * 7 * 64 * 512 + 512 * 10
    assert forward(cnn, b).flops == 2 * b * (first + second + full)
    assert measure(lambda: training_step(cnn, b)).flops == 2 * b * (2 * first + 3 * second + 3 * full)
    lenet = Architecture("lenet", LENET(LENET.Config()), Task((3, 32, 32), 10))
    by_hand = 28 * 28 * 6 * 25 * 3 + 10 * 10 * 16 * 25 * 6 + 400 * 120 + 120 * 84 + 84 * 10
    assert forward(lenet, b).flops == 2 * b * by_hand


def test_without_groups_the_count_is_that_of_pytorch() -> None:
    architecture = Architecture("cnn", CNN(CNN.Config()), Task((3, 32, 32), 10))
    with FlopCounterMode(display=False) as reference:
        training_step(architecture, 4)
    assert measure(lambda: training_step(architecture, 4)).flops == reference.get_total_flops()


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(8, 16, 3, padding=1, groups=8),
        nn.Conv2d(8, 16, 3, padding=1, groups=2),
        nn.ConvTranspose2d(8, 16, 3, groups=2),
        nn.ConvTranspose2d(8, 16, 3),
    ],
)
def test_the_backward_pass_of_a_convolution_is_twice_its_forward_pass(
    layer: nn.Conv2d | nn.ConvTranspose2d,
) -> None:
    layer = layer.to("meta")
    x = torch.empty(2, 8, 6, 6, device="meta", requires_grad=True)
    once = measure(lambda: layer(x)).flops
    both = measure(lambda: torch.autograd.grad(layer(x).sum(), [x, layer.weight])).flops
    assert both == 3 * once > 0


def test_a_recurrent_layer_counts_on_the_meta_device() -> None:
    architecture = Architecture("lstm", Wrapped(LastOfSequence()), Task((7, 3), 5))
    # Four gates; the input's and the state's products at each of 7 steps.
    assert forward(architecture, 2).flops == 2 * 2 * 7 * 4 * (3 * 5 + 5 * 5)


def test_element_wise_work_and_look_ups_count_nothing() -> None:
    x = torch.empty(4, 4, device="meta")
    assert measure(lambda: torch.relu(x + x)).flops == 0
    architecture = Architecture("norm", Wrapped(nn.LayerNorm((4, 4))), Task((4, 4), 2))
    assert forward(architecture, 3).flops == 0


def test_work_of_another_thread_is_not_counted() -> None:
    def elsewhere() -> None:
        thread = threading.Thread(target=nn.Linear(3, 3), args=(torch.ones(1, 3),))
        thread.start()
        thread.join()

    assert measure(elsewhere).flops == 0


def test_a_layer_whose_work_would_be_free_is_refused() -> None:
    architecture = Architecture("odd", Wrapped(nn.Linear(8, 8), HandMade()), Task((8,), 4))
    with pytest.raises(
        InvariantError, match=r"'body.layer1' \(HandMade\) of architecture 'odd' .* counts no operations"
    ):
        forward(architecture, 2)


def test_a_layer_that_is_never_used_is_refused() -> None:
    class Idle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.idle = nn.Linear(8, 4), nn.Linear(8, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.used(x)
            return result

    with pytest.raises(InvariantError, match=r"'body.layer0.idle' \(Linear\)"):
        forward(Architecture("idle", Wrapped(Idle()), Task((8,), 4)), 2)
