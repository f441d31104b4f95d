from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedsim.data import FederatedData, Spreading, federate
from fedsim.data.base import Dataset
from fedsim.engine.jobs import (
    ClientSamples,
    GlobalTest,
    InlineSamples,
    PooledSamples,
    PublicBuffers,
    PublicSamples,
    Samples,
    Stream,
)
from fedsim.engine.worker_state import Resources, StoppedError, Worker, fetched, to_tensor, to_tree
from fedsim.errors import UserError
from fedsim.models import Architecture
from fedsim.models.cnn import Cnn
from fedsim.params import Model
from fedsim.rng import Key
from fedsim.task import Task
from tests.engine.conftest import Lab

INPUTS = (6,)
CPU = torch.device("cpu")
INLINE = InlineSamples(np.ones((4, 6), np.float32), np.arange(4))


def test_a_tensor_of_a_read_only_array_is_its_own() -> None:
    array = np.arange(4.0, dtype=np.float32)
    array.flags.writeable = False
    tensor = to_tensor(array, CPU)  # warnings are errors
    tensor += 1
    assert array.tolist() == [0, 1, 2, 3]
    assert to_tensor(array.reshape(2, 2).T, CPU).is_contiguous()


def test_a_tree_is_read_only() -> None:
    tree = to_tree({"w": torch.ones(2, requires_grad=True)})
    assert not tree["w"].flags.writeable
    assert tree["w"].tolist() == [1, 1]


