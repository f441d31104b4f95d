from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedsim.engine.cost import Costs, Effort, duration_s, durations_s, load_of
from fedsim.engine.jobs import (
    Call,
    ClientSamples,
    Evaluate,
    Extra,
    Fit,
    GlobalTest,
    InlineSamples,
    Job,
    Predict,
    PublicSamples,
    Stream,
    per_sample,
)
from fedsim.engine.losses import Batches, Extras, Models, absolute_error, empirical_loss
from fedsim.engine.optimisers import Adam, Optimiser, Sgd
from fedsim.engine.steps import Descent
from fedsim.engine.worker_state import Resources
from fedsim.errors import FedsimError, InvariantError, JobError, UserError
from fedsim.fleet import Device
from fedsim.models import flops, process_cache
from fedsim.models.flops import Operations
from fedsim.params import Array, Model
from fedsim.rng import Key
from fedsim.task import Task
from tests.engine.conftest import Lab, MakeFit, Start

# The mlp has 6 inputs, 4 hidden units and 3 outputs: 36 products a sample. Backwards, the weights of both
# layers take as many again, and the hidden units' gradient 12: the samples themselves want none.
FORWARD = 2 * (6 * 4 + 4 * 3)
TRAIN = FORWARD + 2 * (6 * 4 + 4 * 3) + 2 * (4 * 3)


def flops_of(costs: Costs, job: Job) -> float:
    return costs.work(job).total.flops


