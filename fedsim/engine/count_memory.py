"""Counts of operations that are the same in all runs of a process.

A run counts each kind of step once, which takes milliseconds, and a comparison has many runs of the same
models. Only counts of fedsim's own models and steps are shared: those of other code would be wrong as soon as
a notebook defines a function anew.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from fedsim.engine.jobs import Extra, Fit, InlineSamples, PublicSamples, Samples
from fedsim.models import Architecture
from fedsim.models.flops import Operations
from fedsim.params import Tree
from fedsim.task import Task
from fedsim.walk import is_own

MOST = 10_000
"""Most counts that are remembered; beyond that, all are forgotten."""

_COUNTS: dict[Hashable, Operations] = {}


def remembered(key: Hashable | None, count: Callable[[], Operations]) -> Operations:
    """Return what ``count()`` gives; where a count of this key is known, that.

    Args:
        key: What the count depends on, beside settings of torch; None where that is not known.
        count: Counts.
    """
    if key is None:
        return count()
    torchs = torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled()
    # Formulas of operations may be registered at any time.
    key = (key, torchs, frozenset(flop_registry.items()))
    if (known := _COUNTS.get(key)) is None:
        if len(_COUNTS) >= MOST:
            _COUNTS.clear()
        known = _COUNTS[key] = count()
    return known


def forget() -> None:
    """Forget all counts."""
    _COUNTS.clear()


def forward_key(architecture: Architecture, size: int) -> Hashable | None:
    """Return what the operations of a forward pass depend on; None where that is not known."""
    return None if architecture.value is None else (architecture.value, size)


def step_key(
    job: Fit, sizes: tuple[int, ...], architectures: Mapping[str, Architecture], task: Task
) -> Hashable | None:
    """Return what the operations of one step of a fit depend on; None where that is not known.

    Args:
        job: The fit.
        sizes: Samples in the batch of each stream.
        architectures: Those of the run, by label.
        task: The task of the samples that the job does not carry itself.
    """
    nets = {name: architectures[model.architecture].value for name, model in job.models.items()}
    if None in nets.values() or not (is_own(job.step) and is_own(job.optimiser)):
        return None
    return (
        getattr(job.step, "counted_as", job.step),
        (type(job.optimiser), job.optimiser.counted_as),
        (job.trained, job.public_buffers, task, sizes),
        tuple(nets.items()),
        tuple((name, sample_form(stream.samples)) for name, stream in job.streams.items()),
        tuple((name, extra.stream, _extra_form(extra)) for name, extra in job.extras.items()),
        _tree_form(job.outputs),
    )


def sample_form(samples: Samples) -> tuple[Any, ...]:
    """Return what tells apart the batches of streams: the form of a sample and of its label, if any."""
    match samples:
        case InlineSamples(x, y):
            return (x.shape[1:], x.dtype.name, None if y is None else y.dtype.name)
        case PublicSamples(labelled=labelled):
            return (PublicSamples, labelled)
        case _:
            return (type(samples),)


def _extra_form(extra: Extra) -> Hashable:
    if isinstance(extra.value, Mapping):
        return _tree_form(extra.value)
    return extra.value.dtype.name, extra.value.shape[1:] if extra.stream else extra.value.shape


def _tree_form(tree: Tree) -> Hashable:
    return tuple((name, array.dtype.name, array.shape) for name, array in tree.items())
