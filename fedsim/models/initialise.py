"""PyTorch's default initialisation, drawn from a generator that is passed in.

Every law is the one of the layer's own ``reset_parameters``, which draws from torch's global generator and so
cannot be used. With the same seed the values are those that PyTorch would give, layer by layer in the order
of the modules.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd

from fedsim.errors import InvariantError

Law = Callable[[Any, torch.Generator], None]


def initialise(net: nn.Module, generator: torch.Generator) -> None:
    """Fill every parameter and buffer of ``net`` in place.

    A module's own method ``initialise(generator)``, where it has one, replaces the law of its type.

    Raises:
        InvariantError: A module holds parameters or buffers, and neither it nor this file knows their law.
    """
    with torch.no_grad():
        for name, module in net.named_modules():
            if callable(own := getattr(module, "initialise", None)):
                own(generator)
            elif [*module.parameters(recurse=False), *module.buffers(recurse=False)]:
                _law_of(name, module)(module, generator)


def _law_of(name: str, module: nn.Module) -> Law:
    for kinds, law in _LAWS:
        if isinstance(module, kinds):
            return law
    kind = type(module).__name__
    raise InvariantError(
        f"layer {name!r} is a {kind}, whose initialisation is unknown — give it a method "
        f"initialise(self, generator) that fills its parameters and buffers in place from that generator"
    )


def _affine(module: nn.Linear | nn.Bilinear | _ConvNd, generator: torch.Generator) -> None:
    """Kaiming's uniform law with slope sqrt(5): bound ``1 / sqrt(fan_in)``, for weight and bias alike."""
    nn.init.kaiming_uniform_(module.weight, a=math.sqrt(5), generator=generator)
    if module.bias is not None:
        fan_in = module.weight[0].numel()
        bound = 1 / math.sqrt(fan_in) if fan_in else 0.0
        nn.init.uniform_(module.bias, -bound, bound, generator=generator)


def _recurrent(module: nn.RNNBase | nn.RNNCellBase, generator: torch.Generator) -> None:
    bound = 1 / math.sqrt(module.hidden_size)
    for weight in module.parameters(recurse=False):
        nn.init.uniform_(weight, -bound, bound, generator=generator)


def _embedding(module: nn.Embedding | nn.EmbeddingBag, generator: torch.Generator) -> None:
    nn.init.normal_(module.weight, generator=generator)
    if module.padding_idx is not None:
        module.weight[module.padding_idx].zero_()


def _norm(module: nn.Module, _: torch.Generator) -> None:
    for name, parameter in module.named_parameters(recurse=False):
        parameter.fill_(0.0 if name == "bias" else 1.0)
    for name, buffer in module.named_buffers(recurse=False):
        buffer.fill_(1.0 if name == "running_var" else 0.0)


_LAWS: tuple[tuple[tuple[type[nn.Module], ...], Law], ...] = (
    ((nn.Linear, _ConvNd), _affine),
    ((_NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm), _norm),
    ((nn.Embedding, nn.EmbeddingBag), _embedding),
    ((nn.RNNBase, nn.RNNCellBase), _recurrent),
)
