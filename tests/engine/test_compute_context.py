from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from fedsim.clock import Trace, now_s
from fedsim.engine.compute_context import ComputeContext
from fedsim.engine.engine import Engine
from fedsim.engine.executors.base import ExecutorConfig
from fedsim.engine.executors.threads import PLUGIN as THREADS
from fedsim.engine.jobs import (
    Call,
    ClientSamples,
    Evaluate,
    Fit,
    InlineSamples,
    Job,
    Predict,
    PublicSamples,
    Stream,
)
from fedsim.engine.kept_optimisers import Keeping
from fedsim.engine.optimisers import Adam, Clipped, Scheduled, Sgd
from fedsim.engine.steps import Descent
from fedsim.engine.training_config import TrainingConfig
from fedsim.engine.worker_state import Resources
from fedsim.errors import JobError, UserError
from fedsim.fleet import Device
from fedsim.rng import Key
from tests.engine.conftest import Start

DEVICE = Device(
    speed_flops=1e6,
    memory_bytes=1e9,
    up_bps=1e6,
    down_bps=1e6,
    latency_s=0.0,
    overhead_s=0.5,
    variation=0.0,
    label="d",
)
ROOT = Key.root(1)
TRAINING = TrainingConfig(lr=0.1, batch_size=4)
FORWARD = 72
TRAIN = 168
"""FLOP a sample of the mlp: see test_cost."""


class Listening(ComputeContext):
    """A device context that also keeps its jobs."""

    jobs: list[Job]

    async def _do(self, job: Job, workload: Any = None) -> Any:
        self.jobs.append(job)
        return await super()._do(job, workload)


Bench = Callable[..., Listening]


@pytest.fixture
def engine(resources: Resources) -> Iterator[Engine]:
    engine = Engine(THREADS(ExecutorConfig()), resources, Trace(keep=True))
    yield engine
    engine.close()


@pytest.fixture
def bench(engine: Engine) -> Callable[..., Listening]:
    def make(
        client: int = 0,
        training: TrainingConfig = TRAINING,
        keeping: Keeping | None = None,
        root: Key = ROOT,
        dispatch: int = 3,
        **changes: Any,
    ) -> Listening:
        device, key = DEVICE._replace(**changes), root.child(client)
        made = Listening(
            engine, lambda: device, training, client=client, dispatch=dispatch, key=key, keeping=keeping
        )
        made.jobs = []
        return made

    return make


def fit_of(bench: Listening) -> Fit:
    (job,) = bench.jobs
    assert isinstance(job, Fit)
    return job


async def test_a_fit_is_by_default_one_epoch_of_the_party_s_own_samples(bench: Bench, start: Start) -> None:
    one = bench()
    fitted = await one.fit(start())
    job = fit_of(one)
    assert job.streams == {"train": Stream(ClientSamples(0, "train"), 4)}
    assert (job.step, job.trained, job.extras) == (Descent(), ("model",), {})
    assert job.optimisers == {"model": Sgd(0.1)}
    assert (job.num_steps, job.seed) == (3, one.key.child("train").seed)
    assert fitted.num_steps == 3


@pytest.mark.parametrize(
    ("training", "arguments", "num_steps"),
    [
        ({"epochs": 2}, {}, 6),
        ({"steps": 5}, {}, 5),
        ({"steps": 5}, {"epochs": 2}, 6),
        ({"epochs": 2}, {"steps": 7}, 7),
        ({"epochs": 0}, {}, 0),
        ({}, {"epochs": 0}, 0),
        ({}, {"steps": 0}, 0),
    ],
)
async def test_work_is_measured_in_epochs_or_steps(
    bench: Bench,
    start: Start,
    training: dict[str, int],
    arguments: dict[str, int],
    num_steps: int,
) -> None:
    one = bench(training=TrainingConfig(batch_size=4, **training))  # type: ignore[arg-type]
    fitted = await one.fit(start(), **arguments)  # type: ignore[arg-type]
    assert fitted.num_steps == fit_of(one).num_steps == num_steps
    assert math.isnan(fitted.loss) is (num_steps == 0)


@dataclass(frozen=True)
class Twice(Descent):
    """Moves a model twice a step."""

    moves: ClassVar[int] = 2


