from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np
import pytest
import torch

from fedsim.data import Spreading, federate
from fedsim.data.base import Dataset
from fedsim.engine.executors.base import ExecutorConfig
from fedsim.engine.executors.null import PLUGIN as NULL
from fedsim.engine.executors.null import Null
from fedsim.engine.jobs import Call, ClientSamples, Evaluate, Predict, Score
from fedsim.engine.worker_state import Resources
from fedsim.errors import JobError
from fedsim.models import Architecture
from fedsim.rng import Key
from fedsim.task import Task
from tests.engine.conftest import MakeFit, Start


@pytest.fixture
def null(architectures: Mapping[str, Architecture]) -> Iterator[Null]:
    """An executor over counts of samples, without any sample."""
    sizes = Dataset(Task((6,), 3), sizes=np.array([4, 7]))
    data = federate(sizes, None, Spreading(num_clients=2, shares=(1, 0, 0)), Key.root(0))
    executor = NULL(ExecutorConfig())
    executor.open(Resources.of(data, architectures, "cpu"))
    yield executor
    executor.close()


def test_a_fit_gives_its_start_back(null: Null, make_fit: MakeFit) -> None:
    job = make_fit()
    fitted = null.wait(null.submit(job, (0, 0)))
    assert fitted.model is job.models["model"]
    assert fitted.num_steps == job.num_steps
    assert math.isnan(fitted.loss)


def test_optimisers_stay_as_they_were(null: Null, make_fit: MakeFit) -> None:
    states = {"model": {"momentum/w": np.zeros(3, np.float32)}}
    assert null.wait(null.submit(make_fit(states=states), (0, 0))).states is states
    assert null.wait(null.submit(make_fit(), (0, 1))).states == {}


def test_teachers_are_no_result(null: Null, make_fit: MakeFit, start: Start) -> None:
    job = make_fit(models={"a": start(), "b": start()}, trained=("b",))
    assert list(null.wait(null.submit(job, (0, 0))).models) == ["b"]


def test_a_prediction_is_uniform_over_the_classes(null: Null, start: Start) -> None:
    logits = null.wait(null.submit(Predict(start(), ClientSamples(1), 2), (0, 0)))
    assert (logits.shape, logits.dtype) == ((7, 3), np.float32)
    assert len(np.unique(logits)) == 1
    assert not logits.flags.writeable
    assert null.wait(null.submit(Predict(start(), ClientSamples(1), 2), (0, 1))) is logits


def test_nothing_is_evaluated(null: Null, start: Start) -> None:
    assert not null.learns
    job = Evaluate(start(), (ClientSamples(0), ClientSamples(1)), 2)
    assert null.wait(null.submit(job, (0, 0))) == [Score(0, 0, 0.0)] * 2


def test_calls_are_really_made_and_keep_the_rules_of_jobs(null: Null) -> None:
    assert null.wait(null.submit(Call(divmod, (7, 2), 1.0), (0, 0))) == (3, 1)
    drawing = null.submit(Call(torch.rand, (1,), 1.0), (0, 1))
    with pytest.raises(JobError, match="global generator"):
        null.wait(drawing)


def test_a_call_computes_with_one_torch_thread(null: Null, two_torch_threads: None) -> None:
    assert null.wait(null.submit(Call(torch.get_num_threads, (), 1.0), (0, 0))) == 1
    assert torch.get_num_threads() == 2
