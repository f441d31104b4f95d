"""Predicting and evaluating with many clients' small nets at once, with the bits of one at a time.

Models that meet as many samples are computed together, in tiles that stay in the processor's cache; so is one
model that meets many clients' samples. As in :mod:`fedsim.engine.batched.fit`, each new number of samples is
checked, and what differs is done one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby, islice
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from fedsim.engine.batched.dense_net import TILE_BYTES, LiveNets, stack
from fedsim.engine.batched.feed import rows_of
from fedsim.engine.batched.kinds import (
    NOT_FINITE,
    OTHER_BITS,
    TOGETHER,
    TOO_FEW,
    EvaluationKind,
    Ways,
    evaluation_kind,
)
from fedsim.engine.confusion import Confusion
from fedsim.engine.execute import evaluate, predict
from fedsim.engine.jobs import Evaluate, Predict, Samples, Score
from fedsim.engine.losses import label_loss
from fedsim.engine.worker_state import Worker
from fedsim.params import Array, Model, freeze, unwarned

MAX_PARTS = 4096
"""Sets of samples that are prepared before it is looked whether the run is over."""


def predict_together(jobs: Sequence[Predict], worker: Worker, ways: Ways | None = None) -> list[Array]:
    """Return the logits of predictions of one kind, with the bits of :func:`fedsim.engine.execute.predict`.

    ``ways`` counts how many were done in which way.
    """
    done = _together(jobs, [job.samples for job in jobs], _logits, predict, worker)
    if ways is not None:
        ways.update([logits if isinstance(logits, str) else TOGETHER for logits in done])
    return [
        predict(job, worker) if isinstance(logits, str) else logits
        for job, logits in zip(jobs, done, strict=True)
    ]


def evaluate_together(
    jobs: Sequence[Evaluate], worker: Worker, ways: Ways | None = None
) -> list[list[Score]]:
    """Return the scores of evaluations of one kind, those of :func:`fedsim.engine.execute.evaluate`.

    ``ways`` counts how many were done in which way; a job with several parts, in that of the first part
    that was not done with others.
    """
    pairs = ((job, part) for job in jobs for part in job.parts)
    done: list[list[Score] | str] = []
    while some := [(replace(job, parts=(part,)), part) for job, part in islice(pairs, MAX_PARTS)]:
        worker.pause_point()
        of_parts, parts = zip(*some, strict=True)
        done += _together(of_parts, parts, _scores, evaluate, worker)
    each = iter(done)
    by_job = [list(islice(each, len(job.parts))) for job in jobs]
    if ways is not None:
        ways.update([next((part for part in its if isinstance(part, str)), TOGETHER) for its in by_job])
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
    compute: Callable[[EvaluationKind, Sequence[Model], Sequence[Array], Worker], Sequence[R] | None],
    compute_one: Callable[[J, Worker], R],
    worker: Worker,
) -> list[R | str]:
    """Return the result of each, or why it is to be done by itself."""
    kind = cast(EvaluationKind, evaluation_kind(jobs[0], worker.resources))
    rows = [rows_of(some, worker.resources) for some in samples]
    results: list[R | str] = [TOO_FEW] * len(jobs)

    def tile_results(tile: Sequence[int], count: int) -> Sequence[R | str]:
        if count in kind.differing:
            return [OTHER_BITS] * len(tile)
        models = [jobs[number].model for number in tile]
        with unwarned():
            done = compute(kind, models, [rows[number] for number in tile], worker)
        if done is None:
            return [NOT_FINITE] * len(tile)
        if count not in kind.checked:
            # Not both can lie at the address of a single client.
            if any(bits_of(compute_one(jobs[tile[i]], worker)) != bits_of(done[i]) for i in (-2, -1)):
                kind.differing.add(count)
                return [OTHER_BITS] * len(tile)
            kind.checked.add(count)
        return done

    order = sorted(range(len(jobs)), key=lambda number: len(rows[number]))
    for count, some in groupby(order, key=lambda number: len(rows[number])):
        alike, size = list(some), _tile_size(kind, count)
        for tile in (alike[start : start + size] for start in range(0, len(alike), size)):
            if len(tile) > 1 and count:
                for number, result in zip(tile, tile_results(tile, count), strict=True):
                    results[number] = result
    return results


def _tile_size(kind: EvaluationKind, num_samples: int) -> int:
    values = min(num_samples, kind.batch_size) * kind.net.num_values
    return max(2, TILE_BYTES // (4 * (kind.net.num_params + values)))


def bits_of(result: Any) -> Any:
    """Return what is equal for equal logits or scores."""
    if isinstance(result, np.ndarray):
        return result.tobytes()
    # By its text, since no NaN equals another.
    return [(repr(score.loss_sum), replace(score, loss_sum=0.0)) for score in result]


def _chunks(
    kind: EvaluationKind, models: Sequence[Model], rows: Sequence[Array], worker: Worker
) -> Iterator[tuple[Tensor, Array]]:
    """Yield logits ``[m, b, N]`` of each batch, and where its samples are in the pool, ``[m, b]``."""
    x, _ = cast("tuple[Tensor, Tensor]", worker.resources.pool)
    nets = LiveNets(kind.net, stack([model.params for model in models], kind.net.names))
    are_one = all(some is rows[0] for some in rows)
    positions = np.stack(rows[:1] if are_one else rows)
    for start in range(0, positions.shape[1], kind.batch_size):
        worker.pause_point()
        part = positions[:, start : start + kind.batch_size]
        chosen = x.index_select(0, torch.from_numpy(part.reshape(-1))).view(*part.shape, *x.shape[1:])
        chosen = chosen.expand(len(models), *chosen.shape[1:])
        yield nets(chosen), np.broadcast_to(part, (len(models), part.shape[1]))


def _logits(
    kind: EvaluationKind, models: Sequence[Model], rows: Sequence[Array], worker: Worker
) -> Sequence[Array] | None:
    """Return the logits; None if some are not finite, since the sign of a NaN depends on the kernel."""
    chunks = [logits for logits, _ in _chunks(kind, models, rows, worker)]
    stacked = torch.cat(chunks, 1).numpy()
    if not np.isfinite(stacked).all():
        return None
    # With memory of its own each, since somebody may hold one of them for long.
    return [freeze({"logits": logits.copy()})["logits"] for logits in stacked]


def _scores(
    kind: EvaluationKind, models: Sequence[Model], rows: Sequence[Array], worker: Worker
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
