"""Threads: which job starts when, and what becomes of jobs that nobody wants any more.

Jobs are made to wait for events, so nothing here depends on how fast the machine is.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from typing import Any

import numpy as np
import pytest
import torch

from fedsim.engine.executors.base import Batching, ExecutorConfig
from fedsim.engine.executors.threads import PLUGIN as THREADS
from fedsim.engine.jobs import Call, ClientSamples, Evaluate, Fitted, GlobalTest, Job, Predict, Stream
from fedsim.engine.optimisers import Adam, Sgd
from fedsim.engine.worker_state import Resources, StoppedError
from fedsim.params import digest, unwarned
from fedsim.rng import Key
from tests.engine.conftest import MakeFit, OpenThreads, Start

LONG_S = 30
"""Far more than anything here takes; reached only when a test fails."""


class Gate:
    """A job that says that it runs, and waits to be let through."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def __call__(self) -> str:
        self.reached.set()
        assert self.opened.wait(LONG_S)
        return "through"


def call(function: Callable[..., object], *arguments: object) -> Call:
    return Call(function, arguments, 1.0)


@pytest.fixture
def gate() -> Gate:
    return Gate()


def test_jobs_start_earliest_due_first(threads: OpenThreads, gate: Gate) -> None:
    pool = threads(1)
    blocked = pool.submit(call(gate), (0, 0))
    assert gate.reached.wait(LONG_S)
    order: list[int] = []
    dues = [(5, 1), (3, 2), (5, 3), (4, 4), (3, 5)]
    futures = [pool.submit(call(order.append, sequence), (at_ns, sequence)) for at_ns, sequence in dues]
    assert order == []
    gate.opened.set()
    assert pool.wait(blocked) == "through"
    for future in futures:
        pool.wait(future)
    assert order == [2, 5, 4, 1, 3]


def test_several_jobs_run_at_once(threads: OpenThreads) -> None:
    pool = threads(3)
    gates = [Gate() for _ in range(3)]
    futures = [pool.submit(call(gate), (0, number)) for number, gate in enumerate(gates)]
    for gate in gates:
        assert gate.reached.wait(LONG_S)  # all are in there before any is let through
    for gate in gates:
        gate.opened.set()
    assert [pool.wait(future) for future in futures] == ["through"] * 3


@pytest.mark.parametrize("workers", [1, 3])
def test_blocks_are_shared_by_as_many_threads_as_there_are_workers(
    threads: OpenThreads, workers: int
) -> None:
    together, done = threading.Barrier(workers), dict[int, list[int]]()

    def work(blocks: Sequence[int]) -> None:
        together.wait(LONG_S)
        assert np.geterr()["over"] == "ignore"  # as where the work was given
        done[threading.get_ident()] = list(blocks)

    with unwarned():
        threads(workers).spread(work, range(7))
    assert len(done) == workers
    assert sorted(block for blocks in done.values() for block in blocks) == list(range(7))


def test_a_job_cancelled_before_it_starts_never_runs(threads: OpenThreads, gate: Gate) -> None:
    pool = threads(1)
    blocked = pool.submit(call(gate), (0, 0))
    assert gate.reached.wait(LONG_S)
    ran: list[str] = []
    cancelled = pool.submit(call(ran.append, "cancelled"), (1, 1))
    kept = pool.submit(call(ran.append, "kept"), (2, 2))
    assert cancelled.cancel()
    assert not blocked.cancel()  # it runs already: it is finished and thrown away
    gate.opened.set()
    pool.wait(kept)
    assert ran == ["kept"]
    assert pool.wait(blocked) == "through"


def test_an_error_belongs_to_its_job(threads: OpenThreads) -> None:
    pool = threads(1)
    wrong = pool.submit(call(int, "x"), (0, 0))
    leaving = pool.submit(call(sys.exit, 3), (0, 1))
    right = pool.submit(call(int, "7"), (0, 2))
    assert pool.wait(right) == 7  # the worker lives on
    with pytest.raises(ValueError, match="invalid literal"):
        pool.wait(wrong)
    with pytest.raises(SystemExit):
        pool.wait(leaving)


