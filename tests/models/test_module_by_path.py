"""Models from anybody's modules, by dotted path."""

import inspect
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
import torch
from torch import nn

import fedsim
from fedsim.errors import DataError, ScenarioError
from fedsim.models import Architecture
from fedsim.models.dropout import Dropout
from fedsim.models.module_by_path import adopted
from fedsim.rng import Key
from fedsim.task import Task
from tests.conftest import there

TASK = Task((64,), 10)
_NUMBERS: Iterator[int] = count()


class Plain(nn.Module):
    """What people write: values set in the constructor, parameters of its own, dropout, no fedsim."""

    ones: torch.Tensor

    def __init__(self, in_features: int, num_classes: int = 1000, hidden: int = 8) -> None:
        super().__init__()
        self.first = nn.Linear(in_features, hidden)
        nn.init.orthogonal_(self.first.weight)
        self.scale = nn.Parameter(torch.randn(hidden))
        self.register_buffer("ones", torch.ones(hidden))
        self.drop = nn.Dropout(0.25)
        self.last = nn.Linear(hidden, num_classes)

    def forward(self, x: torch.Tensor) -> Any:
        return self.last(self.drop(torch.relu(self.first(x)) * self.scale * self.ones))


class Deep(Plain):
    def __init__(self, in_features: int, num_classes: int) -> None:
        super().__init__(in_features, num_classes, hidden=int(torch.tensor([3.0]).item()))


class Squeezed(Plain):
    def forward(self, x: torch.Tensor) -> Any:
        return super().forward(x).squeeze()


class Two(Plain):
    def forward(self, x: torch.Tensor) -> Any:
        return super().forward(x), x


class Frozen(nn.Linear):
    def __init__(self, in_features: int, num_classes: int) -> None:
        super().__init__(in_features, num_classes)
        self.bias.requires_grad = False


class Doubles(nn.Linear):
    def __init__(self) -> None:
        super().__init__(64, 10, dtype=torch.float64)


class Counting(nn.Linear):
    """Its start values differ from one to the next."""

    def __init__(self) -> None:
        super().__init__(64, 10)
        nn.init.constant_(self.bias, next(_NUMBERS))


class Failing(nn.Linear):
    def __init__(self) -> None:
        raise RuntimeError("no such file")


def factory(num_classes: int, bias: bool = True) -> nn.Module:
    return nn.Linear(64, num_classes, bias)


def no_module() -> int:
    return 3


class NoModule:
    pass


def make(target: Any, task: Task = TASK, **params: Any) -> Architecture:
    plugin = there(adopted(f"{__name__}.{target.__name__}"))
    return Architecture("mine", plugin(plugin.Config(**params)), task)


def test_arguments_come_from_params_and_from_the_task() -> None:
    shapes = {name: tuple(p.shape) for name, p in make(Plain, hidden=5).structure.named_parameters()}
    assert shapes == {
        "body.module.scale": (5,),
        "body.module.first.weight": (5, 64),
        "body.module.first.bias": (5,),
        "body.module.last.weight": (10, 5),
        "body.module.last.bias": (10,),
    }
    assert make(factory, bias=False).num_params == 640


def test_params_are_stronger_than_the_task() -> None:
    with pytest.raises(DataError, match=r"returns torch.float32 \(1, 7\) for one sample of shape \(64,\)"):
        _ = make(Plain, num_classes=7).structure


def test_start_values_are_the_modules_own_and_follow_from_the_key() -> None:
    architecture = make(Plain)
    before = torch.get_rng_state()
    first, again, other = (architecture.initial(Key.root(seed)) for seed in (0, 0, 1))
    assert torch.equal(before, torch.get_rng_state())
    assert first.digest() == again.digest() != other.digest()
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(Key.root(0).torch().initial_seed())
        expected = Plain(64, 10)
    for name, parameter in expected.named_parameters():
        assert first.params[f"body.module.{name}"].tolist() == parameter.tolist(), name
    assert first.buffers["body.module.ones"].tolist() == [1] * 8


def test_a_constructor_may_look_at_values() -> None:
    assert make(Deep).structure.get_parameter("body.module.scale").shape == (3,)


def test_dropout_draws_from_the_jobs_generator() -> None:
    assert type(make(Plain).structure.get_submodule("body.module.drop")) is Dropout


