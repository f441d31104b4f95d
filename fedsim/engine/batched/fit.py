"""Training many clients' small nets at once, with the bits of one at a time.

Fits of one kind (:func:`batch_key`) are cut into tiles that stay in the processor's cache. The clients of a
tile take their n-th steps together; those whose batches have one size at a step are computed at once: the
nets by exact products, and what the loss does with their logits by its own code
(:func:`fedsim.engine.losses.serves_many`).

A tile with a batch size that is new to its kind is checked: some of its clients are also trained by
:func:`fedsim.engine.execute.fit`. Where a bit differs, fits of this kind are done one by one from then on.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, cast

import numpy as np
from torch import Tensor

from fedsim.engine.batched.dense_net import Layers, layers_of, num_params
from fedsim.engine.batched.feed import BatchedFeed, Batches
from fedsim.engine.batched.slopes import Losses
from fedsim.engine.batched.tiled_nets import TiledNets
from fedsim.engine.execute import fit
from fedsim.engine.jobs import Extra, Fit, Fitted, InlineSamples, PublicSamples, Samples
from fedsim.engine.losses import can_serve_many
from fedsim.engine.optimisers import Adam, Cosine, Optimiser, Sgd
from fedsim.engine.steps import Descent
from fedsim.engine.worker_state import Resources, Worker
from fedsim.models import Architecture
from fedsim.params import Model, Tree, unwarned
from fedsim.task import Task

TILE_BYTES = 4 * 2**20
"""What a tile's parameters, gradients, optimisers and batches may take: more does not stay in the cache."""

ELEMENTWISE = (Sgd, Adam)
"""Optimisers that serve stacked parameters as they are."""

Shape = tuple[tuple[int, ...], bool]
"""Sizes of the batches of each stream, and whether a client was alone with them."""


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
        layers: Of each model's net.
        trained: Names of the models that are trained.
        step: What a step does; their losses may differ in settings.
        optimiser: Applies the gradients.
        batch_sizes: Of each stream.
        checks: Shared by kinds that differ in numbers only.
    """

    layers: Mapping[str, Layers]
    trained: tuple[str, ...]
    step: Descent
    optimiser: Optimiser
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
    return _kind(form, job.optimiser, tuple([(one.batch_size, one.shuffled) for one in job.streams.values()]))


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
def _kind(form: _Form, optimiser: Optimiser, batches: tuple[tuple[int, bool], ...]) -> Kind | None:
    if type(optimiser.inner if isinstance(optimiser, Cosine) else optimiser) not in ELEMENTWISE:
        return None
    known = {name: layers_of(architecture) for name, architecture in form.models}
    layers = {name: found for name, found in known.items() if found is not None}
    (_, first), *_ = form.models
    if len(layers) < len(known) or not all(_is_usual(samples, first.task) for _, samples in form.streams):
        return None
    sizes = tuple(size for size, _ in batches)
    return Kind(layers, form.trained, form.step, optimiser, sizes, _checks(form, optimiser.counted_as))


def _is_usual(samples: Hashable, task: Task) -> bool:
    """Return whether samples of this form have the types and the shape of the task's."""
    usual = (np.dtype(task.dtype), task.input_shape)
    return samples in (True, False, (*usual, None), (*usual, np.dtype(task.label_dtype)))


@lru_cache(maxsize=1024)
def _checks(form: _Form, optimiser: Hashable) -> Checks:
    """Return the checks of a form and what an optimiser is counted as."""
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
        num_samples = worker.resources.num_samples
        counts = [tuple([num_samples(one.samples) for one in job.streams.values()]) for job in jobs]
        # Those that train longest first, so that those at work are a slice at every step.
        order = sorted(
            (number for number, its_counts in enumerate(counts) if all(its_counts)),
            key=lambda number: (jobs[number].num_steps, counts[number]),
            reverse=True,
        )
        size = _tile_size(kind, [max(its_counts) for its_counts in zip(*counts, strict=True)])
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


