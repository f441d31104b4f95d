"""Training many clients' small nets at once, with the bits of one at a time.

Fits of one kind (:func:`batch_key`) are cut into tiles that stay in the processor's cache. The clients of a
tile take their n-th steps together; those whose batches have one size at a step are computed at once.

A tile with a batch size that is new to its kind is checked: some of its clients are also trained by
:func:`fedsim.engine.execute.fit`. Where a bit differs, fits of this kind are done one by one from then on.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from statistics import fmean
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from fedsim.engine.batched.dense_net import (
    Layers,
    are_turned,
    dense_layers,
    gradients,
    names_of,
    num_params,
    own,
    stack,
    unstack,
)
from fedsim.engine.batched.feed import BatchedFeed, Batches
from fedsim.engine.batched.sums_of_losses import means_of_losses
from fedsim.engine.execute import fit
from fedsim.engine.jobs import ClientSamples, Fit, Fitted, InlineSamples, PooledSamples
from fedsim.engine.losses import MODEL, TRAIN, empirical_loss
from fedsim.engine.optimisers import Adam, Cosine, Optimiser, OptimiserState, Sgd
from fedsim.engine.steps import Correction, Descent, Step
from fedsim.engine.worker_state import Resources, Worker
from fedsim.models import Architecture
from fedsim.params import Model, Tree, unwarned

TILE_BYTES = 4 * 2**20
"""What a tile's parameters, gradients, optimiser and batch may take: more does not stay in the cache."""

ELEMENTWISE = (Sgd, Adam)
"""Optimisers that serve stacked parameters as they are."""

LABELLED = (ClientSamples, InlineSamples, PooledSamples)
"""Samples that have labels."""


@dataclass(slots=True, eq=False)
class Checks:
    """What has been found out about fits that differ in numbers only.

    Attributes:
        done: Batch sizes, and whether a client was alone with it, at which a client was trained both ways.
        num_differences: How often the results differed; after the first one, no more are done together.
    """

    done: set[tuple[int, bool]] = field(default_factory=set)
    num_differences: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """What fits that are done together have in common."""

    layers: Layers
    step: Descent
    optimiser: Optimiser
    batch_size: int
    checks: Checks


def batch_key(job: Fit, resources: Resources) -> Hashable | None:
    """Return what jobs that can be trained together have in common; None for a job that is done by itself."""
    if job.states is not None or len(job.models) != 1 or len(job.streams) != 1 or not job.num_steps:
        return None
    if resources.pool is None or resources.device.type != "cpu":
        return None
    ((name, model),) = job.models.items()
    ((label, stream),) = job.streams.items()
    samples, names = stream.samples, model.params.keys()
    if name != MODEL or label != TRAIN or not isinstance(samples, LABELLED):
        return None
    # Before anything is remembered of it: a step may hold whatever its author liked.
    if type(job.step) is not Descent or job.step.loss is not empirical_loss:
        return None
    if job.step.correct is not None and not getattr(job.step.correct, "is_elementwise", False):
        return None
    for extra in job.extras.values():
        if extra.stream or not isinstance(extra.value, Mapping) or extra.value.keys() != names:
            return None
    form = None if not isinstance(samples, InlineSamples) else _form(samples)
    architecture = resources.architectures[model.architecture]
    return _kind(architecture, job.step, job.optimisers[MODEL], stream.batch_size, stream.shuffled, form)


def _form(samples: InlineSamples) -> Hashable:
    """Return the types and the shape of samples that a job carries."""
    return samples.x.dtype, samples.x.shape[1:], None if samples.y is None else samples.y.dtype


@lru_cache(maxsize=1024)
def _kind(
    architecture: Architecture,
    step: Descent,
    optimiser: Optimiser,
    batch_size: int,
    shuffled: bool,
    form: Hashable,
) -> Kind | None:
    task = architecture.task
    usual = (np.dtype(np.float32), task.input_shape, np.dtype(np.int64))
    if task.kind != "classification" or task.vocabulary or form not in (None, usual):
        return None
    if type(optimiser.inner if isinstance(optimiser, Cosine) else optimiser) not in ELEMENTWISE:
        return None
    layers = dense_layers(architecture.structure)
    if layers is None or layers[0].num_inputs != task.num_inputs:
        return None
    checks = _checks(architecture, step, optimiser.counted_as)
    return Kind(layers, step, optimiser, batch_size, checks)


