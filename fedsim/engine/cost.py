"""What a job costs: floating-point operations, known without running it.

A step is counted once for each combination of step, architectures and shapes, on torch's ``meta`` device
(:mod:`fedsim.models.flops`), by running the very code that will train. From operations to seconds::

    seconds = overhead + sum over steps of max(flops / (efficiency * speed), bytes / memory_bandwidth) * load
    load    = exp(variation * normal) * draw of the device's load (:mod:`fedsim.fleet.load`)

where all but a step's flops and bytes (what its operations read and write) are the device's, and each draw is
keyed by client, turn and job. A step is a batch; steps that cost the same are kept once, with how many
they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from math import exp, inf, isfinite
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsim.data.augmentations.base import transformed
from fedsim.engine.batches import Pass, num_steps, size_counts
from fedsim.engine.cost_keys import extra_form, sample_form, step_key, tree_form
from fedsim.engine.jobs import (
    Call,
    Evaluate,
    Extra,
    Fit,
    InlineSamples,
    Job,
    Predict,
    PublicSamples,
    Samples,
    check_names,
)
from fedsim.engine.losses import Batch
from fedsim.engine.optimisers import Adam, innermost
from fedsim.engine.steps import Work
from fedsim.engine.worker_state import BoundNet, Resources
from fedsim.errors import FedsimError, JobError, UserError
from fedsim.fleet import Device
from fedsim.fleet.load import Load
from fedsim.models import flops
from fedsim.models.flops import Operations
from fedsim.models.portable_operations import unportable
from fedsim.models.process_cache import cached
from fedsim.params import Array, ArrayForm, forms_of
from fedsim.rng import Key

NOTHING = Operations(0)


@dataclass(frozen=True, slots=True)
class Effort:
    """What a job asks of a processor: counts and costs of its steps, their total, the most bytes per flop."""

    steps: tuple[tuple[int, Operations], ...]
    total: Operations
    bytes_per_flop: float

    @classmethod
    def of(cls, steps: Iterable[tuple[int, Operations]]) -> Effort:
        """Return the effort of steps, each kind with how many they are."""
        steps = tuple((times, step) for times, step in steps if times)
        total = sum((times * step for times, step in steps), NOTHING)
        densest = max(
            (step.moved_bytes / step.flops if step.flops else inf for _, step in steps), default=0.0
        )
        return cls(steps, total, densest)


def duration_s(device: Device, effort: Effort, load: float | Array = 1.0) -> Any:
    """Return how long a device takes for a job, s.

    Args:
        device: The device; or several as one, with an array where they differ. Then the result is an array.
        effort: What the job asks of it.
        load: The factor on the time of the job's steps.
    """
    flops_per_s, bytes_per_s = device.efficiency * device.speed_flops, device.memory_bandwidth_bytes_per_s
    unhindered_s = device.overhead_s + effort.total.flops / flops_per_s * load
    waits: Any = effort.bytes_per_flop * flops_per_s > bytes_per_s
    are_many = isinstance(waits, np.ndarray)
    if not (waits.any() if are_many else waits):  # no step waits for memory: the common case
        return unhindered_s
    longer: Any = np.maximum if are_many else max
    steps_s: Any = 0.0
    for times, step in effort.steps:
        # Not by sum(), which rounds numbers otherwise than arrays from Python 3.12 on.
        steps_s += times * longer(step.flops / flops_per_s, step.moved_bytes / bytes_per_s)
    hindered_s = device.overhead_s + steps_s * load
    return np.where(waits, hindered_s, unhindered_s) if are_many else hindered_s


def durations_s(devices: Device, efforts: Sequence[Effort], counts: Sequence[int], load: Array) -> Array:
    """Return how long devices take for jobs, s, float64 ``[devices]``; see :func:`duration_s`.

    Args:
        devices: The devices, as one.
        efforts: What jobs ask of devices.
        counts: How many devices, one after the other, have each of these efforts.
        load: The factor on the time of each.
    """
    flops: Any = np.repeat([float(effort.total.flops) for effort in efforts], counts)
    densest: Any = np.repeat([effort.bytes_per_flop for effort in efforts], counts)
    flops_per_s = devices.efficiency * devices.speed_flops
    if not np.any(densest * flops_per_s > devices.memory_bandwidth_bytes_per_s):
        durations: Array = duration_s(devices, Effort((), Operations(flops), densest), load)
        return durations
    parts = [
        duration_s(_part_of(devices, span), effort, load[span])
        for effort, span in zip(efforts, spans_of(counts), strict=True)
    ]
    return np.concatenate(parts)


def spans_of(counts: Sequence[int]) -> list[slice]:
    """Return the slices of parts that follow each other, given their lengths."""
    return [slice(*bounds) for bounds in pairwise(accumulate(counts, initial=0))]


def _part_of(devices: Device, span: slice) -> Device:
    """Return some of several devices that are given as one."""
    values: Any = [value[span] if isinstance(value, np.ndarray) else value for value in devices]
    return Device._make(values)


def load_of(variation: float, law: Load | None, key: Key) -> float:
    """Return the factor on the time of a job on a device with such a variation and law of load.

    Args:
        variation: Sigma of the log-normal factor.
        law: Of the other factor.
        key: Of the draws.
    """
    if not variation and law is None:
        return 1.0
    (factor,) = loads_of([variation], [law], key, [key.counts])
    return factor


def loads_of(
    variations: Sequence[float], laws: Sequence[Load | None], key: Key, counts: Sequence[Sequence[int]]
) -> list[float]:
    """Return the factors on the times of jobs on several devices; see :func:`load_of`.

    Args:
        variations: Of each device.
        laws: Likewise.
        key: Of the draws for one of them.
        counts: The numbers in the key of each.
    """
    factors = [1.0] * len(counts)
    if any(variations):
        normals = key.normals(counts)
        factors = [exp(sigma * normal) for sigma, normal in zip(variations, normals, strict=True)]
    for place, (law, its_counts) in enumerate(zip(laws, counts, strict=True)):
        if law is not None:
            factors[place] *= law.factor(Key(key.digest, tuple(its_counts)).child("law"))
    return factors


IDLE = Effort.of(())


@dataclass(slots=True, eq=False)
class FitWork:
    """What fits have in common that differ in values and in whose samples they train on alone.

    Attributes:
        shape: What the cost of a step depends on beside the sizes of its batches.
        passes: One pass over each stream, by its name.
        effort: None until it is first asked for.
    """

    shape: tuple[Any, ...]
    passes: Mapping[str, Pass]
    num_steps: int
    effort: Effort | None = None


class Costs:
    """Counts the operations of jobs, and remembers what it counted."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._fit_works: dict[tuple[Any, ...], FitWork] = {}
        self._steps: dict[tuple[Any, ...], Operations] = {}
        self._forwards: dict[tuple[str, int], Operations] = {}
        self._predictions: dict[tuple[Any, ...], Effort] = {}
        self._nets: dict[tuple[str, str], BoundNet] = {}

    def fit_work(self, job: Fit, epochs: int | None, steps: int | None) -> FitWork:
        """Return what a fit has in common with all that are like it, for ``epochs`` (1) or ``steps``.

        Names that do not fit together are a ValueError.
        """
        # Every dispatch asks for it, so it takes as few calls as possible to see that fits are alike.
        step, streams = job.step, job.streams
        shape = [getattr(step, "counted_as", step), job.trained, len(job.models), len(streams)]
        shape += len(job.extras), job.public_buffers, tree_form(job.outputs)
        shape += [job.optimisers[name].counted_as for name in job.trained]
        amounts = [epochs, steps]
        for name, model in job.models.items():
            shape += name, model.architecture
        for name, stream in streams.items():
            shape += name, sample_form(stream.samples)
            amounts += self._resources.num_samples(stream.samples), stream.batch_size
        for name, extra in job.extras.items():
            shape += name, extra.stream, extra_form(extra)
        key = *shape, *amounts
        if (known := self._fit_works.get(key)) is not None:
            return known
        check_names(job.models, job.trained, streams, job.extras)
        passes = self._resources.passes([job.models[name].architecture for name in job.trained], streams)
        count = num_steps(list(passes.values()), epochs, steps)
        fit_work = self._fit_works[key] = FitWork(tuple(shape), passes, count)
        return fit_work

    def work(self, job: Job, fit_work: FitWork | None = None) -> Effort:
        """Return what a whole job asks of the processor; of a call only its operations are known.

        Raises:
            UserError: A call whose declared cost is no positive finite number.
            JobError: The step cannot be run without values; the cause is chained.
        """
        match job:
            case Fit():
                return self._fit(job, fit_work or self.fit_work(job, None, job.num_steps))
            case Predict(model, samples, batch_size):
                return self._passes(model.architecture, (samples,), batch_size)
            case Evaluate(model, parts, batch_size):
                return self._passes(model.architecture, parts, batch_size)
            case Call(function, _, declared):
                if not (declared > 0 and isfinite(declared)):
                    name = getattr(function, "__qualname__", repr(function))
                    raise UserError(
                        f"the call of {name} declares {declared} FLOP: work takes time, so give a positive, "
                        "finite cost"
                    )
                return Effort.of([(1, Operations(declared))])

    def _fit(self, job: Fit, fit_work: FitWork) -> Effort:
        if fit_work.effort is None:
            fit_work.effort = self._effort(job, fit_work.shape, fit_work.passes)
        return fit_work.effort

    def _effort(self, job: Fit, shape: tuple[Any, ...], passes: Mapping[str, Pass]) -> Effort:
        if job.num_steps == 0:
            return IDLE
        if empty := [name for name, its_pass in passes.items() if not len(its_pass)]:
            raise JobError(
                f"a fit of {job.num_steps} steps over stream {empty[0]!r}, which has no batch: train for no "
                "steps where there are no samples"
            )
        counts = size_counts(list(passes.values()), job.num_steps)
        return Effort.of((times, self._step(job, shape, sizes)) for sizes, times in counts.items())

    def _step(self, job: Fit, shape: tuple[Any, ...], sizes: tuple[int, ...]) -> Operations:
        key = (shape, sizes)
        if key not in self._steps:
            for model in job.models.values():
                self._forward(model.architecture, 1)  # for its check of layers that count nothing
            data = self._resources.data
            known_by = step_key(job, sizes, self._resources.architectures, data.task, data.augmentations)
            try:
                if self._resources.portable:
                    self._check_portable(job, sizes)
                self._steps[key] = cached(known_by, lambda: self._measured(job, sizes))
            except FedsimError:
                raise
            except Exception as error:
                raise JobError(
                    f"the operations of a training step cannot be counted: {type(error).__name__}: {error} — "
                    "a step is run once on tensors without values, so its shapes must not depend on values"
                ) from error
        return self._steps[key]

    def _check_portable(self, job: Fit, sizes: Sequence[int]) -> None:
        names = unportable(self._run_step(job, sizes))
        if any(isinstance(innermost(optimiser), Adam) for optimiser in job.optimisers.values()):
            # Of Adam's kernels the one for the meta device calls it, and the portable one does not.
            names = [name for name in names if name != "_foreach_sqrt"]
        if names:
            raise JobError(
                f"the operations {', '.join(names)} of a training step may have other bits on another "
                "processor, and engine.numerics is 'portable': write 'native', or take other operations"
            )

    def _measured(self, job: Fit, sizes: Sequence[int]) -> Operations:
        """Return the operations of one step, and of transforming the images that it meets."""
        total = flops.measure(self._run_step(job, sizes))
        for stream, size in zip(job.streams.values(), sizes, strict=True):
            if augmentations := self._resources.augmentations(stream.samples):
                x = _meta_batch(stream.samples, size, self._resources).x
                total += flops.measure(partial(transformed, augmentations, x, Key.root(0).torch()))
        return total

    def _run_step(self, job: Fit, sizes: Sequence[int]) -> Callable[[], Tensor]:
        """Return one step of a job on the meta device, ready to be counted."""
        nets = {name: self._meta_net(job, name) for name in job.models}
        sizes_by_stream = dict(zip(job.streams, sizes, strict=True))
        extras = {name: _meta_extra(extra, sizes_by_stream) for name, extra in job.extras.items()}
        states = {name: job.optimisers[name].start(list(nets[name].params.values())) for name in job.trained}
        outputs = {name: _meta_array(array.shape, array.dtype) for name, array in job.outputs.items()}
        work = Work(nets, job.trained, extras, job.optimisers, states, Key.root(0).torch(), outputs)
        batches = {
            name: _meta_batch(stream.samples, sizes_by_stream[name], self._resources)
            for name, stream in job.streams.items()
        }
        return partial(job.step, work, batches)

    def _meta_net(self, job: Fit, name: str) -> BoundNet:
        key = (name, job.models[name].architecture)
        if key not in self._nets:
            self._nets[key] = BoundNet(self._resources.architectures[key[1]].skeleton())
        net = self._nets[key].net
        params = {n: p.detach() for n, p in net.named_parameters()}
        return self._nets[key].bind(
            params,
            dict(net.named_buffers()),
            trained=name in job.trained,
            public_buffers=job.public_buffers,
        )

    def _passes(self, architecture: str, parts: Sequence[Samples], batch_size: int) -> Effort:
        counts = tuple([self._resources.num_samples(part) for part in parts])
        key = (architecture, counts, batch_size)
        if (known := self._predictions.get(key)) is not None:
            return known
        sizes = Counter[int]()
        for count in counts:
            sizes[batch_size] += count // batch_size
            sizes[count % batch_size] += 1
        effort = Effort.of(
            (times, self._forward(architecture, size)) for size, times in sizes.items() if times and size
        )
        self._predictions[key] = effort
        return effort

    def _forward(self, architecture: str, size: int) -> Operations:
        key = (architecture, size)
        if key not in self._forwards:
            built = self._resources.architectures[architecture]
            self._forwards[key] = cached(
                built.value and ("forward", built.value, size), partial(flops.forward, built, size)
            )
        return self._forwards[key]


def _meta_batch(samples: Samples, size: int, resources: Resources) -> Batch:
    def empty(dtype: str, *shape: int) -> Tensor:
        return torch.empty((size, *shape), dtype=getattr(torch, dtype), device="meta")

    if isinstance(samples, InlineSamples):
        x, y = samples.x, samples.y
        return Batch(empty(x.dtype.name, *x.shape[1:]), None if y is None else empty(y.dtype.name))
    task = resources.data.task
    labelled = samples.labelled if isinstance(samples, PublicSamples) else True
    return Batch(empty(task.dtype, *task.input_shape), empty(task.label_dtype) if labelled else None)


def _meta_extra(extra: Extra, sizes: Mapping[str, int]) -> Any:
    def empty(array: Array | ArrayForm) -> Tensor:
        shape = (sizes[extra.stream], *array.shape[1:]) if extra.stream else array.shape
        return _meta_array(shape, array.dtype)

    if isinstance(extra.value, Mapping):
        return {name: empty(array) for name, array in forms_of(extra.value).items()}
    return empty(extra.value)


def _meta_array(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Tensor:
    return torch.empty(shape, dtype=torch.from_numpy(np.empty(0, dtype)).dtype, device="meta")