def _tile_size(kind: Kind, most_samples: Sequence[int]) -> int:
    """Return how many clients to train at once."""
    batch = sum(min(both) for both in zip(kind.batch_sizes, most_samples, strict=True))
    slots, scalars = len(kind.optimiser.start([]).slots), 0
    for name, layers in kind.layers.items():
        scalars += num_params(layers) * (2 + slots if name in kind.trained else 1)
        scalars += batch * (layers[0].num_inputs + sum(2 * layer.num_outputs for layer in layers))
    return max(2, TILE_BYTES // (4 * scalars))


class _Tile:
    """Clients that are trained at once, in the order of :class:`fedsim.engine.batched.feed.BatchedFeed`."""

    def __init__(
        self, kind: Kind, jobs: Sequence[Fit], counts: Sequence[tuple[int, ...]], worker: Worker
    ) -> None:
        self._kind, self._jobs, self._worker = kind, jobs, worker
        self._feed = BatchedFeed(jobs, counts, worker.resources)
        self._losses = Losses(jobs, worker.resources.data.task)
        self._nets = {
            name: TiledNets(
                layers,
                [job.models[name].params for job in jobs],
                self._feed.most,
                kind.optimiser if name in kind.trained else None,
            )
            for name, layers in kind.layers.items()
        }
        first, *_ = self._nets.values()
        self._trees = {
            name: first.like_params([cast(Tree, job.extras[name].value) for job in jobs])
            for name, extra in jobs[0].extras.items()
            if isinstance(extra.value, Mapping)
        }

    def fit(self) -> list[Fitted | None]:
        """Train; return the results in the order of the jobs, None for a model that is not finite.

        Which of two NaN a sum takes its sign from depends on the kernel, so such a model is left to others.
        """
        trained = [self._nets[name] for name in self._kind.trained]
        shapes: dict[Shape, int] = {}
        num_at_work, trees = 0, dict[str, Mapping[str, Tensor]]()
        for step in range(self._jobs[0].num_steps):
            self._worker.pause_point()
            before, num_at_work = num_at_work, self._feed.num_at_work(step)
            if num_at_work != before:
                trees = self._trees_of(slice(0, num_at_work))
            for batches in self._feed.at(step):
                self._take_gradients(step, batches)
                first, last = batches.clients.start, batches.clients.stop - 1
                shapes[batches.sizes, first == last] = last
            for nets in trained:
                nets.update(num_at_work, self._kind.step.correct, trees)
        are_finite = zip(*[nets.are_finite() for nets in trained], strict=True)
        fitted = [
            one if all(its_models) else None
            for one, its_models in zip(self._fitted(), are_finite, strict=True)
        ]
        self._check(fitted, shapes)
        return fitted

    def _take_gradients(self, step: int, batches: Batches) -> None:
        """Compute the gradients of the loss of some clients."""
        clients, with_autograd = batches.clients, not self._losses.are_cross_entropies
        nets = {name: tiled.live(clients, with_autograd=with_autograd) for name, tiled in self._nets.items()}
        extras = {**self._trees_of(clients), **batches.extras} if with_autograd else {}
        for name, slopes in self._losses.slopes(step, batches, nets, extras).items():
            self._nets[name].backward(clients, nets[name], slopes)

    def _trees_of(self, clients: slice) -> dict[str, Mapping[str, Tensor]]:
        """Return the extras that are trees, of some clients."""
        return {
            name: {leaf: values[clients] for leaf, values in tree.items()}
            for name, tree in self._trees.items()
        }

    def _fitted(self) -> list[Fitted]:
        names = self._kind.trained
        trees = zip(*[self._nets[name].trees() for name in names], strict=True)
        return [
            Fitted(
                {
                    name: Model(job.models[name].architecture, tree)
                    for name, tree in zip(names, its_trees, strict=True)
                },
                loss,
                job.num_steps,
            )
            for job, its_trees, loss in zip(self._jobs, trees, self._losses.means(), strict=True)
        ]

    def _check(self, fitted: Sequence[Fitted | None], shapes: Mapping[Shape, int]) -> None:
        """Train the last client that met each new shape once more; there a difference is most likely."""
        checks, same = self._kind.checks, dict[int, bool]()
        for shape, number in shapes.items():
            if shape in checks.done or (one := fitted[number]) is None:
                continue
            if number not in same:
                same[number] = _are_same(one, fit(self._jobs[number], self._worker))
                checks.num_differences += not same[number]
            checks.done.add(shape)


def _are_same(one: Fitted, other: Fitted) -> bool:
    if np.float64(one.loss).tobytes() != np.float64(other.loss).tobytes():
        return False
    return list(one.models) == list(other.models) and all(
        _have_same_bits(one.models[name].params, other.models[name].params) for name in one.models
    )


def _have_same_bits(one: Tree, other: Tree) -> bool:
    return list(one) == list(other) and all(one[name].tobytes() == other[name].tobytes() for name in one)
