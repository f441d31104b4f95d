"""PyTorch's default initialisation, drawn from a generator that is passed in.

Each layer is initialised by its own ``reset_parameters``, whose draws from torch's global generator are
redirected to the given one. With the same seed the values are those that PyTorch would give, layer by layer,
children first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from fedsim.errors import DataError
from fedsim.models.no_compiler import DispatchMode

_OWN = "give it a method initialise(self, generator) that fills its parameters and buffers in place from it"


def initialise(net: nn.Module, generator: torch.Generator) -> None:
    """Fill every parameter and buffer of ``net`` in place.

    If a module has a method ``initialise(generator)``, it is called instead of its ``reset_parameters``; with
    ``fills_all = True``, that method also fills what the modules in it have.
    """
    before = torch.get_rng_state()
    with torch.no_grad(), DrawingFrom(generator):
        for name, module in _children_first("", net):
            own = _own_tensors(module)
            for tensor in own.values():
                _mark_unset(tensor)
            if fill := _fill(module, generator):
                fill()
            for part, tensor in own.items():
                if _is_unset(tensor):
                    raise DataError(f"{_named(name, module)} leaves {part!r} without start values: {_OWN}")
    if not torch.equal(before, torch.get_rng_state()):
        raise DataError(
            "a layer draws its start values from torch's global generator in a way that cannot be "
            f"redirected, or another thread drew from it meanwhile: {_OWN}"
        )


def missing_initialiser(net: nn.Module) -> str | None:
    """Return which module has nothing that sets its start values, and what to do; None if all are set."""
    for name, module in _children_first("", net):
        if _own_tensors(module) and _fill(module, None) is None:
            return f"{_named(name, module)} has no reset_parameters: {_OWN}"
    return None


class DrawingFrom(DispatchMode):
    """Passes a generator to every operation that would draw from the global one."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._generator = generator

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = dict(kwargs or {})
        # torch.randn and others have the argument in an overload of their own.
        also = f"{func._overloadname}_generator".removeprefix("default_")
        if also in func._overloadpacket.overloads():
            func = getattr(func._overloadpacket, also)
        if named.get("generator") is None and any(
            argument.name == "generator" for argument in func._schema.arguments
        ):
            named["generator"] = self._generator
        return func(*args, **named)


def _children_first(name: str, module: nn.Module) -> list[tuple[str, nn.Module]]:
    # In the order of constructors: a layer may overwrite the values of its children.
    if getattr(module, "fills_all", False):
        return [(name, module)]
    inside = [
        inner
        for child, own in module.named_children()
        for inner in _children_first(f"{name}.{child}".lstrip("."), own)
    ]
    return [*inside, (name, module)]


def _own_tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    deep = getattr(module, "fills_all", False)
    return {**dict(module.named_parameters(recurse=deep)), **dict(module.named_buffers(recurse=deep))}


def _fill(module: nn.Module, generator: torch.Generator | None) -> Callable[[], object] | None:
    if callable(own := getattr(module, "initialise", None)):
        return lambda: own(generator)
    reset = getattr(module, "reset_parameters", None) or getattr(module, "_reset_parameters", None)
    return reset if callable(reset) and _own_tensors(module) else None


def _mark_unset(tensor: torch.Tensor) -> None:
    """Fill a tensor with a value that no initialisation gives; booleans and unsigned integers have none."""
    if tensor.is_floating_point() or tensor.is_complex():
        tensor.fill_(float("nan"))
    elif tensor.dtype.is_signed:
        tensor.fill_(torch.iinfo(tensor.dtype).min)


def _is_unset(tensor: torch.Tensor) -> bool:
    if tensor.is_floating_point() or tensor.is_complex():
        return bool(tensor.isnan().any())
    return tensor.dtype.is_signed and bool((tensor == torch.iinfo(tensor.dtype).min).any())


def _named(name: str, module: nn.Module) -> str:
    return f"layer {name!r}, a {type(module).__name__}," if name else f"the net, a {type(module).__name__},"


class HeConv2d(nn.Conv2d):
    """A convolution with He's normal initialisation of its weight (fan-out), and with a bias of 0.

    With PyTorch's default initialisation the signal shrinks by a factor of about 2.4 in each layer with ReLU,
    unless a normalisation restores it: after 16 layers nothing is learned. With He's, which torchvision's
    nets use, its size stays the same (He et al., 2015, "Delving deep into rectifiers").
    """

    def initialise(self, generator: torch.Generator) -> None:
        """Fill the weight from ``generator``, and the bias with zero."""
        nn.init.kaiming_normal_(self.weight, mode="fan_out", nonlinearity="relu", generator=generator)
        if self.bias is not None:
            nn.init.zeros_(self.bias)


def start_by_he(net: nn.Module) -> None:
    """Make every convolution of ``net`` a :class:`HeConv2d`, which differs only in its initialisation."""
    for module in net.modules():
        if type(module) is nn.Conv2d:
            module.__class__ = HeConv2d