@lru_cache(maxsize=1024)
def _checks(architecture: Architecture, step: Step, optimiser: Hashable) -> Checks:
    """Return the checks of an architecture, a step and what an optimiser is counted as."""
    return Checks()


def fit_together(jobs: Sequence[Fit], worker: Worker) -> list[Fitted]:
    """Train all at once; each result is, bit for bit, that of :func:`fedsim.engine.execute.fit`.

    Args:
        jobs: Fits of one :func:`batch_key`; any number of samples and of steps.
        worker: Its thread has one torch thread.

    Raises:
        StoppedError: The run is over.
    """
    kind = batch_key(jobs[0], worker.resources)
    fitted: dict[int, Fitted] = {}
    if isinstance(kind, Kind):
        counts = [worker.resources.num_samples(job.streams[TRAIN].samples) for job in jobs]
        # Those that train longest first, so that those at work are a slice at every step.
        order = sorted(
            (number for number, count in enumerate(counts) if count),
            key=lambda number: (jobs[number].num_steps, counts[number]),
            reverse=True,
        )
        size = _tile_size(kind, max(counts))
        for start in range(0, len(order), size):
            if kind.checks.num_differences:
                break
            tile = order[start : start + size]
            if len(tile) == 1:
                continue
            with unwarned():
                done = _Tile(
                    kind, [jobs[number] for number in tile], [counts[number] for number in tile], worker
                ).fit()
            if not kind.checks.num_differences:
                fitted |= {number: one for number, one in zip(tile, done, strict=True) if one is not None}
    return [fitted[number] if number in fitted else fit(job, worker) for number, job in enumerate(jobs)]


