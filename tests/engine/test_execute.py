"""Jobs, run one by one in this thread."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from fedsim.config import Config
from fedsim.data import FederatedData
from fedsim.engine.batches import Pass, order_stream
from fedsim.engine.execute import ALIGNMENT_BYTES, aligned, fit, run
from fedsim.engine.executors.base import ExecutorConfig
from fedsim.engine.executors.threads import Threads
from fedsim.engine.jobs import (
    Call,
    ClientSamples,
    Evaluate,
    Extra,
    Fit,
    GlobalTest,
    InlineSamples,
    Predict,
    PublicBuffers,
    PublicSamples,
    Samples,
    Stream,
    per_sample,
)
from fedsim.engine.losses import Batches, Extras, Models, divergence, empirical_loss, label_loss
from fedsim.engine.optimisers import Adam, Sgd
from fedsim.engine.steps import NUM_SAMPLES, Descent, GradientSum, Work
from fedsim.engine.worker_state import Resources, Worker
from fedsim.errors import JobError
from fedsim.models import Architecture, ModelPlugin, Net
from fedsim.models.base import named
from fedsim.models.dropout import Dropout
from fedsim.params import Array, Model, freeze
from fedsim.rng import Key, SeededStream
from fedsim.task import Task
from tests.engine.conftest import Lab


def positions_of(one: Pass, numbers: SeededStream | None) -> Iterator[torch.Tensor]:
    """Cut a stream's passes into batches."""
    for order in one.orders(numbers):
        yield from torch.split(order, list(one.sizes))


def net_of(architectures: Mapping[str, Architecture], model: Model) -> nn.Module:
    """Return an ordinary torch module with a model's values."""
    architecture = architectures[model.architecture]
    net: nn.Module = architecture.plugin.build(architecture.task)
    with torch.no_grad():
        for name, tensor in [*net.named_parameters(), *net.named_buffers()]:
            values = model.params[name] if name in model.params else model.buffers[name]
            tensor.copy_(torch.tensor(values))
    return net


def by_hand(
    architectures: Mapping[str, Architecture],
    data: FederatedData,
    job: Fit,
    one: Pass,
    optimiser: Callable[[Any], torch.optim.Optimizer],
) -> tuple[Mapping[str, Array], float]:
    """Train client 0's model with torch's own modules and optimiser; return its values and the mean loss."""
    net = net_of(architectures, job.models["model"]).train()
    moves = optimiser(net.parameters())
    rows = data.indices(0, "train")
    x, y = torch.tensor(data.x[rows]), torch.tensor(data.y[rows])
    order = positions_of(one, order_stream("train", job.seed))
    losses = []
    for positions in islice(order, job.num_steps):
        moves.zero_grad()
        loss = F.cross_entropy(net(x[positions]), y[positions])
        loss.backward()  # type: ignore[no-untyped-call]
        moves.step()
        losses.append(loss.item())
    tensors = [*net.named_parameters(), *net.named_buffers()]
    return {name: tensor.detach().numpy() for name, tensor in tensors}, sum(losses) / len(losses)


SGD = pytest.param(Sgd(0.1), partial(torch.optim.SGD, lr=0.1), id="sgd")
WITH_A_STATE = (
    pytest.param(Sgd(0.1, momentum=0.9), partial(torch.optim.SGD, lr=0.1, momentum=0.9), id="momentum"),
    pytest.param(Adam(0.01), partial(torch.optim.Adam, lr=0.01, foreach=True), id="adam"),
)
"""Optimisers of ours, and torch's."""


@pytest.mark.parametrize(("ours", "theirs"), [SGD, *WITH_A_STATE])
@pytest.mark.parametrize("label", ["mlp", "norm", "lstm", "tied", "counting"])
def test_a_fit_is_a_plain_training_loop_bit_for_bit(
    lab: Lab, ours: Sgd | Adam, theirs: Any, label: str
) -> None:
    job = lab.make_fit(models={"model": lab.start(label)}, optimiser=ours, num_steps=7)
    expected, loss = by_hand(lab.architectures, lab.data, job, Pass(11, 4), theirs)
    fitted = fit(job, lab.worker)
    assert fitted.num_steps == 7
    assert fitted.loss == pytest.approx(loss, rel=1e-5)
    assert fitted.model.architecture == label
    values = {**fitted.model.params, **fitted.model.buffers}
    assert values.keys() == expected.keys()
    for name, array in values.items():
        np.testing.assert_array_equal(array, expected[name])
        assert not array.flags.writeable