async def test_schedules_by_step_are_told_how_often_a_fit_moves_its_models(
    bench: Bench, start: Start
) -> None:
    training = TrainingConfig.model_validate({"schedule": {"name": "cosine", "by": "step"}, "batch_size": 4})
    one = bench(training=training)
    await one.fit(start(), epochs=2)
    await one.fit(start(), step=Twice(), steps=5)
    await one.fit(start(), optimiser=Clipped(training.make_optimiser(), 1.0), steps=5)
    await one.fit(start(), optimiser=training.make_optimiser(0.1))
    plain = Scheduled(Sgd(0.05), training.schedule)
    assert [job.optimisers["model"] for job in one.jobs if isinstance(job, Fit)] == [
        replace(plain, length=6),
        replace(plain, length=10),
        Clipped(replace(plain, length=5), 1.0),
        Sgd(0.1),
    ]


async def test_epochs_and_steps_at_once_are_refused(bench: Bench, start: Start) -> None:
    with pytest.raises(ValueError, match="epochs = 1 and steps = 2: give one of them"):
        await bench().fit(start(), epochs=1, steps=2)


async def test_the_first_stream_decides_how_long_an_epoch_is(bench: Bench, start: Start) -> None:
    one = bench()
    public = Stream(one.public(np.arange(8)), 4)
    own = Stream(one.own("train"), 2)
    await one.fit(start(), streams={"public": public, "train": own}, epochs=1)
    assert fit_of(one).num_steps == 2


@pytest.mark.parametrize("work", [{"epochs": 2}, {"steps": 4}])
async def test_there_is_no_step_where_a_stream_has_no_batch(
    bench: Bench, start: Start, work: dict[str, int]
) -> None:
    model = start()
    nobody = bench(client=2)
    assert (await nobody.fit(model, **work)).model is model  # type: ignore[arg-type]
    one = bench()
    streams = {"train": Stream(one.own("train"), 4), "public": Stream(one.public(np.arange(0)), 4)}
    assert (await one.fit(model, streams=streams, **work)).num_steps == 0  # type: ignore[arg-type]
    assert now_s() == 2 * DEVICE.overhead_s


async def test_a_last_single_sample_makes_no_step_for_batch_norm(bench: Bench, start: Start) -> None:
    for label, num_steps in (("mlp", 5), ("norm", 4)):
        one = bench(client=3, training=TrainingConfig(batch_size=5))
        assert (await one.fit(start(label))).num_steps == num_steps


async def test_everything_about_a_fit_can_be_chosen(bench: Bench, start: Start) -> None:
    one = bench()
    step = Descent(correct=_halved)
    await one.fit(
        {"a": start(), "b": start(seed=1)}, trained=("a",), step=_Only(step), optimiser=Adam(0.1), name="x"
    )
    job = fit_of(one)
    assert (job.trained, list(job.models), job.optimisers) == (("a",), ["a", "b"], {"a": Adam(0.1)})
    assert job.seed == one.key.child("x").seed


@pytest.mark.parametrize(
    ("made", "arguments", "is_alike"),
    [
        ({}, {}, True),
        ({}, {"name": "again"}, True),
        ({}, {"epochs": 2}, False),
        ({}, {"steps": 3}, False),
        ({}, {"optimiser": Sgd(0.2)}, False),
        ({}, {"public_buffers": "moving"}, False),
        ({"training": TrainingConfig(lr=0.1, batch_size=3)}, {}, False),
    ],
)
async def test_usual_fits_are_alike_that_differ_in_values_and_seeds_alone(
    bench: Bench,
    start: Start,
    made: dict[str, Any],
    arguments: dict[str, Any],
    is_alike: bool,
) -> None:
    one, other = bench(), bench(**made)
    await one.fit(start())
    await other.fit(start(seed=1), **arguments)
    assert fit_of(one).like is not None
    assert (fit_of(other).like is fit_of(one).like) is is_alike


@pytest.mark.parametrize(
    "arguments",
    [
        {"step": Descent()},
        {"trained": ("model",)},
        {"streams": {"train": Stream(ClientSamples(0, "train"), 4, shuffled=False)}},
        {"keeping": Keeping({})},
    ],
)
async def test_of_other_fits_it_is_not_known_which_are_alike(
    bench: Bench, start: Start, arguments: dict[str, Any]
) -> None:
    one = bench()
    await one.fit(start(), **arguments)
    assert fit_of(one).like is None


