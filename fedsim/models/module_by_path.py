"""Models from anybody's ``torch.nn.Module``: a class, or a function that returns one, by its dotted path.

Its arguments are the parameters of the scenario. Arguments called as in :func:`_known` that the scenario
leaves out get their values from the task. Its start values are those that the module gives itself when it is
made, drawn from the run's generator. Its dropout layers (``nn.Dropout``) become fedsim's, which draw from
the job's generator.

Such a net has no named layers, so algorithms that cut nets, or look at their features, refuse it.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import cache, partial
from types import FunctionType
from typing import Any, ClassVar

import torch
from pydantic import ConfigDict
from torch import nn

from fedsim.config import Config, Writable
from fedsim.errors import DataError
from fedsim.models.base import ModelPlugin, Net, named
from fedsim.models.dropout import Dropout
from fedsim.models.initialise import DrawingFrom
from fedsim.plugins import at
from fedsim.quoting import with_type
from fedsim.task import Task


class Arguments(Config):
    """Arguments of a module, by name; which there are the module says."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Writable]


class WholeNet(Net):
    """A module as it is, which sets its own start values."""

    fills_all: ClassVar[bool] = True

    def __init__(self, make: Callable[[], nn.Module]) -> None:
        with DrawingFrom(torch.Generator()):
            super().__init__(named(module=make()), nn.Sequential())
        self.make = make

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what the module returns; as a method of its own it says that the net cannot be cut."""
        logits: torch.Tensor = self.body(x)
        return logits

    def initialise(self, generator: torch.Generator) -> None:
        """Take the values of a new module."""
        state = generator.get_state()
        made = named(module=self.make())
        generator.set_state(state)
        again = named(module=self.make()).state_dict(keep_vars=True)
        values = {**dict(made.named_parameters()), **dict(made.named_buffers())}
        for name, tensor in (*self.body.named_parameters(), *self.body.named_buffers()):
            tensor.copy_(values[name])
        for name, tensor in made.state_dict(keep_vars=True).items():
            if not torch.equal(tensor, again[name]):
                raise DataError(
                    f"{name.removeprefix('module.')!r} has other start values each time the module is made: "
                    "let its constructor draw by torch alone, without a generator of its own"
                )


class ModuleByPath(ModelPlugin[Arguments]):
    """Base of the plugins that are made of a module's class or function."""

    made_by: ClassVar[Callable[..., Any]]

    def build(self, task: Task) -> Net:
        """Return the module as a net, once it has given outputs for one sample."""
        cls = type(self)
        name = f"{cls.made_by.__module__}.{cls.made_by.__qualname__}"
        signature = inspect.signature(cls.made_by)
        given = self.config.model_extra or {}
        known = {key: value for key, value in _known(task).items() if key in signature.parameters}
        arguments = known | given
        try:
            signature.bind(**arguments)
        except TypeError as error:
            taken = ", ".join(signature.parameters) or "none"
            raise DataError(f"{name}: {error}; its arguments, which params gives, are: {taken}") from None
        try:
            net = WholeNet(partial(_made, cls.made_by, arguments)).to("meta")
        except DataError:
            raise
        except Exception as error:
            raise DataError(f"{name} cannot be made: {with_type(error)}") from error
        _check(net, task, name)
        return net


@cache
def _plugin_of(target: Callable[..., Any]) -> type[ModuleByPath]:
    body = {
        "made_by": staticmethod(target),
        "__module__": target.__module__,
        "__qualname__": target.__qualname__,
        "__doc__": target.__doc__,
    }
    return type(target.__name__, (ModuleByPath,), body)


def adopted(path: str) -> type[ModuleByPath] | None:
    """Return a plugin for the class of modules, or the function, at a dotted path; None for anything else."""
    target = at(path)
    is_module = isinstance(target, type) and issubclass(target, nn.Module)
    return _plugin_of(target) if is_module or isinstance(target, FunctionType) else None


def _known(task: Task) -> Mapping[str, Any]:
    """Return what a module may ask for by the name of an argument."""
    known: dict[str, Any] = {
        "input_shape": task.input_shape,
        "in_features": task.num_inputs,
        "num_classes": task.num_outputs,
        "num_outputs": task.num_outputs,
    }
    if len(task.input_shape) == 3:
        known["in_channels"] = task.input_shape[0]
    if task.vocabulary:
        known["vocabulary"] = task.vocabulary
    return known


def _made(make: Callable[..., Any], arguments: Mapping[str, Any]) -> nn.Module:
    with torch.device("cpu"):  # which lets constructors look at values
        module = make(**arguments)
    if not isinstance(module, nn.Module):
        raise DataError(f"{make.__qualname__} returns {type(module).__name__}, and no torch.nn.Module")
    for name, parameter in module.named_parameters():
        if parameter.dtype != torch.float32:
            raise DataError(f"parameter {name!r} is {parameter.dtype}, but models are float32")
    for layer in module.modules():
        if type(layer) is nn.Dropout and layer.p < 1:
            layer.__class__ = Dropout  # type: ignore[assignment]
    return module


def _check(net: Net, task: Task, name: str) -> None:
    x = torch.empty(1, *task.input_shape, dtype=getattr(torch, task.dtype), device="meta")
    try:
        with torch.no_grad():
            out = net.eval()(x)
    except Exception as error:
        raise DataError(
            f"{name} cannot take a sample of shape {task.input_shape} ({task.dtype}): {with_type(error)}"
        ) from error
    net.train()
    wanted = (1, task.num_outputs)
    if not isinstance(out, torch.Tensor) or tuple(out.shape) != wanted or out.dtype != torch.float32:
        is_tensor = isinstance(out, torch.Tensor)
        what = f"{out.dtype} {tuple(out.shape)}" if is_tensor else type(out).__name__
        raise DataError(
            f"{name} returns {what} for one sample of shape {task.input_shape}, but must return "
            f"torch.float32 {wanted}, a score for each class (for a regression, the prediction)"
        )
