"""Many clients trained at once end with the bits of one at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch.nn.functional as F  # noqa: N812
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fedsim.algorithms.common.proximal import Proximal
from fedsim.engine.batched import fit as batched_fit
from fedsim.engine.batched import losses
from fedsim.engine.batched.fit import fit_together
from fedsim.engine.batched.kinds import FitKind, Ways, fit_kind
from fedsim.engine.execute import fit, one_torch_thread
from fedsim.engine.jobs import (
    ClientSamples,
    Extra,
    Fit,
    Fitted,
    InlineSamples,
    PooledSamples,
    Samples,
    Stream,
)
from fedsim.engine.like_fits import LikeFits, LikeFitted
from fedsim.engine.losses import Batches, Extras, LiveModel, Models, sums_of_losses
from fedsim.engine.optimisers import Adam, Clipped, Optimiser, Scheduled, Sgd, cosine
from fedsim.engine.steps import Descent
from fedsim.engine.training_config import TrainingConfig
from fedsim.engine.worker_state import StoppedError, Worker
from fedsim.models import Architecture, Net
from fedsim.models.base import dense, named
from fedsim.params import Model, RowTree, count
from fedsim.rng import Key
from fedsim.task import Task
from tests.engine.batched import worlds
from tests.engine.batched.worlds import bits
from tests.engine.conftest import Private

WIDTHS = ((1, 1, 2), (50, 5), (64, 10), (64, 64, 10), (65, 33, 7), (33, 129, 101, 10), (784, 128, 10))
DIVERGING = Sgd(1e30)
SCHEDULES = TrainingConfig.model_validate(
    {"schedule": [{"name": "cosine", "by": "step"}, {"name": "linear", "by": "step"}]}
).schedule
OPTIMISERS: tuple[Optimiser, ...] = (
    Sgd(0.05),
    DIVERGING,
    Sgd(0.05, momentum=0.9),
    Sgd(0.05, weight_decay=0.01),
    Sgd(0.05, momentum=0.5, weight_decay=0.1),
    Adam(0.01),
    Adam(0.01, weight_decay=0.1),
    cosine(Sgd(0.1, momentum=0.9), 3),
    cosine(Adam(0.01), 5),
    Scheduled(Sgd(0.1, momentum=0.9), SCHEDULES, 5),
    Scheduled(Adam(0.01), SCHEDULES, 3),
    Clipped(Sgd(0.05, momentum=0.9), 0.3),
    Clipped(Sgd(0.05), 3.0),
    Clipped(Clipped(Scheduled(Adam(0.01), SCHEDULES, 3), 1.0), 2.0),
)
"""All that serve stacked parameters."""

widths = st.sampled_from(WIDTHS) | st.lists(st.integers(1, 70), min_size=2, max_size=4).map(tuple)


def world(widths: Sequence[int], sizes: Sequence[int], *, is_image: bool = False) -> Worker:
    """Return a worker whose clients hold so many samples, with a net "net" of these widths."""
    inputs, *hidden, classes = widths
    task = Task((1, inputs, 1) if is_image else (inputs,), classes)
    return worlds.world(task, sizes, {"net": worlds.dense(*hidden)})


def start(worker: Worker, seed: int = 0) -> Model:
    return worker.resources.architectures["net"].initial(Key.root(seed))


def assert_same(jobs: Sequence[Fit], worker: Worker) -> None:
    """Check that jobs of one key, done together, give what each gives by itself.

    Where this processor does not keep the bits of a shape, the jobs are done one by one.
    """
    (kind,) = {fit_kind(job, worker.resources) for job in jobs}
    assert isinstance(kind, FitKind)
    with one_torch_thread():
        together = fit_together(jobs, worker)
        assert kind.checks.done or jobs[0].optimisers["model"] == DIVERGING
        for one, job in zip(together, jobs, strict=True):
            assert bits(one) == bits(fit(job, worker))


@st.composite
def tiles(draw: st.DrawFn) -> tuple[list[Fit], Worker, int]:
    """Draw jobs of one key, and how many to train at once."""
    sizes = draw(st.lists(st.integers(1, 45), min_size=2, max_size=9))
    sizes += sizes[:1] * draw(st.integers(0, 6))
    worker = world(draw(widths), sizes, is_image=draw(st.booleans()))
    batch_size, shuffled = draw(st.integers(1, 40)), draw(st.booleans())
    proximal = draw(st.booleans())
    samples = draw(st.sampled_from([ClientSamples, InlineSamples, PooledSamples]))
    has_own_start, epochs = draw(st.booleans()), draw(st.sampled_from([1, 2, 3, None]))
    common, optimiser = start(worker), draw(st.sampled_from(OPTIMISERS))
    jobs = []
    for client, size in enumerate(sizes):
        its: Samples = ClientSamples(client)
        if samples is PooledSamples:
            its = PooledSamples("train", (client, 0) if client else (0,))
            size += sizes[0] if client else 0
        if samples is InlineSamples:
            rows = worker.resources.data.indices(client, "train")
            its = InlineSamples(worker.resources.data.x[rows], worker.resources.data.y[rows])
        length = -(-size // batch_size)
        model = start(worker, client) if has_own_start else common
        jobs.append(
            Fit(
                step=Descent(correct=Proximal(0.3) if proximal else None),
                models={"model": model},
                trained=("model",),
                streams={"train": Stream(its, batch_size, shuffled=shuffled)},
                optimisers={"model": optimiser},
                num_steps=draw(st.integers(1, 2 * length)) if epochs is None else epochs * length,
                seed=draw(st.integers(0, 2**63 - 1)),
                extras={"anchor": Extra((start(worker, 99) if has_own_start else common).params)}
                if proximal
                else {},
            )
        )
    return jobs, worker, draw(st.integers(2, 12))


@settings(max_examples=settings().max_examples * 2 // 3)
@given(tiles())
def test_clients_trained_at_once_end_with_the_bits_of_one_at_a_time(
    drawn: tuple[list[Fit], Worker, int],
) -> None:
    jobs, worker, size = drawn
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batched_fit, "_tile_size", lambda kind, most_samples: size)
        assert_same(jobs, worker)


PLAIN = Sgd(0.1)


def jobs_of(worker: Worker, *, optimiser: Optimiser = PLAIN, **changes: Any) -> list[Fit]:
    """Return a fit of each client, with any field changed."""
    fields: dict[str, Any] = {
        "step": Descent(),
        "models": {"model": start(worker)},
        "trained": ("model",),
        "optimisers": {"model": optimiser},
        "num_steps": 3,
    }
    sizes = worker.resources.data.sizes("train")
    return [
        Fit(streams={"train": Stream(ClientSamples(client), 4)}, seed=client, **fields | changes)
        for client in range(len(sizes))
    ]


@pytest.mark.parametrize("tile_size", [2, 5, 12])
def test_like_fits_end_with_the_bits_of_each_by_itself(
    tile_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batched_fit, "_tile_size", lambda *_: tile_size)
    worker = world((64, 33, 10), (9, 5, 9, 5, 9, 7))
    fits = jobs_of(worker)
    like = [LikeFits(fits[first], others, others) for first, others in ((0, [0, 2, 4]), (1, [1, 3]))]
    with one_torch_thread():
        nines, seven, fives = fit_together([like[0], fits[5], like[1]], worker, ways := Ways())
        right = [bits(fit(job, worker)) for job in fits]
    assert isinstance(nines, LikeFitted)
    assert isinstance(fives, LikeFitted)
    assert isinstance(seven, Fitted)
    assert bits(seven) == right[5]
    for results, clients in ((nines, (0, 2, 4)), (fives, (1, 3))):
        trees, buffers = results.trees["model", "params"], results.trees["model", "buffers"]
        for client, tree, none in zip(clients, trees, buffers, strict=True):
            alone = fit(fits[client], worker).model.params
            assert {name: array.tobytes() for name, array in tree.items()} == {
                name: array.tobytes() for name, array in alone.items()
            }
            assert not none
        assert results.are_in_range == all(isinstance(tree, RowTree) for tree in trees)
    assert sum(ways.values()) == 6


def test_like_fits_that_diverge_are_done_by_themselves() -> None:
    worker = world((64, 33, 10), (8, 8, 8))
    job = jobs_of(worker, optimiser=DIVERGING)[0]
    with one_torch_thread():
        (results,) = fit_together([LikeFits(job, [0, 1, 2], [0, 1, 2])], worker, ways := Ways())
    assert isinstance(results, LikeFitted)
    assert not results.are_in_range
    assert ways == {"not finite": 3}


def test_models_are_read_only_and_hold_nothing_of_others() -> None:
    worker = world((64, 33, 10), (5, 6, 7))
    with one_torch_thread():
        models = [fitted.model for fitted in fit_together(jobs_of(worker), worker)]
    for model in models:
        (row,) = {id(array.base): array.base for array in model.params.values()}.values()
        assert isinstance(row, np.ndarray)
        assert row.flags.owndata
        assert row.size == count(model.params)
    for array in (array for model in models for array in model.params.values()):
        assert array.flags.c_contiguous
        assert not array.flags.writeable


def test_a_difference_ends_the_training_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = world((64, 10), (5, 6, 7, 8))
    jobs = jobs_of(worker)
    kind = fit_kind(jobs[0], worker.resources)
    assert isinstance(kind, FitKind)
    monkeypatch.setattr(losses, "sums_of_losses", lambda parts: sums_of_losses(parts) + 1e-3)
    with one_torch_thread():
        right = [bits(fit(job, worker)) for job in jobs]
        assert [bits(one) for one in fit_together(jobs, worker)] == right
        assert kind.checks.num_differences
        monkeypatch.delattr(batched_fit, "_Tile")
        ways = Ways()
        assert [bits(one) for one in fit_together(jobs, worker, ways)] == right
    assert ways == {"other bits together": 4}


def test_each_way_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = world((64, 10), (5, 6, 7))
    model, counted = start(worker), []
    infinite = replace(model, params={name: leaf + np.inf for name, leaf in model.params.items()})
    with one_torch_thread():
        for its_start, tile_size in ((model, 3), (model, 2), (infinite, 3)):
            monkeypatch.setattr(batched_fit, "_tile_size", lambda *_, size=tile_size: size)
            ways = Ways()
            fit_together(jobs_of(worker, models={"model": its_start}), worker, ways)
            counted.append(dict(ways))
    assert counted == [{"together": 3}, {"together": 2, "too few alike": 1}, {"not finite": 3}]


def test_a_shape_is_checked_once_and_for_all_learning_rates() -> None:
    worker = world((64, 10), (8, 8))
    keys = [fit_kind(jobs_of(worker, optimiser=Sgd(lr))[0], worker.resources) for lr in (0.1, 0.2)]
    first, second = (key for key in keys if isinstance(key, FitKind))
    assert first is not second
    assert first.checks is second.checks
    with one_torch_thread():
        fit_together(jobs_of(worker), worker)
    assert second.checks.done == {((4, 4), False)}


def test_a_client_without_samples_fails_as_it_does_by_itself() -> None:
    worker = world((64, 10), (5, 0))
    jobs = jobs_of(worker)
    with one_torch_thread():
        with pytest.raises(StopIteration):
            fit(jobs[1], worker)
        with pytest.raises(StopIteration):
            fit_together(jobs, worker)


def test_samples_without_labels_fail_as_they_do_by_themselves() -> None:
    worker = world((64, 10), (5, 5))
    jobs = [with_samples(job, InlineSamples(np.zeros((5, 64), np.float32))) for job in jobs_of(worker)]
    for train in (lambda: fit(jobs[0], worker), lambda: fit_together(jobs, worker)):
        with one_torch_thread(), pytest.raises(ValueError, match="have no labels"):
            train()


def test_a_tile_is_given_up_when_the_run_is_over() -> None:
    worker = world((64, 10), (5, 6))
    worker.stopping.set()
    with pytest.raises(StoppedError):
        fit_together(jobs_of(worker), worker)


def test_jobs_with_equal_settings_have_one_key() -> None:
    worker = world((64, 10), (5, 6))
    first, second = (fit_kind(job, worker.resources) for job in jobs_of(worker))
    assert first is not None
    assert first is second
    stream = {"train": Stream(ClientSamples(0), 4, shuffled=False)}
    for changed in (
        jobs_of(worker, optimiser=Sgd(0.2))[0],
        jobs_of(worker, step=Descent(correct=Proximal(0.1)))[0],
        replace(jobs_of(worker)[0], streams=stream),
        replace(jobs_of(worker)[0], streams={"train": Stream(ClientSamples(0), 5)}),
    ):
        assert fit_kind(changed, worker.resources) not in (None, first)


def other_loss(models: Models, batches: Batches, extras: Extras) -> Tensor:
    return F.cross_entropy(models["model"](batches["train"].x), batches["train"].labels)


@dataclass(frozen=True)
class Shrinking:
    """A correction that looks at the whole gradient."""

    def __call__(self, model: LiveModel, gradients: list[Tensor], extras: Extras) -> list[Tensor]:
        return [gradient / gradient.norm() for gradient in gradients]


class Own(Sgd):
    """An optimiser of somebody's own."""


