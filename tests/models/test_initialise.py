from collections.abc import Callable

import pytest
import torch
from torch import nn

from fedsim.errors import DataError
from fedsim.models import Architecture
from fedsim.models.initialise import HeConv2d, initialise, missing_initialiser, start_by_he
from fedsim.rng import Key
from fedsim.task import Task

LAYERS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(7, 5),
    "linear without bias": lambda: nn.Linear(7, 5, bias=False),
    "conv1d": lambda: nn.Conv1d(2, 3, 4),
    "grouped conv2d": lambda: nn.Conv2d(4, 6, (3, 2), groups=2),
    "conv transpose": lambda: nn.ConvTranspose2d(4, 6, 3, groups=2),
    "batch norm": lambda: nn.BatchNorm2d(3),
    "batch norm without affine": lambda: nn.BatchNorm1d(3, affine=False),
    "instance norm": lambda: nn.InstanceNorm2d(3, affine=True, track_running_stats=True),
    "group norm": lambda: nn.GroupNorm(2, 4),
    "layer norm": lambda: nn.LayerNorm((2, 3)),
    "rms norm": lambda: nn.RMSNorm(3),
    "embedding": lambda: nn.Embedding(6, 4, padding_idx=1),
    "lstm": lambda: nn.LSTM(3, 4, num_layers=2, bidirectional=True, proj_size=2),
    "gru": lambda: nn.GRU(3, 4, bias=False),
    "lstm cell": lambda: nn.LSTMCell(3, 4),
    "several": lambda: nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)
    ),
}


def same_generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("name", LAYERS)
def test_values_are_those_that_pytorch_draws_from_a_generator_of_the_same_seed(name: str) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(11)
        expected = LAYERS[name]().state_dict()
    layer = LAYERS[name]()
    with torch.no_grad():
        for tensor in [*layer.parameters(), *layer.buffers()]:
            tensor.fill_(9)  # so that a tensor left out is seen
    initialise(layer, same_generator(11))
    assert layer.state_dict().keys() == expected.keys()
    for key, tensor in layer.state_dict().items():
        assert torch.equal(tensor, expected[key]), key


class Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.empty(2))


class DrawnScale(Scale):
    def initialise(self, generator: torch.Generator) -> None:
        self.factor.normal_(generator=generator)


def test_a_layer_without_a_law_says_what_to_do() -> None:
    net = nn.Sequential(Scale())
    assert "layer '0', a Scale, has no reset_parameters: give it a method initialise" in str(
        missing_initialiser(net)
    )
    with pytest.raises(DataError, match=r"layer '0', a Scale, leaves 'factor' without start values"):
        initialise(net, same_generator(0))


class ResetScale(Scale):
    def reset_parameters(self) -> None:
        nn.init.normal_(self.factor)


class HalfResetScale(ResetScale):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros(1, dtype=torch.int64))


class GlobalScale(Scale):
    def reset_parameters(self) -> None:
        with torch.no_grad():
            self.factor.copy_(torch.randn(2, generator=torch.default_generator))


class RandomScale(Scale):
    def reset_parameters(self) -> None:
        with torch.no_grad():
            self.factor.copy_(torch.randn(2) + torch.randint(5, (2,)) + torch.rand_like(self.factor))


def test_an_own_layers_reset_parameters_draws_from_the_given_generator() -> None:
    layer = nn.Sequential(ResetScale())
    assert missing_initialiser(layer) is None
    initialise(layer, same_generator(5))
    [factor] = layer.parameters()
    assert torch.equal(factor, torch.empty(2).normal_(generator=same_generator(5)))


def test_what_reset_parameters_forgets_is_told() -> None:
    with pytest.raises(DataError, match="a HalfResetScale, leaves 'steps' without start values"):
        initialise(nn.Sequential(HalfResetScale()), same_generator(5))


def test_a_law_that_draws_from_the_global_generator_is_refused() -> None:
    with torch.random.fork_rng(devices=[]), pytest.raises(DataError, match="global generator"):
        initialise(GlobalScale(), same_generator(5))


def test_functions_that_make_tensors_draw_from_the_given_generator() -> None:
    layer, generator = RandomScale(), same_generator(5)
    before = torch.get_rng_state()
    initialise(layer, same_generator(5))
    expected = torch.randn(2, generator=generator) + torch.randint(5, (2,), generator=generator)
    assert torch.equal(layer.factor, expected + torch.rand(2, generator=generator))
    assert torch.equal(before, torch.get_rng_state())


def test_a_layer_may_overwrite_what_its_children_have_drawn() -> None:
    layer = nn.MultiheadAttention(4, 2)
    initialise(layer, same_generator(5))
    assert not layer.out_proj.bias.any()


def test_a_layer_may_bring_its_own_law() -> None:
    layer = DrawnScale()
    initialise(nn.Sequential(layer), same_generator(5))
    assert torch.equal(layer.factor, torch.empty(2).normal_(generator=same_generator(5)))


def test_a_buffer_of_an_unknown_type_counts_as_well() -> None:
    layer = nn.Module()
    layer.register_buffer("mask", torch.ones(3))
    with pytest.raises(DataError, match="a Module"):
        initialise(layer, same_generator(0))


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