def each_alone(models: Models, batches: Batches, extras: Extras) -> dict[str, Tensor]:
    """The loss of each model on the one batch, as if it were trained by itself."""
    return {name: empirical_loss({"model": model}, batches, extras) for name, model in models.items()}


def test_models_that_are_trained_together_each_have_their_own_optimiser(lab: Lab) -> None:
    optimisers = {"a": Sgd(0.1, momentum=0.9), "b": Adam(0.01)}
    models = {"a": lab.start(seed=1), "b": lab.start("norm", seed=2)}
    step = Descent(each_alone)
    together = lab.fit(step=step, models=models, optimisers=optimisers, states={})
    for name, optimiser in optimisers.items():
        alone = lab.fit(models={"model": models[name]}, optimiser=optimiser, states={})
        assert together.models[name].digest() == alone.model.digest()
        assert list(together.states[name]) == list(alone.states["model"])


def test_what_optimisers_hold_is_given_back_only_if_asked_for(lab: Lab) -> None:
    options = {"models": {"model": lab.start("norm")}, "optimiser": Sgd(0.1, momentum=0.9)}
    silent, asked = lab.fit(**options), lab.fit(**options, states={})
    assert silent.states == {}
    assert silent.model.digest() == asked.model.digest()
    assert list(asked.states) == ["model"]
    tree = asked.states["model"]
    assert list(tree) == [f"momentum/{name}" for name in asked.model.params]
    assert all(isinstance(array, np.ndarray) and not array.flags.writeable for array in tree.values())
    assert lab.fit(states={}).states == {}  # plain descent has nothing to go on from


def test_going_on_leaves_what_was_kept_as_it_was(lab: Lab) -> None:
    options = {"optimiser": Adam(0.01)}
    states = lab.fit(**options, states={}).states
    before = {name: array.copy() for name, array in states["model"].items()}
    after = lab.fit(**options, states=states).states["model"]
    for name, array in before.items():
        np.testing.assert_array_equal(states["model"][name], array)
        first = next(name for name in before if name.startswith("steps/"))
        assert (float(before[first]), float(after[first])) == (5, 10)


def test_a_result_is_not_changed_by_the_worker_s_next_job(lab: Lab) -> None:
    first = lab.fit()
    before = first.model.digest()
    lab.fit(seed=3)
    assert first.model.digest() == before


def test_no_steps_give_the_start_back(lab: Lab) -> None:
    states = {"model": {"momentum/w": np.zeros(3, np.float32)}}
    job = lab.make_fit(num_steps=0, streams={"train": Stream(ClientSamples(2), 4)}, states=states)
    fitted = fit(job, lab.worker)
    assert fitted.model is job.models["model"]
    assert fitted.states is states
    assert lab.fit(num_steps=0).states == {}
    assert math.isnan(fitted.loss)
    assert fitted.num_steps == 0


def test_batch_norm_s_buffers_are_trained_and_a_single_last_sample_is_skipped(lab: Lab) -> None:
    # 21 samples in batches of 5: with the last one, BatchNorm would raise.
    streams = {"train": Stream(ClientSamples(3), 5)}
    model = lab.start("norm")
    fitted = lab.fit(models={"model": model}, streams=streams, num_steps=9)
    assert fitted.model.buffers["body.norm.num_batches_tracked"] == 9
    assert not np.array_equal(
        fitted.model.buffers["body.norm.running_mean"], model.buffers["body.norm.running_mean"]
    )


def toward_teacher(models: Models, batches: Batches, extras: Extras) -> Tensor:
    """Return the distance of the student from the teacher's logits."""
    x = batches["train"].x
    return F.mse_loss(models["student"](x), models["teacher"](x))


@pytest.mark.parametrize("teacher", ["mlp", "norm", "counting"])
def test_a_teacher_is_frozen_and_in_eval_mode(lab: Lab, teacher: str) -> None:
    models = {"student": lab.start(), "teacher": lab.start(teacher, 1)}
    before = models["teacher"].digest()
    job = lab.make_fit(models=models, trained=("student",), step=Descent(loss=toward_teacher), num_steps=4)
    fitted = fit(job, lab.worker)
    assert list(fitted.models) == ["student"]
    assert fitted.model.digest() != models["student"].digest()
    bound = lab.worker._nets["teacher", teacher]
    assert Model(teacher, _plain(bound.params), _plain(bound.buffers)).digest() == before


