"""An architecture of a run: a model plugin applied to a task, under the label that messages carry.

A net's structure and its values are kept apart. The structure lives on torch's ``meta`` device, without
memory; values are parameter trees (:mod:`fedsim.params`), which the engine puts in place with
``functional_call``.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedsim.errors import DataError
from fedsim.models.base import ModelPlugin, Net
from fedsim.models.initialise import initialise, unfilled
from fedsim.models.no_compiler import free_meta_kernels
from fedsim.params import Array, Model, Tree, freeze
from fedsim.rng import Key
from fedsim.task import Task

MOST_PARAMS = 500_000_000
"""Most parameters of a model: as 32-bit floats they fit, with buffers and names, into the longest frame."""


@dataclass(frozen=True, eq=False)
class Architecture:
    """A labelled model plugin and the task that it is built for.

    Attributes:
        label: The name by which scenarios and messages know the architecture.
        plugin: The model.
        task: Shape of its input and output.
    """

    label: str
    plugin: ModelPlugin[Any]
    task: Task

    def skeleton(self) -> Net:
        """Return a new net on the meta device: structure without values.

        Raises:
            DataError: The model cannot take the task's samples, is too large for a message, or has a layer
                without start values.
        """
        free_meta_kernels()
        with torch.device("meta"):
            net = self.plugin.build(self.task).to("meta")
        num_params = sum(parameter.numel() for parameter in net.parameters())
        if num_params > MOST_PARAMS:
            raise DataError(
                f"model {self.label!r} has {num_params} parameters, but a message holds at most "
                f"{MOST_PARAMS}: make its layers narrower or fewer, or its samples smaller"
            )
        if (problem := unfilled(net)) is not None:
            raise DataError(f"model {self.label!r}: {problem}")
        return net

    def initial(self, key: Key) -> Model:
        """Return start values, drawn from ``key``; float32, frozen.

        Layers are initialised as by PyTorch, or by their own method ``initialise`` if they have one.

        Raises:
            DataError: The model cannot take the task's samples, or there is no memory for its values.
        """
        structure = self.structure
        try:
            net = _with_memory(structure)
        except (MemoryError, RuntimeError) as error:  # torch raises RuntimeError if memory runs out
            raise DataError(
                f"model {self.label!r} has {self.num_params} parameters, for which this computer has no "
                "memory: make its layers narrower or fewer, or its samples smaller"
            ) from error
        initialise(net, key.torch())
        return Model(self.label, _tree(net.named_parameters()), _tree(net.named_buffers()))

    def module(self, model: Model) -> Net:
        """Return a net with a model's values, on the CPU and in evaluation mode."""
        net = _with_memory(self.structure)
        with torch.no_grad():
            for name, tensor in (*net.named_parameters(), *net.named_buffers()):
                values = model.params[name] if name in model.params else model.buffers[name]
                tensor.copy_(torch.from_numpy(values.copy()))
        return net.eval()

    @cached_property
    def structure(self) -> Net:
        """A skeleton for looking at: it is one for all, so nobody may change it."""
        return self.skeleton()

    @cached_property
    def num_params(self) -> int:
        """Number of trainable scalars."""
        return sum(parameter.numel() for parameter in self.structure.parameters())

    @cached_property
    def has_batch_norm(self) -> bool:
        """Whether a forward pass in training mode changes buffers."""
        return any(isinstance(module, _BatchNorm) for module in self.structure.modules())


def _with_memory(net: Net) -> Net:
    """Return a net on the meta device with memory on the CPU; tensors used twice stay one tensor."""
    memory: dict[int, Any] = {
        id(tensor): torch.empty_like(tensor, device="cpu") for tensor in (*net.parameters(), *net.buffers())
    }
    for parameter in net.parameters():
        memory[id(parameter)] = nn.Parameter(memory[id(parameter)], parameter.requires_grad)
    # deepcopy takes the tensors in its memo instead of copying the originals.
    return deepcopy(net, memory)


def _tree(tensors: Any) -> Tree:
    arrays: dict[str, Array] = {name: tensor.detach().numpy() for name, tensor in tensors}
    return freeze(arrays)
