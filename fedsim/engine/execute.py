"""Running a job for real, in a worker.

All randomness comes from generators made from the job's seed, one for each stream and one for the step. A job
that draws from torch's global generator fails, since its result would depend on what else is running.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import repeat
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from fedsim.data.augmentations.base import transformed
from fedsim.engine.batches import Pass, order_stream
from fedsim.engine.confusion import Confusion
from fedsim.engine.jobs import Call, Evaluate, Extra, Fit, Fitted, Job, Predict, Samples, Score
from fedsim.engine.losses import Batch, label_loss
from fedsim.engine.optimisers import OptimiserState, keep, resume
from fedsim.engine.steps import Work
from fedsim.engine.worker_state import BoundNet, Worker, to_numbers, to_tensor, to_tree
from fedsim.errors import JobError
from fedsim.models.dropout import drawing_from
from fedsim.params import Array, Model, Tree, unwarned
from fedsim.rng import Key

CPU = torch.device("cpu")

ALIGNMENT_BYTES = 16
"""The bits of a matrix product may depend on its operands' addresses, unless these are multiples of it."""

BLOCK_BYTES = 4 * 2**20
"""Samples of so many bytes are gathered at once: each gathering costs the same, however little it brings."""


def run(job: Job, worker: Worker) -> Any:
    """Run a job and return its result; a job that drew from the global generator is a JobError."""
    with own_generators_only(worker.resources.device), unwarned():
        try:
            match job:
                case Fit():
                    return fit(job, worker)
                case Predict():
                    return predict(job, worker)
                case Evaluate():
                    return evaluate(job, worker)
                case Call(function, arguments):
                    return function(*arguments)
        except StopIteration as error:
            # The one exception that no future of asyncio takes.
            raise RuntimeError("StopIteration left the job's code") from error


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Pin the calling thread, which is not a worker's, for one job: sums over threads end in other bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def fit(job: Fit, worker: Worker) -> Fitted:
    """Train; the models come back frozen."""
    if job.num_steps == 0:
        return unfitted(job)
    nets = {
        name: worker.bind(name, model, trained=name in job.trained, public_buffers=job.public_buffers)
        for name, model in job.models.items()
    }
    key = Key.root(job.seed)
    passes = worker.resources.passes((job.models[name].architecture for name in job.trained), job.streams)
    feeds = {name: _Feed(name, one, job, worker, key) for name, one in passes.items()}
    extras = {name: _tensors(extra, worker) for name, extra in job.extras.items() if not extra.stream}
    states = {name: _begun(job, name, nets[name], worker) for name in job.trained}
    outputs = {name: to_tensor(array, worker.resources.device) for name, array in job.outputs.items()}
    work = Work(nets, job.trained, extras, job.optimisers, states, key.child("step").torch(), outputs)
    losses = []  # kept on the device: reading one would wait for it
    with drawing_from(work.generator):
        for _ in range(job.num_steps):
            worker.pause_point()
            losses.append(job.step(work, {name: feed.next(extras) for name, feed in feeds.items()}))
    models = {name: _model(job.models[name].architecture, nets[name]) for name in job.trained}
    kept = _kept(job, nets, states)
    return Fitted(models, fmean(to_numbers(losses)), job.num_steps, kept, to_tree(work.outputs))


def unfitted(job: Fit) -> Fitted:
    """Return what a fit gives that does nothing."""
    models = {name: job.models[name] for name in job.trained}
    return Fitted(models, float("nan"), job.num_steps, job.states or {}, job.outputs)


def _begun(job: Fit, name: str, net: BoundNet, worker: Worker) -> OptimiserState:
    """Return the state with which a model's optimiser begins."""
    tree = job.states.get(name) if job.states else None
    if not tree:
        return job.optimisers[name].start(list(net.params.values()))
    device = worker.resources.device
    # In the layout of the parameters, since kernels round otherwise in another. Counts of steps stay on the
    # CPU: they have no dimension.
    slots = {
        slot: to_tensor(array, device if array.ndim else CPU, channels_last=net.channels_last)
        for slot, array in tree.items()
    }
    return resume(job.optimisers[name], net.params, slots)


def _kept(job: Fit, nets: Mapping[str, BoundNet], states: Mapping[str, OptimiserState]) -> dict[str, Tree]:
    """Return what the optimisers have come to, if the job asks for it."""
    if job.states is None:
        return {}
    kept = {name: keep(list(nets[name].params), state) for name, state in states.items()}
    return {name: to_tree(tensors) for name, tensors in kept.items() if tensors}


def predict(job: Predict, worker: Worker) -> Array:
    """Return the outputs ``[n, ...]``, read-only."""
    net = worker.bind("predict", job.model, trained=False)
    with torch.no_grad():
        chunks = [net(x) for x, _ in _chunks(job.samples, job.batch_size, worker)]
    if not chunks:
        shape = worker.resources.architectures[job.model.architecture].output_shape
        chunks = [torch.empty(0, *shape)]
    logits = torch.cat(chunks)
    return to_tree({"logits": logits})["logits"]


def evaluate(job: Evaluate, worker: Worker) -> list[Score]:
    """Return one score for each part; ties of the largest logit go to the first class."""
    net = worker.bind("predict", job.model, trained=False)
    with torch.no_grad():
        return [_score(net, part, job, worker) for part in job.parts]


