"""An architecture of a run: a model plugin applied to a task, under the label that messages carry.

A net's structure and its values are kept apart. The structure lives on torch's ``meta`` device, without
memory; values are parameter trees (:mod:`fedsim.params`), which the engine puts in place with
``functional_call``.
"""

from __future__ import annotations

from collections.abc import Hashable
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedsim import toml_writer
from fedsim.config import Config
from fedsim.errors import DataError, Fault
from fedsim.models.base import ModelPlugin, Net
from fedsim.models.flops import measure
from fedsim.models.initialise import initialise, missing_initialiser
from fedsim.models.no_compiler import free_meta_kernels
from fedsim.models.process_cache import cached
from fedsim.params import Array, Model, Tree, freeze, selected
from fedsim.rng import Key
from fedsim.task import Task
from fedsim.walk import is_own

MAX_PARAMS = 500_000_000
"""Most parameters of a model: as 32-bit floats they fit, with buffers and names, into the longest frame."""


@dataclass(frozen=True, eq=False)
class Architecture:
    """A labelled model plugin and the task that it is built for."""

    label: str
    plugin: ModelPlugin[Any]
    task: Task
    features: tuple[int, ...] | None = None

    def skeleton(self) -> Net:
        """Return a new net on the meta device: structure without values."""
        free_meta_kernels()
        with torch.device("meta"):
            net = self.plugin.build(self.task).to("meta")
        num_params = sum(parameter.numel() for parameter in net.parameters())
        if num_params > MAX_PARAMS:
            raise DataError(
                f"model {self.label!r} has {num_params} parameters, but a message holds at most "
                f"{MAX_PARAMS}: make its layers narrower or fewer, or its samples smaller"
            )
        if frozen := [name for name, parameter in net.named_parameters() if not parameter.requires_grad]:
            raise DataError(
                f"model {self.label!r}: parameter {frozen[0]!r} is frozen (requires_grad = False), but "
                "fedsim trains and sends all parameters of a model: leave requires_grad as it is, or keep "
                "frozen layers out of the model, and give their outputs as the samples of the data set"
            )
        if (problem := missing_initialiser(net)) is not None:
            raise DataError(f"model {self.label!r}: {problem}")
        return net

    def initial(self, key: Key) -> Model:
        """Return start values, drawn from ``key``; float32, frozen.

        Layers are initialised as by PyTorch, or by their own method ``initialise`` if they have one.
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

    def samples(self, count: int) -> Tensor:
        """Return samples without values, ``[count, *input_shape]`` on the meta device."""
        dtype = getattr(torch, self.task.dtype)
        return torch.empty(count, *self.task.input_shape, dtype=dtype, device="meta")

    @cached_property
    def layers(self) -> tuple[str, ...]:
        """Names of the layers in their order: the blocks, then the head."""
        # Unlike named_children(), _modules lists a block again that stands in several places.
        return (*self.structure.body._modules, "head")

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of what the net gives for one sample: of its logits, or of the features at a cut."""
        return (self.task.num_outputs,) if self.features is None else self.features

    def below(self, cut: int) -> Architecture:
        """Return the layers below a cut as an architecture, whose outputs are the features at the cut."""
        place = self._place(cut)
        return self if place == len(self.layers) else _part(self, 0, place)

    def above(self, cut: int) -> Architecture:
        """Return the layers above a cut as an architecture, whose samples are the features at the cut."""
        place = self._place(cut)
        return _part(self, place, len(self.layers)) if place else self

    def cut_fault(self, cut: int) -> Fault | None:
        """Return why the net cannot be cut there, see :meth:`below`, for an algorithm's ``misfits``."""
        return _cut_fault(self, cut)

    def part_of(self, model: Model) -> Model:
        """Return what a model has of this part of its architecture; pending as long as the model is."""
        if model.architecture == self.label:
            return model
        whole = self.plugin.whole.label if isinstance(self.plugin, _Layers) else self.label
        if model.architecture != whole:
            raise ValueError(
                f"{self.label!r} is a part of models {whole!r}, and this is a model {model.architecture!r}: "
                "take the part of its own architecture, architectures[model.architecture]"
            )
        params, buffers = self._names
        return Model(self.label, selected(model.params, params), selected(model.buffers, buffers))

    def _place(self, cut: int) -> int:
        if (fault := self.cut_fault(cut)) is not None:
            raise DataError(str(replace(fault, path="")))
        return cut % len(self.layers) if cut < 0 else cut

    @cached_property
    def value(self) -> tuple[Hashable, ...] | None:
        """What the net depends on, so that equal ones have equal nets in all runs; None if that is not known.

        It is known of fedsim's own models.
        """
        kind = type(self.plugin)
        is_known = is_own(kind) and vars(self.plugin).keys() == {"config"}
        return (kind, self.plugin.config, self.task) if is_known else None

    @cached_property
    def _names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        net = self.structure
        return tuple(dict(net.named_parameters())), tuple(dict(net.named_buffers()))

    @cached_property
    def structure(self) -> Net:
        """A skeleton for looking at: it is one for all runs, so nobody may change it."""
        return cached(self.value and ("structure", self.value), self.skeleton)

    @cached_property
    def num_params(self) -> int:
        """Number of trainable scalars."""
        return sum(parameter.numel() for parameter in self.structure.parameters())

    @cached_property
    def has_batch_norm(self) -> bool:
        """Whether a forward pass in training mode changes buffers."""
        return any(isinstance(module, _BatchNorm) for module in self.structure.modules())


