"""What every executor keeps to; a new file in the folder is tested by being there."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from fedsim.config import Config
from fedsim.engine.executors.base import Executor, ExecutorConfig
from fedsim.engine.executors.ray import Ray, RayConfig
from fedsim.engine.jobs import Call, ClientSamples, Evaluate, Fitted, Predict, Stream
from fedsim.engine.worker_state import Resources
from fedsim.plugins import available
from tests.engine.cluster.stage import Stage
from tests.engine.conftest import MakeFit, Start

EXECUTORS = [found.plugin for found in available("fedsim.engine.executors")]


@pytest.fixture(params=EXECUTORS, ids=lambda plugin: plugin.__name__)
def executor(
    request: pytest.FixtureRequest, resources: Resources, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Executor]:
    params = Config()
    if request.param is Ray:
        pytest.importorskip("ray")
        connection = SimpleNamespace(ray=SimpleNamespace(__version__="0"), address="", close=lambda: None)
        monkeypatch.setattr("fedsim.engine.executors.ray.Connection", lambda *_: connection)
        monkeypatch.setattr("fedsim.engine.executors.ray.RayActors", lambda *_: Stage(resources))
        # Without the numbers, as on the stage.
        monkeypatch.setattr("fedsim.engine.cluster.actors.numeric_fingerprint", lambda resources: {})
        resources, params = replace(resources, rebuild=lambda: resources), RayConfig(actors=2)
    executor: Executor = request.param(ExecutorConfig(workers=2, params=params))
    executor.open(resources)
    yield executor
    executor.close()


def test_all_executors_are_found() -> None:
    assert {"threads", "null", "ray"} <= {found.name for found in available("fedsim.engine.executors")}


def test_a_fit_gives_frozen_models_of_the_architecture_it_got(
    executor: Executor, make_fit: MakeFit, start: Start
) -> None:
    model = start("norm")
    fitted = executor.wait(executor.submit(make_fit(models={"model": model}), (0, 0)))
    assert isinstance(fitted, Fitted)
    assert fitted.num_steps == 5
    assert fitted.model.architecture == "norm"
    for mine, its in ((model.params, fitted.model.params), (model.buffers, fitted.model.buffers)):
        assert [(n, a.shape, a.dtype) for n, a in mine.items()] == [
            (n, a.shape, a.dtype) for n, a in its.items()
        ]
        assert not any(array.flags.writeable for array in its.values())


def test_a_fit_of_no_steps_gives_its_start(executor: Executor, make_fit: MakeFit) -> None:
    job = make_fit(num_steps=0, streams={"train": Stream(ClientSamples(2), 4)})
    assert executor.wait(executor.submit(job, (0, 0))).model is job.models["model"]


def test_jobs_leave_their_arguments_alone(executor: Executor, make_fit: MakeFit) -> None:
    job = make_fit()
    before = job.models["model"].digest()
    executor.wait(executor.submit(job, (0, 0)))
    assert job.models["model"].digest() == before


def test_logits_have_a_row_for_each_sample(executor: Executor, start: Start) -> None:
    logits = executor.wait(executor.submit(Predict(start(), ClientSamples(0), 4), (0, 0)))
    assert (logits.shape, logits.dtype) == ((11, 3), np.float32)
    assert not logits.flags.writeable


def test_an_evaluation_has_a_score_for_each_part(executor: Executor, start: Start) -> None:
    parts = (ClientSamples(0, "test"), ClientSamples(1, "test"))
    scores = executor.wait(executor.submit(Evaluate(start(), parts, 4), (0, 0)))
    assert [score.total for score in scores] == ([3, 2] if executor.learns else [0, 0])


def test_an_error_waits_for_whoever_wants_the_result(executor: Executor) -> None:
    future = executor.submit(Call(int, ("x",), 1.0), (0, 0))
    with pytest.raises(ValueError, match="invalid literal"):
        executor.wait(future)


def test_it_may_be_closed_twice_and_leaves_no_thread(
    executor: Executor, make_fit: MakeFit, resources: Resources
) -> None:
    executor.submit(make_fit(), (0, 0))
    executor.close()
    executor.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("fedsim-worker")]
