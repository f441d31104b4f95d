"""A worker's workplace: the run's samples as tensors, and nets into which a job's values are put.

Samples are shared by all workers and never written. Nets belong to one worker: a net is built once for each
(architecture, place in a job) and then holds one job's tensors after the other, so a training step is an
ordinary forward pass of an ordinary module.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm

from fedsim.data import FederatedData
from fedsim.data.augmentations.base import Augmentations
from fedsim.engine.batches import Pass
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
from fedsim.errors import UserError
from fedsim.models import Architecture, Architectures, Net
from fedsim.models.cpu_layout import is_faster_channels_last, pool_before_relu
from fedsim.params import Array, Model, Tree, freeze
from fedsim.to_device import to_device


def choose_repeatable_kernels(device: torch.device) -> None:
    """On CUDA, choose deterministic kernels; must come before the first use of cuBLAS."""
    if device.type != "cuda":
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = False


def pin_thread() -> None:
    """Give the calling thread one torch thread for good: sums over several end in other bits.

    OpenMP keeps the setting by thread. A thread that first needs it takes over what was set last anywhere.
    """
    torch.get_num_threads()
    torch.set_num_threads(1)


class StoppedError(Exception):
    """The run is over; the job at hand is given up between two steps."""


def to_tensor(array: Array, device: torch.device, *, channels_last: bool = False) -> Tensor:
    """Return a tensor of its own memory; with ``channels_last`` four dimensions are laid out so."""
    # A copy even on the CPU: the array may be read-only, which no tensor can be.
    if channels_last and array.ndim == 4:
        # Torch's own conversion would leave the layout of a single channel as it is.
        last = torch.from_numpy(np.array(array.transpose(0, 2, 3, 1), order="C"))
        return to_device(last, device).movedim(3, 1)
    return to_device(torch.from_numpy(np.array(array, order="C")), device)


def shared_tensor(array: Array, device: torch.device) -> Tensor:
    """Return a tensor for reading alone, on the CPU over the array's own memory."""
    with warnings.catch_warnings():
        # Torch has no read-only tensors and warns of arrays that are.
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)


def to_tree(tensors: Mapping[str, Tensor]) -> Tree:
    """Return frozen arrays over the memory of CPU tensors, which nobody else may write into any more."""
    values = {name: tensor.detach() for name, tensor in tensors.items()}
    away = {name: tensor for name, tensor in values.items() if not tensor.is_cpu}
    if away:
        values |= zip(away, fetched(list(away.values())), strict=True)
    return freeze({name: tensor.contiguous().numpy() for name, tensor in values.items()})


def to_numbers(scalars: Sequence[Tensor]) -> list[float]:
    """Return the values of scalars of one device."""
    if not scalars or scalars[0].is_cpu:
        return list(map(float, scalars))
    values: list[float] = torch.stack(list(scalars)).tolist()
    return values


