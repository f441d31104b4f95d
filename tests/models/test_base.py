import pytest
import torch

from fedsim.errors import DataError
from fedsim.models import Architecture, Net
from fedsim.models.base import named
from fedsim.plugins import load
from fedsim.task import Task

DIGITS = Task((64,), 10)
SMALL_IMAGES = Task((1, 28, 28), 10)
COLOUR_IMAGES = Task((3, 32, 32), 10)


def architecture(name: str, task: Task, **settings: object) -> Architecture:
    plugin = load("fedsim.models", name)
    return Architecture(name, plugin(plugin.Config(**settings)), task)  # type: ignore[arg-type]


def three_blocks() -> Net:
    blocks = {name: torch.nn.Linear(2, 2) for name in ("a", "b", "c")}
    return Net(named(**blocks), torch.nn.Linear(2, 3))


def test_the_nets_of_seed_002_are_an_mlp_with_one_hidden_layer_of_100_and_lenet() -> None:
    assert architecture("mlp", SMALL_IMAGES, hidden=[100]).num_params == 79_510
    lenet = architecture("lenet", COLOUR_IMAGES)
    assert lenet.num_params == 62_006
    # "400, 120, 84": the first is the flattened size, so no convolution is padded.
    linear = [m for m in lenet.skeleton().modules() if isinstance(m, torch.nn.Linear)]
    assert [layer.in_features for layer in linear] == [400, 120, 84]
    assert not any(m.padding[0] for m in lenet.skeleton().modules() if isinstance(m, torch.nn.Conv2d))


def test_linear_regression_is_linear_with_one_output() -> None:
    task = Task((60,), 1, kind="regression")
    net = architecture("linear", task).plugin.build(task)
    assert architecture("linear", task).num_params == 61
    assert net(torch.ones(5, 60)).shape == (5, 1)


@pytest.mark.parametrize(
    ("name", "smallest"),
    [
        ("lenet", 16), ("cnn", 4), ("cnn_ckt", 16), ("cnn_femnist", 6), ("alexnet", 15), ("resnet8", 8),
        ("resnet18", 8), ("shufflenet", 8), ("vgg", 32),
    ],
)  # fmt: skip
def test_the_smallest_image_works_and_a_smaller_one_or_a_flat_sample_teaches(
    name: str, smallest: int
) -> None:
    assert architecture(name, Task((1, smallest, smallest), 2)).num_params > 0
    for shape in [(1, smallest, smallest - 1), (1, smallest - 1, smallest), (64,), (8, 8)]:
        with pytest.raises(
            DataError, match=rf"model '{name}' cannot take .* at least {smallest} x {smallest} .*'mlp'"
        ):
            architecture(name, Task(shape, 2)).skeleton()


@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [
        (0, 4, ["body.a", "body.b", "body.c", "head"]),
        (0, 3, ["body.a", "body.b", "body.c"]),
        (3, 4, ["head"]),
        (1, 3, ["body.b", "body.c"]),
        (4, 4, []),
        (0, 0, []),
    ],
)
def test_a_part_of_a_net_has_its_modules_under_their_names(
    start: int, stop: int, expected: list[str]
) -> None:
    net = three_blocks()
    part = net.part(start, stop)
    names = [name.rpartition(".")[0] for name, _ in part.named_parameters() if name.endswith("weight")]
    assert names == expected
    assert all(value is net.get_parameter(name) for name, value in part.named_parameters())


@pytest.mark.parametrize("name", ["lstm_chars", "lstm_text"])
@pytest.mark.parametrize(
    "task", [Task((80,), 3), Task((2, 40), 3, vocabulary=9), Task((0,), 3, vocabulary=9)]
)
def test_what_is_no_text_is_refused_and_the_right_models_named(name: str, task: Task) -> None:
    with pytest.raises(DataError, match=rf"model '{name}' cannot take .* of shape .* needs texts.*'mlp'"):
        architecture(name, task).skeleton()