@pytest.mark.parametrize(
    "changes",
    [
        {"num_steps": 0},
        {"states": {}},
        {"optimiser": Clipped(Own(0.1), 1.0)},
        {"step": Descent(loss=other_loss)},
        {"step": Descent(correct=Shrinking())},
        {"extras": {"whole": Extra(np.zeros((5, 3)))}},
        {"outputs": {"count": np.zeros(1, np.float32)}},
        {"extras": {"anchor": Extra({"other": np.zeros(3)})}},
    ],
    ids=[
        "no steps",
        "kept optimiser",
        "own optimiser",
        "other loss",
        "whole gradient",
        "whole array",
        "outputs",
        "other names",
    ],
)
def test_what_is_not_known_is_done_by_itself(changes: Mapping[str, Any]) -> None:
    worker = world((64, 10), (5, 6))
    assert fit_kind(jobs_of(worker, **changes)[0], worker.resources) is None


def test_samples_of_another_form_are_done_by_themselves() -> None:
    worker = world((64, 10), (5,))
    (job,) = jobs_of(worker)
    x, y = np.zeros((5, 64), np.float32), np.zeros(5, np.int64)
    assert fit_kind(with_samples(job, InlineSamples(x, y)), worker.resources) is not None
    for samples in (
        InlineSamples(x, y.astype(np.float32)),
        InlineSamples(x.astype(np.float64), y),
        InlineSamples(x[:, :32], y),
    ):
        assert fit_kind(with_samples(job, samples), worker.resources) is None