async def test_a_trained_model_without_an_optimiser_of_its_own_has_that_of_the_training(
    bench: Bench, start: Start
) -> None:
    one, models = bench(), {"a": start(), "b": start(seed=1)}
    await one.fit(models, step=Descent(_squares), optimiser={"b": Adam(0.1)})
    assert fit_of(one).optimisers == {"a": Sgd(0.1), "b": Adam(0.1)}
    with pytest.raises(ValueError, match="optimisers for b, which the fit does not train: it trains a"):
        await one.fit(models, trained=("a",), optimiser={"b": Adam(0.1)})


async def test_none_to_train_is_a_mistake_not_all(bench: Bench, start: Start) -> None:
    with pytest.raises(ValueError, match="name at least one of the job's models"):
        await bench().fit(start(), trained=())


def _halved(model: Any, gradients: list[Any], extras: Any) -> list[Any]:
    return [gradient / 2 for gradient in gradients]


class _Only:
    """The step, on models called a and b."""

    def __init__(self, step: Descent) -> None:
        self.step = Descent(loss=_loss_of_a, correct=step.correct)

    def __call__(self, work: Any, batches: Any) -> Any:
        return self.step(work, batches)


def _squares(models: Any, batches: Any, extras: Any) -> Any:
    return {name: model(batches["train"].x).square().mean() for name, model in models.items()}


def _loss_of_a(models: Any, batches: Any, extras: Any) -> Any:
    return (models["a"](batches["train"].x) - models["b"](batches["train"].x)).square().mean()


async def test_equal_turns_and_names_meet_equal_samples_in_equal_order(bench: Bench, start: Start) -> None:
    results = [(await bench().fit(start(), epochs=2)).model.digest() for _ in range(2)]
    other_name = (await bench().fit(start(), epochs=2, name="other")).model.digest()
    other_key = bench(root=Key.root(2))
    assert results[0] == results[1]
    assert other_name != results[0]
    assert (await other_key.fit(start(), epochs=2)).model.digest() != results[0]


async def test_every_call_takes_the_time_of_the_device(bench: Bench, start: Start, engine: Engine) -> None:
    one = bench()
    await one.fit(start(), epochs=1)
    assert now_s() == pytest.approx(0.5 + 11 * TRAIN / 1e6, abs=1e-9)
    logits = await one.predict(start(), one.public(np.arange(8)))
    assert logits.shape == (8, 3)
    assert now_s() == pytest.approx(1.0 + (11 * TRAIN + 8 * FORWARD) / 1e6, abs=1e-9)
    before = now_s()
    assert await one.call(divmod, 7, 2, flops=2e6) == (3, 1)
    assert now_s() - before == pytest.approx(0.5 + 2)
    kinds = [(record[1], record[2], record[3], record[4]) for record in engine.trace.kept]
    jobs = ["fit", "predict", "call"]
    assert kinds == [(kind, 0, 3, job) for job in jobs for kind in ("job_start", "job_end")]


async def test_load_varies_from_call_to_call_and_repeats_itself(
    bench: Bench,
) -> None:
    async def durations(dispatch: int = 3) -> list[float]:
        one, ends = bench(variation=0.5, overhead_s=0.0, dispatch=dispatch), []
        for _ in range(3):
            before = now_s()
            await one.call(int, "1", flops=1e6)
            ends.append(round(now_s() - before, 6))
        return ends

    first = await durations()
    assert len(set(first)) == 3
    assert await durations() == first
    # Two exchanges ask a client in turns of the same number.
    assert not set(await durations(4)) & set(first)


async def test_a_call_without_a_cost_is_refused(bench: Bench) -> None:
    with pytest.raises(UserError, match="declares 0 FLOP"):
        await bench().call(int, "1", flops=0)


async def test_what_a_party_knows(bench: Bench, resources: Resources) -> None:
    one = bench(client=1)
    assert one.task is resources.data.task
    assert one.num_public == 8
    assert one.own("test") == ClientSamples(1, "test")
    positions = np.arange(3)
    samples = one.public(positions)
    assert isinstance(samples, PublicSamples)
    assert samples.positions is positions


async def test_jobs_of_each_kind_are_made(bench: Bench, start: Start) -> None:
    one = bench()
    await one.predict(start(), one.own("test"), batch_size=2)
    await one.call(len, "abc", flops=1.0)
    predict, call = one.jobs
    assert isinstance(predict, Predict)
    assert predict.batch_size == 2
    assert isinstance(call, Call)
    assert (call.function, call.arguments, call.flops) == (len, ("abc",), 1.0)


