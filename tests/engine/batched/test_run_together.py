"""Jobs that are run together: each has its own result, and its own fault."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedsim.engine.batched import fit
from fedsim.engine.batched.kinds import batch_key
from fedsim.engine.batched.run_together import run_together
from fedsim.engine.execute import one_torch_thread, run
from fedsim.engine.jobs import Call, Evaluate, Fit, GlobalTest, InlineSamples, Predict, Stream
from fedsim.engine.losses import MODEL, TRAIN
from fedsim.engine.worker_state import Worker
from fedsim.errors import InvariantError
from tests.engine.conftest import MakeFit, Start


def test_jobs_of_different_kinds_are_unlike(worker: Worker, make_fit: MakeFit, start: Start) -> None:
    model = start("mlp")
    jobs: list[Any] = [
        make_fit(num_steps=2),
        Predict(model, GlobalTest(), 4),
        Evaluate(model, (GlobalTest(),), 4),
        Call(len, ([],), 1.0),
    ]
    *keys, none = [batch_key(job, worker.resources) for job in jobs]
    assert none is None
    assert len({id(key) for key in keys if key is not None}) == 3


def test_only_those_fail_whose_fault_it_is(worker: Worker, make_fit: MakeFit) -> None:
    task = worker.resources.data.task

    def job(label: int) -> Fit:
        samples = InlineSamples(np.zeros((4, *task.input_shape), np.float32), np.full(4, label))
        return replace(make_fit(num_steps=1), streams={TRAIN: Stream(samples, 4)})

    jobs = [job(0), job(10**6), job(1)]
    with one_torch_thread():
        (first, wrong, last), ways = run_together(jobs, worker)
        alone = [run(jobs[0], worker), run(jobs[2], worker)]
    assert ways == {"failed together": 3}
    assert isinstance(wrong, Exception)
    assert [one.model.digest() for one in (first, last)] == [one.model.digest() for one in alone]


def test_ctrl_c_stops_all_at_once(worker: Worker, make_fit: MakeFit, monkeypatch: pytest.MonkeyPatch) -> None:
    def pressed(*args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(fit, "fit_together", pressed)
    with pytest.raises(KeyboardInterrupt):
        run_together([make_fit(num_steps=1), make_fit(num_steps=1)], worker)
    with pytest.raises(KeyboardInterrupt):
        run_together([Call(pressed, (), 1.0)], worker)


def test_under_verify_results_that_differ_from_a_job_alone_are_errors(
    worker: Worker, make_fit: MakeFit, monkeypatch: pytest.MonkeyPatch
) -> None:
    verifying = Worker(replace(worker.resources, verify=True), worker.stopping)
    jobs = [make_fit(num_steps=1, seed=seed) for seed in range(4)]
    with one_torch_thread():
        expected, _ = run_together(jobs, worker)
        results, _ = run_together(jobs, verifying)
        assert [its.model.digest() for its in results] == [its.model.digest() for its in expected]

        def one_ulp_more(jobs: Any, worker: Worker, ways: Any = None) -> list[Any]:
            changed = [run(job, worker) for job in jobs]
            model = changed[0].model
            params = {name: np.nextafter(array, np.float32(9)) for name, array in model.params.items()}
            changed[0] = replace(changed[0], models={MODEL: replace(model, params=params)})
            return changed

        monkeypatch.setattr(fit, "fit_together", one_ulp_more)
        (differing, also, *same), _ = run_together(jobs, verifying)
    assert isinstance(differing, InvariantError)
    assert "computed again alone:" in str(differing)
    assert "computed again with others:" in str(also)  # where it was the first one
    assert [its.model.digest() for its in same] == [its.model.digest() for its in expected[2:]]
