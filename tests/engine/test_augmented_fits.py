"""Fits whose images are transformed: only those of the training split, by draws of the job's own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch

from fedsim.data import FederatedData
from fedsim.data.augmentations.base import Augmentations, transformed
from fedsim.data.client_split import Split
from fedsim.engine.batched.kinds import batch_key
from fedsim.engine.batches import Pass, order_stream
from fedsim.engine.cost import Costs
from fedsim.engine.cost_keys import step_key
from fedsim.engine.execute import run
from fedsim.engine.jobs import (
    ClientSamples,
    Evaluate,
    Fit,
    InlineSamples,
    PooledSamples,
    Predict,
    PublicSamples,
    Samples,
    Stream,
)
from fedsim.engine.losses import MODEL, TRAIN, Batch, Batches
from fedsim.engine.optimisers import Sgd
from fedsim.engine.steps import Descent, Work
from fedsim.engine.worker_state import Resources, Worker
from fedsim.models import Architecture, process_cache
from fedsim.models.linear import PLUGIN as LINEAR
from fedsim.params import Array
from fedsim.plugins import load
from fedsim.rng import Key
from fedsim.task import Task
from tests.engine.conftest import MakeFit
from tests.engine.device_waits import device_waits

TASK = Task((1, 2, 3), 3)
WorkerOf = Callable[[Augmentations], Worker]


def made(*names: str) -> Augmentations:
    """Return some augmentations for images of 2 x 3 pixels."""
    params: dict[str, dict[str, Any]] = {"crop": {"padding": 1}, "cutout": {"size": 1}}
    plugins: list[Any] = [load("fedsim.data.augmentations", name) for name in names]
    return tuple(
        plugin(plugin.Config(**params.get(name, {}))) for name, plugin in zip(names, plugins, strict=True)
    )


ALL = made("flip", "crop", "cutout")
SAMPLES: Mapping[str, tuple[Samples, bool]] = {
    "training": (ClientSamples(0), True),
    "pooled": (PooledSamples(), True),
    "validation": (ClientSamples(0, "val"), False),
    "test": (ClientSamples(0, "test"), False),
    "public": (PublicSamples(np.arange(5), labelled=True), False),
    "inline": (InlineSamples(np.ones((5, 1, 2, 3), np.float32), np.arange(5) % 3), False),
}


@pytest.fixture
def worker_of(data: FederatedData) -> WorkerOf:
    """Makes a worker whose clients hold images."""

    def make(augmentations: Augmentations) -> Worker:
        held = {**data.holdings, "val": data.holdings["test"]}
        images = replace(
            data, task=TASK, x=data.x.reshape(-1, 1, 2, 3), holdings=held, augmentations=augmentations
        )
        net = Architecture("net", LINEAR(LINEAR.Config()), TASK)
        return Worker(Resources.of(images, {"net": net}, "cpu"), threading.Event())

    return make


class Met:
    """A step that notes what it meets, and moves nothing."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []

    def __call__(self, work: Work, batches: Batches) -> torch.Tensor:
        self.batches.append(batches[TRAIN])
        return torch.zeros(())


def fit(worker: Worker, samples: Samples, step: Any = None, seed: int = 7, **changes: Any) -> Fit:
    model = worker.resources.architectures["net"].initial(Key.root(0))
    job = Fit(
        Met() if step is None else step,
        {MODEL: model},
        (MODEL,),
        {TRAIN: Stream(samples, 4)},
        {MODEL: Sgd(0.1)},
        5,
        seed,
    )
    return replace(job, **changes)


def met(worker: Worker, samples: Samples, seed: int = 7) -> list[Array]:
    step = Met()
    run(fit(worker, samples, step, seed), worker)
    return [batch.x.numpy() for batch in step.batches]


def same(some: list[Array], others: list[Array]) -> bool:
    return all(map(np.array_equal, some, others))


@pytest.mark.parametrize("kind", SAMPLES)
def test_only_training_samples_are_transformed(kind: str, worker_of: WorkerOf) -> None:
    samples, are_transformed = SAMPLES[kind]
    assert same(met(worker_of(()), samples), met(worker_of(ALL), samples)) is not are_transformed


def test_batches_are_those_of_the_job_in_its_order_transformed_by_its_draws(worker_of: WorkerOf) -> None:
    worker = worker_of(ALL)
    data, key = worker.resources.data, Key.root(7)
    rows = data.indices(0, "train")
    generator = key.child("augment", TRAIN).torch()
    wanted = []
    for order in islice(Pass(len(rows), 4).orders(order_stream(TRAIN, 7)), 2):
        for positions in torch.split(order, 4):
            images = torch.tensor(data.x[rows[positions]])
            wanted.append(transformed(ALL, images, generator).numpy())
    found = met(worker, ClientSamples(0))
    assert same(found, wanted[:5])
    assert same(found, met(worker, ClientSamples(0)))
    assert not same(found, met(worker, ClientSamples(0), seed=8))


def test_predictions_and_evaluations_see_images_as_they_are(worker_of: WorkerOf) -> None:
    plain, other = worker_of(()), worker_of(ALL)
    model = plain.resources.architectures["net"].initial(Key.root(0))
    for job in (Predict(model, ClientSamples(0), 4), Evaluate(model, (ClientSamples(0),), 4)):
        one, two = run(job, plain), run(job, other)
        assert np.array_equal(one, two) if isinstance(job, Predict) else one == two


@pytest.mark.parametrize(("split", "is_alone"), [("train", True), ("val", False)])
def test_such_a_fit_is_done_by_itself(
    split: Split, is_alone: bool, worker_of: WorkerOf, make_fit: MakeFit
) -> None:
    worker = worker_of(ALL)
    job = fit(worker, ClientSamples(0, split), make_fit().step)
    assert (batch_key(job, worker.resources) is None) is is_alone
    assert batch_key(job, worker_of(()).resources) is not None


def test_what_is_transformed_takes_its_time_and_is_counted_for_itself(
    worker_of: WorkerOf, make_fit: MakeFit
) -> None:
    process_cache.forget()
    step = make_fit().step

    def bytes_of(augmentations: Augmentations, samples: Samples) -> float:
        worker = worker_of(augmentations)
        return Costs(worker.resources).work(fit(worker, samples, step)).total.moved_bytes

    own, val = ClientSamples(0), ClientSamples(0, "val")
    counts = [bytes_of(some, own) for some in ((), made("flip"), made("flip", "crop"), ALL)]
    assert counts == sorted(set(counts))
    assert bytes_of(ALL, val) == bytes_of((), val)
    assert bytes_of((), own) == counts[0]  # again: nothing was mixed up


def test_private_augmentations_are_counted_in_each_run(worker_of: WorkerOf, make_fit: MakeFit) -> None:
    class Mine(type(ALL[0])):  # type: ignore[misc]
        pass

    def key(augmentations: Augmentations) -> Any:
        resources = worker_of(augmentations).resources
        job = fit(worker_of(()), ClientSamples(0), make_fit().step)
        return step_key(job, (4,), resources.architectures, TASK, augmentations)

    assert len({key(()), key(ALL), key(made("flip")), key(made("crop"))}) == 4
    assert key(made("flip")) == key(made("flip"))
    assert key((Mine(ALL[0].config),)) is None


def test_what_is_drawn_waits_for_no_device(worker_of: WorkerOf) -> None:
    worker = worker_of(ALL)
    job = fit(worker, ClientSamples(0), Descent())
    few, many = (device_waits(replace(job, num_steps=count), worker.resources) for count in (3, 12))
    assert few == many == ["copy to the CPU"] * 2