def test_what_is_fetched_at_once_is_equal_and_its_own() -> None:
    tensors = [
        torch.tensor([True, False, True]),  # after these three bytes nothing is aligned any more
        torch.arange(3),
        torch.tensor(-0.0),
        torch.empty(0, 2),
        torch.rand(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
        torch.rand(3, 2, dtype=torch.float64).T,
    ]
    for copy, tensor in zip(fetched(tensors), tensors, strict=True):
        assert (copy.dtype, copy.shape) == (tensor.dtype, tensor.shape)
        assert copy.numpy().tobytes() == tensor.contiguous().numpy().tobytes()
        assert copy.data_ptr() % copy.itemsize == 0
        assert copy.untyped_storage().nbytes() == tensor.nbytes


def test_samples_are_found_where_they_belong(lab: Lab) -> None:
    train = lab.data.indices(1, "train")
    cases: list[tuple[Samples, int, list[int]]] = [
        (ClientSamples(1), 5, train.tolist()),
        (ClientSamples(0, "test"), 3, lab.data.indices(0, "test").tolist()),
        (ClientSamples(2), 0, []),
        (GlobalTest(), 5, lab.data.global_test.tolist()),
        (PublicSamples(np.array([3, 0])), 2, lab.data.public[[3, 0]].tolist()),
    ]
    for samples, num, rows in cases:
        assert lab.resources.num_samples(samples) == num
        x, y, found = lab.resources.tensors(samples)
        assert found is not None
        assert found.tolist() == rows
        np.testing.assert_array_equal(x[found].numpy(), lab.data.x[rows])
        if isinstance(samples, PublicSamples):
            assert y is None
        else:
            assert y is not None
            assert y[found].tolist() == lab.data.y[rows].tolist()


def test_inline_samples_bring_their_own_values(resources: Resources) -> None:
    x, y, rows = resources.tensors(INLINE)
    assert rows is None
    assert y is not None
    assert (x.shape, y.tolist(), resources.num_samples(INLINE)) == ((4, 6), [0, 1, 2, 3], 4)
    assert resources.tensors(InlineSamples(INLINE.x))[1] is None


def test_pooled_samples_are_everybodys_in_the_order_of_the_data_set(lab: Lab) -> None:
    flat = lab.data.holdings["train"].flat
    assert flat is not None
    some = sorted([*lab.data.indices(3, "train").tolist(), *lab.data.indices(1, "train").tolist()])
    cases = [
        (PooledSamples("train"), sorted(flat.tolist())),
        (PooledSamples("test"), sorted(i for k in range(4) for i in lab.data.indices(k, "test").tolist())),
        (PooledSamples("val"), []),
        (PooledSamples("train", (3, 1)), some),
        (PooledSamples("train", (2,)), []),
        (PooledSamples("train", ()), []),
    ]
    for samples, expected in cases:
        x, y, rows = lab.resources.tensors(samples)
        assert rows is not None
        assert y is not None
        assert rows.tolist() == expected
        assert lab.resources.num_samples(samples) == len(expected)
        assert y[rows].tolist() == lab.data.y[expected].tolist()
        np.testing.assert_array_equal(x[rows].numpy(), lab.data.x[expected])


def test_counts_cannot_be_trained_on(architectures: Mapping[str, Architecture]) -> None:
    counts = federate(
        Dataset(Task((6,), 3), sizes=np.array([4, 7])),
        None,
        Spreading(num_clients=2, shares=(1, 0, 0)),
        Key.root(0),
    )
    resources = Resources.of(counts, architectures, "cpu")
    assert resources.num_samples(ClientSamples(1)) == 7
    assert resources.num_samples(PooledSamples("train")) == 11
    assert resources.num_samples(PooledSamples("train", (1,))) == 7
    with pytest.raises(UserError, match=r"set engine\.executor = 'null'"):
        resources.tensors(ClientSamples(1))


def test_a_public_set_without_labels_gives_none(lab: Lab) -> None:
    resources = Resources.of(replace(lab.data, public_labelled=False), lab.architectures, "cpu")
    positions = np.array([3, 0])
    assert resources.tensors(PublicSamples(positions))[1] is None
    with pytest.raises(UserError, match=r"comes from another data set \(data\.public\.source\)"):
        resources.tensors(PublicSamples(positions, labelled=True))


def test_passes_skip_single_samples_only_where_batch_norm_is_trained(resources: Resources) -> None:
    streams = {"a": Stream(ClientSamples(3), 5), "b": Stream(ClientSamples(0), 4)}
    assert [len(one) for one in resources.passes(["mlp", "norm"], streams).values()] == [4, 3]
    assert [len(one) for one in resources.passes(["mlp"], streams).values()] == [5, 3]
    assert list(resources.passes([], streams)) == ["a", "b"]


@pytest.mark.parametrize("label", ["mlp", "norm", "counting", "lstm", "tied"])
def test_a_bound_net_computes_with_the_values_it_was_given(lab: Lab, label: str) -> None:
    x = torch.randn(3, 6, generator=Key.root(4).torch())
    for seed in (0, 1):
        model = lab.start(label, seed)
        net = lab.architectures[label].skeleton().eval()
        values = {name: torch.tensor(array) for name, array in {**model.params, **model.buffers}.items()}
        expected = torch.func.functional_call(net, values, (x,))
        bound = lab.worker.bind("place", model, trained=False)
        assert torch.equal(bound(x), expected)
        assert list(bound.params) == list(model.params)
        assert list(bound.buffers) == list(model.buffers)
        assert bound.features(x).shape[0] == 3


def test_a_net_that_runs_pools_before_relu_and_one_that_is_counted_does_not(data: FederatedData) -> None:
    cnn = Architecture("cnn", Cnn(Cnn.Config()), Task((1, 8, 8), 3))
    worker = Worker(Resources.of(data, {"cnn": cnn}, "cpu"), threading.Event())
    (block, *_) = worker.bind("place", cnn.initial(Key.root(0)), trained=True).net.body
    assert list(dict(block.named_children())) == ["conv", "pool", "relu"]
    assert list(dict(cnn.skeleton().body[0].named_children())) == ["conv", "relu", "pool"]


def test_binding_copies_so_a_model_is_never_written_into(lab: Lab) -> None:
    model = lab.start()
    before = model.digest()
    net = lab.worker.bind("place", model, trained=True)
    with torch.no_grad():
        for param in net.params.values():
            param.zero_()
    assert model.digest() == before


def test_a_net_is_built_once_for_each_place_and_architecture(lab: Lab) -> None:
    first = lab.worker.bind("a", lab.start(), trained=True)
    assert lab.worker.bind("a", lab.start(seed=1), trained=False) is first
    assert not first.net.training
    assert not any(param.requires_grad for param in first.params.values())
    assert lab.worker.bind("a", lab.start(), trained=True).net.training
    assert lab.worker.bind("b", lab.start(), trained=True) is not first
    assert lab.worker.bind("a", lab.start("norm"), trained=True) is not first


@pytest.mark.parametrize("label", ["mlp", "norm", "lstm", "tied"])
def test_a_model_at_other_parameters_is_that_model(lab: Lab, label: str) -> None:
    here, there = lab.start(label, 1), lab.start(label, 2)
    x = torch.randn(5, *INPUTS, generator=torch.Generator().manual_seed(3))
    other = lab.worker.bind("other", there, trained=True)
    expected = other(x)
    gradients = torch.autograd.grad(expected.square().sum(), list(other.params.values()))
    bound = lab.worker.bind("model", here, trained=True)
    params = {name: torch.tensor(array, requires_grad=True) for name, array in there.params.items()}
    logits = bound.at(params)(x)
    assert torch.equal(logits, expected)
    flown = torch.autograd.grad(logits.square().sum(), list(params.values()))
    assert all(map(torch.equal, flown, gradients))
    assert {name: value.tolist() for name, value in bound.params.items()} == {
        name: value.tolist() for name, value in here.params.items()
    }
    assert all(torch.equal(bound.buffers[name], torch.tensor(value)) for name, value in here.buffers.items())


def test_buffers_can_move_at_other_parameters_too(lab: Lab) -> None:
    x = torch.randn(5, *INPUTS, generator=torch.Generator().manual_seed(3))
    there = lab.start("norm", 2)
    other = lab.worker.bind("other", Model("norm", there.params, lab.start("norm", 1).buffers), trained=True)
    other(x)
    bound = lab.worker.bind("model", lab.start("norm", 1), trained=True)
    params = {name: torch.tensor(array, requires_grad=True) for name, array in there.params.items()}
    first, second = (bound.at(params, moves_buffers=True)(x).square().sum() for _ in range(2))
    other(x)
    assert all(torch.equal(bound.buffers[name], value) for name, value in other.buffers.items())
    assert all(one.any() for one in torch.autograd.grad(first + second, list(params.values())))


@pytest.mark.parametrize("public_buffers", ["frozen", "restored", "moving"])
def test_public_samples_move_buffers_only_where_they_may(lab: Lab, public_buffers: PublicBuffers) -> None:
    bound = lab.worker.bind("model", lab.start("norm"), trained=True, public_buffers=public_buffers)
    own, foreign = torch.randn(8, *INPUTS), 10 + 3 * torch.randn(8, *INPUTS)
    bound(own)
    before = {name: value.clone() for name, value in bound.buffers.items()}
    logits = bound.public(foreign)
    stayed = all(torch.equal(value, before[name]) for name, value in bound.buffers.items())
    assert stayed == (public_buffers != "moving")
    # What is normalised by the batch has a mean that the foreign samples cannot shift.
    evaluated = lab.worker.bind("predict", lab.start("norm"), trained=False)
    for name, value in before.items():
        evaluated.buffers[name].copy_(value)
    assert torch.equal(logits, evaluated(foreign)) == (public_buffers == "frozen")
    # A pass over own samples before the descent needs buffers that nobody has changed since.
    (bound(own).sum() + logits.sum()).backward()  # type: ignore[no-untyped-call]
    assert any(not torch.equal(value, before[name]) for name, value in bound.buffers.items())


def test_a_teacher_meets_public_samples_as_any_others(lab: Lab) -> None:
    teacher = lab.worker.bind("teacher", lab.start("norm"), trained=False, public_buffers="restored")
    x = torch.randn(4, *INPUTS)
    assert torch.equal(teacher.public(x), teacher(x))


def test_a_worker_gives_up_when_the_run_is_over(resources: Resources) -> None:
    stopping = threading.Event()
    worker = Worker(resources, stopping)
    worker.pause_point()
    stopping.set()
    with pytest.raises(StoppedError):
        worker.pause_point()
