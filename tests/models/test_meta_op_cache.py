"""What is remembered is what torch says anew."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from fedsim.models import Architecture, flops
from fedsim.models.cnn import PLUGIN as CNN
from fedsim.models.flops import measure
from fedsim.models.lstm_chars import PLUGIN as LSTM
from fedsim.models.meta_op_cache import Memory, key_of
from fedsim.models.resnet8 import PLUGIN as RESNET
from fedsim.task import Task

ATEN: Any = torch.ops.aten
IMAGES, TEXTS = Task((3, 16, 16), 10), Task((6,), 30, vocabulary=30)
NETS = {
    "cnn": Architecture("cnn", CNN(CNN.Config()), IMAGES),
    "resnet8": Architecture("resnet8", RESNET(RESNET.Config()), IMAGES),
    "lstm": Architecture("lstm", LSTM(LSTM.Config()), TEXTS),
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
    known = memory.get(key)
    assert known is not None
    other = (meta(2), meta(2))
    assert known.results(other) is other[0]
    assert known.moved_bytes == 4


def test_results_are_new_and_of_the_same_form() -> None:
    memory, x = Memory(), meta(4, 6).t()
    values = ATEN.max.dim(x, 0)
    key = key_of(ATEN.max.dim, (x, 0), {})
    memory.add(key, (x, 0), tuple(values), moved_bytes=1)
    known = memory.get(key)
    assert known is not None
    largest, where = known.results((x, 0))
    assert largest.is_meta
    assert (largest.shape, largest.dtype) == ((4,), torch.float32)
    assert where.dtype == torch.int64
    assert known.results((x, 0))[0] is not largest


def test_values_are_not_remembered() -> None:
    memory, x = Memory(), meta(2)
    key = key_of(ATEN.relu.default, (x,), {})
    memory.add(key, (x,), torch.ones(2), moved_bytes=0)
    assert memory.get(key) is None


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedsim.models.meta_op_cache.MOST", 2)
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