@pytest.mark.parametrize("kind", ["fit", "evaluate"])
def test_closing_stops_a_long_job_soon_and_leaves_no_thread(
    threads: OpenThreads, make_fit: MakeFit, start: Start, kind: str
) -> None:
    pool = threads(2)
    endless: Job = make_fit(num_steps=10**9)
    if kind == "evaluate":
        endless = Evaluate(start(), (ClientSamples(3),) * 10**7, 1)
    running = pool.submit(endless, (0, 0))
    # Once a later job has run, on the other worker, the turn of this one has come.
    assert pool.wait(pool.submit(call(int, "1"), (1, 1))) == 1
    queued = [pool.submit(endless, (2, sequence)) for sequence in range(2, 5)]
    pool.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("fedsim-worker")]
    with pytest.raises(StoppedError):
        pool.wait(running)
    for future in queued:
        with pytest.raises((StoppedError, CancelledError)):
            pool.wait(future)


def test_what_is_submitted_after_the_end_is_cancelled(threads: OpenThreads) -> None:
    pool = threads(1)
    pool.close()
    pool.close()
    future = pool.submit(call(int, "1"), (0, 0))
    with pytest.raises(CancelledError):
        pool.wait(future)


def test_an_executor_can_be_opened_again(threads: OpenThreads, resources: Resources) -> None:
    pool = threads(1)
    pool.close()
    pool.open(resources)
    assert pool.wait(pool.submit(call(int, "1"), (0, 0))) == 1


def test_every_worker_has_one_torch_thread(threads: OpenThreads, two_torch_threads: None) -> None:
    pool = threads(3)
    gates = [Gate() for _ in range(3)]
    counts: list[int] = []

    def look(gate: Gate) -> None:
        gate()
        counts.append(torch.get_num_threads())

    futures = [pool.submit(call(look, gate), (0, number)) for number, gate in enumerate(gates)]
    for gate in gates:
        assert gate.reached.wait(LONG_S)
    for gate in gates:
        gate.opened.set()
    for future in futures:
        pool.wait(future)
    assert counts == [1, 1, 1]


def test_a_worker_keeps_its_one_torch_thread_when_another_thread_gets_more(
    threads: OpenThreads, two_torch_threads: None
) -> None:
    # As whoever waits does after a job of its own; a worker that had not computed yet would follow.
    pool = threads(1)
    assert pool.wait(pool.submit(call(int, "1"), (0, 0))) == 1
    torch.set_num_threads(2)
    assert pool.wait(pool.submit(call(torch.get_num_threads), (0, 1))) == 1


def mixed_jobs(make_fit: MakeFit, start: Start) -> list[Job]:
    """Return jobs of several kinds, architectures and lengths, most of them twice."""
    jobs: list[Job] = []
    for number in range(16):
        label = ("mlp", "norm", "lstm", "tied")[number % 4]
        jobs.append(
            make_fit(
                models={"model": start(label, number % 3)},
                streams={"train": Stream(ClientSamples((0, 1, 3)[number % 3]), 3)},
                optimiser=(Sgd(0.1), Sgd(0.1, momentum=0.9), Adam(0.01))[number % 3],
                num_steps=1 + number % 7,
                seed=number // 2,
            )
        )
        jobs.append(Predict(start(label, number), ClientSamples(3), 4))
        jobs.append(Evaluate(start(label, number), (ClientSamples(0), GlobalTest()), 5))
    return jobs


def outcome(result: Any) -> object:
    """Return something that equals itself only bit for bit."""
    match result:
        case Fitted():
            return [(name, model.digest()) for name, model in result.models.items()], repr(result.loss)
        case np.ndarray():
            return digest({"logits": result})
        case _:
            return result


def test_results_are_the_same_bit_for_bit_whatever_the_workers_and_the_order(
    resources: Resources, make_fit: MakeFit, start: Start
) -> None:
    jobs = mixed_jobs(make_fit, start)
    reference: list[object] | None = None
    ways: list[tuple[int, Batching]] = [
        (1, "off"),
        (1, "auto"),
        (2, "off"),
        (2, "auto"),
        (4, "off"),
        (4, "auto"),
    ]
    for seed, (workers, batching) in enumerate(ways):
        shuffled = Key.root(seed).numpy().permutation(len(jobs)).tolist()
        pool = THREADS(ExecutorConfig(workers=workers, batching=batching))
        pool.open(resources)
        try:
            futures = {number: pool.submit(jobs[number], (0, place)) for place, number in enumerate(shuffled)}
            outcomes = [outcome(pool.wait(futures[number])) for number in range(len(jobs))]
        finally:
            pool.close()
        reference = outcomes if reference is None else reference
        assert outcomes == reference
