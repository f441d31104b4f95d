"""Keys of a step's cost: what it depends on, so that fits of a run and runs of a process share one count."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from fedsim.data.augmentations.base import Augmentations
from fedsim.engine.jobs import (
    ClientSamples,
    Extra,
    Fit,
    InlineSamples,
    PooledSamples,
    PublicSamples,
    Samples,
)
from fedsim.models import Architecture
from fedsim.params import Tree, forms_of
from fedsim.task import Task
from fedsim.walk import is_own


def step_key(
    job: Fit,
    sizes: tuple[int, ...],
    architectures: Mapping[str, Architecture],
    task: Task,
    augmentations: Augmentations,
) -> Hashable | None:
    """Return what the operations of a step with batches of these sizes depend on; None where unknown."""
    nets = {name: architectures[model.architecture].value for name, model in job.models.items()}
    optimisers = [job.optimisers[name] for name in job.trained]
    transformations = tuple((type(one), one.config) for one in augmentations)
    if None in nets.values() or not all(map(is_own, (job.step, transformations, *optimisers))):
        return None
    return (
        "step",
        getattr(job.step, "counted_as", job.step),
        tuple((type(optimiser), optimiser.counted_as) for optimiser in optimisers),
        (job.trained, job.public_buffers, task, sizes, transformations),
        tuple(nets.items()),
        tuple((name, sample_form(stream.samples)) for name, stream in job.streams.items()),
        tuple((name, extra.stream, extra_form(extra)) for name, extra in job.extras.items()),
        tree_form(job.outputs),
    )


def sample_form(samples: Samples) -> tuple[Any, ...]:
    """Return what tells apart the batches of streams: the form of a sample and of its label, if any."""
    match samples:
        case InlineSamples(x, y):
            return (x.shape[1:], x.dtype.name, None if y is None else y.dtype.name)
        case PublicSamples(labelled=labelled):
            return (PublicSamples, labelled)
        case ClientSamples(split=split) | PooledSamples(split=split):
            return (type(samples), split)
        case _:
            return (type(samples),)


def extra_form(extra: Extra) -> Hashable:
    """Return the names, types and shapes of an extra; of one that follows a stream, those of a row."""
    if isinstance(extra.value, Mapping):
        return tree_form(extra.value)
    return extra.value.dtype.name, extra.value.shape[1:] if extra.stream else extra.value.shape


def tree_form(tree: Tree) -> Hashable:
    """Return the names, types and shapes of arrays."""
    return tuple([(name, array.dtype.name, array.shape) for name, array in forms_of(tree).items()])