def _plain(tensors: Mapping[str, Tensor]) -> dict[str, Array]:
    return {name: tensor.detach().numpy() for name, tensor in tensors.items()}


@dataclass(frozen=True)
class Recording:
    """A step that moves nothing and writes down what it was handed."""

    seen: list[tuple[list[int], list[int], list[float]]]

    def __call__(self, work: Work, batches: Batches) -> Tensor:
        batch = batches["train"]
        rows = [int(value) for value in batch.x[:, 0]]
        self.seen.append((rows, work.extras["row"].tolist(), work.extras["mine"].tolist()))
        return torch.zeros(())


@pytest.mark.parametrize("shuffled", [True, False])
def test_rows_of_an_extra_follow_their_stream(lab: Lab, shuffled: bool) -> None:
    x = np.zeros((7, 6), np.float32)
    x[:, 0] = np.arange(7)
    seen: list[tuple[list[int], list[int], list[float]]] = []
    job = lab.make_fit(
        step=Recording(seen),
        streams={"train": Stream(InlineSamples(x), 3, shuffled=shuffled)},
        extras={"row": per_sample(np.arange(7), "train"), "mine": Extra(np.array([2.5]))},
        num_steps=6,
    )
    fit(job, lab.worker)
    for rows, extra, mine in seen:
        assert rows == extra
        assert mine == [2.5]
    met = [row for rows, _, _ in seen for row in rows]
    assert [len(rows) for rows, _, _ in seen] == [3, 3, 1, 3, 3, 1]
    assert sorted(met[:7]) == sorted(met[7:]) == list(range(7))
    assert (met == [*range(7), *range(7)]) is not shuffled


def test_streams_of_different_names_are_shuffled_by_different_generators(lab: Lab) -> None:
    orders = []
    for name in ("train", "other"):
        x = np.zeros((50, 6), np.float32)
        x[:, 0] = np.arange(50)
        seen: list[Any] = []
        streams = {name: Stream(InlineSamples(x), 50)}
        lab.fit(step=partial(_note, seen), streams=streams, num_steps=1)
        orders.append(seen)
    assert orders[0] != orders[1]


def _note(seen: list[Any], work: Work, batches: Batches) -> Tensor:
    seen.extend(batch.x[:, 0].tolist() for batch in batches.values())
    return torch.zeros(())


def test_an_extra_of_another_length_than_its_stream_is_refused(lab: Lab) -> None:
    job = lab.make_fit(extras={"teacher": per_sample(np.zeros((12, 3)), "train")})
    with pytest.raises(ValueError, match="'teacher' has 12 rows, its stream 'train' 11 samples"):
        fit(job, lab.worker)


@pytest.mark.parametrize("batch_size", [1, 3, 100])
def test_logits_come_in_the_order_of_the_samples(lab: Lab, batch_size: int) -> None:
    positions = np.array([5, 1, 1, 0, 7])
    model = lab.start("norm")
    logits = lab.run(Predict(model, PublicSamples(positions), batch_size))
    with torch.no_grad():
        expected = net_of(lab.architectures, model).eval()(
            torch.tensor(lab.data.x[lab.data.public[positions]])
        )
    np.testing.assert_allclose(logits, expected.numpy(), rtol=1e-5, atol=1e-6)
    assert (logits.shape, logits.dtype) == ((5, 3), np.float32)
    assert not logits.flags.writeable


def test_logits_of_nothing_have_a_shape(lab: Lab) -> None:
    logits = lab.run(Predict(lab.start(), PublicSamples(np.empty(0, np.int64)), 4))
    assert (logits.shape, logits.dtype) == ((0, 3), np.float32)


@pytest.mark.parametrize("batch_size", [2, 100])
def test_an_evaluation_counts_hits_and_sums_losses(lab: Lab, batch_size: int) -> None:
    model = lab.start()
    parts: tuple[Samples, ...] = (ClientSamples(3, "test"), GlobalTest(), ClientSamples(2, "test"))
    scores = lab.run(Evaluate(model, parts, batch_size))
    rows = [lab.data.indices(3, "test"), lab.data.global_test]
    for score, row in zip(scores, rows, strict=False):
        logits = lab.run(Predict(model, InlineSamples(lab.data.x[row]), 100))
        assert score.correct == int((logits.argmax(1) == lab.data.y[row]).sum())
        assert score.total == len(row)
        expected = F.cross_entropy(torch.tensor(logits), torch.tensor(lab.data.y[row]), reduction="sum")
        assert score.loss_sum == pytest.approx(expected.item(), rel=1e-5)
    assert (scores[2].correct, scores[2].total, scores[2].loss_sum) == (0, 0, 0.0)