def _tile_size(kind: Kind, most_samples: int) -> int:
    """Return how many clients to train at once."""
    widths = kind.layers[0].num_inputs + sum(2 * layer.num_outputs for layer in kind.layers)
    slots = len(kind.optimiser.start([]).slots)
    client_bytes = 4 * ((2 + slots) * num_params(kind.layers) + min(kind.batch_size, most_samples) * widths)
    return max(2, TILE_BYTES // client_bytes)


class _Tile:
    """Clients that are trained at once, in the order of :class:`fedsim.engine.batched.feed.BatchedFeed`."""

    def __init__(self, kind: Kind, jobs: Sequence[Fit], counts: Sequence[int], worker: Worker) -> None:
        layers = kind.layers
        self._kind, self._jobs, self._worker = kind, jobs, worker
        self._feed = BatchedFeed(jobs, counts, worker.resources)
        turned = are_turned(layers, self._feed.most, len(jobs))
        self._params = own(stack([job.models[MODEL].params for job in jobs], layers, turned), turned)
        self._gradients = [torch.empty_like(param) for param in self._params]
        self._extras = {
            name: stack([cast(Tree, job.extras[name].value) for job in jobs], layers, turned)
            for name in jobs[0].extras
        }
        self._log_p: dict[int, list[tuple[slice, int, Tensor]]] = {}

    def fit(self) -> list[Fitted | None]:
        """Train; return the results in the order of the jobs, None for a model that is not finite.

        Which of two NaN a sum takes its sign from depends on the kernel, so such a model is left to others.
        """
        params, slopes, extras = self._params, self._gradients, self._extras
        optimiser, correct = self._kind.optimiser, self._kind.step.correct
        state = optimiser.start(params)
        shapes: dict[tuple[int, bool], int] = {}
        for step in range(self._jobs[0].num_steps):
            self._worker.pause_point()
            num_at_work = self._feed.num_at_work(step)
            if num_at_work < len(params[0]):
                params, slopes = _first(num_at_work, params), _first(num_at_work, slopes)
                extras = {name: _first(num_at_work, tree) for name, tree in extras.items()}
                slots = {name: _first(num_at_work, tensors) for name, tensors in state.slots.items()}
                state = OptimiserState(slots, state.num_steps)
            for batches in self._feed.at(step):
                self._take_gradients(step, batches)
                num_clients, batch_size = batches.labels.shape
                shapes[batch_size, num_clients == 1] = batches.clients.stop - 1
            moves = slopes if correct is None else self._corrected(correct, params, slopes, extras)
            optimiser.update(params, moves, state)
        fitted = [
            one if is_finite else None
            for one, is_finite in zip(self._fitted(), self._are_finite(), strict=True)
        ]
        self._check(fitted, shapes)
        return fitted

    def _are_finite(self) -> list[bool]:
        if bool(torch.stack([param.sum() for param in self._params]).isfinite().all()):
            return [True] * len(self._jobs)
        sums = torch.stack([param.flatten(1).sum(1) for param in self._params])
        return cast("list[bool]", sums.isfinite().all(0).tolist())

    def _take_gradients(self, step: int, batches: Batches) -> None:
        """Compute the gradients of the loss of some clients; keep what their losses follow from."""
        num_clients, batch_size = batches.labels.shape
        labels = batches.labels[..., None]

        def slopes_at(logits: Tensor) -> Tensor:
            log_p = torch.log_softmax(logits, -1)
            self._log_p.setdefault(batch_size, []).append((batches.clients, step, log_p.gather(-1, labels)))
            # What autograd does for the cross-entropy; softmax minus one-hot would round otherwise.
            slopes = torch.zeros_like(log_p).scatter_(-1, labels, -1.0 / batch_size)
            return cast(Tensor, torch.ops.aten._log_softmax_backward_data(slopes, log_p, -1, torch.float32))

        params, slopes = self._params, self._gradients
        if num_clients < len(self._jobs):
            params, slopes = ([tensor[batches.clients] for tensor in some] for some in (params, slopes))
        gradients(self._kind.layers, params, batches.x, slopes_at, slopes)

    def _corrected(
        self,
        correct: Correction,
        params: Sequence[Tensor],
        slopes: list[Tensor],
        extras: Mapping[str, Sequence[Tensor]],
    ) -> list[Tensor]:
        names = names_of(self._kind.layers)
        model: Any = SimpleNamespace(params=dict(zip(names, params, strict=True)))
        with torch.no_grad():
            return correct(
                model, slopes, {name: dict(zip(names, tree, strict=True)) for name, tree in extras.items()}
            )

    def _fitted(self) -> list[Fitted]:
        trees = unstack(self._params, self._kind.layers)
        return [
            Fitted(
                {MODEL: Model(job.models[MODEL].architecture, tree)},
                fmean(losses[: job.num_steps]),
                job.num_steps,
            )
            for job, tree, losses in zip(self._jobs, trees, self._losses(), strict=True)
        ]

    def _losses(self) -> list[list[float]]:
        """Return the losses of each client's steps."""
        losses = np.empty((len(self._jobs), self._jobs[0].num_steps), np.float32)
        for parts in self._log_p.values():
            means = means_of_losses(np.concatenate([log_p.numpy()[..., 0] for _, _, log_p in parts]))
            first = 0
            for clients, step, log_p in parts:
                losses[clients, step] = means[first : first + len(log_p)]
                first += len(log_p)
        return losses.tolist()

    def _check(self, fitted: Sequence[Fitted | None], shapes: Mapping[tuple[int, bool], int]) -> None:
        """Train the last client that met each new shape once more; there a difference is most likely."""
        checks = self._kind.checks
        for shape, number in shapes.items():
            if shape not in checks.done and (one := fitted[number]) is not None:
                checks.num_differences += not _are_same(one, fit(self._jobs[number], self._worker))
                checks.done.add(shape)


def _first(num_clients: int, tensors: Sequence[Any]) -> list[Any]:
    """Return the tensors of the first clients; counts of steps, which have no dimension, are of all."""
    return [tensor if tensor is None or not tensor.ndim else tensor[:num_clients] for tensor in tensors]


def _are_same(one: Fitted, other: Fitted) -> bool:
    if np.float64(one.loss).tobytes() != np.float64(other.loss).tobytes():
        return False
    mine, others = one.model.params, other.model.params
    return list(mine) == list(others) and all(mine[name].tobytes() == others[name].tobytes() for name in mine)
