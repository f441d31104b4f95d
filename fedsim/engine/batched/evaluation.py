"""Predicting and evaluating with many clients' small nets at once, with the bits of one at a time.

Models that meet as many samples are computed together, in tiles that stay in the processor's cache; so is one
model that meets many clients' samples. As in :mod:`fedsim.engine.batched.fit`, each new number of samples is
checked, and what differs is done one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import groupby, islice
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from fedsim.engine.batched.feed import rows_of
from fedsim.engine.batched.stacked_net import StackedNet, stack
from fedsim.engine.batched.vmapped_net import stacked_net_of
from fedsim.engine.batched.ways import NOT_FINITE, OTHER_BITS, TOGETHER, TOO_FEW, Ways
from fedsim.engine.confusion import Confusion
from fedsim.engine.execute import evaluate, predict
from fedsim.engine.jobs import ClientSamples, Evaluate, GlobalTest, InlineSamples, Predict, Samples, Score
from fedsim.engine.losses import label_loss
from fedsim.engine.worker_state import Resources, Worker
from fedsim.models import Architecture
from fedsim.params import Array, Model, freeze, unwarned

PARTS_AT_ONCE = 4096
"""So many sets of samples are prepared before it is looked whether the run is over."""


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """What predictions, or evaluations, that are done together have in common.

    Attributes:
        net: How it is computed.
        batch_size: Samples of a full batch.
        per_class: Of evaluations, whether samples are counted by class; None for predictions.
        checked: Numbers of samples at which a model's results have been computed both ways.
        differing: Those at which they differed; models that meet so many are done one by one.
    """

    net: StackedNet
    batch_size: int
    per_class: bool | None = None
    checked: set[int] = field(default_factory=set)
    differing: set[int] = field(default_factory=set)


def evaluation_key(job: Predict | Evaluate, resources: Resources) -> Hashable | None:
    """Return what jobs that can be done together have in common; None for a job that is done by itself."""
    if resources.pool is None or resources.device.type != "cpu":
        return None
    if isinstance(job, Predict):
        if isinstance(job.samples, InlineSamples):
            return None
    elif not job.parts or not all(isinstance(part, ClientSamples | GlobalTest) for part in job.parts):
        return None
    per_class = job.per_class if isinstance(job, Evaluate) else None
    return _kind(resources.architectures[job.model.architecture], job.batch_size, per_class)


@lru_cache(maxsize=1024)
def _kind(architecture: Architecture, batch_size: int, per_class: bool | None) -> Kind | None:
    net = stacked_net_of(architecture, is_trained=False)
    return None if net is None else Kind(net, batch_size, per_class)


def predict_together(jobs: Sequence[Predict], worker: Worker, ways: Ways | None = None) -> list[Array]:
    """Return the logits of each; bit for bit those of :func:`fedsim.engine.execute.predict`.

    Args:
        jobs: Predictions of one :func:`evaluation_key`.
        worker: Its thread has one torch thread.
        ways: Counts how many were done in which way.
    """
    done = _together(jobs, [job.samples for job in jobs], _logits, predict, worker)
    if ways is not None:
        ways.update([one if isinstance(one, str) else TOGETHER for one in done])
    return [
        predict(job, worker) if isinstance(one, str) else one for job, one in zip(jobs, done, strict=True)
    ]


def evaluate_together(
    jobs: Sequence[Evaluate], worker: Worker, ways: Ways | None = None
) -> list[list[Score]]:
    """Return the scores of each, which are those of :func:`fedsim.engine.execute.evaluate`.

    Args:
        jobs: Evaluations of one :func:`evaluation_key`.
        worker: Its thread has one torch thread.
        ways: Counts how many were done in which way; of a job with several parts, in that of the first one
            that was not done with others.
    """
    pairs = ((job, part) for job in jobs for part in job.parts)
    done: list[list[Score] | str] = []
    while some := [(replace(job, parts=(part,)), part) for job, part in islice(pairs, PARTS_AT_ONCE)]:
        worker.pause_point()
        of_parts, parts = zip(*some, strict=True)
        done += _together(of_parts, parts, _scores, evaluate, worker)
    each = iter(done)
    by_job = [list(islice(each, len(job.parts))) for job in jobs]
    if ways is not None:
        ways.update([next((one for one in its if isinstance(one, str)), TOGETHER) for its in by_job])
    return [_completed(job, its, worker) for job, its in zip(jobs, by_job, strict=True)]


def _completed(job: Evaluate, done: Sequence[list[Score] | str], worker: Worker) -> list[Score]:
    """Return a job's scores: of the parts that were not done together from one evaluation."""
    left = tuple(part for part, scores in zip(job.parts, done, strict=True) if isinstance(scores, str))
    others = iter(evaluate(replace(job, parts=left), worker) if left else ())
    return [next(others) if isinstance(scores, str) else scores[0] for scores in done]


J = TypeVar("J", Predict, Evaluate)
R = TypeVar("R")


