"""Which jobs can be computed together: those of one kind.

A kind is one object for all jobs that have the same models, settings and forms of samples. It also holds what
has been found out about them by computing some both ways.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fedsim.engine.batched.dense_net import DenseNet, layers_of
from fedsim.engine.jobs import (
    ClientSamples,
    Evaluate,
    Extra,
    Fit,
    GlobalTest,
    InlineSamples,
    Job,
    Predict,
    PublicSamples,
    Samples,
)
from fedsim.engine.losses import can_serve_many
from fedsim.engine.optimisers import Adam, Clipped, ClippedEach, Optimiser, Scheduled, Sgd
from fedsim.engine.steps import Descent
from fedsim.engine.worker_state import Resources
from fedsim.models import Architecture
from fedsim.params import Model
from fedsim.task import Task

Ways = Counter[str]
"""How many jobs that could be done together were done in which way, for ``run.json``."""
TOGETHER = "together"
"""With others, at once; the other ways are reasons for which a job was done by itself."""
ALONE = "alone"
"""No other was there."""
TOO_FEW = "too few alike"
"""No other was left for its tile, or has as many samples to be evaluated on."""
OTHER_BITS = "other bits together"
"""A check has found a difference."""
NOT_FINITE = "not finite"
"""Its results would be NaN or infinite, and the sign of a NaN depends on the kernel."""
FAILED = "failed together"
"""One of those that were tried together has failed."""

Shape = tuple[tuple[int, ...], bool]
"""Rows of the first stream's batch without padding, rows of each stream's, and whether a client was alone."""


@dataclass(slots=True, eq=False)
class Checks:
    """Shapes at which fits that differ in numbers only were done both ways, and how often bits differed."""

    done: set[Shape] = field(default_factory=set)
    num_differences: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class FitKind:
    """What fits that are done together have in common; losses may differ in settings.

    Attributes:
        nets: How each model's net is computed.
        optimisers: Of each model that is trained.
        step: What a step does.
        batch_sizes: Of each stream.
        checks: Shared by kinds that differ in numbers only.
    """

    nets: Mapping[str, DenseNet]
    optimisers: Mapping[str, Optimiser]
    step: Descent
    batch_sizes: tuple[int, ...]
    checks: Checks


@dataclass(frozen=True, slots=True, eq=False)
class EvaluationKind:
    """What predictions, or evaluations, that are done together have in common.

    Attributes:
        net: How it is computed.
        batch_size: Samples of a full batch.
        per_class: Of evaluations, whether samples are counted by class; None for predictions.
        checked: Numbers of samples at which a model's results have been computed both ways.
        differing: Those at which they differed; models that meet so many are done one by one.
    """

    net: DenseNet
    batch_size: int
    per_class: bool | None
    checked: set[int] = field(default_factory=set)
    differing: set[int] = field(default_factory=set)


def batch_key(job: Job, resources: Resources) -> Hashable | None:
    """Return the kind of a job that can be computed together with others; None for any other job."""
    match job:
        case Fit():
            return fit_kind(job, resources)
        case Predict() | Evaluate():
            return evaluation_kind(job, resources)
        case _:
            return None


def evaluation_kind(job: Predict | Evaluate, resources: Resources) -> EvaluationKind | None:
    """Return the kind of a prediction or an evaluation; None for one that is done by itself."""
    if resources.pool is None or resources.device.type != "cpu":
        return None
    if isinstance(job, Predict):
        if isinstance(job.samples, InlineSamples):
            return None
    elif not job.parts or not all(isinstance(part, ClientSamples | GlobalTest) for part in job.parts):
        return None
    per_class = job.per_class if isinstance(job, Evaluate) else None
    return _evaluation_kind(resources.architectures[job.model.architecture], job.batch_size, per_class)


@lru_cache(maxsize=1024)
def _evaluation_kind(
    architecture: Architecture, batch_size: int, per_class: bool | None
) -> EvaluationKind | None:
    layers = layers_of(architecture)
    return EvaluationKind(DenseNet(layers), batch_size, per_class) if layers else None


class _Form(NamedTuple):
    """What fits that are done together have in common, but for the numbers in it."""

    models: tuple[tuple[str, Architecture], ...]
    trained: tuple[str, ...]
    step: Descent
    streams: tuple[tuple[str, Hashable], ...]
    extras: tuple[tuple[str, Hashable], ...]


def fit_kind(job: Fit, resources: Resources) -> FitKind | None:
    """Return the kind of a fit; None for one that is done by itself."""
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
    batches = tuple([(stream.batch_size, stream.shuffled) for stream in job.streams.values()])
    return _fit_kind(form, optimisers, batches)


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
def _fit_kind(
    form: _Form, optimisers: tuple[Optimiser, ...], batches: tuple[tuple[int, bool], ...]
) -> FitKind | None:
    (_, first), *_ = form.models
    if not all(_is_usual(samples, first.task) for _, samples in form.streams):
        return None
    nets, of_many = dict[str, DenseNet](), dict[str, Optimiser]()
    for name, architecture in form.models:
        if (layers := layers_of(architecture)) is None:
            return None
        nets[name] = DenseNet(layers)
    for name, optimiser in zip(form.trained, optimisers, strict=True):
        if (stacked := _of_many(optimiser)) is None:
            return None
        of_many[name] = stacked
    checks = _checks(form, tuple([optimiser.counted_as for optimiser in optimisers]))
    return FitKind(nets, of_many, form.step, tuple([size for size, _ in batches]), checks)


def _of_many(optimiser: Optimiser) -> Optimiser | None:
    """Return what applies stacked gradients as this applies those of one client; None where nothing does."""
    if type(optimiser) is Clipped:
        inner = _of_many(optimiser.inner)
        return None if inner is None else ClippedEach(inner, optimiser.most)
    inner = optimiser.inner if isinstance(optimiser, Scheduled) else optimiser
    return optimiser if type(inner) in (Sgd, Adam) else None


def _is_usual(samples: Hashable, task: Task) -> bool:
    """Return whether samples of this form have the types and the shape of the task's."""
    usual = (np.dtype(task.dtype), task.input_shape)
    return samples in (True, False, (*usual, None), (*usual, np.dtype(task.label_dtype)))


@lru_cache(maxsize=1024)
def _checks(form: _Form, optimisers: Hashable) -> Checks:
    """Return the checks of a form and what its optimisers are counted as."""
    return Checks()
