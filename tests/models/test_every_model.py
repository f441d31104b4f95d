"""What holds for every model of the folder: it can be built, drawn, counted, trained, asked and cut."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from fedsim.data import FederatedData
from fedsim.data.client_split import Split
from fedsim.data.federated import Holdings
from fedsim.engine.cost import Costs
from fedsim.engine.execute import run
from fedsim.engine.jobs import ClientSamples, Fit, InlineSamples, Predict, Stream
from fedsim.engine.optimisers import Adam
from fedsim.engine.steps import Descent
from fedsim.engine.worker_state import Resources, Worker
from fedsim.errors import DataError
from fedsim.models import Architecture, composed
from fedsim.models.flops import forward
from fedsim.params import Model
from fedsim.plugins import available
from fedsim.rng import Key
from fedsim.task import Task

DENSE = Task((6,), 3)
IMAGES = Task((2, 16, 17), 3)
LARGE_IMAGES = Task((3, 32, 32), 3)
TEXTS = Task((5,), 3, vocabulary=7)
SHARED = {"width": 12, "hidden": [8, 5]}


@dataclass(frozen=True)
class Case:
    name: str
    task: Task
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return "-".join([self.name, *(f"{key}={value}" for key, value in self.settings.items())])


CASES = [
    Case("alexnet", IMAGES, {"hidden": 16}),
    Case("cnn", IMAGES),
    Case("cnn", IMAGES, {"representation": SHARED}),
    Case("cnn_ckt", IMAGES),
    Case("cnn_ckt", IMAGES, {"representation": SHARED}),
    Case("cnn_femnist", IMAGES, {"layers": 1}),
    Case("cnn_femnist", IMAGES, {"layers": 1, "projection": 5}),
    Case("cnn_femnist", IMAGES, {"layers": 4}),
    Case("lenet", IMAGES),
    Case("lenet", IMAGES, {"projection": 7}),
    Case("linear", DENSE),
    Case("lstm_chars", TEXTS, {"layers": 1, "hidden": 4}),
    Case("lstm_chars", TEXTS, {"layers": 3, "hidden": 4}),
    Case("lstm_text", TEXTS, {"hidden": 4, "state": "last"}),
    Case("lstm_text", TEXTS, {"hidden": 4, "representation": SHARED}),
    Case("mlp", DENSE, {"hidden": [4]}),
    Case("mlp", DENSE, {"hidden": [4], "projection": 5}),
    Case("mlp", DENSE, {"hidden": [4], "representation": SHARED}),
    Case("resnet18", IMAGES, {"width": 4}),
    Case("resnet18", IMAGES, {"width": 4, "norm": "none", "representation": SHARED}),
    Case("resnet8", IMAGES, {"width": 4}),
    Case("resnet8", IMAGES, {"width": 4, "norm": "group"}),
    Case("shufflenet", IMAGES),
    Case("vgg", LARGE_IMAGES, {"width": 4}),
    Case("vgg", LARGE_IMAGES, {"width": 4, "form": "imagenet"}),
    Case("vgg", LARGE_IMAGES, {"width": 4, "form": "fedma", "depth": 19, "representation": SHARED}),
]

every_model = pytest.mark.parametrize("case", CASES, ids=str)
one_of_each_model = pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            case,
            marks=pytest.mark.slow if case.name in {"shufflenet", *(one.name for one in CASES[:i])} else (),
        )
        for i, case in enumerate(CASES)
    ],
    ids=str,
)
"""The other settings of a model are slow: few models need them. So is shufflenet, which takes long."""
SIZE = 6


def resources_of(architecture: Architecture) -> Resources:
    task, generator = architecture.task, Key.root(3).numpy()
    shape = (SIZE, *task.input_shape)
    x = (
        generator.integers(0, task.vocabulary, shape)
        if task.vocabulary
        else generator.random(shape, np.float32)
    )
    y = generator.integers(0, task.num_outputs, SIZE)
    everything, nothing = np.arange(SIZE), np.arange(0)
    holdings: dict[Split, Holdings] = {
        "train": Holdings(np.array([0, SIZE]), everything),
        "val": Holdings(np.array([0, 0]), nothing),
        "test": Holdings(np.array([0, 0]), nothing),
    }
    data = FederatedData(task, x, y, nothing, nothing, 1, holdings)
    return Resources.of(data, {architecture.label: architecture}, "cpu")


def fit_of(model: Model, seed: int = 0) -> Fit:
    # Not shuffled, so that the seed makes a difference to layers that draw alone.
    stream = Stream(ClientSamples(0), 3, shuffled=False)
    # Adam's steps are of one size, so that small gradients are seen too.
    adam = {"model": Adam(0.01)}
    return Fit(Descent(), {"model": model}, ("model",), {"train": stream}, adam, 2, seed)


def bound(architecture: Architecture, model: Model) -> Any:
    return Worker(resources_of(architecture), threading.Event()).bind("test", model, trained=False).net


@pytest.fixture(scope="module")
def initial() -> Callable[[Architecture], Model]:
    drawn: dict[tuple[Any, ...], Model] = {}

    def start(architecture: Architecture) -> Model:
        key = (type(architecture.plugin), architecture.plugin.config, architecture.task)
        if key not in drawn:
            drawn[key] = architecture.initial(Key.root(0))
        return drawn[key]

    return start


GREY, COLOUR, FLAT = Task((1, 28, 28), 10), Task((3, 32, 32), 10), Task((64,), 10)
CHARACTERS, SPEECHES = Task((1, 28, 28), 62), Task((80,), 90, vocabulary=90)
TWEETS = Task((25,), 2, vocabulary=30_522)


@pytest.mark.parametrize(
    ("name", "task", "settings", "below", "head", "buffers"),
    [
        ("alexnet", GREY, {}, 20_084_416, 40_970, 0),
        ("alexnet", COLOUR, {}, 23_231_296, 40_970, 0),
        ("alexnet", GREY, {"hidden": 256}, 2_382_016, 2_570, 0),
        ("cnn", GREY, {}, 1_658_240, 5_130, 0),
        ("cnn", COLOUR, {}, 2_151_360, 5_130, 0),
        ("cnn_ckt", COLOUR, {}, 75_826, 510, 0),
        ("cnn_femnist", CHARACTERS, {}, 1_198_592, 7_998, 0),
        ("cnn_femnist", CHARACTERS, {"layers": 1}, 692_672, 7_998, 0),
        ("cnn_femnist", CHARACTERS, {"layers": 3}, 1_047_104, 7_998, 0),
        ("cnn_femnist", CHARACTERS, {"layers": 4}, 912_000, 7_998, 0),
        ("lenet", GREY, {}, 43_576, 850, 0),
        ("lenet", COLOUR, {}, 61_156, 850, 0),
        ("linear", FLAT, {}, 0, 650, 0),
        ("linear", GREY, {}, 0, 7_850, 0),
        ("lstm_chars", SPEECHES, {"layers": 1}, 273_104, 23_130, 0),
        ("lstm_chars", SPEECHES, {}, 799_440, 23_130, 0),
        ("lstm_chars", SPEECHES, {"layers": 4}, 1_852_112, 23_130, 0),
        ("lstm_text", TWEETS, {}, 2_367_828, 514, 0),
        ("lstm_text", TWEETS, {"representation": {"width": 256, "hidden": [256, 128]}}, 2_367_828, 98_946, 0),
        ("mlp", FLAT, {}, 24_832, 1_290, 0),
        ("resnet18", GREY, {}, 11_167_680, 5_130, 9_620),
        ("resnet18", COLOUR, {}, 11_168_832, 5_130, 9_620),
        ("resnet18", COLOUR, {"norm": "none"}, 11_159_232, 5_130, 0),
        ("resnet18", COLOUR, {"norm": "group"}, 11_168_832, 5_130, 0),
        ("resnet8", COLOUR, {}, 4_892_352, 5_130, 0),
        ("shufflenet", GREY, {}, 1_257_964, 10_250, 16_100),
        ("shufflenet", COLOUR, {}, 1_258_396, 10_250, 16_100),
        ("vgg", COLOUR, {"depth": 11, "form": "cifar"}, 9_225_984, 5_130, None),
        ("vgg", COLOUR, {"depth": 13, "form": "cifar"}, 9_410_880, 5_130, None),
        ("vgg", COLOUR, {"depth": 11, "form": "fedma"}, 9_745_792, 5_130, None),
        ("vgg", COLOUR, {"depth": 13, "form": "fedma"}, 9_930_304, 5_130, None),
        ("vgg", COLOUR, {"depth": 16, "form": "fedma"}, 15_240_000, 5_130, None),
        ("vgg", COLOUR, {"depth": 19, "form": "fedma"}, 20_549_696, 5_130, None),
        ("vgg", COLOUR, {"depth": 11, "form": "imagenet"}, 128_771_840, 40_970, None),
        ("vgg", COLOUR, {"depth": 13, "form": "imagenet"}, 128_956_736, 40_970, None),
    ],
)
def test_parameter_counts_are_those_of_the_specification(
    make: Callable[..., Architecture],
    name: str,
    task: Task,
    settings: dict[str, Any],
    below: int,
    head: int,
    buffers: int | None,
) -> None:
    architecture = make(name, task, **settings)
    net = architecture.skeleton()
    assert architecture.num_params == below + head
    assert sum(parameter.numel() for parameter in net.head.parameters()) == head
    if buffers is not None:
        assert sum(buffer.numel() for buffer in net.buffers()) == buffers


def test_every_model_of_the_folder_is_here() -> None:
    assert {case.name for case in CASES} == {found.name for found in available("fedsim.models")}


@one_of_each_model
def test_start_values_fit_the_skeleton_and_follow_from_the_key(
    make: Callable[..., Architecture], case: Case
) -> None:
    architecture = make(case.name, case.task, **case.settings)
    before = torch.get_rng_state()
    first, again, other = (architecture.initial(Key.root(seed)) for seed in (0, 0, 1))
    assert torch.equal(before, torch.get_rng_state())
    assert first.digest() == again.digest() != other.digest()
    assert first.is_finite()
    net = architecture.skeleton()
    assert {p.device.type for p in [*net.parameters(), *net.buffers()]} == {"meta"}
    assert architecture.skeleton() is not net
    assert [(name, array.shape) for name, array in first.params.items()] == [
        (name, tuple(p.shape)) for name, p in net.named_parameters()
    ]
    assert {(array.dtype.name, array.flags.writeable) for array in first.params.values()} == {
        ("float32", False)
    }
    assert list(first.buffers) == [name for name, _ in net.named_buffers()]


@one_of_each_model
def test_passes_and_steps_cost_operations(
    make: Callable[..., Architecture], initial: Callable[[Architecture], Model], case: Case
) -> None:
    architecture = make(case.name, case.task, **case.settings)
    one = forward(architecture, 1).flops
    assert one > 0
    costs, model = Costs(resources_of(architecture)), initial(architecture)
    assert costs.work(Predict(model, ClientSamples(0), 3)).total.flops == SIZE * one
    # Two steps of three samples; backward is at least as much as forward, and at most twice.
    assert 2 * SIZE * one <= costs.work(fit_of(model)).total.flops <= 3 * SIZE * one


@one_of_each_model
def test_training_changes_every_parameter_by_the_seed_alone(
    make: Callable[..., Architecture], initial: Callable[[Architecture], Model], case: Case
) -> None:
    architecture = make(case.name, case.task, **case.settings)
    worker, start = Worker(resources_of(architecture), threading.Event()), initial(architecture)
    fitted, again, other = (run(fit_of(start, seed), worker) for seed in (1, 1, 2))
    assert np.isfinite(fitted.loss)
    assert fitted.model.is_finite()
    still = [name for name, a in fitted.model.params.items() if np.array_equal(a, start.params[name])]
    assert still == []
    assert fitted.model.digest() == again.model.digest()
    net = architecture.skeleton()
    draws = any(type(module).__name__ == "Dropout" for module in net.modules())
    assert (fitted.model.digest() != other.model.digest()) == draws


@every_model
def test_one_sample_at_a_time_gives_the_logits_of_all(
    make: Callable[..., Architecture], initial: Callable[[Architecture], Model], case: Case
) -> None:
    architecture = make(case.name, case.task, **case.settings)
    worker, model = Worker(resources_of(architecture), threading.Event()), initial(architecture)
    alone, together = (run(Predict(model, ClientSamples(0), size), worker) for size in (1, SIZE))
    assert alone.shape == (SIZE, case.task.num_outputs)
    assert np.allclose(alone, together, rtol=1e-4, atol=1e-6)
    assert len(np.unique(together, axis=0)) == SIZE


@one_of_each_model
def test_logits_are_the_head_of_the_features_and_every_cut_composes(
    make: Callable[..., Architecture], initial: Callable[[Architecture], Model], case: Case
) -> None:
    architecture = make(case.name, case.task, **case.settings)
    net = bound(architecture, initial(architecture))
    x = torch.tensor(resources_of(architecture).data.x)
    with torch.no_grad():
        logits = net(x)
        assert net.features(x).ndim == 2
        assert torch.equal(logits, net.head(net.features(x)))
        for k in range(len(architecture.layers) + 1):
            lower, upper = net.part(0, k), net.part(k, len(architecture.layers))
            # Twice, in case a layer behind the cut writes into what it is given.
            given = lower(x)
            assert torch.equal(logits, upper(given))
            assert torch.equal(logits, upper(given))


@pytest.mark.parametrize("every_cut", [False, pytest.param(True, marks=pytest.mark.slow)])
@one_of_each_model
def test_a_cut_divides_values_and_work_and_its_parts_are_models(
    make: Callable[..., Architecture], initial: Callable[[Architecture], Model], case: Case, every_cut: bool
) -> None:
    architecture = make(case.name, case.task, **case.settings)
    model, whole = initial(architecture), forward(architecture, 2).flops
    worker = Worker(resources_of(architecture), threading.Event())
    logits = run(Predict(model, ClientSamples(0), 3), worker)
    last = len(architecture.layers) - 1
    for cut in range(1, last + 1) if every_cut else sorted({1, last}):
        lower, upper = architecture.below(cut), architecture.above(cut)
        below, above = lower.part_of(model), upper.part_of(model)
        assert [*below.params, *above.params] == list(model.params)
        assert [*below.buffers, *above.buffers] == list(model.buffers)
        assert forward(lower, 2).flops + forward(upper, 2).flops == whole
        features = run(Predict(below, ClientSamples(0), 3), worker)
        assert features.shape == (SIZE, *lower.output_shape)
        assert features.dtype == np.float32
        # The layout of channels, and so rounding, depends on a whole net.
        for its in (
            run(Predict(above, InlineSamples(features), 3), worker),
            run(Predict(composed(below, above), ClientSamples(0), 3), worker),
        ):
            np.testing.assert_allclose(its, logits, rtol=1e-4, atol=1e-5)
    # The features that losses see are those below the head.
    x = torch.tensor(resources_of(architecture).data.x)
    with torch.no_grad():
        np.testing.assert_allclose(bound(architecture, model).features(x), features, rtol=1e-4, atol=1e-5)


@every_model
def test_samples_of_another_kind_are_refused(make: Callable[..., Architecture], case: Case) -> None:
    others = [DENSE, IMAGES] if case.task.vocabulary else [TEXTS, Task((2, 32, 32), 3, vocabulary=5)]
    for task in others:
        with pytest.raises(DataError, match=rf"model '{case.name}' cannot take .*use '(mlp|lstm_text)'"):
            make(case.name, task, **case.settings).skeleton()


@pytest.mark.parametrize("state", ["last", "mean"])
def test_the_shared_module_has_one_shape_in_every_net(make: Callable[..., Architecture], state: str) -> None:
    shapes = []
    for case in CASES:
        if "representation" in case.settings:
            settings = dict(case.settings) | ({"state": state} if case.name == "lstm_text" else {})
            net = make(case.name, case.task, **settings).skeleton()
            shapes.append([(name, tuple(p.shape)) for name, p in net.head.named_parameters()])
    assert len(shapes) == 6
    assert all(one == other for one, other in pairwise(shapes))
    assert shapes[0] == [
        ("fc1.linear.weight", (8, 12)), ("fc1.linear.bias", (8,)),
        ("fc2.linear.weight", (5, 8)), ("fc2.linear.bias", (5,)),
        ("out.weight", (3, 5)), ("out.bias", (3,)),
    ]  # fmt: skip
