"""Which fits can be trained together, and what is known of them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fedsim.engine.batched.stacked_net import StackedNet
from fedsim.engine.batched.vmapped_net import stacked_net_of
from fedsim.engine.jobs import Extra, Fit, InlineSamples, PublicSamples, Samples
from fedsim.engine.losses import can_serve_many
from fedsim.engine.optimisers import Adam, Clipped, ClippedEach, Optimiser, Scheduled, Sgd
from fedsim.engine.steps import Descent
from fedsim.engine.worker_state import Resources
from fedsim.models import Architecture
from fedsim.params import Model
from fedsim.task import Task

ELEMENTWISE: tuple[type, ...] = (Sgd, Adam)
"""Optimisers that serve stacked parameters as they are."""

Shape = tuple[tuple[int, ...], bool]
"""Rows of the first stream's batch without padding, rows of each stream's, and whether a client was alone."""


@dataclass(slots=True, eq=False)
class Checks:
    """What has been found out about fits that differ in numbers only.

    Attributes:
        done: Shapes at which a client was trained both ways.
        num_differences: How often the results differed; after the first one, no more are done together.
    """

    done: set[Shape] = field(default_factory=set)
    num_differences: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """What fits that are done together have in common.

    Attributes:
        nets: How each model's net is computed.
        optimisers: Of each model that is trained.
        step: What a step does; losses may differ in settings.
        batch_sizes: Of each stream.
        checks: Shared by kinds that differ in numbers only.
    """

    nets: Mapping[str, StackedNet]
    optimisers: Mapping[str, Optimiser]
    step: Descent
    batch_sizes: tuple[int, ...]
    checks: Checks


class _Form(NamedTuple):
    """What fits that are done together have in common, but for the numbers in it.

    Attributes:
        models: Names and architectures.
        trained: Names of those that are trained.
        step: What a step does.
        streams: Names and forms of the samples.
        extras: Names and forms of the extras.
    """

    models: tuple[tuple[str, Architecture], ...]
    trained: tuple[str, ...]
    step: Descent
    streams: tuple[tuple[str, Hashable], ...]
    extras: tuple[tuple[str, Hashable], ...]


def batch_key(job: Fit, resources: Resources) -> Hashable | None:
    """Return what jobs that can be trained together have in common; None for a job that is done by itself."""
    step = job.step
    # Before anything is remembered of it: a step may hold whatever its author liked.
    if type(step) is not Descent or not can_serve_many(step.loss) or not job.num_steps:
        return None
    if job.states is not None or job.outputs or resources.pool is None or resources.device.type != "cpu":
        return None
    if any(resources.augmentations(stream.samples) for stream in job.streams.values()):
        return None
    if step.correct is not None and not getattr(step.correct, "is_elementwise", False):
        return None
    extras = [(name, _form_of_extra(extra, job.models)) for name, extra in job.extras.items()]
    if any(form is None for _, form in extras):
        return None
    architectures = resources.architectures
    # Lists, not generators: this is asked for at every job.
    form = _Form(
        tuple([(name, architectures[model.architecture]) for name, model in job.models.items()]),
        job.trained,
        step.counted_as,
        tuple([(name, _form_of_samples(stream.samples)) for name, stream in job.streams.items()]),
        tuple(extras),
    )
    optimisers = tuple([job.optimisers[name] for name in job.trained])
    return _kind(form, optimisers, tuple([(one.batch_size, one.shuffled) for one in job.streams.values()]))


def _form_of_extra(extra: Extra, models: Mapping[str, Model]) -> Hashable | None:
    """Return the form of rows of a stream, or of a tree like the one model's; None for other extras."""
    if isinstance(extra.value, Mapping):
        return "tree" if [extra.value.keys()] == [model.params.keys() for model in models.values()] else None
    return (extra.stream, extra.value.dtype, extra.value.shape[1:]) if extra.stream else None


def _form_of_samples(samples: Samples) -> Hashable:
    """Return whether samples have labels, or of those that a job carries the types and the shape."""
    if isinstance(samples, InlineSamples):
        return samples.x.dtype, samples.x.shape[1:], None if samples.y is None else samples.y.dtype
    return samples.labelled if isinstance(samples, PublicSamples) else True


@lru_cache(maxsize=1024)
def _kind(
    form: _Form, optimisers: tuple[Optimiser, ...], batches: tuple[tuple[int, bool], ...]
) -> Kind | None:
    of_many = [_of_many(optimiser) for optimiser in optimisers]
    if None in of_many:
        return None
    known = {
        name: stacked_net_of(architecture, is_trained=name in form.trained)
        for name, architecture in form.models
    }
    nets = {name: found for name, found in known.items() if found is not None}
    (_, first), *_ = form.models
    if len(nets) < len(known) or not all(_is_usual(samples, first.task) for _, samples in form.streams):
        return None
    by_name = dict(zip(form.trained, filter(None, of_many), strict=True))
    checks = _checks(form, tuple([optimiser.counted_as for optimiser in optimisers]))
    return Kind(nets, by_name, form.step, tuple([size for size, _ in batches]), checks)


def _of_many(optimiser: Optimiser) -> Optimiser | None:
    """Return what applies stacked gradients as this applies those of one client; None where nothing does."""
    if type(optimiser) is Clipped:
        inner = _of_many(optimiser.inner)
        return None if inner is None else ClippedEach(inner, optimiser.most)
    inner = optimiser.inner if isinstance(optimiser, Scheduled) else optimiser
    return optimiser if type(inner) in ELEMENTWISE else None


def _is_usual(samples: Hashable, task: Task) -> bool:
    """Return whether samples of this form have the types and the shape of the task's."""
    usual = (np.dtype(task.dtype), task.input_shape)
    return samples in (True, False, (*usual, None), (*usual, np.dtype(task.label_dtype)))


@lru_cache(maxsize=1024)
def _checks(form: _Form, optimisers: Hashable) -> Checks:
    """Return the checks of a form and what its optimisers are counted as."""
    return Checks()
