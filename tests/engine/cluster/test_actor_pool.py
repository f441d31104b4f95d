"""Who does which jobs, with actors in this process that die when they are told to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from fedsim.engine.cluster import actor_pool
from fedsim.engine.cluster.actor_pool import AHEAD, MAX_LOST, ActorPool, RemoteJob
from fedsim.engine.cluster.actors import Greeting, LostError
from fedsim.engine.cluster.packing import Failure
from fedsim.engine.execute import run
from fedsim.engine.job_times import JobTimes
from fedsim.engine.jobs import ClientSamples, Evaluate, Predict
from fedsim.engine.worker_state import Resources, Worker
from fedsim.errors import JobError, RunError, UserError
from fedsim.models import Architecture
from fedsim.models.mlp import PLUGIN as MLP
from fedsim.rng import Key
from tests.engine.cluster.stage import Stage
from tests.engine.conftest import MakeFit

pytest.importorskip("ray")


OpenPool = Callable[..., ActorPool]


@pytest.fixture
def stage(resources: Resources) -> Stage:
    return Stage(resources)


@pytest.fixture
def open_pool(stage: Stage) -> Iterator[Callable[..., ActorPool]]:
    opened = []

    def make(num_actors: int = 1, accept: Callable[[Greeting], None] = lambda greeting: None) -> ActorPool:
        opened.append(ActorPool(stage, num_actors, accept, patience_s=60.0))
        return opened[-1]

    yield make
    for pool in opened:
        pool.close()


def wanted(job: Any, key: object = None) -> RemoteJob:
    return RemoteJob(job, key, (type(job).__name__.lower(),), 1.0)


def submitted(pool: ActorPool, jobs: Sequence[Any], key: object = None) -> list[RemoteJob]:
    some = [wanted(job, key) for job in jobs]
    for one in some:
        pool.submit(one)
    return some


def test_results_are_those_of_jobs_run_here(open_pool: OpenPool, make_fit: MakeFit, worker: Worker) -> None:
    pool = open_pool(2)
    fits = [make_fit(seed=seed) for seed in range(4)]
    model = fits[0].models["model"]
    others: list[Any] = [Predict(model, ClientSamples(0), 4), Evaluate(model, (ClientSamples(1),), 4)]
    promises = submitted(pool, fits, "alike") + submitted(pool, others)
    for fit, promise in zip(fits, promises, strict=False):
        expected, found = run(fit, worker), pool.wait(promise)
        assert found.model.digest() == expected.model.digest()
        assert found.loss == expected.loss
    np.testing.assert_array_equal(pool.wait(promises[4]), run(others[0], worker))
    assert pool.wait(promises[5]) == run(others[1], worker)
    ways = pool.jobs_done.pop("fit")
    assert ways.keys() <= {"together", "other bits together"}  # which of both depends on the processor
    assert ways.total() == 4
    assert pool.jobs_done == {"predict": {"alone": 1}, "evaluate": {"alone": 1}}


def test_jobs_wait_until_they_pay_or_somebody_waits(
    open_pool: OpenPool, stage: Stage, make_fit: MakeFit
) -> None:
    pool = open_pool()
    pool.ready.result()
    first, second = submitted(pool, [make_fit(seed=1), make_fit(seed=2)])
    assert stage.seeds == []  # two of 10 ms, as is guessed, are too few
    pool.wait(second)
    assert first.future.done()
    assert stage.seeds == [[1, 2]]


def test_calls_that_pay_are_sent_before_anybody_waits(
    open_pool: OpenPool, stage: Stage, make_fit: MakeFit
) -> None:
    pool = open_pool()
    promises = submitted(pool, [make_fit(seed=seed) for seed in range(5)])
    for promise in promises:
        promise.future.result(timeout=60)  # unlike wait(), this sends nothing
    assert sorted(seed for call in stage.seeds for seed in call) == [0, 1, 2, 3, 4]


def test_an_actor_that_dies_is_replaced_and_its_jobs_are_done_again(
    open_pool: OpenPool, stage: Stage, make_fit: MakeFit, worker: Worker
) -> None:
    stage.fates.extend(["lost", "lost"])
    pool = open_pool()
    fits = [make_fit(seed=seed) for seed in (1, 2)]
    for fit, promise in zip(fits, submitted(pool, fits, "alike"), strict=True):
        assert pool.wait(promise).model.digest() == run(fit, worker).model.digest()
    assert (pool.lost, pool.repeated, stage.started) == (2, 4, 3)


def test_a_job_at_which_actors_die_is_found_and_the_others_are_done(
    open_pool: OpenPool, stage: Stage, make_fit: MakeFit
) -> None:
    stage.deadly = 2
    pool = open_pool()
    first, second, third = submitted(pool, [make_fit(seed=seed) for seed in (1, 2, 3)])
    with pytest.raises(JobError, match=f"{MAX_LOST} actors have died at a job.*its node has died"):
        pool.wait(second)
    pool.wait(first)
    pool.wait(third)
    assert pool.lost == 2 * MAX_LOST


def test_what_a_job_raises_is_raised_where_it_is_waited_for(open_pool: OpenPool, make_fit: MakeFit) -> None:
    pool = open_pool()
    fine, wrong = submitted(pool, [make_fit(seed=1), make_fit(models={}, trained=("model",))])
    pool.wait(fine)
    with pytest.raises(KeyError, match="model"):
        pool.wait(wrong)


def test_a_job_that_cannot_travel_says_what_it_lacks(open_pool: OpenPool, make_fit: MakeFit) -> None:
    pool = open_pool()
    (promise,) = submitted(pool, [make_fit(step=threading.Lock())])
    with pytest.raises(JobError, match=r"a job cannot go to another process \(TypeError"):
        pool.wait(promise)


def test_start_values_are_put_once_and_nothing_of_them_is_kept(
    open_pool: OpenPool,
    stage: Stage,
    resources: Resources,
) -> None:
    wide = Architecture("wide", MLP(MLP.Config(hidden=(5000,))), resources.data.task)
    stage.resources = Resources.of(resources.data, {"wide": wide}, "cpu")
    pool = open_pool(2)
    job = Predict(wide.initial(Key.root(0)), ClientSamples(0), 4)
    promises = submitted(pool, [job] * 12)
    cancelled = wanted(job)
    pool.submit(cancelled)
    cancelled.cancel()
    for promise in promises:
        pool.wait(promise)
    assert stage.num_puts == 1
    assert pool._stored == {}


def test_a_job_that_was_given_up_is_not_sent(open_pool: OpenPool, stage: Stage, make_fit: MakeFit) -> None:
    pool = open_pool()
    first, second = submitted(pool, [make_fit(seed=1), make_fit(seed=2)])
    assert first.cancel()
    pool.wait(second)
    assert stage.seeds == [[2]]
    with pytest.raises(CancelledError):
        pool.wait(first)


def test_an_actor_has_a_few_calls_and_the_longest_first(
    open_pool: OpenPool, stage: Stage, make_fit: MakeFit
) -> None:
    pool = open_pool()
    pool._rates.learn(("fit",), 1.0, 1.0)  # a second for each of their amount
    pool.ready.result()
    stage.is_held = True
    jobs = [RemoteJob(make_fit(seed=amount), None, ("fit",), float(amount)) for amount in (1, 3, 4, 2)]
    for job in jobs:
        pool._submitted.append(job)
    waiting = threading.Thread(target=pool.wait, args=(jobs[0],))
    waiting.start()
    sent = list[int]()
    while waiting.is_alive() or stage.held:
        if stage.held:
            assert len(stage.held) <= AHEAD
            stage.held.pop(0)()
        waiting.join(0.001)
    sent = [seed for seeds in stage.seeds for seed in seeds]
    assert sent == [4, 3, 2, 1]


def test_an_actor_that_is_not_accepted_ends_the_run(open_pool: OpenPool, make_fit: MakeFit) -> None:
    def refuse(greeting: Greeting) -> None:
        raise UserError(f"{greeting.host} is strange")

    pool = open_pool(accept=refuse)
    with pytest.raises(UserError, match="is strange"):
        pool.ready.result()
    with pytest.raises(UserError, match="is strange"):
        pool.wait(submitted(pool, [make_fit()])[0])


def test_what_an_actor_cannot_build_ends_the_run(open_pool: OpenPool, stage: Stage) -> None:
    stage.greetings.append(Failure.of(UserError("no such file")))
    with pytest.raises(RunError, match="cannot be made ready: no such file"):
        open_pool().ready.result()


def test_actors_that_die_at_once_end_the_run(open_pool: OpenPool, stage: Stage) -> None:
    stage.greetings.extend([LostError("No module named 'fedsim'")] * 3)
    with pytest.raises(RunError, match=r"die before they can work \(No module named 'fedsim'\)"):
        open_pool().ready.result()


def test_a_cluster_that_is_gone_ends_the_run(
    open_pool: OpenPool,
    stage: Stage,
    make_fit: MakeFit,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(actor_pool, "CHECK_S", 0.0)
    pool = open_pool()
    pool.ready.result()
    stage.is_held = True
    (promise,) = submitted(pool, [make_fit()])
    stage.gone = RunError("the cluster is gone")
    with pytest.raises(RunError, match="the cluster is gone"):
        pool.wait(promise)
    with pytest.raises(RunError, match="the cluster is gone"):
        pool.wait(submitted(pool, [make_fit()])[0])


def test_without_any_actor_patience_ends(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actor_pool, "CHECK_S", 0.0)
    stage.greetings.append("silence")
    pool = ActorPool(stage, 1, lambda greeting: None, patience_s=0.0)
    with pytest.raises(RunError, match="no actor was ready after 0 s"):
        pool.ready.result()
    pool.close()
    assert stage.ended == 1


def test_what_breaks_in_between_is_told_as_that(
    open_pool: OpenPool, stage: Stage, make_fit: MakeFit, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> Any:
        raise MemoryError("the object store is full")

    monkeypatch.setattr(stage, "do", full)
    pool = open_pool()
    with pytest.raises(RunError, match="cannot be used any more: MemoryError: the object store is full"):
        pool.wait(submitted(pool, [make_fit()])[0])


def test_closing_gives_up_what_waits_and_ends_the_actors(
    open_pool: OpenPool, stage: Stage, make_fit: MakeFit
) -> None:
    pool = open_pool(2)
    pool.ready.result()
    stage.is_held = True
    (promise,) = submitted(pool, [make_fit()])
    pool.close()
    pool.close()
    assert stage.ended == 2
    with pytest.raises(CancelledError):
        promise.future.result()
    assert submitted(pool, [make_fit()])[0].future.cancelled()


def test_closing_does_not_wait_for_a_call_that_never_returns(
    stage: Stage, make_fit: MakeFit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actor_pool, "CALL_TIMEOUT_S", 0.0)
    is_called, may_return = threading.Event(), threading.Event()

    def blocked(*arguments: object) -> Any:
        is_called.set()
        may_return.wait()
        raise RunError("the cluster is gone")

    monkeypatch.setattr(stage, "do", blocked)
    pool = ActorPool(stage, 1, lambda greeting: None, patience_s=60.0)
    (promise,) = submitted(pool, [make_fit()])

    def wait() -> None:
        with suppress(CancelledError):
            pool.wait(promise)

    waiting = threading.Thread(target=wait)
    waiting.start()
    is_called.wait()
    pool.close()
    waiting.join()
    assert isinstance(promise.future.exception(), CancelledError)
    may_return.set()


def test_jobs_are_timed_by_actor(open_pool: OpenPool, make_fit: MakeFit) -> None:
    pool = open_pool()
    pool.job_times = JobTimes()
    pool.wait(submitted(pool, [make_fit()])[0])
    (timed,) = pool.job_times.jobs
    assert (timed.thread, timed.kind, timed.number) == ("actor 0", "fit", 1)
    assert timed.began_ns <= timed.ended_ns