def _score(net: BoundNet, samples: Samples, job: Evaluate, worker: Worker) -> Score:
    total, loss, has_classes = 0, 0.0, True
    # All stay on the device until the end: reading one would wait for it.
    losses: list[Tensor] = []
    hits: list[Tensor] = []
    pairs: list[Tensor] = []
    for x, y in _chunks(samples, job.batch_size, worker):
        if y is None:
            raise ValueError(
                "samples without labels cannot be evaluated on: take a client's or the global test"
            )
        logits = net(x)
        has_classes = not y.is_floating_point()
        if has_classes:
            predicted = logits.argmax(1)
            hits.append((predicted == y).sum())
            if job.per_class:
                pairs.append(torch.stack([y, predicted]))
        losses.append(label_loss(logits, y, reduction="sum"))
        total += len(y)
    for one in to_numbers(losses):
        loss += one  # not by sum(), which rounds otherwise from Python 3.12 on
    correct = int(sum(to_numbers(hits))) if has_classes else None
    confusion = None
    if pairs:
        labels, predicted_labels = torch.cat(pairs, 1).cpu().numpy()
        confusion = Confusion.of(labels, predicted_labels, logits.shape[1])
    return Score(correct, total, loss, confusion)


class _Feed:
    """Hands out one stream's batches, and the rows of the extras that follow it."""

    def __init__(self, name: str, one: Pass, job: Fit, worker: Worker, key: Key) -> None:
        stream, device = job.streams[name], worker.resources.device
        tensors = worker.resources.tensors(stream.samples)
        numbers = order_stream(name, job.seed) if stream.shuffled else None
        # Not a method: a generator that holds what holds it keeps its tensors until the collector comes by.
        self._walk = _batches(*tensors, one, one.orders(numbers, device))
        self._augmentations = worker.resources.augmentations(stream.samples)
        if self._augmentations:
            self._generator = key.child("augment", name).torch()
        self._extras: dict[str, Tensor] = {}
        for label, extra in job.extras.items():
            if extra.stream == name:
                values = self._extras[label] = _tensors(extra, worker)
                if len(values) != one.num_samples:
                    raise ValueError(
                        f"extra {label!r} has {len(values)} rows, its stream {name!r} {one.num_samples} "
                        "samples: give one row for each"
                    )

    def next(self, extras: dict[str, Any]) -> Batch:
        positions, batch = next(self._walk)
        for label, values in self._extras.items():
            extras[label] = values.index_select(0, positions)
        if self._augmentations:
            return Batch(transformed(self._augmentations, batch.x, self._generator), batch.y)
        return batch


def _batches(
    x: Tensor, y: Tensor | None, rows: Tensor | None, one: Pass, orders: Iterator[Tensor]
) -> Iterator[tuple[Tensor, Batch]]:
    """Yield each batch and its positions in the stream; samples are gathered for many batches at once."""
    block = _batches_in_block(x, one.batch_size)
    # Cut where a block ends, so that every block is gathered by itself.
    blocks = [list(one.sizes[start : start + block]) for start in range(0, len(one), block)]
    spans = [sum(sizes) for sizes in blocks]
    for order in orders:
        for sizes, positions in zip(blocks, torch.split(order, spans), strict=True):
            chosen = positions if rows is None else rows.index_select(0, positions)
            xs = torch.split(x.index_select(0, chosen), sizes)
            ys: Iterable[Tensor | None] = repeat(None, len(sizes))
            if y is not None:
                ys = torch.split(y.index_select(0, chosen), sizes)
            for mine, its_x, its_y in zip(torch.split(positions, sizes), xs, ys, strict=True):
                yield mine, Batch(aligned(its_x), its_y)


def aligned(tensor: Tensor) -> Tensor:
    """Return the tensor, or a copy if it begins at no multiple of :data:`ALIGNMENT_BYTES`, as slices may."""
    return tensor if tensor.data_ptr() % ALIGNMENT_BYTES == 0 else tensor.clone()


def _batches_in_block(x: Tensor, batch_size: int) -> int:
    """Return how many batches to gather at once."""
    batch_bytes = max(1, batch_size * math.prod(x.shape[1:]) * x.element_size())
    return max(1, BLOCK_BYTES // batch_bytes)


def _chunks(samples: Samples, batch_size: int, worker: Worker) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Yield x and y of each batch, in order."""
    x, y, rows = worker.resources.tensors(samples)
    if rows is None:
        rows = torch.arange(len(x), device=worker.resources.device)
    for start in range(0, len(rows), batch_size):
        worker.pause_point()
        part = rows[start : start + batch_size]
        yield x.index_select(0, part), None if y is None else y.index_select(0, part)


def _tensors(extra: Extra, worker: Worker) -> Any:
    device = worker.resources.device
    if isinstance(extra.value, Mapping):
        return {name: to_tensor(array, device) for name, array in extra.value.items()}
    return to_tensor(extra.value, device)


def _model(architecture: str, net: BoundNet) -> Model:
    return Model(architecture, to_tree(net.params), to_tree(net.buffers))


@contextmanager
def own_generators_only(device: torch.device) -> Iterator[None]:
    """Raise a JobError if the block, or something beside it, drew from torch's global generators."""
    before = _global_states(device)
    yield
    if not all(map(torch.equal, before, _global_states(device))):
        raise JobError(
            "a training job, or something that ran beside it, drew from torch's global generator, so results "
            "would depend on what else is running: draw from the generator that the step is given "
            "(work.generator), and for dropout take fedsim.models.dropout.Dropout, which does"
        )


def _global_states(device: torch.device) -> list[Tensor]:
    states = [torch.get_rng_state()]
    if device.type == "cuda":
        states.append(torch.cuda.get_rng_state(device))
    return states