@pytest.mark.parametrize("batch_size", [2, 100])
def test_an_evaluation_counts_classes_if_it_is_asked_to(lab: Lab, batch_size: int) -> None:
    model = lab.start()
    parts: tuple[Samples, ...] = (ClientSamples(3, "test"), ClientSamples(2, "test"))
    plain = lab.run(Evaluate(model, parts, batch_size))
    assert [score.confusion for score in plain] == [None, None]
    counted, nothing = lab.run(Evaluate(model, parts, batch_size, per_class=True))
    logits = lab.run(Predict(model, parts[0], 100))
    expected = np.zeros((3, 3), np.int64)
    for label, predicted in zip(lab.data.y[lab.data.indices(3, "test")], logits.argmax(1), strict=True):
        expected[label, predicted] += 1
    assert counted.confusion.matrix.tolist() == expected.tolist()
    assert replace(counted, confusion=None) == plain[0]
    assert nothing.confusion is None


def test_a_regression_has_a_loss_and_no_hits(lab: Lab) -> None:
    model, x = lab.start(), np.ones((3, 6), np.float32)
    logits = lab.run(Predict(model, InlineSamples(x), 2))
    targets = (logits[:, 0] + np.array([0, 1, -2])).astype(np.float32)
    (score,) = lab.run(Evaluate(model, (InlineSamples(x, targets),), 2, per_class=True))
    assert (score.correct, score.total, score.confusion) == (None, 3, None)
    assert score.loss_sum == pytest.approx(0 + 1 + 4, rel=1e-5)


def test_samples_without_labels_cannot_be_evaluated_on(lab: Lab) -> None:
    with pytest.raises(ValueError, match="without labels"):
        lab.run(Evaluate(lab.start(), (PublicSamples(np.arange(3)),), 2))


def test_a_call_is_made(worker: Worker) -> None:
    assert run(Call(divmod, (7, 3), 1.0), worker) == (2, 1)


def test_a_call_may_raise_even_what_no_future_takes(worker: Worker) -> None:
    with pytest.raises(RuntimeError, match="StopIteration left"):
        run(Call(next, (iter(()),), 1.0), worker)


MESSAGE = r"drew from torch's global generator.*work\.generator.*fedsim\.models\.dropout\.Dropout"


def test_a_job_that_draws_from_the_global_generator_fails(lab: Lab) -> None:
    before = torch.get_rng_state()
    try:
        with pytest.raises(JobError, match=MESSAGE):
            lab.run(lab.make_fit(models={"model": lab.start("dropout")}))
        with pytest.raises(JobError, match="global generator"):
            lab.run(Call(torch.rand, (3,), 1.0))
    finally:
        torch.set_rng_state(before)


def test_dropout_does_not_draw_in_eval_mode(lab: Lab) -> None:
    logits = lab.run(Predict(lab.start("dropout"), ClientSamples(0), 4))
    assert logits.shape == (11, 3)


class Dropping(ModelPlugin[Config]):
    """A net with dropout that draws from the job's generator."""

    def build(self, task: Task) -> Net:
        body = named(fc=nn.Linear(6, 16), drop=Dropout(0.5))
        return Net(body, nn.Linear(16, task.num_outputs))


@pytest.mark.parametrize("workers", [1, 3])
def test_masks_follow_from_the_job_s_seed_whatever_runs_beside_it(lab: Lab, workers: int) -> None:
    dropping = Architecture("dropping", Dropping(Config()), lab.data.task)
    resources = Resources.of(lab.data, {"dropping": dropping}, "cpu")
    models = {"model": dropping.initial(Key.root(0))}
    # Not shuffled, so that the seed is for the masks alone.
    streams = {"train": Stream(ClientSamples(0), 4, shuffled=False)}
    jobs = [lab.make_fit(models=models, streams=streams, seed=seed) for seed in (0, 1, 2, 0, 1, 2)]
    alone = Worker(resources, threading.Event())
    expected = [run(job, alone).model.digest() for job in jobs]
    assert expected[:3] == expected[3:]
    assert len(set(expected)) == 3
    pool = Threads(ExecutorConfig(workers=workers))
    pool.open(resources)
    try:
        futures = [pool.submit(job, (0, number)) for number, job in enumerate(jobs)]
        assert [pool.wait(future).model.digest() for future in futures] == expected
    finally:
        pool.close()


