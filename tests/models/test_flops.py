import threading
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from fedsim.config import Config
from fedsim.errors import InvariantError
from fedsim.models import Architecture, ModelPlugin, Net, flops
from fedsim.models.base import named
from fedsim.models.cnn import Cnn
from fedsim.models.flops import Memory, forward, key_of, measure
from fedsim.models.lstm import LstmChars
from fedsim.models.mlp import PLUGIN as MLP
from fedsim.models.resnet import ResNet8
from fedsim.task import Task
from tests.conftest import there


class Wrapped(ModelPlugin[Config]):
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


def test_without_groups_the_count_is_that_of_pytorch() -> None:
    architecture = Architecture("cnn", Cnn(Cnn.Config()), Task((3, 32, 32), 10))
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


ATEN: Any = torch.ops.aten
IMAGES, TEXTS = Task((3, 16, 16), 10), Task((6,), 30, vocabulary=30)
NETS = {
    "cnn": Architecture("cnn", Cnn(Cnn.Config()), IMAGES),
    "resnet8": Architecture("resnet8", ResNet8(ResNet8.Config()), IMAGES),
    "lstm": Architecture("lstm", LstmChars(LstmChars.Config()), TEXTS),
}


def meta(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def step(architecture: Architecture, batch_size: int) -> None:
    net = architecture.skeleton().train()
    task = architecture.task
    x = meta(batch_size, *task.input_shape, dtype=getattr(torch, task.dtype))
    loss = nn.functional.cross_entropy(net(x), meta(batch_size, dtype=torch.int64))
    params: list[torch.Tensor] = list(net.parameters())
    gradients = list(torch.autograd.grad(loss, params))
    with torch.no_grad():
        torch._foreach_add_(params, gradients, alpha=-0.1)


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("batch_size", [1, 5])
def test_a_training_step_costs_the_same_with_and_without_memory(
    name: str, batch_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "resnet8" and batch_size == 1:
        batch_size = 2  # which BatchNorm needs
    monkeypatch.setattr(flops, "_MEMORY", Memory())
    first = measure(lambda: step(NETS[name], batch_size))
    again = measure(lambda: step(NETS[name], batch_size))
    monkeypatch.setattr(flops, "key_of", lambda *_: None)
    without = measure(lambda: step(NETS[name], batch_size))
    assert first == again == without
    assert first.flops > 0
    assert first.moved_bytes > 0


def test_numbers_of_other_types_are_other_arguments() -> None:
    x = meta(3, dtype=torch.int64)
    whole, real, truth = (key_of(ATEN.mul.Scalar, (x, number), {}) for number in (1, 1.0, True))
    assert len({whole, real, truth}) == 3


def test_forms_of_tensors_are_arguments() -> None:
    forms = [meta(2, 3), meta(3, 2), meta(3, 2).t(), meta(2, 3, dtype=torch.float64)]
    assert len({key_of(ATEN.relu.default, (x,), {}) for x in forms}) == 4
    assert key_of(ATEN.cat.default, ([meta(1), meta(2)],), {}) != key_of(
        ATEN.cat.default, ([meta(2), meta(1)],), {}
    )


@pytest.mark.parametrize(
    ("func", "args"),
    [
        (ATEN.t.default, (meta(2, 3),)),  # a view
        (ATEN.t_.default, (meta(2, 3),)),  # gives its argument another form
        (ATEN.split.Tensor, (meta(4), 2)),  # several views
        (ATEN.add.out, (meta(2), meta(2))),  # writes into another argument
        (ATEN.add.Tensor, (meta(2), torch.ones(()))),  # meets a value
        (ATEN._foreach_add_.List, ([meta(2)], [meta(2)])),  # writes into several
        (ATEN._assert_async.default, (meta(),)),  # gives nothing
    ],
    ids=lambda value: str(value) if not isinstance(value, tuple) else "",
)
def test_what_is_more_than_shapes_is_not_remembered(func: Any, args: tuple[Any, ...]) -> None:
    assert key_of(func, args, {}) is None


def test_what_is_given_a_generator_is_not_remembered() -> None:
    assert key_of(ATEN.bernoulli.default, (meta(2),), {"generator": torch.Generator()}) is None


def test_an_operation_in_place_gives_its_argument_back() -> None:
    memory, x = Memory(), meta(2)
    args = (x, meta(2))
    key = key_of(ATEN.add_.Tensor, args, {})
    memory.add(key, args, x, moved_bytes=4)
    other = (meta(2), meta(2))
    result, moved_bytes = there(memory.recall(key, other))
    assert result is other[0]
    assert moved_bytes == 4


def test_results_are_new_and_of_the_same_form() -> None:
    memory, x = Memory(), meta(4, 6).t()
    values = ATEN.max.dim(x, 0)
    key = key_of(ATEN.max.dim, (x, 0), {})
    memory.add(key, (x, 0), tuple(values), moved_bytes=1)
    (largest, where), _ = there(memory.recall(key, (x, 0)))
    assert largest.is_meta
    assert (largest.shape, largest.dtype) == ((4,), torch.float32)
    assert where.dtype == torch.int64
    assert there(memory.recall(key, (x, 0)))[0][0] is not largest


def test_values_are_not_remembered() -> None:
    memory, x = Memory(), meta(2)
    key = key_of(ATEN.relu.default, (x,), {})
    memory.add(key, (x,), torch.ones(2), moved_bytes=0)
    assert memory.get(key) is None


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedsim.models.flops.MAX_OUTCOMES", 2)
    memory, x = Memory(), meta(1)
    for number in range(3):
        memory.add(number, (x,), meta(1), moved_bytes=0)
    assert [memory.get(number) is not None for number in range(3)] == [False, False, True]


def test_the_default_type_is_an_argument() -> None:
    x = meta(2, dtype=torch.int64)
    before = key_of(ATEN.mul.Scalar, (x, 1.5), {})
    torch.set_default_dtype(torch.float64)
    try:
        assert key_of(ATEN.mul.Scalar, (x, 1.5), {}) != before
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_formula_that_comes_later_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    x = meta(3, 5)
    assert measure(lambda: torch.tanh(x)).flops == 0
    formulas = {**flops._FORMULAS, ATEN.tanh: lambda x, **_: 7 * x.numel()}
    monkeypatch.setattr(flops, "_FORMULAS", formulas)
    assert measure(lambda: torch.tanh(x)).flops == 7 * 15