def fetched(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return copies on the CPU of tensors of one device; the host waits for the device once."""
    together = torch.cat([tensor.reshape(-1).view(torch.uint8) for tensor in tensors]).cpu()
    parts = torch.split(together, [tensor.nbytes for tensor in tensors])
    # With memory of its own each, which begins where its type may.
    return [
        part.clone().view(tensor.dtype).view(tensor.shape)
        for part, tensor in zip(parts, tensors, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class Resources:
    """What all workers of a run share, read-only.

    Attributes:
        architectures: By label; parts of them and their compositions too (:mod:`fedsim.models.parts`).
        pool: The samples ``x`` and ``y`` on the device; None for a data set of counts only.
        rebuild: Makes the same in another process, to which it can be sent; None where nobody asks for that.
        verify: Whether jobs that were done together are done again, alone and with others, and compared.
        portable: Whether steps are refused whose operations may have other bits on another processor.
    """

    data: FederatedData
    architectures: Mapping[str, Architecture]
    device: torch.device
    pool: tuple[Tensor, Tensor] | None = field(repr=False)
    rebuild: Callable[[], Resources] | None = None
    verify: bool = False
    portable: bool = False
    _normalised: dict[str, bool] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        data: FederatedData,
        architectures: Mapping[str, Architecture],
        device: str,
        rebuild: Callable[[], Resources] | None = None,
        *,
        verify: bool = False,
        portable: bool = False,
    ) -> Resources:
        """Put a run's samples on a device (``cpu`` or ``cuda``)."""
        place = torch.device(device)
        pool = None
        if data.has_samples:
            pool = (shared_tensor(data.x, place), shared_tensor(data.y, place))
        return cls(data, Architectures(architectures), place, pool, rebuild, verify, portable)

    def with_data(self, data: FederatedData) -> Resources:
        """Return the same with other data."""
        device, architectures = str(self.device), self.architectures
        rebuild, portable = self.rebuild, self.portable
        return self.of(data, architectures, device, rebuild, verify=self.verify, portable=portable)

    def num_samples(self, samples: Samples) -> int:
        """Return how many samples there are, without touching them."""
        match samples:
            case ClientSamples(client, split):
                return self.data.num_samples(client, split)
            case PublicSamples(positions):
                return len(positions)
            case GlobalTest():
                return len(self.data.global_test)
            case InlineSamples(x):
                return len(x)
            case PooledSamples(split, clients):
                if clients is None:
                    return int(self.data.holdings[split].offsets[-1])
                return sum(self.data.num_samples(client, split) for client in clients)

    def passes(self, architectures: Iterable[str], streams: Mapping[str, Stream]) -> dict[str, Pass]:
        """Return the shape of one pass over each stream, for a job that trains these architectures."""
        skip = False
        for label in architectures:
            if label not in self._normalised:
                self._normalised[label] = self.architectures[label].has_batch_norm
            skip |= self._normalised[label]
        return {
            name: Pass(self.num_samples(stream.samples), stream.batch_size, skip)
            for name, stream in streams.items()
        }

    def augmentations(self, samples: Samples) -> Augmentations:
        """Return how samples are transformed while a model trains on them; the training split's alone are."""
        is_training = isinstance(samples, ClientSamples | PooledSamples) and samples.split == "train"
        return self.data.augmentations if is_training else ()

    def tensors(self, samples: Samples) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Return ``(x, y, rows)``: sample i is ``x[rows[i]]``, or ``x[i]`` where rows is None."""
        if isinstance(samples, InlineSamples):
            y = None if samples.y is None else to_tensor(samples.y, self.device)
            return to_tensor(samples.x, self.device), y, None
        if self.pool is None:
            raise UserError(
                "the data set has counts of samples only and nothing to train on: set engine.executor = "
                "'null', or take a data set with samples"
            )
        x, y = self.pool
        match samples:
            case ClientSamples(client, split):
                return x, y, to_tensor(self.data.indices(client, split), self.device)
            case PublicSamples(positions, labelled):
                if labelled and not self.data.public_labelled:
                    raise UserError(
                        "labels of the public set are asked for, and it has none: it comes from another data "
                        "set (data.public.source). Leave the source out, or do without the labels"
                    )
                return x, y if labelled else None, to_tensor(self.data.public[positions], self.device)
            case GlobalTest():
                return x, y, to_tensor(self.data.global_test, self.device)
            case PooledSamples(split, clients):
                return x, y, to_tensor(self.data.pooled(split, clients), self.device)


class BoundNet:
    """A net that holds one job's values for one model; the live model that losses see."""

    def __init__(self, net: Net, *, channels_last: bool = False) -> None:
        self.net = net
        self.channels_last = channels_last
        self._param_places = _places(net, lambda module: module._parameters)
        self._buffer_places = _places(net, lambda module: module._buffers)
        self._norms = [module for module in net.modules() if isinstance(module, _BatchNorm)]
        self.params: dict[str, Tensor] = {}

    def bind(
        self,
        params: Mapping[str, Tensor],
        buffers: Mapping[str, Tensor],
        *,
        trained: bool,
        public_buffers: PublicBuffers = "moving",
    ) -> BoundNet:
        """Put values in place; the job owns them and, if ``trained``, may write into them."""
        self._public_buffers = public_buffers
        self.params = {name: nn.Parameter(tensor, requires_grad=trained) for name, tensor in params.items()}
        for places, values in ((self._param_places, self.params), (self._buffer_places, buffers)):
            for name, owners in places.items():
                for entries, module, leaf in owners:
                    if entries is None:
                        setattr(module, leaf, values[name])
                    else:
                        entries[leaf] = values[name]
        if self.net.training != trained:
            self.net.train(trained)
        return self

    @property
    def buffers(self) -> dict[str, Tensor]:
        """Buffers by name, as they are now: a layer may write into one or put another in its place."""
        return {name: getattr(*owners[0][1:]) for name, owners in self._buffer_places.items()}

    def __call__(self, x: Tensor) -> Tensor:
        """Return logits ``[b, N]``."""
        logits: Tensor = self.net(x)
        return logits

    def features(self, x: Tensor) -> Tensor:
        """Return what the head takes, ``[b, f]``."""
        return self.net.features(x)

    def head(self, features: Tensor) -> Tensor:
        """Return the logits ``[b, N]`` that follow from features ``[b, f]``."""
        logits: Tensor = self.net.head(features)
        return logits

    def public(self, x: Tensor) -> Tensor:
        """Return logits ``[b, N]`` of public samples; buffers do as the fit says."""
        if self._public_buffers == "moving" or not (self.net.training and self._buffer_places):
            return self(x)
        if self._public_buffers == "restored":
            return self.at(self.params)(x)
        for norm in self._norms:
            norm.eval()
        try:
            return self.at(self.params)(x)
        finally:
            for norm in self._norms:
                norm.train()

    def at(self, params: Mapping[str, Tensor], *, moves_buffers: bool = False) -> Callable[[Tensor], Tensor]:
        """Return the model at other parameters, ``[b, ...]`` to logits ``[b, N]``."""

        def logits(x: Tensor) -> Tensor:
            tensors = dict(params)
            if not moves_buffers:
                # Copies, which the pass may write into; buffers are needed for no gradient.
                tensors |= {name: buffer.clone() for name, buffer in self.buffers.items()}
            outputs: Tensor = functional_call(self.net, tensors, (x,))
            return outputs

        return logits


Entries = dict[str, Any]
Places = dict[str, list[tuple[Entries | None, nn.Module, str]]]


def _places(net: Net, entries: Callable[[nn.Module], Entries]) -> Places:
    """Return where each tensor of the net is kept, by its first name; modules may share one.

    A place is the module's dictionary, or None for a module that watches its assignments, as LSTMs do.
    """
    names: dict[int, str] = {}
    places: Places = {}
    for path, module in net.named_modules():
        for leaf, value in entries(module).items():
            if value is not None:
                name = names.setdefault(id(value), f"{path}.{leaf}" if path else leaf)
                watches = any(
                    "__setattr__" in vars(kind) for kind in type(module).__mro__[: -len(nn.Module.__mro__)]
                )
                places.setdefault(name, []).append((None if watches else entries(module), module, leaf))
    return places


class Worker:
    """One thread's workplace; jobs are given up once ``stopping`` is set."""

    def __init__(self, resources: Resources, stopping: threading.Event) -> None:
        self.resources = resources
        self.stopping = stopping
        self.stream: torch.cuda.Stream | None = None
        if resources.device.type == "cuda":
            self.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._nets: dict[tuple[str, str], BoundNet] = {}

    def bind(
        self, place: str, model: Model, *, trained: bool, public_buffers: PublicBuffers = "moving"
    ) -> BoundNet:
        """Return a net with a copy of the model's values; ``place`` tells apart models of one job."""
        key = (place, model.architecture)
        if key not in self._nets:
            net = self.resources.architectures[model.architecture].skeleton()
            pool_before_relu(net.body)
            on_cpu = self.resources.device.type == "cpu"
            self._nets[key] = BoundNet(net, channels_last=on_cpu and is_faster_channels_last(net))
        bound, device = self._nets[key], self.resources.device
        return bound.bind(
            {
                name: to_tensor(array, device, channels_last=bound.channels_last)
                for name, array in model.params.items()
            },
            {name: to_tensor(array, device) for name, array in model.buffers.items()},
            trained=trained,
            public_buffers=public_buffers,
        )

    @contextmanager
    def on_its_stream(self) -> Iterator[None]:
        """Give CUDA's work to the worker's own stream; it is done when the block ends."""
        if self.stream is None:
            yield
            return
        with torch.cuda.stream(self.stream):
            yield
            self.stream.synchronize()

    def pause_point(self) -> None:
        """Raise StoppedError if the run is over."""
        if self.stopping.is_set():
            raise StoppedError
