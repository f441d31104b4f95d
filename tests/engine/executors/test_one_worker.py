"""One worker without a thread: a job is done by whoever waits for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError

import pytest
import torch

from fedsim.clock import Trace
from fedsim.engine.engine import Engine
from fedsim.engine.executors.base import ExecutorConfig
from fedsim.engine.executors.threads import Threads
from fedsim.engine.jobs import Call
from fedsim.engine.worker_state import Resources
from fedsim.errors import JobError


def call(function: Callable[..., object], *arguments: object) -> Call:
    return Call(function, arguments, 1.0)


def opened(resources: Resources) -> Threads:
    executor = Threads(ExecutorConfig(workers=1))
    executor.open(resources)
    return executor


def test_nothing_is_done_before_somebody_waits(resources: Resources) -> None:
    done: list[int] = []
    alone = opened(resources)
    futures = [alone.submit(call(done.append, number), (number, number)) for number in range(3)]
    assert done == []
    alone.wait(futures[1])
    assert done == [1]
    alone.wait(futures[0])
    alone.wait(futures[0])
    assert done == [1, 0]


def test_a_cancelled_job_is_never_begun(resources: Resources) -> None:
    done: list[int] = []
    alone = opened(resources)
    future = alone.submit(call(done.append, 1), (0, 0))
    assert future.cancel()
    with pytest.raises(CancelledError):
        alone.wait(future)
    assert done == []


def test_it_works_in_the_waiting_thread_with_one_torch_thread(
    resources: Resources, two_torch_threads: None
) -> None:
    alone = opened(resources)
    seen = alone.wait(
        alone.submit(call(lambda: (threading.current_thread(), torch.get_num_threads())), (0, 0))
    )
    assert seen == (threading.current_thread(), 1)
    assert torch.get_num_threads() == 2


def test_an_interruption_comes_straight_out(resources: Resources, two_torch_threads: None) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    alone = opened(resources)
    with pytest.raises(KeyboardInterrupt):
        alone.wait(alone.submit(call(interrupted), (0, 0)))
    assert torch.get_num_threads() == 2


def test_closing_drops_what_has_not_begun(resources: Resources) -> None:
    alone = opened(resources)
    future = alone.submit(call(int, "1"), (0, 0))
    alone.close()
    alone.close()
    for one in (future, alone.submit(call(int, "1"), (0, 0))):
        with pytest.raises(CancelledError):
            alone.wait(one)


def test_jobs_take_turns_on_a_real_loop(resources: Resources) -> None:
    running, most = 0, 0

    def busy() -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        sum(range(10_000))
        running -= 1
        return most

    async def main() -> list[object]:
        jobs = [engine.observe(call(busy)) for _ in range(8)]
        return list(await asyncio.gather(*jobs))

    engine = Engine(Threads(ExecutorConfig()), resources, Trace())
    try:
        assert asyncio.run(main()) == [1] * 8
    finally:
        engine.close()


def test_a_job_that_looks_at_a_pending_result_is_told_so(resources: Resources) -> None:
    alone = opened(resources)
    other = alone.submit(call(int, "1"), (0, 0))
    with pytest.raises(JobError, match="pass models to a call as arguments"):
        alone.wait(alone.submit(call(lambda: alone.wait(other)), (0, 1)))
    assert alone.wait(other) == 1