@pytest.fixture(scope="module")
def costs(resources: Resources) -> Costs:
    return Costs(resources)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What is counted on the meta device; nothing is known from before."""
    process_cache.forget()
    seen: list[object] = []
    measure = flops.measure

    def counting(function: Callable[[], object]) -> flops.Operations:
        seen.append(function)
        return measure(function)

    monkeypatch.setattr(flops, "measure", counting)
    return seen


@pytest.mark.parametrize(
    ("num_steps", "num_samples"),
    [(0, 0), (1, 4), (3, 4 + 4 + 3), (5, 11 + 8), (6, 22), (7, 26)],  # 11 samples in batches of 4
)
@pytest.mark.parametrize("optimiser", [Sgd(0.1), Sgd(0.1, momentum=0.5), Adam(0.1)], ids=repr)
def test_a_fit_counts_the_products_of_its_batches(
    costs: Costs, make_fit: MakeFit, num_steps: int, num_samples: int, optimiser: Optimiser
) -> None:
    assert flops_of(costs, make_fit(num_steps=num_steps, optimiser=optimiser)) == TRAIN * num_samples


@given(st.integers(0, 60))
def test_steps_add_up(costs: Costs, make_fit: MakeFit, num_steps: int) -> None:
    whole, rest = divmod(num_steps, 3)
    by_pass, the_rest = (flops_of(costs, make_fit(num_steps=steps)) for steps in (3, rest))
    assert flops_of(costs, make_fit(num_steps=num_steps)) == whole * by_pass + the_rest


def test_predictions_and_evaluations_count_forward_passes(costs: Costs, start: Start) -> None:
    model = start()
    assert flops_of(costs, Predict(model, ClientSamples(0), 4)) == FORWARD * 11
    assert flops_of(costs, Predict(model, PublicSamples(np.arange(8)), 4)) == FORWARD * 8
    assert flops_of(costs, Predict(model, ClientSamples(2), 4)) == 0
    assert flops_of(costs, Evaluate(model, (ClientSamples(0, "test"), GlobalTest()), 4)) == FORWARD * (3 + 5)


def test_a_call_costs_what_it_declares(costs: Costs) -> None:
    assert flops_of(costs, Call(len, ([],), 1e6)) == 1e6


@pytest.mark.parametrize("declared", [0.0, -1.0, float("nan"), float("inf")])
def test_a_call_without_a_positive_finite_cost_is_refused(costs: Costs, declared: float) -> None:
    with pytest.raises(UserError, match=r"the call of len declares .* give a positive, finite cost"):
        flops_of(costs, Call(len, ([],), declared))


def test_what_was_counted_once_is_remembered(lab: Lab, counted: list[object]) -> None:
    costs = Costs(lab.resources)
    first = flops_of(costs, lab.make_fit(num_steps=3))
    assert len(counted) == 2  # a full batch and the last one
    streams = {"train": Stream(ClientSamples(3), 4)}  # 21 samples: full batches and one of a single sample
    other = lab.make_fit(
        num_steps=8, streams=streams, models={"model": lab.start(seed=9)}, seed=1, optimiser=Sgd(1.0)
    )
    assert flops_of(costs, lab.make_fit(num_steps=3, step=Descent())) == first
    assert len(counted) == 2
    flops_of(costs, other)
    assert len(counted) == 3
    flops_of(costs, lab.make_fit(num_steps=1, optimiser=Adam(0.1)))
    assert len(counted) == 4  # another optimiser moves other bytes, whatever its rate
    flops_of(costs, lab.make_fit(num_steps=1, optimiser=Adam(0.2)))
    assert len(counted) == 4


@pytest.mark.parametrize(
    "changes",
    [
        {"step": Descent(loss=absolute_error)},
        {"trained": ("model",), "models": "two"},
        {"streams": {"train": Stream(ClientSamples(0), 2)}},
        {"extras": {"more": Extra(np.zeros((2, 2), np.float32))}},
    ],
    ids=["step", "models", "batch", "extras"],
)
def test_another_shape_is_counted_anew(lab: Lab, counted: list[object], changes: dict[str, Any]) -> None:
    costs = Costs(lab.resources)
    flops_of(costs, lab.make_fit(num_steps=1))
    before = len(counted)
    if changes.get("models") == "two":
        changes = {**changes, "models": {"model": lab.start(), "teacher": lab.start(seed=1)}}
    if "step" in changes:
        changes = {
            **changes,
            "streams": {"public": Stream(PublicSamples(np.arange(8)), 4)},
            "extras": {"teacher": per_sample(np.zeros((8, 3), np.float32), "public")},
        }
    flops_of(costs, lab.make_fit(num_steps=1, **changes))
    assert len(counted) > before


def through(models: Models, batches: Batches, extras: Extras) -> Tensor:
    """Return a loss whose operations depend on the width of the samples alone."""
    x = batches["train"].x
    return (x @ x.T).sum() + models["model"].params["head.bias"].sum()


def test_inline_samples_of_another_width_are_another_step(costs: Costs, make_fit: MakeFit) -> None:
    def job(width: int) -> Fit:
        samples = InlineSamples(np.zeros((4, width), np.float32))
        return make_fit(step=Descent(loss=through), streams={"train": Stream(samples, 4)}, num_steps=1)

    assert flops_of(costs, job(10)) == 2 * 4 * 10 * 4
    assert flops_of(costs, job(30)) == 2 * 4 * 30 * 4


def test_a_step_is_counted_on_the_types_of_its_samples(costs: Costs, make_fit: MakeFit) -> None:
    def job(**arrays: Array) -> Fit:
        streams = {"train": Stream(InlineSamples(**arrays), 4)}
        return make_fit(step=Descent(loss=_by_type), streams=streams, num_steps=1)

    x, y = np.zeros((4, 6)), np.zeros(4)
    assert flops_of(costs, job(x=x.astype(np.float32), y=y.astype(np.float32))) == 2 * 4 * 6
    assert flops_of(costs, job(x=x.astype(np.float32), y=y.astype(np.int64))) == 2 * 2 * 4 * 6
    assert flops_of(costs, job(x=x.astype(np.int64), y=y.astype(np.int64))) == 3 * 2 * 4 * 6


def _by_type(models: Models, batches: Batches, extras: Extras) -> Tensor:
    """Multiply a batch with a column once for a regression, twice for classes, three times for texts."""
    x, y = batches["train"].x, batches["train"].labels
    times = 1 if y.is_floating_point() else 2 if x.is_floating_point() else 3
    products = [(x.float() @ torch.ones(6, 1, device=x.device)).sum() for _ in range(times)]
    return sum(products, start=models["model"].params["head.bias"].sum())


def test_the_types_are_the_tasks(lab: Lab) -> None:
    def look(models: Models, batches: Batches, extras: Extras) -> Tensor:
        raise FedsimError(f"{batches['train'].x.dtype} {batches['train'].labels.dtype}")

    for task, types in (
        (Task((6,), 1, "regression"), "torch.float32 torch.float32"),
        (Task((6,), 3, vocabulary=5), "torch.int64 torch.int64"),
    ):
        resources = Resources.of(replace(lab.data, task=task), lab.architectures, "cpu")
        with pytest.raises(FedsimError, match=types):
            Costs(resources).work(lab.make_fit(step=Descent(loss=look)))


def _with_root(models: Models, batches: Batches, extras: Extras) -> Tensor:
    return models["model"](batches["train"].x).square().sum().sqrt()


def test_steps_of_a_portable_run_have_portable_operations_alone(lab: Lab) -> None:
    portable = Costs(replace(lab.resources, portable=True))
    portable.work(lab.make_fit(optimisers={"model": Adam(0.1)}))
    job = lab.make_fit(step=Descent(loss=_with_root))
    Costs(lab.resources).work(job)
    with pytest.raises(JobError, match="the operations sqrt of a training step may have other bits"):
        portable.work(job)


def test_both_of_two_learners_count_and_of_a_teacher_the_forward_pass(lab: Lab, costs: Costs) -> None:
    models = {"a": lab.start(), "b": lab.start(seed=1)}
    both = {"models": models, "step": Descent(loss=_some_of), "num_steps": 1}
    assert flops_of(costs, lab.make_fit(**both, trained=("a", "b"))) == 4 * 2 * TRAIN
    assert flops_of(costs, lab.make_fit(**both, trained=("a",))) == 4 * (TRAIN + FORWARD)


def _some_of(models: Models, batches: Batches, extras: Extras) -> Mapping[str, Tensor]:
    """Return the loss of each model that can be trained; the others are run for nothing."""
    batch = batches["train"]
    losses = {
        name: torch.nn.functional.cross_entropy(model(batch.x), batch.labels)
        for name, model in models.items()
    }
    return {name: loss for name, loss in losses.items() if loss.requires_grad}


def test_per_sample_rows_and_trees_have_the_shapes_of_the_real_step(costs: Costs, make_fit: MakeFit) -> None:
    job = make_fit(
        step=Descent(loss=_with_extras),
        extras={
            "rows": per_sample(np.zeros((11, 5), np.float32), "train"),
            "tree": Extra({"m": np.zeros((5, 2), np.float32), "scalar": np.ones((), np.float32)}),
            "picks": Extra(np.zeros(3, np.int64)),
        },
        num_steps=3,
    )
    # (b, 5) @ (5, 2) in each step, with 4, 4 and 3 samples
    assert flops_of(costs, job) == TRAIN * 11 + 2 * 11 * 5 * 2


def _with_extras(models: Models, batches: Batches, extras: Extras) -> Tensor:
    batch = batches["train"]
    product = extras["rows"] @ extras["tree"]["m"]
    assert extras["picks"].dtype == torch.int64
    scalar: Tensor = extras["tree"]["scalar"]
    loss = torch.nn.functional.cross_entropy(models["model"](batch.x), batch.labels)
    total: Tensor = loss + scalar + product.sum()
    return total


def by_value(models: Models, batches: Batches, extras: Extras) -> Tensor:
    """Return a loss whose course depends on a value."""
    logits = models["model"](batches["train"].x)
    return logits.sum() if float(logits.detach().sum()) > 0 else -logits.sum()


def test_a_step_that_needs_values_cannot_be_counted(costs: Costs, make_fit: MakeFit) -> None:
    with pytest.raises(JobError, match="must not depend on values") as caught:
        flops_of(costs, make_fit(step=Descent(loss=by_value)))
    assert caught.value.__cause__ is not None


def test_public_samples_have_no_labels_here_either(costs: Costs, make_fit: MakeFit) -> None:
    streams = {"train": Stream(PublicSamples(np.arange(4)), 4)}
    with pytest.raises(JobError, match="have no labels"):
        flops_of(costs, make_fit(streams=streams))


def test_a_layer_that_counts_nothing_is_refused(lab: Lab, costs: Costs) -> None:
    with pytest.raises(InvariantError, match="counts no operations"):
        flops_of(costs, lab.make_fit(models={"model": _like(lab.resources, "hand_made")}))


def _like(resources: Resources, label: str) -> Model:
    net = resources.architectures[label].skeleton()
    return Model(label, {name: np.zeros(p.shape, np.float32) for name, p in net.named_parameters()})


def test_a_stream_without_a_batch_is_an_error_where_steps_are_wanted(costs: Costs, make_fit: MakeFit) -> None:
    streams = {"train": Stream(ClientSamples(0), 4), "public": Stream(PublicSamples(np.arange(0)), 4)}
    with pytest.raises(JobError, match="'public', which has no batch"):
        flops_of(costs, make_fit(streams=streams))


def test_counting_leaves_the_global_generator_alone(lab: Lab, costs: Costs) -> None:
    before = torch.get_rng_state()
    flops_of(costs, lab.make_fit(models={"model": lab.start("dropout")}))
    assert torch.equal(before, torch.get_rng_state())


def _device(**changes: float) -> Device:
    quantities: dict[str, Any] = {"speed_flops": 1e9, "overhead_s": 0.25, "variation": 0.0} | changes
    return Device(memory_bytes=1e9, up_bps=1e6, down_bps=1e6, latency_s=0.0, label="d", **quantities)


def _effort(flops: float) -> Effort:
    return Effort.of([(1, Operations(flops))])


def _drawn_s(device: Device, effort: Effort, key: Key) -> float:
    return float(duration_s(device, effort, load_of(device.variation, device.load, key)))


def test_seconds_are_overhead_and_work_over_speed() -> None:
    assert duration_s(_device(), _effort(5e8)) == 0.25 + 0.5
    assert duration_s(_device(), _effort(0)) == 0.25


def test_each_step_waits_for_the_slower_of_processor_and_memory() -> None:
    # Of a full batch and a small one, which reads the same weights: at 1 GFLOP/s and 100 MB/s the full one
    # computes for 0.4 s and the small one moves for 0.1 s. The maximum of the sums would be 0.845 s.
    steps = [(2, Operations(4e8, 2e7)), (1, Operations(0.45e8, 1e7))]
    device = _device(memory_bandwidth_bytes_per_s=1e8)
    assert duration_s(device, Effort.of(steps)) == pytest.approx(0.25 + 2 * 0.4 + 0.1)
    assert Effort.of(steps).total == Operations(8.45e8, 5e7)
    slower = _device(memory_bandwidth_bytes_per_s=1e7)
    assert duration_s(slower, Effort.of(steps)) == pytest.approx(0.25 + 2 * 2 + 1)
    # Where nothing waits for memory the time is that of the sum, to the last bit.
    faster = _device(memory_bandwidth_bytes_per_s=1e9)
    assert duration_s(faster, Effort.of(steps)) == 0.25 + 8.45e8 / 1e9
    assert Effort.of([(1, Operations(0, 1e8))]).bytes_per_flop == math.inf
    assert duration_s(device, Effort.of([(3, Operations(0, 1e8))])) == 0.25 + 3


@given(
    st.lists(st.tuples(st.floats(1e6, 1e12), st.floats(1e5, 1e10), st.floats(0.1, 9)), min_size=1, max_size=5)
)
def test_devices_that_are_given_as_one_take_the_times_of_each(
    drawn: list[tuple[float, float, float]],
) -> None:
    effort = Effort.of([(2, Operations(4e8, 2e7)), (1, Operations(0.45e8, 1e7))])
    speeds, bandwidths, loads = np.array(drawn).T
    together = _device(speed_flops=speeds, memory_bandwidth_bytes_per_s=bandwidths)
    singly = [
        duration_s(_device(speed_flops=speed, memory_bandwidth_bytes_per_s=bandwidth), effort, load)
        for speed, bandwidth, load in drawn
    ]
    assert duration_s(together, effort, loads).tolist() == singly


@pytest.mark.parametrize("bandwidth", [1e12, 1e8])  # of which the second makes some steps wait for memory
def test_several_devices_with_jobs_of_their_own_take_as_long_as_each(bandwidth: float) -> None:
    efforts = [Effort.of([(2, Operations(4e8, 1e7)), (1, Operations(1e8, 5e8))]), _effort(5e8)]
    counts, speeds, loads = [2, 3], [1e9, 2e9, 5e8, 1e9, 3e9], np.array([1.0, 0.5, 2.0, 1.5, 1.0])
    given_as_one: dict[str, Any] = {
        "speed_flops": np.array(speeds),
        "memory_bandwidth_bytes_per_s": np.full(5, bandwidth),
    }
    singly = [
        duration_s(_device(speed_flops=speed, memory_bandwidth_bytes_per_s=bandwidth), effort, load)
        for speed, effort, load in zip(speeds, [*efforts[:1] * 2, *efforts[1:] * 3], loads, strict=True)
    ]
    together = _device(**given_as_one)
    assert durations_s(together, efforts, counts, loads).tolist() == singly


def test_the_steps_of_a_job_are_kept_apart(lab: Lab, costs: Costs) -> None:
    # 11 samples in batches of 4, twice through: four full batches, and two of 3.
    effort = costs.work(lab.make_fit(num_steps=6))
    assert [(times, step.flops) for times, step in effort.steps] == [(4, 4 * TRAIN), (2, 3 * TRAIN)]
    full, small = (step for _, step in effort.steps)
    # The weights move as often for three samples as for four.
    assert small.moved_bytes > 0.75 * full.moved_bytes
    assert effort.total.moved_bytes == 4 * full.moved_bytes + 2 * small.moved_bytes
    assert effort.bytes_per_flop == small.moved_bytes / small.flops
    # Beyond this bandwidth no step waits for memory; at half of it all of them do; in between only the small.
    between = Effort.of([(1, full), (1, small)])
    bandwidth = 1e9 * (small.moved_bytes / small.flops + full.moved_bytes / full.flops) / 2
    takes_s = duration_s(_device(memory_bandwidth_bytes_per_s=bandwidth), between) - 0.25
    assert takes_s == pytest.approx(full.flops / 1e9 + small.moved_bytes / bandwidth)
    of_pass = costs.work(Predict(lab.start("mlp"), ClientSamples(0), 4))
    assert [(times, step.flops) for times, step in of_pass.steps] == [(2, 4 * FORWARD), (1, 3 * FORWARD)]
    assert costs.work(Predict(lab.start("mlp"), ClientSamples(0), 4)) is of_pass
    assert costs.work(Call(len, ([],), 1e6)).steps == ((1, Operations(1e6)),)
    assert costs.work(lab.make_fit(num_steps=0)).steps == ()


def test_load_varies_the_work_by_a_keyed_log_normal_factor() -> None:
    device = _device(variation=0.3)
    load = _drawn_s(device, _effort(1e9), Key.root(4)) - 0.25
    assert _drawn_s(device, _effort(2e9), Key.root(4)) == pytest.approx(0.25 + 2 * load)
    doubled = _drawn_s(_device(variation=0.6), _effort(1e9), Key.root(4)) - 0.25
    assert doubled == pytest.approx(load**2)
    assert _drawn_s(device, _effort(1e9), Key.root(4)) != _drawn_s(device, _effort(1e9), Key.root(5))
    draws = [np.log(_drawn_s(device, _effort(1e9), Key.root(0).child(i)) - 0.25) for i in range(2000)]
    assert np.mean(draws) == pytest.approx(0, abs=0.03)
    assert np.std(draws) == pytest.approx(0.3, abs=0.02)
    assert np.mean(np.abs(draws) < 2 * 0.3) == pytest.approx(0.9545, abs=0.015)


@pytest.mark.parametrize("octet", [b"\x00", b"\xff"])
def test_the_rarest_draws_are_finite(octet: bytes) -> None:
    assert 0 < _drawn_s(_device(variation=0.5, overhead_s=0.0), _effort(1e9), Key(octet * 16)) < 100


@dataclass(frozen=True)
class Weighted:
    """A loss with a number that does not change its cost."""

    weight: float

    @property
    def counted_as(self) -> Weighted:
        return Weighted(1.0)

    def __call__(self, models: Any, batches: Any, extras: Any) -> torch.Tensor:
        return self.weight * empirical_loss(models, batches, extras)


def test_losses_of_one_cost_are_counted_once(costs: Costs, make_fit: MakeFit, counted: list[Any]) -> None:
    fits = [make_fit(step=Descent(loss=Weighted(weight))) for weight in (0.5, 2.0, 3.0)]
    assert len({flops_of(costs, fit) for fit in fits}) == 1
    assert Descent(loss=Weighted(2.0)).counted_as == Descent(loss=Weighted(1.0))
    assert Descent().counted_as == Descent()
    assert len({step.func for step in counted}) == 1