async def test_many_models_are_asked_one_after_the_other(bench: Bench, start: Start, engine: Engine) -> None:
    one, models = bench(), [start(seed=seed) for seed in range(3)]
    samples = one.public(np.arange(8))
    expected = [await bench().predict(model, samples) for model in models]
    before, records = now_s(), len(engine.trace.kept)
    found = await one.predict_each(models, samples, batch_size=4)
    assert now_s() - before == pytest.approx(3 * (0.5 + 8 * FORWARD / 1e6), abs=1e-8)
    for left, right in zip(found, expected, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-6)
    ends = [record[0] for record in engine.trace.kept[records:] if record[1] == "job_end"]
    first_s = (0.5 + 8 * FORWARD / 1e6) * 1e9
    assert np.diff(ends) == pytest.approx([first_s, first_s], abs=2)  # each has its own end
    started = [record for record in engine.trace.kept[records:] if record[1] == "job_start"]
    # What a job takes is its own time, without that of those before it.
    assert [record[-1] for record in started] == pytest.approx([first_s / 1e9] * 3)


async def test_many_models_vary_as_if_asked_singly(bench: Bench, start: Start) -> None:
    together, singly = (bench(variation=0.5) for _ in range(2))
    samples, models = together.public(np.arange(8)), [start()] * 3
    before = now_s()
    await together.predict_each(models, samples)
    took_s, before = now_s() - before, now_s()
    for model in models:
        await singly.predict(model, samples)
    assert now_s() - before == pytest.approx(took_s, abs=1e-8)


async def test_a_gradient_is_over_all_samples_or_those_of_some_steps(bench: Bench, start: Start) -> None:
    one = bench()
    gradient = await one.gradient(start())
    assert fit_of(one).num_steps == 3  # client 0 has 11 samples, in batches of 4
    whole = await bench().gradient(start(), batch_size=11)
    for name, array in whole.items():
        np.testing.assert_allclose(gradient[name], array, atol=1e-6)
    # Of one step of descent at learning rate 1 the model loses the gradient of its batch.
    first, training = bench(), TRAINING.model_copy(update={"lr": 1.0})
    of_a_batch = await first.gradient(start(), steps=1, name="train")
    moved = (await bench(training=training).fit(start(), steps=1)).model
    for name, array in start().params.items():
        np.testing.assert_allclose(array - of_a_batch[name], moved.params[name], atol=1e-6)


async def test_a_gradient_of_no_batch_is_zero_and_takes_no_time(bench: Bench, start: Start) -> None:
    before, alone = now_s(), InlineSamples(np.zeros((1, 6), np.float32), np.zeros(1, np.int64))
    for gradient in (
        await bench(2).gradient(start()),
        await bench().gradient(start(), steps=0),
        await bench().gradient(start("norm"), samples=alone),  # BatchNorm takes no batch of one
    ):
        assert not any(array.any() for array in gradient.values())
    assert now_s() == before


async def test_the_usual_work_is_counted_in_the_batches_that_a_model_takes(bench: Bench) -> None:
    # Client 0 has 11 samples: of batches of 5 and 5 and 1 BatchNorm takes two.
    training = TRAINING.model_copy(update={"batch_size": 5, "epochs": 3})
    assert bench(training=training).usual_steps("mlp") == 9
    assert bench(training=training).usual_steps("norm") == 6
    steps = TRAINING.model_copy(update={"epochs": None, "steps": 7})
    assert bench(training=steps).usual_steps("mlp") == 7
    assert bench(2, training=steps).usual_steps("mlp") == 0


async def test_no_model_has_no_answers_and_takes_no_time(bench: Bench) -> None:
    before = now_s()
    assert await bench().predict_each([], bench().public(np.arange(8))) == []
    assert now_s() == before


async def test_a_model_is_evaluated_on_labelled_samples(
    bench: Bench, start: Start, resources: Resources
) -> None:
    one, data = bench(), resources.data
    score = await one.evaluate(start(), one.own("test"), batch_size=2)
    (job,) = one.jobs
    assert isinstance(job, Evaluate)
    assert (job.parts, job.batch_size) == ((ClientSamples(0, "test"),), 2)
    assert now_s() == pytest.approx(0.5 + 3 * FORWARD / 1e6, abs=1e-9)
    logits = (await bench().predict(start(), one.own("test"))).astype(np.float64)
    labels = data.y[data.indices(0, "test")]
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert score.loss == pytest.approx(-np.log(chances[np.arange(3), labels]).mean(), rel=1e-5)
    assert score.accuracy == pytest.approx((logits.argmax(axis=1) == labels).mean())


