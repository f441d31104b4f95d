"""What holds for nets whose convolutions are laid out for the CPU's kernels."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedsim.data import FederatedData
from fedsim.engine.execute import fit, predict
from fedsim.engine.executors.base import ExecutorConfig
from fedsim.engine.executors.threads import PLUGIN as THREADS
from fedsim.engine.jobs import Fit, InlineSamples, Predict, Stream
from fedsim.engine.optimisers import Adam, Optimiser, Sgd
from fedsim.engine.worker_state import Resources, Worker, to_tensor, to_tree
from fedsim.models import Architecture
from fedsim.models.cnn import PLUGIN as CNN
from fedsim.rng import Key
from fedsim.task import Task
from tests.engine.conftest import MakeFit

ARCHITECTURE = Architecture("cnn", CNN(CNN.Config()), Task((1, 8, 8), 3))
MODEL = ARCHITECTURE.initial(Key.root(0))
GENERATOR = Key.root(1).numpy()
SAMPLES = InlineSamples(GENERATOR.standard_normal((10, 1, 8, 8)).astype(np.float32), np.arange(10) % 3)


@pytest.fixture
def images(data: FederatedData) -> Resources:
    return Resources.of(data, {"cnn": ARCHITECTURE}, "cpu")


@pytest.fixture
def job(make_fit: MakeFit) -> Fit:
    streams = {"train": Stream(SAMPLES, 5, shuffled=False)}
    return make_fit(models={"model": MODEL}, streams=streams, num_steps=4)


@pytest.mark.parametrize("shape", [(4, 1, 3, 3), (4, 2, 3, 3), (1, 1, 1, 1), (2, 3, 4)])
def test_values_stay_where_the_layout_changes(shape: tuple[int, ...]) -> None:
    array = GENERATOR.standard_normal(shape).astype(np.float32)
    tensor = to_tensor(array, torch.device("cpu"), channels_last=True)
    assert torch.equal(tensor, torch.from_numpy(array))
    if len(shape) == 4:
        assert tensor.stride()[1] == 1
    back = to_tree({"w": tensor})["w"]
    assert back.flags.c_contiguous
    assert back.tobytes() == array.tobytes()


def test_weights_of_convolutions_are_laid_out_and_models_are_not(images: Resources, job: Fit) -> None:
    worker = Worker(images, threading.Event())
    params = worker.bind("place", MODEL, trained=True).params
    assert [name for name, param in params.items() if param.ndim == 4 and param.stride()[1] == 1] == [
        "body.conv1.conv.weight",
        "body.conv2.conv.weight",
    ]
    trained = fit(job, worker).model.params
    assert all(array.flags.c_contiguous for array in trained.values())


def test_predictions_are_those_of_the_plain_net_but_for_rounding(images: Resources) -> None:
    found = predict(Predict(MODEL, SAMPLES, 4), Worker(images, threading.Event()))
    with torch.no_grad():
        expected = ARCHITECTURE.module(MODEL)(torch.from_numpy(SAMPLES.x))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_a_fit_repeats_itself_for_any_number_of_workers(images: Resources, job: Fit) -> None:
    digests = set()
    for workers in (1, 2, 4):
        executor = THREADS(ExecutorConfig(workers=workers))
        executor.open(images)
        promises = [executor.submit(job, (0, i)) for i in range(4)]
        digests |= {executor.wait(promise).model.digest() for promise in promises}
        executor.close()
    assert len(digests) == 1


@pytest.mark.parametrize("optimiser", [Sgd(0.05, momentum=0.9), Adam(0.01)])
def test_a_kept_optimiser_goes_on_bit_for_bit(images: Resources, job: Fit, optimiser: Optimiser) -> None:
    worker = Worker(images, threading.Event())
    job = replace(job, optimisers={"model": optimiser}, states={})
    whole = fit(job, worker).model
    half = fit(replace(job, num_steps=2), worker)
    rest = fit(replace(job, num_steps=2, models=half.models, states=half.states), worker)
    assert rest.model.digest() == whole.digest()