def with_samples(job: Fit, samples: InlineSamples) -> Fit:
    return replace(job, streams={"train": Stream(samples, 4)})


def _hooked() -> Net:
    head = nn.Linear(6, 3)
    head.register_forward_hook(lambda module, inputs, output: output * 2)
    return Net(named(flatten=nn.Flatten()), head)


def _shared() -> Net:
    twin = nn.Linear(6, 6)
    return Net(named(one=twin, relu=nn.ReLU(), other=twin), nn.Linear(6, 3))


NETS: Mapping[str, tuple[Callable[[], Net], bool]] = {
    "chain": (lambda: Net(named(flatten=nn.Flatten(), **dense(6, 4, 4)), nn.Linear(4, 3)), True),
    "no ReLU": (lambda: Net(named(one=nn.Linear(6, 4)), nn.Linear(4, 3)), True),
    "ReLU at the end": (lambda: Net(named(), named(out=nn.Linear(6, 3), relu=nn.ReLU())), True),
    "ReLU first": (lambda: Net(named(relu=nn.ReLU()), nn.Linear(6, 3)), False),
    "no bias": (lambda: Net(named(one=nn.Linear(6, 4, bias=False)), nn.Linear(4, 3)), False),
    "norm": (lambda: Net(named(one=nn.Linear(6, 4), norm=nn.BatchNorm1d(4)), nn.Linear(4, 3)), False),
    "tanh": (lambda: Net(named(one=nn.Linear(6, 4), tanh=nn.Tanh()), nn.Linear(4, 3)), False),
    "identity": (lambda: Net(named(one=nn.Linear(6, 3)), nn.Identity()), False),
    "hook": (_hooked, False),
    "shared": (_shared, False),
}


@pytest.mark.parametrize("name", NETS)
def test_nets_are_known_by_their_structure(name: str) -> None:
    make, is_known = NETS[name]
    worker = world((6, 3), (7, *[9] * 6))
    architecture = Architecture("net", Private(make), worker.resources.data.task)
    worker = Worker(replace(worker.resources, architectures={"net": architecture}), threading.Event())
    jobs = jobs_of(worker)
    assert (fit_kind(jobs[0], worker.resources) is not None) is is_known
    if is_known:
        assert_same(jobs, worker)