@dataclass(frozen=True)
class Noise:
    """A step that adds noise from the job's generator."""

    scale: float

    def __call__(self, work: Work, batches: Batches) -> Tensor:
        with torch.no_grad():
            for param in work.models["model"].params.values():
                param += self.scale * torch.randn(param.shape, generator=work.generator)
        return torch.zeros(())


def test_a_step_draws_from_the_job_s_generator(lab: Lab) -> None:
    first, again = (lab.run(lab.make_fit(step=Noise(0.1))) for _ in range(2))
    assert first.model.digest() == again.model.digest()
    assert lab.run(lab.make_fit(step=Noise(0.1), seed=1)).model.digest() != first.model.digest()


@dataclass(frozen=True)
class Counting:
    """Descends, and notes how many samples it has met, and which."""

    def __call__(self, work: Work, batches: Batches) -> Tensor:
        work.outputs["steps"] += 1
        work.outputs["met"].index_add_(0, work.extras["position"], torch.ones(len(batches["train"].x)))
        return Descent()(work, batches)


def test_a_step_leaves_outputs_beside_models(lab: Lab) -> None:
    begun = freeze({"steps": np.array(3, np.int64), "met": np.zeros(11, np.float32)})
    job = lab.make_fit(
        step=Counting(),
        num_steps=4,
        extras={"position": per_sample(np.arange(11), "train")},
        outputs=begun,
    )
    fitted = lab.run(job)
    assert fitted.outputs["steps"] == 7
    # Batches of 4, 4 and 3, and then 4 of the next pass.
    assert sorted(fitted.outputs["met"].tolist()) == [1.0] * 7 + [2.0] * 4
    assert not fitted.outputs["met"].flags.writeable
    assert begun["steps"] == 3
    same = lab.run(lab.make_fit(num_steps=4))
    assert fitted.model.digest() == same.model.digest()
    assert lab.run(replace(job, num_steps=0)).outputs is begun


@pytest.mark.parametrize("label", ["mlp", "tied", "lstm"])
def test_a_sum_of_gradients_is_the_gradient_over_all_samples(lab: Lab, label: str) -> None:
    model = lab.start(label)
    job = lab.make_fit(
        step=GradientSum(),
        models={"model": model},
        num_steps=3,
        extras={NUM_SAMPLES: Extra(np.array(11, np.float32))},
        outputs={name: np.zeros_like(array) for name, array in model.params.items()},
    )
    fitted = lab.run(job)
    x, y, rows = lab.resources.tensors(ClientSamples(0))
    assert y is not None
    bound = Worker(lab.resources, threading.Event()).bind("model", model, trained=True)
    loss = label_loss(bound(x[rows]), y[rows])
    expected = torch.autograd.grad(loss, list(bound.params.values()))
    for gradient, its in zip(fitted.outputs.values(), expected, strict=True):
        np.testing.assert_allclose(gradient, its.numpy(), atol=1e-6)
    assert fitted.model.digest() == model.digest()


@pytest.mark.parametrize("public_buffers", ["frozen", "restored", "moving"])
def test_distilling_foreign_samples_at_no_speed_leaves_accuracy_where_it_was(
    lab: Lab, public_buffers: PublicBuffers
) -> None:
    own = lab.make_fit(
        models={"model": lab.start("norm")}, num_steps=60, streams={"train": Stream(ClientSamples(3), 7)}
    )
    trained = lab.run(own).model
    foreign = InlineSamples(5 + 4 * Key.root(1).numpy().standard_normal((96, 6)).astype(np.float32))
    distilled = lab.run(
        lab.make_fit(
            models={"model": trained},
            step=Descent(loss=divergence),
            streams={"public": Stream(foreign, 8)},
            extras={"teacher": per_sample(np.zeros((96, 3), np.float32), "public")},
            optimiser=Sgd(1e-12),
            num_steps=12,
            public_buffers=public_buffers,
        )
    ).model
    before, after = (
        lab.run(Evaluate(model, (ClientSamples(3),), 32))[0].correct for model in (trained, distilled)
    )
    assert before >= 12  # of 21
    assert (after == before) == (public_buffers != "moving")


def test_only_what_is_not_aligned_is_copied() -> None:
    whole = torch.arange(40.0)
    for first in range(9):
        part = whole[first : first + 20]
        its = aligned(part)
        assert its.data_ptr() % ALIGNMENT_BYTES == 0
        assert torch.equal(its, part)
        assert (its is part) == (first % 4 == 0)