async def test_the_party_s_key_can_be_another_s(bench: Bench, start: Start) -> None:
    one, root = bench(), Key.root(9)
    other = root.child(0)
    await one.fit(start(), name="x", key=other)
    assert fit_of(one).seed == other.child("x").seed
    mine, its = bench(), bench(root=root)
    first = (await mine.fit(start(), epochs=2, key=other)).model
    assert first.digest() == (await its.fit(start(), epochs=2)).model.digest()
    assert first.digest() != (await bench().fit(start(), epochs=2)).model.digest()


MOMENTUM = TrainingConfig(lr=0.1, batch_size=4, momentum=0.9, keep_optimiser=True)


async def test_optimisers_go_on_where_they_are_kept(bench: Bench, start: Start) -> None:
    keeping = Keeping({})
    for dispatch in range(2):
        one = bench(training=MOMENTUM, keeping=keeping)
        fitted = await one.fit(start())
        assert bool(fit_of(one).states) is (dispatch > 0)
        assert keeping.held
        keeping = Keeping(keeping.held)  # as the host does between turns
    first = bench(training=MOMENTUM, keeping=Keeping({}))
    anew = await first.fit(start())
    again = await first.fit(start())  # within a turn as well
    assert anew.model.digest() != fitted.model.digest() == again.model.digest()
    await first.fit(start(), name="other")
    last = first.jobs[-1]
    assert isinstance(last, Fit)
    assert last.states == {}


async def test_two_models_that_meet_their_samples_in_one_order_do_not_share_an_optimiser(
    bench: Bench, start: Start
) -> None:
    one = bench(training=MOMENTUM, keeping=Keeping({}))
    for _ in range(2):
        for kept_as in (None, "personal"):
            await one.fit(start(), kept_as=kept_as)
    first, its, second, again = [job for job in one.jobs if isinstance(job, Fit)]
    assert [bool(job.states) for job in (first, its, second, again)] == [False, False, True, True]
    assert first.seed == its.seed == second.seed


async def test_of_several_fits_that_are_tried_one_is_kept(bench: Bench, start: Start) -> None:
    one = bench(training=MOMENTUM, keeping=Keeping({}))
    tried = [await one.fit(start(), steps=steps, keeps=False) for steps in (1, 2)]
    one.keep("train", tried[0])
    await one.fit(start())
    *none, after = [job.states for job in one.jobs if isinstance(job, Fit)]
    assert none == [{}, {}]
    assert after is not None
    assert sorted(after["model"]) == sorted(tried[0].states["model"])
    assert all(after["model"][name] is array for name, array in tried[0].states["model"].items())
    forgetting = bench(training=MOMENTUM)
    forgetting.keep("train", await forgetting.fit(start(), keeps=False))


async def test_a_fit_may_have_a_rule_of_its_own_for_public_buffers(bench: Bench, start: Start) -> None:
    one = bench()
    await one.fit(start())
    await one.fit(start(), public_buffers="moving")
    assert [job.public_buffers for job in one.jobs if isinstance(job, Fit)] == ["frozen", "moving"]


async def test_a_party_that_keeps_nothing_asks_for_nothing(bench: Bench, start: Start) -> None:
    one = bench(training=MOMENTUM)  # such as the server and the observer
    results = [await one.fit(start()) for _ in range(2)]
    assert [job.states for job in one.jobs if isinstance(job, Fit)] == [None, None]
    assert [fitted.states for fitted in results] == [{}, {}]
    assert results[0].model.digest() == results[1].model.digest()


async def test_keeping_takes_no_time(bench: Bench, start: Start) -> None:
    ends = []
    for keeping in (None, Keeping({})):
        one, before = bench(training=MOMENTUM, keeping=keeping), now_s()
        for _ in range(2):
            await one.fit(start())
        ends.append(now_s() - before)
    assert ends[0] == pytest.approx(ends[1], abs=1e-9)


async def test_one_name_has_one_kind_of_optimiser(bench: Bench, start: Start) -> None:
    one = bench(training=MOMENTUM, keeping=Keeping({}))
    await one.fit(start())
    with pytest.raises(JobError, match="give this one another name"):
        await one.fit(start(), optimiser=Adam(0.1))