def _together(
    jobs: Sequence[J],
    samples: Sequence[Samples],
    compute: Callable[[Kind, Sequence[Model], Sequence[Array], Worker], Sequence[R] | None],
    compute_one: Callable[[J, Worker], R],
    worker: Worker,
) -> list[R | str]:
    """Return the result of each, or why it is to be done by itself."""
    kind = evaluation_key(jobs[0], worker.resources)
    results: list[R | str] = [TOO_FEW] * len(jobs)
    if isinstance(kind, Kind):
        rows = [rows_of(some, worker.resources) for some in samples]
        order = sorted(range(len(jobs)), key=lambda number: len(rows[number]))
        for count, some in groupby(order, key=lambda number: len(rows[number])):
            alike = list(some)
            size = _tile_size(kind, count)
            for tile in (alike[start : start + size] for start in range(0, len(alike), size)):
                if len(tile) < kind.net.fewest_predicting or not count:
                    continue
                if count in kind.differing:
                    _note(results, tile, [OTHER_BITS] * len(tile))
                    continue
                models = [jobs[number].model for number in tile]
                with unwarned():
                    done = compute(kind, models, [rows[number] for number in tile], worker)
                if done is None:
                    _note(results, tile, [NOT_FINITE] * len(tile))
                    continue
                if count not in kind.checked:
                    # Not both can lie at the address of a single client.
                    if any(bits_of(compute_one(jobs[tile[i]], worker)) != bits_of(done[i]) for i in (-2, -1)):
                        kind.differing.add(count)
                        _note(results, tile, [OTHER_BITS] * len(tile))
                        continue
                    kind.checked.add(count)
                _note(results, tile, done)
    return results


def _note(results: list[Any], tile: Sequence[int], found: Sequence[Any]) -> None:
    for number, one in zip(tile, found, strict=True):
        results[number] = one


def _tile_size(kind: Kind, num_samples: int) -> int:
    values = min(num_samples, kind.batch_size) * kind.net.num_values
    return max(2, kind.net.tile_bytes // (4 * (kind.net.num_params + values)))


def bits_of(result: Any) -> Any:
    """Return what is equal for equal logits or scores."""
    return result.tobytes() if isinstance(result, np.ndarray) else result


def _chunks(
    kind: Kind, models: Sequence[Model], rows: Sequence[Array], worker: Worker
) -> Iterator[tuple[Tensor, Array]]:
    """Yield logits ``[m, b, N]`` of each batch, and where its samples are in the pool, ``[m, b]``."""
    x, _ = cast("tuple[Tensor, Tensor]", worker.resources.pool)
    names = kind.net.names
    params = stack([model.params for model in models], names, [False] * len(names))
    are_one = all(some is rows[0] for some in rows)
    positions = np.stack(rows[:1] if are_one else rows)
    for start in range(0, positions.shape[1], kind.batch_size):
        worker.pause_point()
        part = positions[:, start : start + kind.batch_size]
        chosen = x.index_select(0, torch.from_numpy(part.reshape(-1))).view(*part.shape, *x.shape[1:])
        chosen = chosen.expand(len(models), *chosen.shape[1:])
        yield kind.net.live(params)(chosen), np.broadcast_to(part, (len(models), part.shape[1]))


def _logits(
    kind: Kind, models: Sequence[Model], rows: Sequence[Array], worker: Worker
) -> Sequence[Array] | None:
    """Return the logits; None if some are not finite, since the sign of a NaN depends on the kernel."""
    chunks = [logits for logits, _ in _chunks(kind, models, rows, worker)]
    stacked = torch.cat(chunks, 1).numpy()
    if not np.isfinite(stacked).all():
        return None
    # With memory of its own each, since somebody may hold one of them for long.
    return [freeze({"logits": logits.copy()})["logits"] for logits in stacked]


def _scores(
    kind: Kind, models: Sequence[Model], rows: Sequence[Array], worker: Worker
) -> Sequence[list[Score]] | None:
    """Return the scores; None if some losses are not finite."""
    _, y = cast("tuple[Tensor, Tensor]", worker.resources.pool)
    correct, loss_sums = np.zeros(len(models), np.int64), np.zeros(len(models))
    has_classes = not y.is_floating_point()
    counted: list[list[Confusion]] = [[] for _ in models]
    for logits, positions in _chunks(kind, models, rows, worker):
        labels = torch.from_numpy(y.numpy()[positions])
        if has_classes:
            predicted = logits.argmax(-1)
            correct += (predicted == labels).sum(1).numpy()
            if kind.per_class:
                for its, pairs in zip(
                    counted, zip(labels.numpy(), predicted.numpy(), strict=True), strict=True
                ):
                    its.append(Confusion.of(*pairs, logits.shape[-1]))
        loss_sums += label_loss(logits, labels, "sum").numpy()
    if not np.isfinite(loss_sums).all():
        return None
    scores = zip(correct.tolist(), loss_sums.tolist(), map(Confusion.sum, counted), strict=True)
    return [
        [Score(hits if has_classes else None, len(rows[0]), loss_sum, confusion)]
        for hits, loss_sum, confusion in scores
    ]