class _Layers(ModelPlugin[Config]):
    """Some of the layers of another architecture, from ``start`` to before ``stop``."""

    def __init__(self, whole: Architecture, start: int, stop: int) -> None:
        super().__init__(Config())
        self.whole = whole
        self._start, self._stop = start, stop

    def build(self, task: Task) -> Net:
        return self.whole.plugin.build(self.whole.task).part(self._start, self._stop)


@lru_cache(maxsize=256)
def _part(whole: Architecture, start: int, stop: int) -> Architecture:
    """Return the first layers of an architecture, or the last ones."""
    layers, passing = _Layers(whole, start, stop), _passing(whole)
    if not start:
        return Architecture(f"{whole.label}[:{stop}]", layers, whole.task, tuple(passing[stop].shape[1:]))
    task = replace(whole.task, input_shape=tuple(passing[start].shape[1:]), vocabulary=0)
    return Architecture(f"{whole.label}[{start}:]", layers, task)


@lru_cache(maxsize=256)
def _passing(whole: Architecture) -> tuple[Any, ...]:
    """Return what passes at each cut of a net for two samples, without values, and the outputs."""
    net, passing = whole.skeleton().eval(), [whole.samples(2)]

    def run() -> None:
        for layer in (*net.body, net.head):
            passing.append(layer(passing[-1]))

    with torch.no_grad():
        measure(run)  # which does not run alike operations twice
    return tuple(passing)


@lru_cache(maxsize=256)
def _cut_fault(whole: Architecture, cut: int) -> Fault | None:
    net, layers = whole.structure, whole.layers

    def fault(problem: str, mend: str) -> Fault:
        return Fault(
            toml_writer.path("models", whole.label), f"model {whole.label!r} cannot be cut{problem}", mend
        )

    if "[" in whole.label:  # as in fedsim.models.parts
        return fault(", since it is a part or has parts", "cut a whole model at another place")
    own = ""
    if type(net).forward is not Net.forward or type(net).features is not Net.features:
        own = f"net, a {type(net).__name__}"
    elif type(net.body).forward is not nn.Sequential.forward:
        own = f"body, a {type(net.body).__name__}"
    if own:
        return fault(
            f": its {own}, computes in its own way",
            "let build() return a fedsim.models.Net of named blocks and a head, one after the other",
        )
    if not -len(layers) <= cut <= len(layers):
        return fault(f" at {cut}: its layers are {', '.join(layers)}", f"cut it at 0 to {len(layers)}")
    cut = cut % len(layers) if cut < 0 else cut
    if not cut:
        return None  # what passes there are the samples
    lower, upper = net.part(0, cut), net.part(cut, len(layers))
    above = {id(tensor) for tensor in (*upper.parameters(), *upper.buffers())}
    for name, tensor in (*lower.named_parameters(), *lower.named_buffers()):
        if id(tensor) in above:
            return fault(
                f" above {layers[cut - 1]!r}: {name!r} belongs to layers on both sides", "cut it elsewhere"
            )
    passed = _passing(whole)[cut]
    if isinstance(passed, Tensor) and passed.dtype == torch.float32 and passed.shape[:1] == (2,):
        return None
    what = f"{passed.dtype} {list(passed.shape)}" if isinstance(passed, Tensor) else type(passed).__name__
    return fault(
        f" above {layers[cut - 1]!r}: for 2 samples {what} passes there",
        "let each block return one float32 tensor with a row for each sample",
    )


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