class Flat(nn.Module):
    """Takes samples of any shape."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(1, 4)

    def forward(self, x: torch.Tensor) -> Any:
        return self.head(x.flatten(1).float().mean(1, keepdim=True))


@pytest.mark.parametrize(
    ("argument", "task", "value"),
    [
        ("input_shape", Task((3, 8, 8), 4), (3, 8, 8)),
        ("in_features", Task((3, 8, 8), 4), 192),
        ("in_channels", Task((3, 8, 8), 4), 3),
        ("num_classes", Task((64,), 4), 4),
        ("num_outputs", Task((64,), 4), 4),
        ("vocabulary", Task((5,), 4, vocabulary=9), 9),
    ],
)
def test_arguments_that_the_data_say(
    argument: str, task: Task, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []

    def made(**arguments: Any) -> nn.Module:
        given.append(arguments[argument])
        return Flat()

    asked = inspect.Parameter(argument, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    monkeypatch.setattr(made, "__signature__", inspect.Signature([asked]), raising=False)
    monkeypatch.setitem(globals(), "made", made)
    plugin = there(adopted(f"{__name__}.made"))
    Architecture("mine", plugin(plugin.Config()), task).skeleton()
    assert given[0] == value


def test_it_cannot_be_cut() -> None:
    fault = there(make(Plain).cut_fault(1))
    assert "its net, a WholeNet, computes in its own way" in fault.problem


@pytest.mark.parametrize(
    ("target", "params", "problem"),
    [
        (
            Plain,
            {"hiden": 3},
            "'hiden'; its arguments, which params gives, are: in_features, num_classes, hi",
        ),
        (Plain, {"hidden": "x"}, "Plain cannot be made: TypeError"),
        (Failing, {}, "Failing cannot be made: RuntimeError: no such file"),
        (Squeezed, {}, r"returns torch.float32 \(10,\) for one sample"),
        (Two, {}, "returns tuple for one sample"),
        (Doubles, {}, "parameter 'weight' is torch.float64, but models are float32"),
        (Frozen, {}, "parameter 'body.module.bias' is frozen"),
        (no_module, {}, "no_module returns int, and no torch.nn.Module"),
    ],
)
def test_what_cannot_be_used_says_why(target: Any, params: dict[str, Any], problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        _ = make(target, **params).structure


def test_a_sample_that_it_cannot_take() -> None:
    with pytest.raises(
        DataError, match=r"Plain cannot take a sample of shape \(1, 8, 8\) \(float32\): Runtim"
    ):
        _ = make(Plain, Task((1, 8, 8), 10)).structure


def test_start_values_that_follow_from_something_else() -> None:
    with pytest.raises(DataError, match="'bias' has other start values each time"):
        make(Counting).initial(Key.root(0))


def scenario(**model: Any) -> dict[str, Any]:
    return {
        "run": {"rounds": 1, "name": "x"},
        "models": {"mine": model},
        "fleet": [{"count": 2}],
        "data": {"limit": 60},
        "evaluation": {"every": 0},
    }


def test_a_scenario_names_a_class_by_its_path_or_gives_it() -> None:
    path = f"{__name__}.Plain"
    loaded = fedsim.load(scenario(name=Plain, params={"hidden": 4}))
    assert (loaded.models["mine"].name, loaded.models["mine"].params.hidden) == (path, 4)  # type: ignore[attr-defined]
    assert fedsim.load(loaded) == fedsim.load(scenario(name=path, params={"hidden": 4}))


def test_an_argument_that_no_scenario_can_hold_is_a_fault() -> None:
    with pytest.raises(ScenarioError, match=r"models\.mine\.params\.hidden: None is nothing that a scenario"):
        fedsim.load(scenario(name=Plain, params={"hidden": None}))


def test_a_class_that_is_no_module() -> None:
    with pytest.raises(ScenarioError, match=r"no model is called .*has PLUGIN, or a torch\.nn\.Module class"):
        fedsim.load(scenario(name=f"{__name__}.NoModule"))
    with pytest.raises(ScenarioError, match="no model is called"):
        fedsim.load(scenario(name=NoModule))


def test_a_run_is_the_same_for_any_number_of_workers() -> None:
    one, two = (fedsim.run(scenario(name=Plain), overrides={"engine.workers": n}) for n in (1, 2))
    assert one.summary["model_hash"] == two.summary["model_hash"]
