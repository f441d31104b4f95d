"""Running a job for real, in a worker.

Everything random comes from generators made from the job's seed, one for each stream and one for the step; a job
that draws from torch's global generator fails, since its result would depend on what else is running.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name that everyone knows
from torch import Tensor

from fedsim.engine.batches import Pass
from fedsim.engine.jobs import (
    Call,
    Evaluate,
    Extra,
    Fit,
    Fitted,
    Job,
    Predict,
    Samples,
    Score,
    Stream,
)
from fedsim.engine.steps import Batch, Work
from fedsim.engine.worker import BoundNet, Worker, to_tensor, to_tree
from fedsim.errors import JobError
from fedsim.params import Array, Model
from fedsim.rng import Key


def run(job: Job, worker: Worker) -> Any:
    """Run a job and return its result.

    Raises:
        JobError: The job drew from the global generator.
        StoppedError: The run is over.
    """
    with _own_generators_only():
        match job:
            case Fit():
                return fit(job, worker)
            case Predict():
                return predict(job, worker)
            case Evaluate():
                return evaluate(job, worker)
            case Call(function, arguments):
                return function(*arguments)


def fit(job: Fit, worker: Worker) -> Fitted:
    """Train; the models come back frozen."""
    if job.num_steps == 0:
        return Fitted({name: job.models[name] for name in job.trained}, float("nan"), 0)
    nets = {
        name: worker.bind(name, model, trained=name in job.trained) for name, model in job.models.items()
    }
    key = Key.root(job.seed)
    feeds = {name: _Feed(name, stream, job, worker, key) for name, stream in job.streams.items()}
    fixed = {n: _tensors(extra, worker) for n, extra in job.extras.items() if extra.scope != "sample"}
    extras: dict[str, Any] = dict(fixed)
    states = {name: job.optimiser.start(list(nets[name].params.values())) for name in job.trained}
    work = Work(nets, job.trained, extras, job.optimiser, states, key.child("step").torch())
    total: Tensor | None = None
    for _ in range(job.num_steps):
        worker.pause_point()
        batches = {}
        for name, feed in feeds.items():
            batches[name] = feed.next(extras)
        loss = job.step(work, batches)
        total = loss if total is None else total + loss
    assert total is not None  # noqa: S101 - there was at least one step
    models = {name: _model(job.models[name].architecture, nets[name]) for name in job.trained}
    return Fitted(models, float(total) / job.num_steps, job.num_steps)


@torch.no_grad()
def predict(job: Predict, worker: Worker) -> Array:
    """Return the logits ``[n, N]``, read-only."""
    net = worker.bind("predict", job.model, trained=False)
    chunks = []
    for x, _ in _chunks(job.samples, job.batch_size, worker):
        worker.pause_point()
        chunks.append(net(x))
    num_outputs = worker.resources.architectures[job.model.architecture].task.num_outputs
    logits = torch.cat(chunks).cpu().numpy() if chunks else torch.empty(0, num_outputs).numpy()
    logits.flags.writeable = False
    return logits


@torch.no_grad()
def evaluate(job: Evaluate, worker: Worker) -> list[Score]:
    """Return one score for each part."""
    net = worker.bind("predict", job.model, trained=False)
    scores = []
    for part in job.parts:
        worker.pause_point()
        correct, total, loss = 0, 0, 0.0
        for x, y in _chunks(part, job.batch_size, worker):
            if y is None:
                raise ValueError("only labelled samples can be evaluated on")
            logits = net(x)
            correct += int((logits.argmax(1) == y).sum())
            loss += float(F.cross_entropy(logits, y, reduction="sum"))
            total += len(y)
        scores.append(Score(correct, total, loss))
    return scores


class _Feed:
    """Hands out one stream's batches, and the rows of the extras that follow it."""

    def __init__(self, name: str, stream: Stream, job: Fit, worker: Worker, key: Key) -> None:
        resources = worker.resources
        self.x, self.y, self.rows = resources.tensors(stream.samples)
        skip = any(resources.architectures[job.models[m].architecture].has_batch_norm for m in job.trained)
        one = Pass(resources.num_samples(stream.samples), stream.batch_size, skip)
        self.positions = one.positions(key.child("order", name).torch() if stream.shuffled else None)
        self.device = resources.device
        self.extras = {
            n: to_tensor(extra.value, self.device)
            for n, extra in job.extras.items()
            if extra.scope == "sample" and extra.stream == name and not isinstance(extra.value, Mapping)
        }

    def next(self, extras: dict[str, Any]) -> Batch:
        positions = next(self.positions).to(self.device)
        for name, values in self.extras.items():
            extras[name] = values.index_select(0, positions)
        rows = positions if self.rows is None else self.rows.index_select(0, positions)
        y = None if self.y is None else self.y.index_select(0, rows)
        return Batch(self.x.index_select(0, rows), y)


def _chunks(samples: Samples, batch_size: int, worker: Worker) -> Iterator[tuple[Tensor, Tensor | None]]:
    x, y, rows = worker.resources.tensors(samples)
    if rows is None:
        rows = torch.arange(len(x), device=worker.resources.device)
    for part in rows.split(batch_size):
        yield x.index_select(0, part), None if y is None else y.index_select(0, part)


def _tensors(extra: Extra, worker: Worker) -> Any:
    device = worker.resources.device
    if isinstance(extra.value, Mapping):
        return {name: to_tensor(array, device) for name, array in extra.value.items()}
    return to_tensor(extra.value, device)


def _model(architecture: str, net: BoundNet) -> Model:
    return Model(architecture, to_tree(net.params), to_tree(net.buffers))


@contextmanager
def _own_generators_only() -> Iterator[None]:
    before = torch.random.default_generator.get_state()
    yield
    if not torch.equal(before, torch.random.default_generator.get_state()):
        raise JobError(
            "a training job drew from torch's global generator, so its result would depend on what else runs: "
            "draw from the generator that the step is given (work.generator), and build layers that draw, such "
            "as dropout, from it"
        )
