"""What a job costs: floating-point operations, known without running it.

A step is counted once for each combination of step, architectures and batch shapes, on torch's ``meta`` device
(:mod:`fedsim.models.flops`), by running the very code that will train. From operations to seconds::

    seconds = overhead + flops / speed * load,   load = exp(variation * normal)

where overhead, speed and variation are the device's and the normal draw is keyed by client and asking.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp
from typing import Any

import torch
from torch import Tensor

from fedsim.engine.batches import Pass, size_counts
from fedsim.engine.jobs import Call, Evaluate, Extra, Fit, InlineSamples, Job, Predict, Samples
from fedsim.engine.steps import Batch, Work
from fedsim.engine.worker import BoundNet, Resources
from fedsim.errors import UserError
from fedsim.fleet import Device
from fedsim.models import flops
from fedsim.rng import Key

META = torch.device("meta")


def duration_s(device: Device, num_flops: float, key: Key) -> float:
    """Return how long a device takes for an amount of work, s; ``key`` names the draw of its load."""
    load = exp(device.variation * key.numpy().standard_normal()) if device.variation else 1.0
    return device.overhead_s + num_flops / device.speed_flops * load


class Costs:
    """Counts the operations of jobs, and remembers what it counted."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._steps: dict[tuple[Any, ...], int] = {}
        self._forwards: dict[tuple[str, int], int] = {}

    def flops(self, job: Job) -> float:
        """Return the floating-point operations of a whole job.

        Raises:
            UserError: A call that declares no cost.
        """
        match job:
            case Fit():
                return self._fit(job)
            case Predict(model, samples, batch_size):
                return self._pass(model.architecture, samples, batch_size)
            case Evaluate(model, parts, batch_size):
                return sum(self._pass(model.architecture, part, batch_size) for part in parts)
            case Call(function, _, declared):
                if not declared > 0:
                    raise UserError(
                        f"the call of {function.__qualname__} declares {declared} FLOP: work takes time, so give "
                        f"a positive cost"
                    )
                return declared

    def passes(self, job: Fit) -> list[Pass]:
        """Return the shape of one pass over each stream of a job."""
        skip = any(
            self._resources.architectures[job.models[name].architecture].has_batch_norm
            for name in job.trained
        )
        return [
            Pass(self._resources.num_samples(stream.samples), stream.batch_size, skip)
            for stream in job.streams.values()
        ]

    def _fit(self, job: Fit) -> int:
        if job.num_steps == 0:
            return 0
        counts = size_counts(self.passes(job), job.num_steps)
        return sum(times * self._step(job, sizes) for sizes, times in counts.items() if times)

    def _step(self, job: Fit, sizes: tuple[int, ...]) -> int:
        names = tuple((name, model.architecture, name in job.trained) for name, model in job.models.items())
        extras = tuple((name, extra.scope, extra.stream, _shape(extra)) for name, extra in job.extras.items())
        key = (job.step, names, tuple(job.streams), sizes, extras)
        if key not in self._steps:
            self._steps[key] = flops.count(_MetaStep(job, sizes, self._resources))
        return self._steps[key]

    def _pass(self, architecture: str, samples: Samples, batch_size: int) -> int:
        counts = size_counts([one := Pass(self._resources.num_samples(samples), batch_size)], len(one))
        return sum(times * self._forward(architecture, size) for (size,), times in counts.items())

    def _forward(self, architecture: str, size: int) -> int:
        key = (architecture, size)
        if key not in self._forwards:
            self._forwards[key] = flops.forward_flops(self._resources.architectures[architecture], size)
        return self._forwards[key]


class _MetaStep:
    """One step of a job on the meta device, ready to be counted."""

    def __init__(self, job: Fit, sizes: Sequence[int], resources: Resources) -> None:
        self.job = job
        nets = {name: _meta_net(resources, job, name) for name in job.models}
        sizes_by_stream = dict(zip(job.streams, sizes, strict=True))
        extras = {name: _meta_extra(extra, sizes_by_stream) for name, extra in job.extras.items()}
        states = {name: job.optimiser.start(list(nets[name].params.values())) for name in job.trained}
        generator = Key.root(0).torch()
        self.work = Work(nets, job.trained, extras, job.optimiser, states, generator)
        self.batches = {
            name: _meta_batch(stream.samples, sizes_by_stream[name], resources)
            for name, stream in job.streams.items()
        }

    def __call__(self) -> Tensor:
        return self.job.step(self.work, self.batches)


def _meta_net(resources: Resources, job: Fit, name: str) -> BoundNet:
    net = resources.architectures[job.models[name].architecture].skeleton()
    params = {n: p.detach() for n, p in net.named_parameters()}
    return BoundNet(net).bind(params, dict(net.named_buffers()), trained=name in job.trained)


def _meta_batch(samples: Samples, size: int, resources: Resources) -> Batch:
    shape = samples.x.shape[1:] if isinstance(samples, InlineSamples) else resources.data.task.input_shape
    labelled = samples.y is not None if isinstance(samples, InlineSamples) else True
    y = torch.empty(size, dtype=torch.int64, device=META) if labelled else None
    return Batch(torch.empty((size, *shape), device=META), y)


def _meta_extra(extra: Extra, sizes: Mapping[str, int]) -> Any:
    def empty(array: Any) -> Tensor:
        shape = (sizes[extra.stream], *array.shape[1:]) if extra.scope == "sample" else array.shape
        return torch.empty(shape, dtype=torch.from_numpy(array[:0].copy()).dtype if array.ndim else None, device=META)

    if isinstance(extra.value, Mapping):
        return {name: empty(array) for name, array in extra.value.items()}
    return empty(extra.value)


def _shape(extra: Extra) -> tuple[Any, ...]:
    if isinstance(extra.value, Mapping):
        return tuple((name, array.shape) for name, array in extra.value.items())
    return extra.value.shape[1:] if extra.scope == "sample" else extra.value.shape
