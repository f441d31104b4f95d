"""Many clients' models that predict and are evaluated at once give what each gives by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsim.engine.batched import evaluation
from fedsim.engine.batched.evaluation import evaluate_together, predict_together
from fedsim.engine.batched.kinds import EvaluationKind, Ways, evaluation_kind
from fedsim.engine.execute import evaluate, one_torch_thread, predict
from fedsim.engine.jobs import (
    ClientSamples,
    Evaluate,
    GlobalTest,
    InlineSamples,
    Predict,
    PublicSamples,
    Samples,
)
from fedsim.engine.losses import label_loss
from fedsim.engine.worker_state import Worker
from fedsim.params import Model
from fedsim.rng import Key
from fedsim.task import Task, TaskKind
from tests.engine.batched import worlds

NUM_HELD_OUT = 40
"""Samples of the public set and of the global test set."""


def world(widths: Sequence[int], sizes: Sequence[int], kind: TaskKind = "classification") -> Worker:
    """Return a worker whose clients have test samples, so many each, with a net "net" of these widths."""
    inputs, *hidden, outputs = widths
    return worlds.world(
        Task((inputs,), outputs, kind),
        sizes,
        {"net": worlds.dense(*hidden)},
        split="test",
        num_public=NUM_HELD_OUT,
        num_test=NUM_HELD_OUT,
    )


def models(worker: Worker, num_models: int) -> list[Model]:
    return [worker.resources.architectures["net"].initial(Key.root(seed)) for seed in range(num_models)]


def the_kind(jobs: Sequence[Any], worker: Worker) -> EvaluationKind:
    (kind,) = {evaluation_kind(job, worker.resources) for job in jobs}
    assert isinstance(kind, EvaluationKind)
    return kind


@settings(max_examples=settings().max_examples * 4 // 3)
@given(
    widths=st.lists(st.integers(1, 70), min_size=3, max_size=4),
    sizes=st.lists(st.integers(0, 45), min_size=2, max_size=8),
    num_equal=st.integers(1, 5),
    batch_size=st.integers(1, 50),
    tile_size=st.integers(2, 12),
    source=st.sampled_from(["own", "public", "global"]),
    kind=st.sampled_from(["classification", "regression"]),
    per_class=st.booleans(),
)
def test_results_are_those_of_one_at_a_time(
    widths: list[int],
    sizes: list[int],
    num_equal: int,
    batch_size: int,
    tile_size: int,
    source: str,
    kind: TaskKind,
    per_class: bool,
) -> None:
    sizes = sizes + sizes[:1] * num_equal
    worker = world(widths, sizes, kind)
    nets = models(worker, len(sizes))
    own: list[Samples] = [ClientSamples(client, "test") for client in range(len(sizes))]
    public, tests = PublicSamples(np.arange(0, NUM_HELD_OUT, 2)), GlobalTest()
    for_all: dict[str, list[Samples]] = {"public": [public] * len(own), "global": [tests] * len(own)}
    all_samples = for_all.get(source, own)
    predictions = [Predict(model, some, batch_size) for model, some in zip(nets, all_samples, strict=True)]
    evaluations = [Evaluate(job.model, (job.samples,), batch_size, per_class) for job in predictions]
    with pytest.MonkeyPatch.context() as patch, one_torch_thread():
        patch.setattr(evaluation, "_tile_size", lambda kind, num_samples: tile_size)
        for job, logits in zip(predictions, predict_together(predictions, worker), strict=True):
            expected = predict(job, worker)
            assert (logits.shape, logits.tobytes()) == (expected.shape, expected.tobytes())
            assert not logits.flags.writeable
        assert not the_kind(predictions, worker).differing
        if source != "public":
            shared = [
                Evaluate(nets[0], tuple(all_samples), batch_size, per_class),
                Evaluate(nets[1], tuple(all_samples[:2]), batch_size, per_class),
            ]
            for jobs in (evaluations, shared, shared[:1]):
                assert evaluate_together(jobs, worker) == [evaluate(job, worker) for job in jobs]
            assert not the_kind(evaluations, worker).differing


def test_a_difference_ends_the_computing_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = world((20, 20, 5), (7, 7, 9, 9, 9))
    jobs = [Evaluate(model, (ClientSamples(n, "test"),), 256) for n, model in enumerate(models(worker, 5))]
    monkeypatch.setattr(evaluation, "label_loss", lambda *some: label_loss(*some) + 1e-2)
    with one_torch_thread():
        expected = [evaluate(job, worker) for job in jobs]
        assert evaluate_together(jobs, worker) == expected
        assert the_kind(jobs, worker).differing == {7, 9}
        monkeypatch.setattr(evaluation, "_scores", None)
        assert evaluate_together(jobs, worker, ways := Ways()) == expected
    assert ways == {"other bits together": 5}


def test_what_is_left_of_a_job_is_one_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = world((20, 20, 5), (7, 8, 9, 9, 10))
    (model,) = models(worker, 1)
    job = Evaluate(model, tuple(ClientSamples(client, "test") for client in range(5)), 256)
    parts: list[tuple[Samples, ...]] = []

    def noted(job: Evaluate, worker: Worker) -> Any:
        parts.append(job.parts)
        return evaluate(job, worker)

    monkeypatch.setattr(evaluation, "evaluate", noted)
    with one_torch_thread():
        assert evaluate_together([job], worker, ways := Ways()) == [evaluate(job, worker)]
    assert ways == {"too few alike": 1}
    own = job.parts
    # The first two are the check.
    assert parts == [(own[2],), (own[3],), (own[0], own[1], own[4])]


def test_what_is_not_known_is_done_by_itself() -> None:
    worker = world((20, 20, 5), (7,))
    (model,) = models(worker, 1)
    own, inline = (
        ClientSamples(0, "test"),
        InlineSamples(np.zeros((3, 20), np.float32), np.zeros(3, np.int64)),
    )
    resources = worker.resources
    for job in (
        Predict(model, inline, 4),
        Evaluate(model, (inline,), 4),
        Evaluate(model, (own, inline), 4),
        Evaluate(model, (), 4),
        Evaluate(model, (PublicSamples(np.arange(3)),), 4),
    ):
        assert evaluation_kind(job, resources) is None
    assert evaluation_kind(Predict(model, own, 4), resources) is not None
    assert evaluation_kind(Predict(model, own, 4), resources) is evaluation_kind(
        Predict(model, own, 4), resources
    )
    assert evaluation_kind(Predict(model, own, 5), resources) is not evaluation_kind(
        Predict(model, own, 4), resources
    )
    assert evaluation_kind(Evaluate(model, (own,), 4), resources) is not evaluation_kind(
        Evaluate(model, (own,), 4, per_class=True), resources
    )
