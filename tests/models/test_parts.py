"""Parts of architectures and models: where they can be cut, what the parts are called, what they compute."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedsim.config import Config
from fedsim.engine.batched.dense_net import layers_of
from fedsim.errors import DataError
from fedsim.models import Architecture, Architectures, ModelPlugin, Net, composed, with_part
from fedsim.models.base import dense, named
from fedsim.params import Form, Model, PendingTree, mean_model
from fedsim.rng import Key
from fedsim.task import Task

TASK = Task((6,), 3)


class Private(ModelPlugin[Config]):
    def __init__(self, make: Callable[[], Net]) -> None:
        super().__init__(Config())
        self._make = make

    def build(self, task: Task) -> Net:
        return self._make()


def private(make: Callable[[], Net], task: Task = TASK) -> Architecture:
    return Architecture("net", Private(make), task)


def plain() -> Net:
    blocks = {"norm": nn.BatchNorm1d(6), **dense(6, 5, 4)}
    return Net(named(**blocks), nn.Linear(4, 3))


NET = private(plain)
"""Layers norm, fc1, fc2 and head; features 6, 5 and 4."""


@pytest.mark.parametrize(
    ("cut", "below", "above"),
    [
        (0, "net[:0]", "net"),
        (1, "net[:1]", "net[1:]"),
        (3, "net[:3]", "net[3:]"),
        (-1, "net[:3]", "net[3:]"),
        (-4, "net[:0]", "net"),
        (4, "net", "net[4:]"),
    ],
)
def test_labels_are_slices_and_the_whole_is_itself(cut: int, below: str, above: str) -> None:
    assert NET.layers == ("norm", "fc1", "fc2", "head")
    assert NET.cut_fault(cut) is None
    assert (NET.below(cut).label, NET.above(cut).label) == (below, above)
    assert NET.below(cut) is NET.below(cut)
    assert NET.below(4) is NET.above(0) is NET


def test_a_part_takes_and_gives_what_passes_at_the_cut() -> None:
    assert [NET.below(cut).output_shape for cut in range(5)] == [(6,), (6,), (5,), (4,), (3,)]
    assert [NET.above(cut).task.input_shape for cut in range(5)] == [(6,), (6,), (5,), (4,), (3,)]
    assert all(NET.above(cut).output_shape == (3,) for cut in range(5))
    assert (NET.below(1).has_batch_norm, NET.above(1).has_batch_norm) == (True, False)


def test_a_text_becomes_features_at_a_cut(make: Callable[..., Architecture]) -> None:
    words = make("lstm_text", Task((5,), 2, vocabulary=7), layers=1, hidden=4, embedding=3)
    assert words.layers == ("embedding", "lstm1", "state", "head")
    assert words.below(1).output_shape == (5, 4)  # with a mark behind the values
    upper = words.above(1).task
    assert (upper.input_shape, upper.vocabulary, upper.dtype) == ((5, 4), 0, "float32")
    lower, above = words.below(1), words.above(1)
    model = words.initial(Key.root(0))
    both = composed(lower.part_of(model), above.part_of(model))
    assert Architectures({"lstm_text": words})[both.architecture].task == words.task


def with_one_relu() -> Net:
    relu = nn.ReLU()
    blocks = {"fc1": nn.Linear(6, 5), "relu1": relu, "fc2": nn.Linear(5, 4), "relu2": relu}
    return Net(named(**blocks), nn.Linear(4, 3))


def test_a_block_that_stands_twice_is_two_layers() -> None:
    net = private(with_one_relu)
    assert net.layers == ("fc1", "relu1", "fc2", "relu2", "head")
    model, x = net.initial(Key.root(0)), torch.rand(2, 6, generator=Key.root(2).torch())
    with torch.no_grad():
        whole = net.module(model)(x)
    for cut in (2, 3, -1):
        lower, upper = net.below(cut), net.above(cut)
        below, above = lower.part_of(model), upper.part_of(model)
        assert [*below.params, *above.params] == list(model.params)
        assert torch.equal(stacked_by_hand(lower.module(below), upper.module(above), x), whole)


class Own(Net):
    """Computes in its own way."""

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.head(self.body(x) + x.mean())
        return result


class Pair(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x


class First(nn.Module):
    def forward(self, x: tuple[Tensor, Tensor]) -> Tensor:
        return x[0]


class Double(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.double()


class Summed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.sum(0)


class Body(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x


class Residual(nn.Sequential):
    """Blocks in a row, but what passes between them is not what they give."""

    def forward(self, x: Tensor) -> Tensor:
        for block in self:
            x = x + block(x)
        return x


def tied() -> Net:
    first, second = nn.Linear(6, 6), nn.Linear(6, 6)
    second.weight = first.weight
    return Net(named(first=first, second=second), nn.Linear(6, 3))


@pytest.mark.parametrize(
    ("make", "cut", "fault"),
    [
        (lambda: Own(named(fc=nn.Linear(6, 6)), nn.Linear(6, 3)), 1, "its net, a Own, computes in its own"),
        (lambda: Net(Body(), nn.Linear(6, 3)), 0, "its body, a Body, computes in its own way"),  # type: ignore[arg-type]
        (
            lambda: Net(Residual(nn.Linear(6, 6), nn.Linear(6, 6)), nn.Linear(6, 3)),
            1,
            "its body, a Residual, computes in its own way — let build",
        ),
        (plain, 5, "at 5: its layers are norm, fc1, fc2, head — cut it at 0 to 4"),
        (plain, -5, "at -5: its layers are"),
        (tied, 1, "above 'first': 'body.first.weight' belongs to layers on both sides"),
        (lambda: Net(named(two=Pair(), one=First()), nn.Linear(6, 3)), 1, "above 'two': .* tuple passes"),
        (lambda: Net(named(sum=Summed()), nn.Linear(6, 3)), 1, r"torch\.float32 \[6\] passes there"),
        (lambda: Net(named(wide=Double()), Body()), 1, r"float64 \[2, 6\] passes there — let each block"),
    ],
)
def test_a_net_that_cannot_be_cut_says_why(make: Callable[[], Net], cut: int, fault: str) -> None:
    architecture = private(make)
    why = architecture.cut_fault(cut)
    assert why is not None
    assert str(why).startswith("models.net: model 'net' cannot be cut")
    for side in (architecture.below, architecture.above):
        with pytest.raises(DataError, match=fault) as caught:
            side(cut)
        assert f"models.net: {caught.value}" == str(why)


def test_where_one_cut_is_impossible_others_may_be_possible() -> None:
    assert private(tied).cut_fault(2) is None
    assert private(lambda: Net(named(two=Pair(), one=First()), nn.Linear(6, 3))).cut_fault(2) is None


def test_a_part_is_not_cut_again() -> None:
    registry = Architectures({"net": NET})
    for label in ("net[:2]", "net[2:]", "net[:2]+net[2:]"):
        why = str(registry[label].cut_fault(1))
        assert f"{label!r} cannot be cut, since it is a part or has parts" in why


def test_a_part_of_a_model_goes_back_into_a_model() -> None:
    one, other = (NET.initial(Key.root(seed)) for seed in (0, 1))
    base, head = NET.below(-1).part_of(other), NET.above(-1).part_of(one)
    assert list(head.params) == ["head.weight", "head.bias"]
    assert head.buffers == {}
    assert "body.norm.running_mean" in base.buffers
    changed = with_part(one, base)
    assert changed.architecture == "net"
    assert list(changed.params) == list(one.params)
    assert with_part(changed, head).digest() == changed.digest()
    assert with_part(one, base, NET.above(-1).part_of(other)).digest() == other.digest()
    assert NET.below(4).part_of(one) is one
    with pytest.raises(ValueError, match=r"'net\[3:\]' is no part of .* 'net\[:3\]', .* no 'head.weight'"):
        with_part(base, head)


def test_a_part_is_taken_of_a_model_of_its_own_architecture() -> None:
    other = Model("big", NET.initial(Key.root(0)).params)
    upper = NET.above(2)
    assert upper.part_of(upper.initial(Key.root(0))).architecture == "net[2:]"
    for part, label in ((upper, "net"), (NET, "net"), (NET.above(0), "net")):
        with pytest.raises(ValueError, match=f"part of models '{label}', and this is a model 'big': take"):
            part.part_of(other)
    registry = Architectures({"net": NET})
    both = registry["net[:2]+net[2:]"]
    with pytest.raises(ValueError, match=r"part of models 'net\[:2\]\+net\[2:\]', and this"):
        both.part_of(other)


def test_a_part_of_other_shapes_does_not_go_into_a_model() -> None:
    wide = Architecture("wide", Private(lambda: Net(named(**dense(6, 7)), nn.Linear(7, 3))), TASK)
    head = wide.above(-1).part_of(wide.initial(Key.root(0)))
    with pytest.raises(
        ValueError,
        match=r"'head.weight' of 'wide\[1:\]' is of shape \(3, 7\), .* 'net' of \(3, 4\): take a part",
    ):
        with_part(NET.initial(Key.root(0)), head)


def test_a_part_of_a_pending_model_is_pending() -> None:
    model, computed = NET.initial(Key.root(0)), list[str]()

    def pending(name: str) -> PendingTree:
        tree = getattr(model, name)
        return PendingTree(Form.of(tree), lambda: computed.append(name) or tree)  # type: ignore[func-returns-value]

    late = Model("net", pending("params"), pending("buffers"))
    head, base = NET.above(-1).part_of(late), NET.below(-1).part_of(late)
    assert list(head.params) == ["head.weight", "head.bias"]
    assert isinstance(head.params, PendingTree)
    assert head.params.form is Form.of(NET.above(-1).part_of(model).params)
    assert computed == []
    assert head.digest() == NET.above(-1).part_of(model).digest()
    assert computed == ["params"]
    assert base.digest() == NET.below(-1).part_of(model).digest()
    assert computed == ["params", "buffers"]


def stacked_by_hand(lower: Net, upper: Net, x: Tensor) -> Tensor:
    with torch.no_grad():
        result: Tensor = upper(lower(x))
    return result


def test_one_net_stands_on_another(make: Callable[..., Architecture]) -> None:
    task = Task((3, 8, 8), 10)
    small, big = (make(name, task, width=4) for name in ("resnet8", "resnet18"))
    own, its = small.initial(Key.root(0)), big.initial(Key.root(1))
    lower, upper = small.below(1).part_of(own), big.above(1).part_of(its)
    both = composed(lower, upper)
    assert both.architecture == "resnet8[:1]+resnet18[1:]"
    registry = Architectures({"resnet8": small, "resnet18": big})
    architecture = registry[both.architecture]
    assert architecture is registry[both.architecture]
    assert architecture.task == task
    assert architecture.num_params == small.below(1).num_params + big.above(1).num_params
    assert list(architecture.initial(Key.root(0)).params) == list(both.params)
    assert list(architecture.initial(Key.root(0)).buffers) == list(both.buffers)
    x = torch.rand(2, 3, 8, 8, generator=Key.root(2).torch())
    by_hand = stacked_by_hand(small.below(1).module(lower), big.above(1).module(upper), x)
    with torch.no_grad():
        assert torch.equal(architecture.module(both)(x), by_hand)


def test_blocks_of_one_name_in_both_nets_stay_apart() -> None:
    model, registry = NET.initial(Key.root(0)), Architectures({"net": NET})
    twice = composed(NET.below(2).part_of(model), NET.above(2).part_of(model))
    x = torch.rand(2, 6, generator=Key.root(2).torch())
    with torch.no_grad():
        assert torch.equal(registry[twice.architecture].module(twice)(x), NET.module(model)(x))


def test_what_does_not_fit_is_not_composed() -> None:
    model, registry = NET.initial(Key.root(0)), Architectures({"net": NET})
    misfit = composed(NET.below(1).part_of(model), NET.above(2).part_of(model))
    with pytest.raises(DataError, match=r"takes features of shape \(5,\), and those are of shape \(6,\)"):
        registry[misfit.architecture]
    for lower, upper in ((model, model), (NET.above(1).part_of(model), NET.above(1).part_of(model))):
        with pytest.raises(ValueError, match=r"layers below a cut belongs: take architecture\.below\(cut\)"):
            composed(lower, upper)
    with pytest.raises(ValueError, match=r"where one of the layers above a cut belongs"):
        composed(NET.below(1).part_of(model), model)


def test_nets_of_linear_layers_are_still_that_when_composed(make: Callable[..., Architecture]) -> None:
    # So many of them are evaluated together.
    registry = Architectures({"mlp": make("mlp", TASK, hidden=[5, 4])})
    labels = ["mlp[:2]+mlp[2:]", "mlp[:2]", "mlp[2:]"]
    found = [layers_of(registry[label]) for label in labels]
    assert [len(layers or ()) for layers in found] == [3, 1, 2]


@pytest.mark.parametrize(
    "label",
    ["other", "other[:1]", "net[1:2]", "net[01:]", "net[0:]", "net[:4]", "net[-1:]", "net[:1][:1]", "net+net",
     "net[:1]+net", "net[1:]+net[:1]", "net[:1]+net[1:]+net[1:]", "net[:]", "net[" + 5000 * "1" + ":]", ""],
)  # fmt: skip
def test_what_is_no_label_of_a_part_is_unknown(label: str) -> None:
    registry = Architectures({"net": NET})
    with pytest.raises(KeyError):
        registry[label]
    assert label not in registry
    assert list(registry) == ["net"]


def test_start_values_of_parts_are_those_of_the_whole() -> None:
    model, registry = NET.initial(Key.root(0)), Architectures({"net": NET})
    starts: dict[str, Any] = {"net": model}
    assert registry.start("net", starts.__getitem__) is model
    part = registry.start("net[1:]", starts.__getitem__)
    assert part is not None
    assert part.digest() == NET.above(1).part_of(model).digest()
    for label in ("other", "net[9:]", "other[:1]", "net[:1]+net[1:]"):
        assert registry.start(label, starts.__getitem__) is None


def test_means_of_parts_are_parts_of_means() -> None:
    models = [NET.initial(Key.root(seed)) for seed in (0, 1)]
    base = NET.below(2)
    mean = mean_model([base.part_of(model) for model in models], [0.25, 0.75])
    assert mean.architecture == "net[:2]"
    assert mean.digest() == base.part_of(mean_model(models, [0.25, 0.75])).digest()
    with pytest.raises(ValueError, match="a mean needs one architecture"):
        mean_model([base.part_of(models[0]), models[1]], [0.5, 0.5])
    assert all(np.isfinite(array).all() for array in mean.params.values())
